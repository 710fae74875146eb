"""TextDrafter: what it reads and draws, and that every rule is exact for its drafts."""

from collections.abc import Callable
from typing import Any

import pytest
from fakes.enumeration import Drawn, SharedNoise, exact, total_variation
from fakes.letters import Letters
from fakes.toy import ToyCache, ToyModel, ToyTarget, fixed

from localspec.drafters.text_drafter import TextDrafter
from localspec.drafters.translation import Translation
from localspec.sampling.filters import distribution
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.rules import RULES
from localspec.stats import Stats

EXACT = 1e-12
PLAIN = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)
SAMPLERS = {
    "full": PLAIN,
    "top-k": SamplingParams(temperature=1.3, top_k=2, top_p=1, min_p=0),
    "penalties": SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, repeat_penalty=1.5),
    "greedy": SamplingParams(temperature=0),
}
TARGET = Letters("a", "b", "ab")
# Drafters of other vocabularies for the same letters.
DRAFTERS = {
    "letters": Letters("b", "a"),
    "longer": Letters("b", "ba", "a", "aab", "abab"),
    "with control tokens": Letters(None, "a", "b", "bb", None, bos=0, ends=[4]),
    "other letters": Letters("x", "b", "a", "ax"),
    "the same in another order": Letters("ab", "b", "a"),
}
PROMPT = [0, 1, 2, 0]


TRANSLATIONS = {name: Translation(TARGET, each) for name, each in DRAFTERS.items()}
LENGTH = 3


def drafter(vocabulary: str, seed: int = 3) -> TextDrafter:
    model = ToyModel.random(DRAFTERS[vocabulary].n_vocab, seed=seed)
    return TextDrafter(ToyCache(model), name="text", translation=TRANSLATIONS[vocabulary])


def law_of_target(model: ToyModel, params: SamplingParams, length: int) -> dict[Any, float]:
    """The probability of each text of this length, as a product over its tokens."""
    law: dict[Any, float] = {(): 1.0}
    for _ in range(length):
        law = {
            (*text, token): share * float(p)
            for text, share in law.items()
            for token, p in enumerate(_next(model, params, text))
        }
    return law


def _next(model: ToyModel, params: SamplingParams, text: tuple[int, ...]) -> Any:
    before = [*PROMPT, *text]
    return distribution(model.logits(before), params, before).dense(model.n_vocab)


def spoken(
    make: Callable[[], TextDrafter], params: SamplingParams, rule_name: str, *, depth: int
) -> tuple[dict[Any, float], float]:
    """The exact law of the first tokens that the decoder gives; how many drafts were accepted."""
    target, accepted = ToyModel.random(3, seed=1), 0.0
    noise = SharedNoise if rule_name == "coupled" else Drawn

    def run(branches: Any) -> tuple[int, ...]:
        nonlocal accepted
        text, stats = list(PROMPT), Stats()
        sampler = Sampler(params, noise(branches))
        loop = Decoder(
            ToyTarget(target, text), fixed(make(), depth), RULES[rule_name], sampler, text, stats
        )
        said = tuple(token.id for token in loop.run(LENGTH))
        accepted += branches.probability * stats.accepted
        return said

    return exact(run), accepted


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("rule_name", RULES)
@pytest.mark.parametrize("vocabulary", DRAFTERS)
def test_it_leaves_the_distribution_alone(
    vocabulary: str, rule_name: str, sampler: str, depth: int
) -> None:
    params = SAMPLERS[sampler]
    law, accepted = spoken(lambda: drafter(vocabulary), params, rule_name, depth=depth)
    expected = law_of_target(ToyModel.random(3, seed=1), params, LENGTH)
    assert total_variation(law, expected) < EXACT
    assert accepted > 0 or sampler == "greedy"
