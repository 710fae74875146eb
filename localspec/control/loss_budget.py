"""LossBudget: an account of time that drafting may overdraw only so far."""


class LossBudget:
    """Keeps drafting from ever costing much, whatever the drafts and the machine do.

    After each step the balance grows by the time that plain decoding would have taken for its
    tokens, and a little more (`ALLOWANCE`), less the time the step took. A step may draft only if
    even with nothing accepted the balance stays above an overdraft. So on every stretch of a text
    (ALGORITHMS: loss loss_budget)

        time <= (1 + ALLOWANCE) * tokens * plain + (OVERDRAFT + MOST) * plain

    as far as the plain time is known, and as steps take no more than `SURPRISE` times what was
    expected of them. Beyond that it was not the draft's fault: a machine that is busy for a second
    must not end drafting for a thousand tokens.
    """

    ALLOWANCE = 0.02
    # Both in plain steps.
    OVERDRAFT = 8.0
    MOST = 20.0
    SURPRISE = 2.0

    def __init__(self) -> None:
        self._balance = 0.0

    def allowed(self, plain: float) -> float:
        """How many seconds longer than a plain one the next step may take at worst."""
        return self._balance + self.OVERDRAFT * plain

    def enter(self, seconds: float, expected: float, tokens: int, plain: float) -> None:
        """A step took so long, and was expected to, for so many tokens; a plain one `plain`."""
        charged = min(seconds, self.SURPRISE * expected)
        earned = (1 + self.ALLOWANCE) * tokens * plain - charged
        self._balance = min(self._balance + earned, self.MOST * plain)
