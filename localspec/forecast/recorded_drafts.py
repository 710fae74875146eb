"""Recorded drafts: what a drafter proposes at every token of a text that the target writes.

A head drafts from hidden rows of its target, and a drafter with another vocabulary from its own
spelling of the text, so neither can be tried on a text afterwards. The engine's own loop writes the
text instead: at each token the drafter drafts, the draft is noted, and none of it is verified.

The drafts of a draft model are drawn when the text is written: with shared noise all drafts that
begin before its next wrong token go on alike, so each end is drawn once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np

from localspec.control.base_costs import WIDEST
from localspec.control.fixed_depth import FixedDepth
from localspec.drafters.text_part import TextPart
from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt
from localspec.forecast.answers import RecordedAnswer
from localspec.forecast.clairvoyant import right_runs
from localspec.forecast.model_free import ReplayedDrafts
from localspec.generation_config import GenerationOptions
from localspec.loading.drafter_set import SequenceDrafter
from localspec.models.kinds import THROUGH_TEXT
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit, Outcome, proposal
from localspec.speculation.passes import run
from localspec.speculation.policy import PLAIN_STEP, Decision
from localspec.utils.tokens import common_prefix

# The most tokens of a recorded draft of a drafter that takes a pass for each.
DEEPEST_RECORD = 8


def must_be_recorded(member: SequenceDrafter) -> bool:
    """Whether a drafter cannot be tried on a text that is already written."""
    traits = member.drafter.traits
    return bool(traits.reads_hidden) or traits.parallel or member.kind == THROUGH_TEXT


@dataclass(frozen=True, slots=True)
class RecordedDraft:
    """The tokens of a draft, and the drafter's confidence in each, if it reports any."""

    tokens: Sequence[int]
    confidences: Sequence[float]


class EveryPlace(FixedDepth):
    """A Policy under which one drafter drafts at every token, and nothing is verified.

    depth: the tokens of each draft. from_end: as in Limit. drafts: one per token of the text.
    """

    def __init__(self, drafter: Drafter, depth: int, *, from_end: bool = False) -> None:
        super().__init__((drafter,), depth)
        self._from_end = from_end
        self.drafts: list[RecordedDraft] = []
        self._confidences: list[float] = []

    def begin(self) -> None:
        """Start a text."""
        self.drafts = []

    def decide(self, limit: Limit) -> Decision:
        """Draft at this token."""
        self._confidences = []
        depth = min(limit.depth, self._depth) if self.drafters else 0
        if not depth:
            return PLAIN_STEP
        return Decision(self.drafters[0], depth, self._go_on, from_end=self._from_end)

    def keep(self, draft: Draft) -> int:
        """Note the draft; none of its tokens is verified."""
        self.drafts.append(RecordedDraft(tuple(draft.tokens), tuple(self._confidences)))
        return 0

    def ahead(self, draft: Draft) -> int:
        """Nothing is drawn ahead."""
        return 0

    def _go_on(self, confidence: float) -> bool:
        self._confidences.append(confidence)
        return True


def deepest_record(drafter: Drafter) -> int:
    """The most tokens of a recorded draft."""
    traits = drafter.traits
    return min(traits.deepest or WIDEST - 1, WIDEST - 1 if traits.parallel else DEEPEST_RECORD)


def record_drafts(
    engine: Engine,
    head: Drafter,
    prompt: Prompt,
    *,
    tokens: int | None = None,
    from_end: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
    **options: Unpack[GenerationOptions],
) -> tuple[list[int], list[RecordedDraft]]:
    """Write a text; return its tokens, and what a drafter of the engine drafted at each.

    head: the drafter, mostly a head. tokens: of each draft; None: as many as may be useful.
    from_end: as in Limit. cancelled: whether to end before the next token. options: the rule is
    `coupled` in any case.
    """
    options |= {"logprobs": False, "rule": "coupled"}
    running = engine.stream(prompt, **options)
    depth = deepest_record(head) if tokens is None else tokens
    policy = EveryPlace(head, depth, from_end=from_end)
    slot = engine.slots.own
    written = slot.start(running.prompt, running.settings, cancelled=cancelled, policy=policy)
    tokens_written = written.result().token_ids
    return tokens_written, policy.drafts


def drafts_of_text(
    drafter: Drafter, answer: RecordedAnswer, drawn: Sequence[bool]
) -> list[RecordedDraft]:
    """What a draft model drafts at each token of an answer.

    drawn: as in ScoredText. A draft ends some tokens behind its first wrong one, which it can only
    follow in vain.
    """
    found: list[RecordedDraft] = []
    right = right_runs(drawn)
    while (place := len(found)) < len(answer.tokens):
        depth = int(right[place]) + 1 + DEEPEST_RECORD
        draft = _draft_at(drafter, answer, place, depth)
        same = common_prefix(draft.tokens, answer.tokens[place:])
        found += [
            RecordedDraft(draft.tokens[at:], draft.confidences[at:])
            for at in range(max(1, min(same + 1, len(draft.tokens))))
        ]
    return found[: len(answer.tokens)]


def _draft_at(drafter: Drafter, answer: RecordedAnswer, place: int, depth: int) -> RecordedDraft:
    confidences: list[float] = []

    def go_on(confidence: float) -> bool:
        confidences.append(confidence)
        return True

    drafter.begin([*answer.prompt, *answer.tokens[:place]])
    limit = Limit(depth, answer.prefix(place), answer.sampler, go_on=go_on)
    draft = run(proposal(drafter, limit))
    return RecordedDraft(tuple(draft.tokens), tuple(confidences))


class ReplayedDrafter:
    """A drafter that is played from its recorded drafts.

    answers: the texts that it may draft. drafts: of each answer, one per token; where the recorded
    text is another one, because of a near-tie, its drafts are wrong. One that reads the prompt
    itself is taken to keep of a draft what stands, as a draft model does, and to draft behind the
    end of a prompt what it drafts behind all of it.
    """

    def __init__(
        self,
        drafter: Drafter,
        answers: Sequence[RecordedAnswer],
        drafts: Sequence[list[RecordedDraft]],
    ) -> None:
        self.name = drafter.name
        self.reads_prompt = drafter.traits.backlog is not None
        self.traits = replace(
            drafter.traits,
            reads_hidden=(),
            gives_probs=False,
            backlog=self._backlog if self.reads_prompt else None,
            end=self._end if drafter.traits.end else None,
            fits=None,
            ready=None,
        )
        self._answers, self._drafts = answers, drafts
        self._number, self._place = -1, 0
        # What it reads of the text, how much of that it has read, and the tokens of its last draft.
        self._part, self._read, self._drafted = TextPart(), 0, list[int]()

    def replayed(self, number: int) -> ReplayedDrafts:
        """The lengths of the drafts in the answer of this number."""
        answer, drafts = self._answers[number], self._of(number)
        correct = [
            common_prefix(each.tokens, answer.tokens[place:]) for place, each in enumerate(drafts)
        ]
        drafted = [len(each.tokens) for each in drafts]
        return ReplayedDrafts(np.array(drafted), np.array(correct), answer.limit)

    def of_answers(self, numbers: Sequence[int]) -> "ReplayedDrafter":
        """Another one for some of the answers, in this order."""
        answers = [self._answers[number] for number in numbers]
        return ReplayedDrafter(self, answers, [self._drafts[number] for number in numbers])

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on one of the answers; `tokens` is its prompt."""
        # From the last one on: the same prompt may have been asked twice, with other answers.
        count = len(self._answers)
        following = [(self._number + 1 + each) % count for each in range(count)]
        prompt, self._place = list(tokens), 0
        self._number = next(each for each in following if self._answers[each].prompt == prompt)
        self._part, self._read, self._drafted = TextPart(), 0, []

    def propose(self, limit: Limit) -> Draft:
        """Propose what the drafter proposed at this token."""
        self._part.choose(self._length, self._read, from_end=limit.from_end)
        self._part.is_unread = False
        recorded = self._of(self._number)[self._place]
        tokens = list(recorded.tokens[: limit.depth])
        if limit.go_on:
            for count, confidence in enumerate(recorded.confidences[: len(tokens)], start=1):
                if not limit.go_on(confidence):
                    del tokens[count:]
                    break
        self._read, self._drafted = self._part.size(self._length), tokens
        return Draft(tokens)

    def observe(self, outcome: Outcome) -> None:
        """Go on behind the committed tokens."""
        self._read += common_prefix(self._drafted[:-1], outcome.tokens)
        self._place += len(outcome.tokens)
        self._drafted = []

    @property
    def _length(self) -> int:
        """The tokens of the text."""
        return len(self._answers[self._number].prompt) + self._place

    def _backlog(self) -> int:
        return self._part.backlog(self._length, self._read)

    def _end(self) -> int | None:
        return self._part.end(self._length, self._read)

    def _of(self, number: int) -> list[RecordedDraft]:
        """One draft per token of an answer; none where the recorded text had ended."""
        count = len(self._answers[number].tokens)
        return [*self._drafts[number], *[RecordedDraft((), ())] * count][:count]
