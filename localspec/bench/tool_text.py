"""Tool text: ours beside llama.cpp's tool as table cells and lines, for terminal and page."""

from localspec.bench.report_text import speed_text, with_interval
from localspec.bench.summary import ALL
from localspec.bench.tool_ratios import PRECISION, deviation
from localspec.bench.tool_summary import BesideTool, PromptBesideTool, ToolSummary
from localspec.utils.format import counted

PROMPT_COLUMNS = (
    *("prompts", "prompt", "plain", "ours", "tool", "ours / tool", "writing", "its best drafts"),
)
DRAFT_COLUMNS = (
    *("prompts", "its drafts", "runs", "tok/s", "ours / tool", "best on", "behind on", "accept"),
)
TOOL_LEGEND = (
    "tok/s of whole answers, their prompts included · ours / tool: in the same round, mean [95 % "
    "interval over rounds]; in the second table over prompts and rounds · writing: the same "
    "without the prompt, though with what a drafter of ours does with it · best on: so many "
    "prompts, chosen afterwards, which favours the tool · behind on: so many prompts where these "
    "drafts were slower in two rounds than the best ones in any, and were not repeated"
)


def prompt_cells(row: PromptBesideTool) -> tuple[str, ...]:
    """The text of each of the PROMPT_COLUMNS."""
    return (
        row.set,
        str(row.number),
        "-" if row.plain is None else speed_text(row.plain),
        speed_text(row.ours),
        speed_text(row.tool),
        with_interval(row.ratio),
        with_interval(row.writing) if row.writing else "-",
        row.best,
    )


def draft_cells(row: ToolSummary) -> tuple[str, ...]:
    """The text of each of the DRAFT_COLUMNS."""
    rate = row.acceptance_rate
    return (
        ALL,
        row.drafts,
        str(row.runs),
        speed_text(row.speed.value),
        with_interval(row.ours),
        str(row.best_on),
        str(row.behind_on),
        "-" if rate is None else f"{rate:.0%}",
    )


def tool_lines(found: BesideTool) -> list[str]:
    """What it comes to: both ratios, the prompts that were lost, how sure that is, and the tool."""
    name, lost = found.ours, found.lost
    least = min(found.prompts, key=lambda each: each.ratio.value)
    return [
        f"{name} is {with_interval(found.best_each)} times as fast as {found.program} with the "
        f"best drafts of each prompt (least {with_interval(least.ratio)}, {_where(least)}), and "
        f"{with_interval(found.best_one)} times as fast as with {found.best_one_drafts} for all",
        *(
            [f"{name} writes {with_interval(found.writing)} times as fast, the prompt left out"]
            if found.writing
            else []
        ),
        (
            f"slower beyond the interval: {', '.join(map(_where, lost))}"
            if lost
            else f"{name} is slower beyond the interval on no prompt"
        ),
        _precision(found),
        f"{found.program} {found.version or 'of unknown version'}{_sources(found)}",
    ]


def _where(row: PromptBesideTool) -> str:
    return f"{row.set} {row.number} beside {row.best}"


def _precision(found: BesideTool) -> str:
    rounds = counted(found.rounds, "round")
    reach = deviation(found.best_each)
    if reach is None:
        return f"{rounds}: one figure has no interval"
    if reach <= PRECISION:
        return f"{rounds}: the interval is within {PRECISION:.0%} of the mean"
    return f"{rounds}: the interval reaches {reach:.0%} from the mean; --rounds allows more"


def _sources(found: BesideTool) -> str:
    if found.same_sources is None:
        return ": whether of the same sources as our library is not known"
    if found.same_sources:
        return ", of the same sources as our library"
    return ": NOT of the same sources as our library, so the difference may be llama.cpp's own"
