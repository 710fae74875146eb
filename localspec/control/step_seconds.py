"""Step seconds: what a step of a text took, and what it should have taken, beside other texts."""

from localspec.control.base_costs import WIDEST_DECODE
from localspec.control.pass_costs import PassCosts
from localspec.speculation.policy import Step


class StepSeconds:
    """The parts of shared decodes that are a step's own.

    texts: how many shared the round. host: seconds of this text's steps outside the models, on
    average.
    """

    def __init__(self, passes: PassCosts, texts: int, host: float = 0.0) -> None:
        self._passes, self._texts, self._host = passes, texts, host

    def plain(self, step: Step) -> float:
        """Seconds of a plain step: the text's part of a decode without drafts, and its host's."""
        return self.plain_pass(step) + self._plain_host(step)

    def own_seconds(self, step: Step) -> float:
        """The seconds of a step, with that part of its decode that the step's own rows cost."""
        rows = step.rows
        if not step.others or rows > WIDEST_DECODE or self._passes.unequal_apart:
            return step.seconds
        slowdown = step.decode_seconds / self._passes.seconds(rows)
        return step.seconds - step.share + slowdown * self.expected_pass(step)

    def expected_pass(self, step: Step) -> float:
        """The expected seconds of a step's pass: its part without a draft, and the draft's rows."""
        rows = step.rows
        if not step.others or rows > WIDEST_DECODE or self._passes.unequal_apart:
            return self._passes.seconds(step.verified + 1)
        draft = self._passes.seconds(rows) - self._passes.seconds(rows - step.verified)
        return self.plain_pass(step) + draft

    def plain_time(self, step: Step) -> float | None:
        """Seconds that plain steps would have taken for the tokens of a step; None: unknown.

        It is the time of the step's own decode, by how much less a decode of one row per text
        costs: what slows a pass, a long text or a busy machine, would have slowed plain ones too.
        """
        if not self._passes.knows(1 + len(step.others)):
            return None
        plain = self.plain_pass(step)
        # On a GPU a pass may have been slow as its rows were others, and plain ones never are.
        if not (step.again or step.ahead or self._passes.keeps_width):
            plain *= step.pass_seconds / self._passes.seconds(step.rows)
        return len(step.tokens) * (plain + self._plain_host(step))

    def plain_pass(self, step: Step) -> float:
        """Seconds of a plain step's pass."""
        if step.rows > WIDEST_DECODE:  # a part of a prompt, where each row costs the same
            return step.share / step.width
        texts = self._sharing(step)
        return self._passes.of_plain(texts) / texts

    def _plain_host(self, step: Step) -> float:
        """Seconds of a plain step outside the models, beside its part of those of a pass.

        What passes cost was learnt with those of one text (`Step.pass_seconds`).
        """
        return self._host * (1 - 1 / self._sharing(step))

    def _sharing(self, step: Step) -> int:
        # Texts that share no decode because their rows differ would share it without drafts.
        return self._texts if self._passes.unequal_apart else 1 + len(step.others)
