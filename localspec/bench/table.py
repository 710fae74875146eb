"""Table: a row of the summary in words, for the terminal and for the page."""

from localspec.bench.median import Median
from localspec.bench.summary import Row

_PHASES = ("draft", "verify", "host")
COLUMNS = ("prompts", "drafter", "tok/s", "x plain", "accept", "tok/step", *_PHASES, "same text")
LEGEND = "x plain: median [95 % interval over prompts] · draft, verify, host: shares of the time"


def cells(row: Row) -> tuple[str, ...]:
    """One for each of the columns."""
    return (
        row.set,
        row.contender,
        f"{row.tokens_per_second.value:.{1 if row.tokens_per_second.value < 100 else 0}f}",
        _with_interval(row.ratio) if row.ratio else "-",
        "-" if row.acceptance_rate is None else f"{row.acceptance_rate:.0%}",
        f"{row.tokens_per_step:.2f}",
        *(f"{row.share(phase):.0%}" for phase in _PHASES),
        _same(row),
    )


def _with_interval(median: Median) -> str:
    value = f"{median.value:.2f}"
    if median.low is None or median.high is None or median.low == median.high:
        return value
    return f"{value} [{median.low:.2f}, {median.high:.2f}]"


def _same(row: Row) -> str:
    if not row.compared:
        return "-"
    return "yes" if row.same == row.compared else f"{row.same} of {row.compared}"
