"""What `localspec train` shows: one line of progress while it runs, figures at the end."""

import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from localspec.cli.output import join_facts, write_note, write_to_stderr
from localspec.cli.table import table_text
from localspec.distillation.last_trial import DEPTH
from localspec.utils.format import format_seconds, one_line

if TYPE_CHECKING:
    from localspec.distillation.trained import Trained
    from localspec.training.training_request import Progress

# Seconds between two lines where there is no terminal, and where there is one.
_LINES, _REDRAWS = 30.0, 0.2
_CLEAR = "\r\x1b[K"


class TrainingProgress:
    """Shows the progress on stderr: one line that changes; elsewhere a line now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shown, self._phase = 0.0, ""

    def __call__(self, progress: "Progress") -> None:
        """Show how far it is."""
        now = monotonic()
        wait = _REDRAWS if self._terminal else _LINES
        if progress.phase == self._phase and now - self._shown < wait:
            return
        self._shown, self._phase = now, progress.phase
        line = progress_line(progress)
        if self._terminal:
            write_to_stderr(f"{_CLEAR}{one_line(line)}")
        else:
            write_note(line)

    def say(self, text: str) -> None:
        """Show a line that stays."""
        self.end()
        write_note(text)

    def end(self) -> None:
        """Remove the line that changes."""
        if self._terminal and self._phase:
            write_to_stderr(_CLEAR)
        self._phase = ""


def progress_line(progress: "Progress") -> str:
    """How far it is, in one line."""
    share = f" {progress.share:.0%}" if progress.left is not None else ""
    speed, rate, gain = progress.tokens_per_second, progress.acceptance, progress.speed_up
    return join_facts(
        [
            f"{progress.phase}{share}",
            "" if progress.left is None else f"{format_seconds(progress.left)} left",
            "" if speed is None else f"{speed:,.0f} tokens/s",
            "" if rate is None else f"{rate:.0%} of first tokens accepted so far",
            "" if gain is None else f"{gain:.2f} x plain expected",
        ]
    )


def stopped_text(kept: int) -> str:
    """The line of a training that was stopped before it had learnt. kept: tokens of answers."""
    if not kept:
        return "stopped: there is nothing new to keep; give the same command again"
    return (
        f"stopped; {kept:,} tokens of answers are kept, and what was read of them: --resume goes on"
    )


def trained_text(done: "Trained") -> list[str]:
    """The lines at the end."""
    rates = [each[0] for each in done.history]
    best = f"{rates[0]:.1%} of first tokens of drafts accepted untrained, {max(rates):.1%} now"
    if not done.finished:
        return [f"stopped: the best so far is kept ({best}); --resume goes on", *_loss(done)]
    lines = [f"{best}, by the distributions on held-out texts"]
    if done.trials:
        lines += _trials_text(done)
    if (foreseen := done.facts.foreseen) is not None:
        taken = done.facts.taken
        lines.append(
            f"{format_seconds(taken)} from the forecast to the end, "
            f"{format_seconds(foreseen)} foreseen"
        )
    if not done.pays:
        lines += _loss(done)
    elif done.preferred:
        lines.append("--draft auto takes it for this model from now on")
    else:
        lines.append(
            "this model has a drafter that gains more, which --draft auto takes; "
            f"--draft {done.path} takes this one"
        )
    return lines


def _loss(done: "Trained") -> list[str]:
    """The line of a drafter that does not pay, with the figures; none of others."""
    if done.pays:
        return []
    tried = [
        f"{each.expected_speed:.2f} x plain at T = {each.temperature:g}"
        for each in done.trials
        if each.name == str(done.path)
    ]
    figures = f" ({', '.join(tried)}, by what is accepted and the bytes it reads)"
    return [
        f"it does not pay{figures if tried else ' so far'}: --draft auto leaves it out; "
        f"--draft {done.path} takes it"
    ]


def _trials_text(done: "Trained") -> list[str]:
    about = (
        f"{done.trials[0].prompts} held-out prompts, {DEPTH} tokens a draft, all of them counted:"
    )
    header = ("drafter", "T", "accepted", "tokens/step", "tokens/s")
    rows = [
        (
            Path(each.name).name,
            f"{each.temperature:g}",
            "-" if each.name == "none" else f"{each.accepted:.0%}",
            f"{each.tokens_per_step:.2f}",
            f"{each.tokens_per_second:.1f}",
        )
        for each in done.trials
    ]
    return [about, *table_text(header, rows, header[1:]).splitlines()]


def trained_record(done: "Trained") -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "path": str(done.path),
        "kind": done.kind,
        "finished": done.finished,
        "about": done.note,
        "acceptance_by_round": [list(each) for each in done.history],
        "trials": [each.as_dict() for each in done.trials],
        "preferred": done.preferred,
        "pays": done.pays,
        "seconds": {"foreseen": done.facts.foreseen, "taken": done.facts.taken},
    }
