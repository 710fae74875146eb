"""LossBudget: bounds the time that wrong drafts can cost."""


class LossBudget:
    """An account of the seconds that drafting has saved, which may be overdrawn by a fixed amount.

    Each step adds the time of plain decoding for its tokens, and the share `ALLOWANCE` more, and
    subtracts the time that the step took. A step may draft only if the balance stays above minus
    `OVERDRAFT` even if no drafted token is accepted. So for every part of a text (docs/speed.md)

        time <= (1 + ALLOWANCE) * tokens * plain + (OVERDRAFT + MAX_BALANCE) * plain

    if the plain time is known, and if no step takes more than `MAX_OVERRUN` times its expected
    time. Time beyond that is not charged: a machine that is busy for a second must not stop
    drafting for a thousand tokens.

    Where several texts share decodes, `plain` is a text's part of a decode without drafts. One
    account is for all of them, and may be overdrawn by fewer decodes, as all wait for each. That of
    each text remains: a text that only loses cannot spend what the others save.

    overdraft, most: in plain steps. most: of the balance below 0; what is lost beyond is forgiven.
    """

    ALLOWANCE = 0.02
    # In plain steps.
    OVERDRAFT = 8.0
    MAX_BALANCE = 20.0
    MAX_OVERRUN = 2.0

    def __init__(self, overdraft: float = OVERDRAFT, most: float = float("inf")) -> None:
        self._overdraft, self._most = overdraft, most
        self._balance = 0.0

    def available(self, plain: float) -> float:
        """How many seconds longer than a plain step the next step may take.

        plain: the seconds of a plain step, with the whole decode.
        """
        return self._balance + self._overdraft * plain

    def add_step(
        self, seconds: float, expected: float, tokens: int, plain: float, texts: int = 1
    ) -> None:
        """Account for a step.

        seconds: its time. expected: the time expected for it. tokens: the number of committed
        tokens. plain: seconds of a plain step. texts: how many share its decode.
        """
        charged = min(seconds, self.MAX_OVERRUN * expected)
        earned = (1 + self.ALLOWANCE) * tokens * plain - charged
        balance = min(self._balance + earned, self.MAX_BALANCE * plain * texts)
        self._balance = max(balance, -self._most * plain)
