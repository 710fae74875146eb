"""Exactness: over every random branch, the decoder gives the target's own distribution."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from fakes.enumeration import Drawn, OneDrawPerPosition, SharedNoise, exact, total_variation
from fakes.laws import EXACT, PLAIN, PROMPT, SAMPLERS, TARGET, TOYS, probability, product_law
from fakes.toy import Scripted, ToyCache, ToyModel, ToyTarget, fixed
from fakes.trees import TreeDrafter

from localspec.drafters.draft_model import DraftModel
from localspec.drafters.ngram import Evidence, Ngram
from localspec.drafters.prompt_lookup import PromptLookup
from localspec.sampling.filters import distribution
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.drafter import Drafter
from localspec.speculation.passes import direct
from localspec.speculation.rules import RULES, Rule, Verdict, coupled
from localspec.stats import Stats


def spoken(
    noise: type,
    target: ToyModel,
    drafter: Callable[[], Drafter | None],
    params: SamplingParams,
    *,
    depth: int,
    length: int,
    rule: Rule = RULES["coupled"],
) -> dict[tuple[int, ...], float]:
    """The exact distribution of the first `length` tokens that the decoder produces."""

    def run(branches):  # type: ignore[no-untyped-def]
        text = list(PROMPT)
        toy = ToyTarget(target, text)
        sampler = Sampler(params, noise(branches))
        loop = Decoder(toy, fixed(drafter(), depth), rule, sampler, text, Stats())
        return tuple(token.id for token in loop.run(length))

    return exact(run)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("toy", TOYS)
def test_a_draft_model_leaves_the_distribution_alone(toy: str, sampler: str, depth: int) -> None:
    target, small = TOYS[toy]
    params = SAMPLERS[sampler]
    # A wrong bonus row changes token depth + 1, and through it the token after that one.
    length = min(depth + 2, 5 if sampler in ("top-k", "greedy") else 4)

    def drafter() -> Drafter:
        return DraftModel(ToyCache(small), name="small", n_vocab=3)

    law = spoken(SharedNoise, target, drafter, params, depth=depth, length=length)
    assert total_variation(law, product_law(target, params, length)) < EXACT


def _tree(text: list[int], limit: object) -> Draft:
    # Two candidates at the first position, one after each: shape (2, 1), with a token that is never
    # right.
    return Draft([0, 1, 2, 0], parents=[ROOT, ROOT, 0, 1])


ONE_HOT: dict[str, Callable[[], Drafter | None]] = {
    "none": lambda: None,
    "lookup": PromptLookup,
    "ngram": lambda: Ngram({2: Evidence(1, 0.3), 1: Evidence(1, 0.3)}),
    "constant": lambda: Scripted(lambda text, limit: Draft([1] * limit.depth)),
    "tree": lambda: Scripted(_tree),
    "sometimes nothing": lambda: Scripted(lambda text, limit: Draft([2, 0][: text[-1]])),
}


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("drafter", ONE_HOT)
def test_one_hot_drafts_leave_the_distribution_alone(
    drafter: str, sampler: str, depth: int
) -> None:
    # The decoder cuts a tree to `depth` nodes; this tree has four.
    depth = 4 if drafter == "tree" else depth
    params, length = SAMPLERS[sampler], 4
    target = ToyModel.random(4, seed=5)
    law = spoken(OneDrawPerPosition, target, ONE_HOT[drafter], params, depth=depth, length=length)
    assert total_variation(law, product_law(target, params, length)) < EXACT


REJECTION = ["token", "block"]


# At depth 3, supports of two tokens detect the same mistakes as three, with far fewer branches.
CHAINS = [
    *((sampler, depth) for sampler in SAMPLERS for depth in (1, 2)),
    ("top-k", 3),
    ("greedy", 3),
]


@pytest.mark.parametrize(("sampler", "depth"), CHAINS)
@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("rule", REJECTION)
def test_rejection_rules_on_a_draft_model(rule: str, toy: str, sampler: str, depth: int) -> None:
    target, small = TOYS[toy]
    params, length = SAMPLERS[sampler], depth + 2

    def drafter() -> Drafter:
        return DraftModel(ToyCache(small), name="small", n_vocab=3)

    law = spoken(Drawn, target, drafter, params, depth=depth, length=length, rule=RULES[rule])
    assert total_variation(law, product_law(target, params, length)) < EXACT


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("sampler", ["full", "top-k", "penalties"])
@pytest.mark.parametrize("drafter", ONE_HOT)
@pytest.mark.parametrize("rule", REJECTION)
def test_rejection_rules_on_one_hot_drafts(
    rule: str, drafter: str, sampler: str, depth: int
) -> None:
    depth = 4 if drafter == "tree" else depth
    params, length = SAMPLERS[sampler], 4
    law = spoken(
        Drawn, TARGET, ONE_HOT[drafter], params, depth=depth, length=length, rule=RULES[rule]
    )
    assert total_variation(law, product_law(TARGET, params, length)) < EXACT


def one_step(
    target: ToyModel,
    drafter: Drafter,
    params: SamplingParams,
    rule: Rule,
    *,
    length: int,
    branches_of_target: int = 100,
) -> dict[tuple[int, ...], float]:
    """The distribution of `length` tokens if one step is real and the rest follows the target.

    Steps are alike, so by induction a real text has this law too; it needs far fewer branches.
    """

    def run(branches):  # type: ignore[no-untyped-def]
        text = list(PROMPT)
        sampler = Sampler(params, Drawn(branches))
        toy = ToyTarget(target, text)
        toy.branches = branches_of_target
        loop = Decoder(toy, fixed(drafter, 100), rule, sampler, text, Stats())
        loop.begin(100)
        requested = loop.next_pass()
        assert requested is not None
        return tuple(emission.id for emission in loop.receive(direct(requested)))

    steps = exact(run)
    assert max(map(len, steps)) <= length
    law: dict[tuple[int, ...], float] = {}
    for text in product(range(target.n_vocab), repeat=length):
        law[text] = sum(
            chance * probability(target, params, text, len(step))
            for step, chance in steps.items()
            if text[: len(step)] == step
        )
    return law


# With replacement, (3, 2) has many more branches than (2, 2) and tests nothing new.
TREES = [
    *((shape, replacement) for shape in [(2,), (2, 1), (2, 2)] for replacement in (False, True)),
    ((3, 2), False),
]


@pytest.mark.parametrize(("shape", "replacement"), TREES, ids=str)
@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("rule", REJECTION)
def test_rejection_rules_on_trees(
    rule: str, toy: str, shape: tuple[int, ...], replacement: bool
) -> None:
    target, small = TOYS[toy]
    length = len(shape) + 2
    tree = TreeDrafter(small, shape, replacement=replacement)
    law = one_step(target, tree, PLAIN, RULES[rule], length=length)
    assert total_variation(law, product_law(target, PLAIN, length)) < EXACT


@pytest.mark.parametrize("shape", [(2, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("sampler", ["mirostat", "mirostat 2", "adaptive-p"])
@pytest.mark.parametrize("rule", REJECTION)
def test_each_branch_has_a_state_of_its_own(
    rule: str, sampler: str, shape: tuple[int, ...]
) -> None:
    target, small = TOYS["loud"]
    params, length = SAMPLERS[sampler], len(shape) + 2
    law = one_step(target, TreeDrafter(small, shape), params, RULES[rule], length=length)
    assert total_variation(law, product_law(target, params, length)) < EXACT


@pytest.mark.parametrize("rule", REJECTION)
def test_rejection_rules_on_the_first_branch_of_a_tree(rule: str) -> None:
    """Where the target has no room for more: each token keeps the law it was drawn from."""
    target, small = TOYS["loud"]
    tree = TreeDrafter(small, (2, 2))
    law = one_step(target, tree, PLAIN, RULES[rule], length=4, branches_of_target=1)
    assert total_variation(law, product_law(target, PLAIN, 4)) < EXACT


def _keeps_a_wrong_token(draft, target, position, source):  # type: ignore[no-untyped-def]
    verdict = coupled(draft, target, position, source)
    if len(draft) and not verdict.path:
        return Verdict([0], verdict.token, verdict.origin)
    return verdict


def _bonus_from_the_row_before(draft, target, position, source):  # type: ignore[no-untyped-def]
    return coupled(draft, lambda node: target(max(ROOT, node - 1)), position, source)


def _draws_again_after_a_mismatch(draft, target, position, source):  # type: ignore[no-untyped-def]
    verdict = coupled(draft, target, position, source)
    if verdict.origin == "corrected":
        last = verdict.path[-1] if verdict.path else ROOT
        again = source.sample(target(last), position + 1000 + len(verdict.path))
        return Verdict(verdict.path, again, verdict.origin)
    return verdict


@pytest.mark.parametrize(
    "mutant", [_keeps_a_wrong_token, _bonus_from_the_row_before, _draws_again_after_a_mismatch]
)
def test_classic_mistakes_are_detected(mutant) -> None:  # type: ignore[no-untyped-def]
    target, small = TOYS["loud"]

    def drafter() -> Drafter:
        return DraftModel(ToyCache(small), name="small", n_vocab=3)

    law = spoken(
        SharedNoise,
        target,
        drafter,
        PLAIN,
        depth=1,
        length=3,
        rule=Rule("mutant", mutant, Noise, same_text=True),
    )
    assert total_variation(law, product_law(target, PLAIN, 3)) > 0.01


def test_shared_noise_is_a_sample_of_both_distributions() -> None:
    """The test method itself: each marginal is the distribution that was drawn from."""
    p, q = (distribution(np.log(np.float32(w)), PLAIN) for w in ([0.5, 0.3, 0.2], [0.1, 0.2, 0.7]))

    def run(branches):  # type: ignore[no-untyped-def]
        noise = SharedNoise(branches)
        return noise.sample(q, 0), noise.sample(p, 0), noise.sample(q, 0)

    joint = exact(run)
    for token in range(3):
        first = sum(weight for outcome, weight in joint.items() if outcome[0] == token)
        second = sum(weight for outcome, weight in joint.items() if outcome[1] == token)
        assert first == pytest.approx(q.dense(3)[token], abs=1e-7)
        assert second == pytest.approx(p.dense(3)[token], abs=1e-7)
    # Same position, same noise, same distribution: the same token.
    assert all(outcome[0] == outcome[2] for outcome in joint)
    # Daliri, Musco, Suresh 2024: the chance that both draw x is 1 / sum_y max(p_y/p_x, q_y/q_x).
    both = [
        1 / sum(np.maximum(p.dense(3) / p.dense(3)[x], q.dense(3) / q.dense(3)[x]))
        for x in range(3)
    ]
    equal = sum(weight for outcome, weight in joint.items() if outcome[0] == outcome[1])
    assert equal == pytest.approx(sum(both), abs=1e-12)
