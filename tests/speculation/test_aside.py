"""What a text leaves until its pass is computed: it is done once, in time, and by anybody."""

from collections.abc import Sequence

import numpy as np
import pytest
from fakes.toy import Scripted, ToyModel, ToyTarget, fixed
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control.fixed_depth import FixedDepth
from localspec.sampling.filters import distribution
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.aside import Aside
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.speculation.followers import Followers
from localspec.speculation.passes import Pass, Scores, direct
from localspec.speculation.policy import PLAIN_STEP, Decision
from localspec.speculation.rules import RULES
from localspec.stats import Stats

MODEL, PROMPT, LENGTH = ToyModel.random(6, seed=2, spread=2.0), [1, 2, 3], 12


def test_it_is_done_once() -> None:
    done = list[int]()
    aside = Aside(lambda: done.append(1))
    aside.do()
    aside.do()
    aside.end()
    assert done == [1]


def test_the_text_does_what_nobody_has_done() -> None:
    done = list[int]()
    Aside(lambda: done.append(1)).end()
    assert done == [1]


def test_what_it_raises_is_raised_by_its_own_text() -> None:
    aside = Aside(lambda: [][0])
    aside.do()  # by another thread, which computes for others too
    with pytest.raises(IndexError):
        aside.end()
    aside.end()


class Told(Scripted):
    """A drafter that notes of what it is told. views: what it was given must not be one."""

    def __init__(self, *, cheap: bool) -> None:
        super().__init__(lambda text, limit: Draft([text[-1]] * limit.depth))
        self.name, self.traits = f"cheap {cheap}", Traits(cheap=cheap)
        self.likely = list[list[int]]()

    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        for each in outcome.drawn_from:
            shortlist = each.shortlist()
            ids = range(len(shortlist)) if shortlist.ids is None else shortlist.ids.tolist()
            logits = shortlist.logits.tolist()
            self.likely.append([token for _, token in sorted(zip(logits, ids, strict=True))])


DRAFTS, RESTS, RESTS_ALONE = "drafts", "rests", "rests alone"


class Restful(FixedDepth):
    """Rests in the steps of a plan, and drafts in the others. looked: the steps of its looks."""

    def __init__(self, drafters: Sequence[Told], plan: Sequence[str]) -> None:
        super().__init__(drafters, 2)
        self.text: list[int] = []
        self.looked = list[int]()
        self.decided = 0
        self._plan = plan

    def decide(self, limit: Limit) -> Decision:
        planned = self._plan[self.decided % len(self._plan)]
        self.decided += 1
        self.rests = planned is RESTS
        if planned is not DRAFTS:
            return PLAIN_STEP
        limit.catch_up()
        assert all(each.text == self.text for each in self.drafters), "asked before it was told"
        return super().decide(limit)

    def look(self, limit: Limit) -> None:
        assert all(each.text == self.text for each in self.drafters), "looks before it was told"
        self.looked.append(self.decided)


def written(
    plan: Sequence[str], early: Sequence[bool], tokens: int
) -> tuple[Decoder, Restful, list[Told]]:
    """early: for each pass, whether who computes it does before what the text leaves until then.

    The buffer of the scores is overwritten with each pass.
    """
    drafters = [Told(cheap=True), Told(cheap=False)]
    policy, text = Restful(drafters, plan), list(PROMPT)
    policy.text = text
    sampler = Sampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(5))
    target = ToyTarget(MODEL, PROMPT)
    decoder = Decoder(target, policy, RULES["coupled"], sampler, text, Stats())
    kept: list[Scores] = []

    def compute(requested: Pass) -> Scores:
        for each in kept:
            each.logits[:] = float("nan")
        if requested.aside and early[policy.decided % len(early)]:
            requested.aside.do()
        kept[:] = [direct(requested)]
        return kept[0]

    for _, _ in zip(range(tokens), decoder.run(LENGTH, compute), strict=False):
        pass
    decoder.end()
    return decoder, policy, drafters


@settings(deadline=None)
@given(
    plan=st.lists(st.sampled_from([DRAFTS, RESTS, RESTS_ALONE]), min_size=1, max_size=6),
    early=st.lists(st.booleans(), min_size=1, max_size=5),
    tokens=st.integers(1, LENGTH),
)
def test_drafters_know_the_same_whenever_they_are_told(
    plan: list[str], early: list[bool], tokens: int
) -> None:
    decoder, policy, drafters = written(plan, early, tokens)
    plainly, _, [usual, _] = written([DRAFTS], [False], LENGTH)
    assert decoder.text == plainly.text[: len(decoder.text)]
    for each in drafters:
        assert each.text == decoder.text
        assert each.likely == usual.likely[: len(each.likely)]
        assert len(each.likely) == len(decoder.text) - len(PROMPT)
    rested = [
        step for step in range(1, policy.decided + 1) if plan[(step - 1) % len(plan)] is RESTS
    ]
    # The pass of the last step may not have been asked for.
    assert policy.looked in (rested, rested[:-1])


def test_a_plan_of_rests_is_one() -> None:
    """So that the property above says something."""
    _, policy, _ = written([RESTS, RESTS, DRAFTS], [True], LENGTH)
    assert len(policy.looked) >= 4


def test_what_is_told_later_is_of_no_later_pass() -> None:
    """Where min-p leaves many tokens, distributions are views of the scores of their pass."""
    row = np.linspace(-1, 1, 9000, dtype=np.float32)
    params = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0.01)
    drawn_from = distribution(row, params, (), xtc=False, state=None, only_sampled=True)
    told = Told(cheap=True)
    followers = Followers(fixed(told, 2), lambda: 0.0)
    followers.observe([5], None, 0, [drawn_from], late=True)
    usual = Told(cheap=True)
    usual.observe(Outcome([5], 0, [drawn_from]))
    row[:] = row[::-1].copy()
    assert told.likely == []
    followers.catch_up()
    assert told.likely == usual.likely != []
