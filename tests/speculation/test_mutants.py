"""Known mistakes, planted in the real code one by one: the tests detect each of them.

M1 to M23 are mistakes that speculative decoders have made or easily make. Where each is planted,
and where it is not:

M1 M7 M10 M11   the residual and the ratio, which the rejection rules share. The coupled rule has
                neither.
M2 M3 M12 M13   the draft model's distributions. The coupled rule does not read them: for it these
                mistakes must change nothing.
M4 M5 M14       the decoder: which rows a rule reads, what the target keeps. M5 needs a ratio, so
                not coupled. M14 in the drafter's own cache costs speed: it must change nothing.
M6              every rule.
M8              the token rule. Coupled and block have no place to go on after a rejection: coupled
                follows its own token, block starts from the end of the path.
M9              the rejection rules; coupled draws no uniforms.
M15 M16 M17 M20 the block rule; the others have no mass.
M18 M19         trees. M19 is for the token rule: block without the subtraction is M1.
M21             the coupled rule; it makes no second draw, so the mistake adds one.
M22 M23         the rejection rules do not draw from shared noise or by position; the mistake makes
                them.

The model's real cache is not tested here (M14), nor the random generator of the draws.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from fakes.enumeration import Drawn, OneDrawPerPosition, SharedNoise, total_variation
from fakes.mutants import (
    Code,
    Edit,
    KeyedDraws,
    SharedThenDrawn,
    Trial,
    spoken,
    variation,
    variation_without_mistake,
    wanted,
)
from fakes.toy import Scripted, ToyCache, ToyModel, ToyTarget, fixed

from localspec.drafters.chain import Chain
from localspec.drafters.draft_model import DraftModel
from localspec.generation_config import GenerationConfig
from localspec.sampling import keyed_hash
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.drafter import Drafter
from localspec.speculation.rules import RULES, Rows, Rule, Verdict, _Residual, block, coupled, token
from localspec.speculation.target_rows import TargetRows
from localspec.stats import Stats

EXACT = 1e-12
TOKEN_CHAIN = Trial()


@dataclass(frozen=True)
class Mutant:
    """A mistake. figures: rule -> the total variation that it causes, rounded down.

    edits: the changes of the source; each_rule stands for the rule's own function.
    """

    name: str
    figures: dict[str, float]
    edits: tuple[Edit, ...]
    trial: Trial = TOKEN_CHAIN


def each_rule() -> None:
    """Stands for a rule's function, where several rules have the same line."""


def planted(mutant: Mutant, rule: str) -> Code:
    return Code(
        *(
            replace(edit, where=RULES[rule].verify) if edit.where is each_rule else edit
            for edit in mutant.edits
        )
    )


def under(rule: str, trial: Trial) -> Trial:
    """The trial with another rule. Enumerating noise takes many branches: coupled gets less."""
    if rule != "coupled":
        return replace(trial, rule=rule)
    noise = SharedNoise if trial.drafter == "model" else OneDrawPerPosition
    return replace(trial, rule=rule, noise=noise, depth=1, length=3)


DRAWN = "token = sampler.sample(proposal, self._prefix)"
KEPT = "self._probs.append(proposal.kept())"
FULL_LAW = "Distribution(row.copy())"
TAKEN = "return self.take(Drawn(token, confidence, proposal.state_after(token)))"
BONUS_ROW_BEFORE = "target(draft.parent(node) if len(draft) and draft.is_leaf(node) else node)"
ROW = "self._law(self._scores.logits[node + 1], self._prefix_at(node))"
RAW_ROW = "Distribution(self._scores.logits[node + 1])"
RATIO = "residual.ratio(proposal.token, q)"
MASS = "total / (total + (1 - self.mass))"
BY_POSITION = "random.below(position + len(draft.path(node)), "
BFLOAT16 = Edit(
    TargetRows.__call__,
    "self._scores.logits[node + 1]",
    """(self._scores.logits[node + 1].view("u4") & 0xFFFF0000).view("f4")
        if len(self._draft) else self._scores.logits[0]""",
)

# Planted in a model's drafts: a token is not drawn from the distribution that the draft reports.
WRONG_LAWS = [
    Mutant(
        "M2 drawn from top-k q, accepted by full q",
        {"token": 0.078, "block": 0.097},
        (Edit(Chain.draw, KEPT, f"self._probs.append({FULL_LAW})"),),
        Trial(sampler="top-k"),
    ),
    Mutant(
        "M3 drawn from full q, accepted by top-k q",
        {"token": 0.070, "block": 0.080},
        (Edit(Chain.draw, DRAWN, DRAWN.replace("(proposal,", f"({FULL_LAW},")),),
        Trial(sampler="top-k"),
    ),
    Mutant(
        "M12 argmax drafts with a dense q",
        {"token": 0.387, "block": 0.511},
        (Edit(Chain.draw, DRAWN, "token = int(proposal.logits.argmax())"),),
    ),
    Mutant(
        "M13 unlikely draws dropped",
        {"token": 0.217, "block": 0.216},
        (
            Edit(
                Chain.draw,
                TAKEN,
                """goes_on = self.take(Drawn(token, confidence, None))
        if proposal.probabilities()[token] < 0.3:
            self.tokens, self._probs = self.tokens[:-1], self._probs[:-1]
            return False
        return goes_on""",
            ),
        ),
    ),
    Mutant(
        "distribution left in the drafter's buffer",
        {"token": 0.412, "block": 0.412},
        (Edit(Chain.draw, KEPT, "self._probs.append(proposal)"),),
    ),
]

MUTANTS = [
    Mutant(
        "M1 resample from p",
        {"token": 0.187, "block": 0.256},
        (Edit(each_rule, "residual.subtract(q)", "pass"),),
    ),
    *WRONG_LAWS,
    Mutant(
        "M4 p untruncated everywhere",
        {"token": 0.470, "block": 0.470, "coupled": 0.396},
        (Edit(TargetRows.__call__, ROW, RAW_ROW),),
        Trial(sampler="top-k"),
    ),
    Mutant(
        "M5 accepted by untruncated p",
        {"token": 0.289, "block": 0.271},
        (
            Edit(
                TargetRows.__call__,
                f"found = {ROW}",
                f"found, self.raw = {ROW}, lambda node: {RAW_ROW}",
            ),
            Edit(
                each_rule,
                RATIO,
                "(lambda raw: raw.ratio(proposal.token, raw.aligned(proposal)))"
                "(_Residual(target.raw(node), residual.mass))",
            ),
        ),
        Trial(sampler="top-k"),
    ),
    Mutant(
        "M6 bonus from the row before",
        {"token": 0.191, "coupled": 0.237},
        (Edit(each_rule, "target(node)", BONUS_ROW_BEFORE),),
    ),
    Mutant(
        "M6 bonus from the row before",
        {"block": 0.248},
        # This rule reads a leaf's row in a line of its own.
        (Edit(block, "target(node)\n", f"{BONUS_ROW_BEFORE}\n"),),
    ),
    Mutant(
        "M7 residual from the next row",
        {"token": 0.422, "block": 0.335},
        (
            Edit(
                each_rule,
                "residual.subtract(q)",
                "residual = _Residual(target(proposal.node), residual.mass); residual.subtract(q)",
            ),
        ),
    ),
    Mutant(
        "M8 goes on after a rejection",
        {"token": 0.404},
        (Edit(token, "residual.subtract(q)", "node = proposal.node; break"),),
    ),
    Mutant(
        "M9 one uniform for all positions",
        {"token": 0.126},
        (Edit(token, "random.bern(", "random.below(position, "),),
        Trial(noise=KeyedDraws),
    ),
    Mutant(
        "M9 one uniform for all positions",
        {"block": 0.00979},
        (
            Edit(block, "random.bern(mass)", "random.below(position, mass)"),
            Edit(block, "random.bern(residual.mass)", "random.below(position, residual.mass)"),
        ),
        Trial(noise=KeyedDraws),
    ),
    Mutant(
        "M10 residual abs(p - q)",
        {"token": 0.292, "block": 0.368},
        (
            Edit(
                _Residual.subtract,
                "np.maximum(self.mass * self._p - q, 0)",
                "np.abs(self.mass * self._p - q)",
            ),
        ),
    ),
    Mutant(
        "M11 ratio inverted",
        {"token": 0.564, "block": 0.550},
        (
            Edit(
                _Residual.ratio,
                "1.0 if weight >= q[index] else float(weight / q[index])",
                "1.0 if q[index] >= weight else float(q[index] / weight)",
            ),
        ),
    ),
    Mutant(
        "M14 the target keeps rejected tokens",
        {"token": 0.263, "block": 0.236, "coupled": 0.279},
        (
            Edit(
                Decoder._step,
                "path = verdict.path[: len(tokens) - 1]",
                "path = [*range(len(draft))]",
            ),
        ),
    ),
    Mutant(
        "M15 residual without the mass",
        {"block": 0.175},
        (Edit(_Residual.subtract, "np.maximum(self.mass * self._p - q", "np.maximum(self._p - q"),),
    ),
    Mutant(
        "M15 residual without the mass, in the last draw only",
        {"block": 0.00164},
        (
            Edit(
                _Residual.subtract,
                "self._p = weights / total",
                "weights = np.maximum(self._p - q, 0); self._p = weights / weights.sum()",
            ),
        ),
    ),
    Mutant(
        "M16 accepted with the mass of the parent",
        {"block": 0.152},
        (Edit(block, "random.bern(residual.mass)", "random.bern(mass)"),),
    ),
    Mutant(
        "M17 product clipped only at the end",
        {"block": 0.101},
        (
            Edit(
                block,
                "proposals = draft.proposals_after(node)",
                "proposals = draft.proposals_after(node); whole, mass = mass, min(1.0, mass)",
            ),
            Edit(
                block,
                "visit(proposal.node, ratio)",
                "visit(proposal.node, whole * residual._p[proposal.token] / q[proposal.token])",
            ),
        ),
    ),
    Mutant(
        "M18 siblings without replacement, q not normalised again",
        {"token": 0.074, "block": 0.074},
        (
            Edit(
                each_rule,
                "q = residual.aligned(proposal)",
                "q = residual.aligned(draft.proposals_after(node)[0])"
                " * (residual.aligned(proposal) > 0)",
            ),
        ),
        Trial(drafter="siblings"),
    ),
    Mutant(
        "M19 all siblings tested against the first p",
        {"token": 0.069},
        (Edit(token, RATIO, "_Residual(target(node)).ratio(proposal.token, q)"),),
        Trial(drafter="siblings"),
    ),
    Mutant(
        "M20 mass without (1 - a)",
        {"block": 0.053},
        (Edit(_Residual.subtract, MASS, "total"),),
    ),
    Mutant(
        "M20 mass without (1 - a), on a tree",
        {"block": 0.069},
        (Edit(_Residual.subtract, MASS, "total"),),
        Trial(drafter="late siblings", sampler="top-k", depth=3),
    ),
    Mutant(
        "M21 drawn anew after a mismatch",
        {"coupled": 0.123},
        (
            Edit(
                coupled,
                "Verdict(path, token,",
                "Verdict(path, source.sample(target(node), position + len(path) + 1000),",
            ),
        ),
    ),
    Mutant(
        "M22 the draft's noise again in the residual",
        {"token": 0.078},
        (
            Edit(
                token,
                "residual.draw(random)",
                "random.sample(Distribution(np.log(np.float32(residual._p + 1e-30))), "
                "position + len(path))",
            ),
        ),
        Trial(toy="unequal", depth=1, length=2, noise=SharedThenDrawn),
    ),
    Mutant(
        "M23 uniforms keyed by position",
        {"block": 0.021},
        (
            Edit(block, "random.bern(mass)", f"{BY_POSITION}mass)"),
            Edit(block, "random.bern(residual.mass)", f"{BY_POSITION}residual.mass)"),
        ),
        Trial(noise=KeyedDraws),
    ),
    Mutant(
        "penalties do not see the draft",
        {"token": 0.093, "block": 0.093, "coupled": 0.063},
        (Edit(TargetRows.__call__, "self._prefix_at(node))", "self._prefixes[ROOT])"),),
        Trial(sampler="penalties"),
    ),
    Mutant(
        "XTC by the position of the step, not of the token",
        {"token": 0.1, "block": 0.1, "coupled": 0.1},
        (Edit(TargetRows.__call__, "self._prefix_at(node))", "self._prefixes[ROOT])"),),
        Trial(sampler="xtc"),
    ),
    Mutant(
        "the state does not see the draft",
        {"token": 0.01, "block": 0.01, "coupled": 0.01},
        (Edit(TargetRows.__call__, "self._prefix_at(node))", "self._prefixes[ROOT])"),),
        Trial(sampler="adaptive-p"),
    ),
    Mutant(
        "the state does not move",
        {"token": 0.01, "block": 0.01, "coupled": 0.01},
        (Edit(TargetRows._then, "is_moved = before.state is not None", "is_moved = False"),),
        Trial(sampler="adaptive-p"),
    ),
    Mutant(
        "the state follows the distribution of the root",
        {"token": 0.01, "block": 0.01, "coupled": 0.01},
        (Edit(TargetRows._then, "self._read[node]", "self._read[ROOT]"),),
        Trial(sampler="adaptive-p"),
    ),
    Mutant(
        "the state of the next step is that before the draft",
        {"token": 0.01, "block": 0.01, "coupled": 0.01},
        (
            Edit(
                TargetRows.prefix_behind,
                "return self._then(path[-1] if path else ROOT, token)",
                "found = self._then(path[-1] if path else ROOT, token)\n"
                "        return found.then(0, self._prefixes[ROOT].state)",
            ),
        ),
        Trial(sampler="adaptive-p"),
    ),
    Mutant(
        "drafted rows in bfloat16",
        {"token": 0.000857, "block": 0.000862, "coupled": 0.000562},
        (BFLOAT16,),
    ),
]


def cases(mutants: list[Mutant], sign: str) -> list[Any]:
    return [
        pytest.param(mutant, rule, id=f"{mutant.name}: {rule}, TV {sign} {figure}")
        for mutant in mutants
        for rule, figure in mutant.figures.items()
    ]


@pytest.mark.parametrize(("mutant", "rule"), cases(MUTANTS, ">"))
def test_the_mistake_is_detected(mutant: Mutant, rule: str) -> None:
    trial = under(rule, mutant.trial)
    assert variation_without_mistake(trial) < EXACT
    assert variation(trial, planted(mutant, rule)) > mutant.figures[rule]


# Changes that are no mistakes: the tests must not detect any.
WITHOUT_X = """if node + 1 < len(draft):
                from fakes.trees import without
                rest = without(target(node), draft.tokens[node + 1])
                token = source.sample(rest, position + len(path) + 1000)
            return Verdict(path, token,"""
HARMLESS = [
    Mutant(
        "after a mismatch, p without x instead of the target's own token",
        {"coupled": EXACT},
        (Edit(coupled, "return Verdict(path, token,", WITHOUT_X),),
        Trial(drafter="constant"),
    ),
    # Mistakes that change the draft itself; the coupled rule requests no distributions.
    *(
        replace(mutant, figures={"coupled": EXACT})
        for mutant in WRONG_LAWS
        if not mutant.name.startswith(("M2 ", "distribution "))
    ),
    Mutant(
        "M14 in the drafter: its cache keeps rejected tokens",
        {"token": EXACT, "block": EXACT},
        (
            Edit(
                DraftModel._catch_up,
                "self._cache.truncate(min(self._cached, self._part.size(len(self._text)) - 1))",
                "min(self._cached, self._part.size(len(self._text)) - 1)",
            ),
        ),
    ),
    Mutant(
        "M23 where it is harmless: one uniform by position",
        {"token": EXACT},
        (Edit(token, "random.bern(", "random.below(position + len(path), "),),
        Trial(noise=KeyedDraws),
    ),
    Mutant(
        "M23 corrected: uniforms by position and row",
        {"block": EXACT},
        (
            Edit(block, "random.bern(mass)", "random.below((position, node), mass)"),
            Edit(
                block, "random.bern(residual.mass)", "random.below((position, node), residual.mass)"
            ),
        ),
        Trial(noise=KeyedDraws),
    ),
]


@pytest.mark.parametrize(("mutant", "rule"), cases(HARMLESS, "<"))
def test_a_harmless_change_is_not_detected(mutant: Mutant, rule: str) -> None:
    assert variation(under(rule, mutant.trial), planted(mutant, rule)) < mutant.figures[rule]


def test_an_edit_that_no_longer_fits_the_source_is_refused() -> None:
    for old in ("not a line of it", "q"):
        with pytest.raises(AssertionError, match="planted anew"):
            Code(Edit(_Residual.subtract, old, "pass"))


# The rule of llama.cpp's own example (llama-speculative, temperature above 0, one branch): it
# drafts the top candidate without a draw, and still accepts it with probability p / q.


def accepted_by_ratio(draft: Draft, target: Rows, position: int, random: Drawn) -> Verdict:
    assert draft.probs is not None or not len(draft)
    path: list[int] = []
    for node, x in enumerate(draft.tokens):
        p, q = target(node - 1).dense(3), draft.probs[node].dense(3)
        if not random.bern(min(1.0, p[x] / q[x])):
            return Verdict(path, random.cat(np.maximum(p - q, 0)), "corrected")
        path.append(node)
    return Verdict(path, random.cat(target(len(draft) - 1).dense(3)), "bonus")


BY_RATIO = Rule("by ratio", accepted_by_ratio, Drawn, same_text=False)
TOP_CANDIDATE = Trial(toy="flat", drafter="top candidate", depth=1, length=2)


def first_token(law: dict[tuple[int, ...], float]) -> list[float]:
    return [sum(p for text, p in law.items() if text[0] == token) for token in range(3)]


def test_a_top_candidate_accepted_by_its_ratio_is_detected() -> None:
    """p = (.5, .3, .2) and q = (.6, .25, .15) give (.833, .083, .083): TV 1/3."""
    law = spoken(TOP_CANDIDATE, Code(), BY_RATIO)
    assert first_token(law) == pytest.approx([5 / 6, 1 / 12, 1 / 12], abs=1e-6)
    assert total_variation(law, wanted("flat", "full", 2)) >= 1 / 3 - 1e-6
    # This is M12: the token rule gives the same for the same draft.
    assert total_variation(law, spoken(TOP_CANDIDATE, Code())) < EXACT


def test_a_perfect_drafter_makes_it_greedy() -> None:
    law = spoken(replace(TOP_CANDIDATE, toy="same"), Code(), BY_RATIO)
    assert first_token(law) == pytest.approx([1, 0, 0], abs=EXACT)


def test_its_ratio_is_right_for_tokens_that_were_drawn() -> None:
    law = spoken(replace(TOP_CANDIDATE, drafter="model"), Code(), BY_RATIO)
    assert total_variation(law, wanted("flat", "full", 2)) < EXACT


# Mistakes that leave the distribution nearly as it is, but change the text of a seed.

N_VOCAB, SEEDS, LENGTH = 16, 20, 40
TARGET = ToyModel.random(N_VOCAB, seed=11, spread=2.0)
SMALL = TARGET.like(seed=12, noise=1.0)
DRAFTERS: dict[str, Callable[[], Drafter | None]] = {
    "none": lambda: None,
    "model": lambda: DraftModel(ToyCache(SMALL), name="small", n_vocab=N_VOCAB),
    "tree": lambda: Scripted(
        lambda text, limit: Draft([*range(N_VOCAB), 0, 1], [ROOT] * N_VOCAB + [0, 1])
    ),
}


def text_of(code: Code, drafter: str, seed: int) -> tuple[int, ...]:
    text = [3, 1, 4, 1, 5]
    sampler = Sampler(SamplingParams(), code.of(Noise)(seed))
    depth = N_VOCAB + 2 if drafter == "tree" else 3
    target, rule = ToyTarget(TARGET, text), code.rule("coupled")
    policy = fixed(DRAFTERS[drafter](), depth)
    loop = code.of(Decoder)(target, policy, rule, sampler, text, Stats())
    return tuple(emission.id for emission in loop.run(LENGTH))


def differing(code: Code, drafter: str) -> int:
    """The number of seeds whose text with drafts differs from the plain text."""
    return sum(text_of(code, drafter, seed) != text_of(code, "none", seed) for seed in range(SEEDS))


POSITION = "len(self.text), self.sampler.randomness"
BY_STEP = Edit(Decoder._step, POSITION, "1000 * self.stats.steps, self.sampler.randomness")
BY_PASS_ROW = Edit(
    Decoder._step, POSITION, "self.stats.steps + self.stats.drafted, self.sampler.randomness"
)
BY_SLOT = Edit(coupled, "position + len(path)", "position + node + 1")


@pytest.mark.parametrize(
    ("edit", "drafter", "figure"),
    [
        pytest.param(edit, drafter, figure, id=f"{name}: {figure} of {SEEDS} texts change")
        for name, edit, drafter, figure in (
            ("noise keyed by step", BY_STEP, "model", 20),
            ("noise keyed by rows evaluated", BY_PASS_ROW, "model", 20),
            ("noise keyed by cache slot, tree", BY_SLOT, "tree", 20),
            ("noise keyed by cache slot, chain, where it is right", BY_SLOT, "model", 0),
            ("drafted rows in bfloat16", BFLOAT16, "model", 3),
        )
    ],
)
def test_texts_that_drafting_changes_are_detected(edit: Edit, drafter: str, figure: int) -> None:
    assert differing(Code(), drafter) == 0
    assert differing(Code(edit), drafter) == figure


@pytest.mark.parametrize("edit", [BY_STEP, BY_PASS_ROW], ids=["step", "rows"])
def test_noise_by_another_key_leaves_the_distribution_unchanged(edit: Edit) -> None:
    """This is why the tests compare texts too."""
    trial = Trial("coupled", drafter="constant", noise=OneDrawPerPosition)
    assert variation(trial, Code(edit)) < EXACT


@pytest.mark.parametrize(
    "edit",
    [
        Edit(keyed_hash._words, "_splitmix(seed)", "0"),
        Edit(GenerationConfig, "secrets.randbits(32)", "0"),
    ],
    ids=["noise without its seed", "seed drawn once for all"],
)
def test_two_generations_that_share_noise_are_detected(edit: Edit) -> None:
    def texts(code: Code) -> int:
        return len({text_of(code, "none", code.of(GenerationConfig)().seed) for _ in range(4)})

    assert texts(Code()) == 4
    assert texts(Code(edit)) == 1
