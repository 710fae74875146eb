"""Ledger: an account of time that drafting may overdraw only so far."""


class Ledger:
    """Keeps drafting from ever costing much, whatever the drafts and the machine do.

    After each step the balance grows by the time that plain decoding would have taken for its
    tokens, and a little more (`ALLOWANCE`), less the time the step took. A step may draft only if
    even with nothing accepted the balance stays above an overdraft. So on every stretch of a text
    (ALGORITHMS: loss ledger)

        time <= (1 + ALLOWANCE) * tokens * plain + (OVERDRAFT + MOST) * plain

    up to the error of the plain time, and of the step's own time, as estimated.
    """

    ALLOWANCE = 0.02
    # Both in plain steps.
    OVERDRAFT = 8.0
    MOST = 20.0

    def __init__(self) -> None:
        self._balance = 0.0

    def allowed(self, plain: float) -> float:
        """How many seconds longer than a plain one the next step may take at worst."""
        return self._balance + self.OVERDRAFT * plain

    def enter(self, seconds: float, tokens: int, plain: float) -> None:
        """A step took so long for so many tokens; a plain one takes `plain`."""
        earned = (1 + self.ALLOWANCE) * tokens * plain - seconds
        self._balance = min(self._balance + earned, self.MOST * plain)
