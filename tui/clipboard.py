"""Clipboard: that of the desktop, by a program of the platform, and that of tmux.

Textual copies by OSC 52, which no terminal answers and many ignore, tmux by default among them.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

# Seconds that a program may take.
_TIMEOUT = 3.0


class ClipboardProgram(NamedTuple):
    """A program that puts its standard input into a clipboard. encoding: of that input."""

    command: Sequence[str]
    encoding: str = "utf-8"


# A server of tmux sends the text on to its terminals, and keeps it for its own paste.
_TMUX = ClipboardProgram(("tmux", "load-buffer", "-w", "-"))


def copy_to_programs(text: str) -> tuple[bool, bool]:
    """Copy a text; return whether it is in the desktop's clipboard, and whether in tmux's."""
    in_desktop = any(_run(program, text) for program in desktop_programs(os.environ))
    return in_desktop, "TMUX" in os.environ and _run(_TMUX, text)


def desktop_programs(environment: Mapping[str, str]) -> Iterator[ClipboardProgram]:
    """The programs that may reach the desktop's clipboard, the best first.

    Over ssh the user's desktop is on another machine, which only X forwards.
    """
    if not {"SSH_CONNECTION", "SSH_TTY"} & {*environment}:
        yield ClipboardProgram(("pbcopy",))
        yield ClipboardProgram(("clip.exe",), "utf-16-le")
        if environment.get("WAYLAND_DISPLAY"):
            yield ClipboardProgram(("wl-copy",))
    if environment.get("DISPLAY"):
        yield ClipboardProgram(("xclip", "-selection", "clipboard"))
        yield ClipboardProgram(("xsel", "--clipboard", "--input"))


def copied_note(letters: int, *, in_desktop: bool, in_tmux: bool) -> str:
    """What is known of a text that was copied, by OSC 52 too."""
    if in_desktop:
        return f"copied: {letters:,} letters"
    where = "tmux and to the terminal's clipboard" if in_tmux else "the terminal's clipboard"
    return (
        f"sent to {where}: {letters:,} letters. Not every terminal takes them; /save FILE writes "
        "the conversation to a file"
    )


def _run(program: ClipboardProgram, text: str) -> bool:
    """Run a program; return whether it took the text."""
    name, *arguments = program.command
    path = shutil.which(name)
    if path is None:
        return False
    try:
        # Some stay in the background to hand the text out, also when the chat has ended.
        done = subprocess.run(
            [path, *arguments],
            input=text.encode(program.encoding, "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
