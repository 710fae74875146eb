"""`localspec doctor`: what is wrong or slow here, and the remedy."""

import os
import shutil
from collections.abc import Sequence
from typing import Any

import click
from rich.style import Style

from localspec.cli.output import Output
from localspec.cli.settings import SETTINGS, Settings
from localspec.doctor import findings
from localspec.doctor.finding import Finding, Severity, error, exit_code_of, note, ok
from localspec.errors import InvalidValueError
from localspec.utils.format import counted

# In rich's words; without colour the name of the severity says the same.
_STYLES = {
    Severity.OK: Style.parse("green"),
    Severity.NOTE: Style.parse("blue"),
    Severity.WARNING: Style.parse("yellow"),
    Severity.ERROR: Style.parse("bold red"),
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not lines.")
def doctor(*, as_json: bool) -> int:
    """Check this installation and this machine: versions, GPU, threads, folders, the Hub.

    It loads and runs a small model. Nothing is fetched, and no access token is shown.

    The exit code is 0 if there is no error (notes and warnings are none), else that of the first
    error: 5 if llama.cpp or the bundled models cannot be loaded, 7 if drafts change the text,
    2 for settings or a models.toml that cannot be used, 1 for anything else.
    """
    output = Output(color=True)
    found = [*_settings(), *findings(), _terminal(output)]
    if as_json:
        output.record(_record(found))
    else:
        output.data(_text(found, color=output.color))
        output.note(_summary(found))
    return exit_code_of(found)


def _settings() -> list[Finding]:
    """Say which settings end every command that obeys them."""
    settings, found = Settings(), dict[str, Finding]()
    for name in SETTINGS:
        try:
            settings.find(name)
        except InvalidValueError as failure:
            text = str(failure)
            found[text] = error("settings", text, "correct or remove it", failure.exit_code)
    return [*found.values()]


def _terminal(output: Output) -> Finding:
    columns = shutil.get_terminal_size().columns
    text = f"TERM is {os.environ.get('TERM') or 'not set'}, {columns} columns"
    if output.color_off_because:
        return note("terminal", f"{text}, no colours: {output.color_off_because}")
    return ok("terminal", text)


def _text(found: Sequence[Finding], *, color: bool) -> str:
    """Return a line for each finding, with its remedy on the next line."""
    wide = max(len(severity.name) for severity in Severity)
    topics = max(len(each.topic) for each in found)
    lines = []
    for each in found:
        mark = each.severity.name.lower().ljust(wide)
        shown = _STYLES[each.severity].render(mark) if color else mark
        lines.append(f"{shown}  {each.topic.ljust(topics)}  {each.text}")
        if each.remedy:
            lines.append(f"{'':{wide + topics + 4}}-> {each.remedy}")
    return "\n".join(lines) + "\n"


def _summary(found: Sequence[Finding]) -> str:
    errors, warnings = (
        sum(each.severity is severity for each in found)
        for severity in (Severity.ERROR, Severity.WARNING)
    )
    if not errors and not warnings:
        return "everything works"
    counts = [(errors, "error"), (warnings, "warning")]
    return ", ".join(counted(count, name) for count, name in counts if count)


def _record(found: Sequence[Finding]) -> dict[str, Any]:
    return {
        "worst": max(each.severity for each in found).name.lower(),
        "exit_code": exit_code_of(found),
        "findings": [
            {
                "severity": each.severity.name.lower(),
                "topic": each.topic,
                "text": each.text,
                "remedy": each.remedy,
            }
            for each in found
        ],
    }
