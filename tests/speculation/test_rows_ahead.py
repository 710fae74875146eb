"""Rows that cannot be read behind a drafted token: the text goes as far as it does without drafts.

The target is broken behind two tokens in a row, as a grammar may be that allows nothing there. By
enumeration, over texts that end so and texts that do not.
"""

from collections.abc import Callable

import numpy as np
import pytest
from fakes.enumeration import Drawn, SharedNoise, exact, total_variation
from fakes.laws import EXACT, PLAIN, PROMPT, SAMPLERS, TOYS
from fakes.toy import Scripted, ToyCache, ToyModel, ToyTarget, fixed
from fakes.trees import TreeDrafter

from localspec.drafters.draft_model import DraftModel
from localspec.sampling.filters import BrokenLogitsError
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.drafter import Drafter
from localspec.speculation.rules import RULES
from localspec.stats import Stats

FAILED = -1


def broken(model: ToyModel) -> ToyModel:
    """The model, without logits behind 2 0 and 1 1."""
    table = model.table.copy()
    table[2, 0] = table[1, 1] = np.nan
    return ToyModel(table)


def law(
    drafter: Drafter | None, rule: str, params: SamplingParams, length: int, *, scored: bool = False
) -> dict[tuple[int, ...], float]:
    """The distribution of the texts, with a mark where one failed."""

    def run(branches):  # type: ignore[no-untyped-def]
        text, stats = list(PROMPT), Stats()
        noise = SharedNoise if rule == "coupled" else Drawn
        sampler = Sampler(params, noise(branches))
        target = ToyTarget(broken(TOYS["loud"][0]), text)
        loop = Decoder(target, fixed(drafter, 4), RULES[rule], sampler, text, stats)
        loop.logprobs = scored
        found = []
        try:
            for emission in loop.run(length):
                found.append(emission.id)
        except BrokenLogitsError:
            assert text == [*PROMPT, *found]
            found.append(FAILED)
        return tuple(found)

    return exact(run)


def constant() -> Drafter:
    return Scripted(lambda text, limit: Draft([1, 1, 2, 0][: limit.depth]))


def tree() -> Drafter:
    return Scripted(lambda text, limit: Draft([2, 1, 0, 1], parents=[ROOT, ROOT, 0, 1]))


def small() -> Drafter:
    return DraftModel(ToyCache(TOYS["loud"][1]), name="small", n_vocab=3)


def broken_small() -> Drafter:
    return DraftModel(ToyCache(broken(TOYS["loud"][1])), name="small", n_vocab=3)


def drawn_tree() -> Drafter:
    return TreeDrafter(TOYS["loud"][1], (2, 1), replacement=False)


DRAFTERS: dict[str, Callable[[], Drafter]] = {
    each.__name__: each for each in (constant, tree, small, broken_small, drawn_tree)
}


@pytest.mark.parametrize("sampler", ["top-k", "greedy", "penalties"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_text_fails_where_it_would_without_drafts(drafter: str, rule: str, sampler: str) -> None:
    if (drafter, rule) == ("drawn_tree", "coupled"):
        pytest.skip("this drafter draws for rejection rules")
    params = SAMPLERS[sampler]
    plain = law(None, rule, params, 3)
    drafted = law(DRAFTERS[drafter](), rule, params, 3)
    assert total_variation(drafted, plain) < EXACT
    if sampler != "greedy":
        assert 0 < sum(each for text, each in plain.items() if FAILED in text) < 1


def test_the_last_token_has_its_log_probability() -> None:
    plain = law(None, "coupled", PLAIN, 3)
    assert total_variation(law(constant(), "coupled", PLAIN, 3, scored=True), plain) < EXACT
