"""Rounds: texts that are written at the same time by the real policies, in simulated time.

All texts are in each round: they decide and draft, a decode computes the passes of all, and every
policy learns. What drafts and decodes take is known, and no model runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from localspec.control.base_costs import WIDEST_DECODE
from localspec.control.row_budget import RowShare
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Drafter, Limit, Outcome, proposal
from localspec.speculation.passes import run
from localspec.speculation.policy import PLAIN_STEP, Decision, Policy, Step
from localspec.utils.tokens import common_prefix


class Writer(ABC):
    """A text, and the policy that writes it.

    share: its part of the rows of all texts. draft, verified: of this round, and how many of its
    tokens the target verifies. deciding, drafting, beside: seconds of deciding, of the draft, and
    of what else is outside the models. ended: when its last round did.
    """

    def __init__(self, policy: Policy, share: RowShare) -> None:
        self.policy, self.share = policy, share
        share.is_written = lambda: self.is_written
        self.decision: Decision = PLAIN_STEP
        self.draft: Draft = NOTHING
        self.verified = 0
        self.deciding = self.drafting = self.beside = self.ended = 0.0

    @property
    @abstractmethod
    def is_written(self) -> bool:
        """Whether it takes part in the next round."""

    @abstractmethod
    def limit(self) -> Limit:
        """The limits of its next draft."""

    @abstractmethod
    def coming(self, count: int) -> Sequence[int]:
        """The next tokens of the text, so many or all that are left."""

    @abstractmethod
    def draft_seconds(self, texts: Sequence[int]) -> float:
        """Seconds of its draft; asked once. texts: for each token, how many share its decode."""

    def host_seconds(self, tokens: int) -> float:
        """Seconds outside the models in a step with so many tokens."""
        return 0.0

    def outcome(self, step: Step, accepted: int) -> Outcome:
        """What a drafter observes of a step, of which it drafted so many accepted tokens."""
        return Outcome(step.tokens, accepted)

    @property
    def rows(self) -> int:
        """The rows of its pass."""
        return self.verified + 1

    @property
    def draft_computer(self) -> tuple[int, int] | None:
        """Tells what computes its draft: equal ones share decodes. None: nothing is shared."""
        traits = self.decision.drafter and self.decision.drafter.traits
        if not traits or not traits.computer or traits.parallel or not len(self.draft):
            return None
        return id(traits.computer()), id(self.share.cache)

    def decide(self) -> None:
        """Decide about a draft, and draw it."""
        limit = self.limit()
        self.decision, self.draft = self.policy.decide(limit), NOTHING
        if self.decision.drafter:
            self.draft = self.draw(self.decision.drafter, limit).first(self.decision.depth)
        self.verified = self.policy.keep(self.draft)
        if self.policy.rests:
            self.policy.look(limit)

    def draw(self, drafter: Drafter, limit: Limit) -> Draft:
        """Draw what was decided."""
        decision = self.decision
        limit = limit.to(decision.depth, decision.go_on, from_end=decision.from_end)
        return decision.draft or run(proposal(drafter, limit))

    def learn(self, others: Sequence[int], padding: int, seconds: float) -> None:
        """Commit what is right. seconds: of the decode. padding: rows of padding in its pass."""
        coming = self.coming(self.verified + 1)
        accepted = common_prefix(self.draft.tokens[: self.verified], coming)
        tokens = list(coming[: accepted + 1])
        width = self.rows + padding
        share = seconds * width / (width + sum(others))
        self.beside, proposing = self.host_seconds(len(tokens)), self.deciding + self.drafting
        step = Step(
            self.draft.tokens,
            self.verified,
            width,
            tokens,
            share + proposing + self.beside,
            proposing,
            others=tuple(others),
            decode_seconds=seconds,
            share=share,
        )
        self.policy.learn(step)
        self.commit(step, accepted)

    def commit(self, step: Step, accepted: int) -> None:
        """Go on behind a step. accepted: how many tokens of its draft stand."""
        for drafter in self.policy.drafters:
            own = drafter is self.decision.drafter
            drafter.observe(self.outcome(step, accepted if own else 0))


class Rounds:
    """Texts that are written round by round.

    decode: returns the seconds of a decode by its rows. unequal_apart: as in PassCosts. seconds:
    the simulated time so far. Only texts whose shares have the same cache share decodes, and those
    of a text that has ended are the narrower.
    """

    def __init__(
        self,
        writers: Sequence[Writer],
        decode: Callable[[int], float],
        *,
        unequal_apart: bool = False,
        seconds: float = 0.0,
    ) -> None:
        self.writers = writers
        self.unequal_apart = unequal_apart
        self.seconds = seconds
        self._decode_seconds = decode
        self._count = 0

    def run(self) -> None:
        """Go on until all texts are written."""
        while any(each.is_written for each in self.writers):
            self.step()

    def step(self) -> None:
        """One round: all decide and draft, then their passes are computed."""
        writing = [each for each in self.writers if each.is_written]
        for writer in writing:
            writer.decide()
        _share_drafting(writing)
        self.seconds += sum(writer.deciding + writer.drafting for writer in writing)
        for members in self._decodes(writing):
            self._decode(members)
        for writer in writing:
            writer.ended = self.seconds

    def _decodes(self, writing: Sequence[Writer]) -> list[list[Writer]]:
        """The texts of each decode."""
        decodes: list[list[Writer]] = []
        for writer in writing:
            for members in decodes:
                total = sum(each.rows for each in members) + writer.rows
                equal = not self.unequal_apart or members[0].rows == writer.rows
                shared = members[0].share.cache is writer.share.cache
                if equal and shared and total <= WIDEST_DECODE:
                    members.append(writer)
                    break
            else:
                decodes.append([writer])
        return decodes

    def _decode(self, members: Sequence[Writer]) -> None:
        rows = [each.rows for each in members]
        total = sum(rows)
        # The last pass is padded; in an engine any text's may be the last, and its policy says how.
        self._count += 1
        by = members[self._count % len(members)].policy
        padding = 0 if self.unequal_apart else by.padded(total) - total
        seconds = self._decode_seconds(total + padding)
        self.seconds += seconds
        for place, writer in enumerate(members):
            last = place == len(members) - 1
            others = [*rows[:place], *rows[place + 1 :]]
            if not last:
                others[-1] += padding
            writer.learn(others, padding if last else 0, seconds)
            self.seconds += writer.beside


def _share_drafting(writing: Sequence[Writer]) -> None:
    """Charge the drafts, of which the n-th tokens come from one decode of the drafter."""
    sharing = [each for each in writing if each.draft_computer]
    for writer in writing:
        with_it = [each for each in sharing if each.draft_computer == writer.draft_computer]
        lengths = [len(each.draft) for each in with_it] or [len(writer.draft)]
        texts = [sum(each > place for each in lengths) for place in range(len(writer.draft))]
        writer.drafting = writer.draft_seconds(texts) if writer.decision.drafter else 0.0
        writer.share.texts = max(1, len(sharing))
