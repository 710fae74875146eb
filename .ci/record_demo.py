"""Record `localspec demo` as an animated SVG: a real run in a pseudo-terminal, at its own pace.

    pip install pyte && python .ci/record_demo.py docs/demo.svg [OPTIONS OF THE DEMO]

Pauses of more than a second, as while models load, are cut to a second; nothing else is changed.
"""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path

import pyte

COLUMNS, LINES = 100, 34
FRAME, SETTLED, PAUSE, HOLD = 0.125, 0.02, 1.0, 6.0
# Bytes of a picture; a longer one loses every other frame.
MOST = 200_000
END = b"or Ctrl-C to end"
LETTER, LINE, SIZE, MARGIN = 7.8, 16, 13, 12
COLORS = {
    "default": "#d8dee9", "black": "#4c566a", "red": "#ff7b72", "green": "#7ee787",
    "brown": "#e3b341", "blue": "#79c0ff", "magenta": "#d2a8ff", "cyan": "#76e3ea",
    "white": "#ffffff",
}  # fmt: skip

Row = tuple[tuple[int, str, str], ...]


def chunks(command: list[str]) -> Iterator[tuple[float, bytes]]:
    """Yield what the command writes to its terminal, with the seconds since its start."""
    child, screen = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
        os.execv(command[0], command)
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    began, shown = time.perf_counter(), b""
    while select.select([screen], [], [])[0]:
        try:
            piece = os.read(screen, 65536)
        except OSError:  # the command has ended
            break
        yield time.perf_counter() - began, piece
        shown = shown[-200:] + piece
        if END in shown:
            os.write(screen, b"end\n")
            break
    _, status = os.waitpid(child, 0)
    if code := os.waitstatus_to_exitcode(status):
        sys.exit(f"the demo ended with {code}; nothing was written")


def style(char: pyte.screens.Char) -> str:
    """Return the classes of a character."""
    flags = (("b", char.bold), ("i", char.italics), ("u", char.underscore))
    names = [char.fg] if char.fg in COLORS and char.fg != "default" else []
    return " ".join([*names, *(name for name, on in flags if on)])


def row(screen: pyte.Screen, y: int) -> Row:
    """Return a line of the screen as runs of one style: column, text, classes."""
    line, runs = screen.buffer[y], list[tuple[int, str, str]]()
    for x in range(COLUMNS):
        char = line[x]
        if runs and runs[-1][2] == style(char):
            start, text, classes = runs[-1]
            runs[-1] = (start, text + char.data, classes)
        else:
            runs.append((x, char.data, style(char)))
    return tuple(run for run in runs if run[1].strip())


def frames(pieces: Iterator[tuple[float, bytes]], command: str) -> list[tuple[float, list[Row]]]:
    """Return the screen at each moment, with its time; long pauses are cut."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    stream.feed(f"\x1b[32m$\x1b[0m {command}\r\n".encode())
    found = [(0.0, [row(screen, y) for y in range(LINES)])]
    before = now = 0.0
    for at, piece in pieces:
        # A shorter pause may be in the middle of a drawing.
        if at - before >= SETTLED and now - found[-1][0] >= FRAME:
            found.append((now, [row(screen, y) for y in range(LINES)]))
        now += min(at - before, PAUSE)
        before = at
        stream.feed(piece)
    return [*found, (now + FRAME, [row(screen, y) for y in range(LINES)])]


def spans(shown: list[tuple[float, list[Row]]]) -> dict[tuple[float, float], list[tuple[int, Row]]]:
    """Return the lines by the time they are on the screen: start, end -> number and line."""
    end = shown[-1][0] + HOLD
    found: dict[tuple[float, float], list[tuple[int, Row]]] = {}
    for y in range(LINES):
        start, current = 0.0, shown[0][1][y]
        for at, rows in [*shown[1:], (end, [()] * LINES)]:
            if rows[y] != current or at == end:
                if current:
                    found.setdefault((start, at), []).append((y, current))
                start, current = at, rows[y]
    return found


def text(y: int, runs: Row) -> str:
    """Return a line as SVG."""
    parts = [
        f'<tspan x="{MARGIN + LETTER * x:.1f}" class="{classes}">'
        f"{escape(words.rstrip(), quote=False)}</tspan>"
        for x, words, classes in runs
    ]
    parts = [part.replace(' class=""', "") for part in parts]
    return f'<text y="{MARGIN + LINE * (y + 1) - 4}">{"".join(parts)}</text>'


def svg(shown: list[tuple[float, list[Row]]]) -> str:
    """Return the animation; without animations, its last moment."""
    end = shown[-1][0] + HOLD
    keys, groups = [], []
    for number, ((start, stop), lines) in enumerate(spans(shown).items()):
        first, last = (f"{100 * each / end:.3f}%" for each in (start, stop))
        if start or stop < end:
            before = "0%{opacity:0}" if start else ""
            after = f"{last},to{{opacity:0}}" if stop < end else "to{opacity:1}"
            keys.append(
                f"@keyframes k{number}{{{before}{first}{{opacity:1}}{after}}}"
                f".k{number}{{animation:k{number} {end:.2f}s step-end infinite}}"
            )
        ends = "" if stop < end else " l"
        body = "".join(text(y, runs) for y, runs in lines)
        groups.append(f'<g class="f k{number}{ends}">{body}</g>')
    width, height = 2 * MARGIN + LETTER * COLUMNS, 2 * MARGIN + LINE * LINES
    colors = "".join(f".{name}{{fill:{color}}}" for name, color in COLORS.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}"><title>localspec demo, recorded</title><style>'
        f"text{{font:{SIZE}px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        f"fill:{COLORS['default']};white-space:pre}}{colors}.b{{font-weight:bold}}"
        ".i{font-style:italic}.u{text-decoration:underline}.f{opacity:0}.l{opacity:1}"
        f"{''.join(keys)}@media(prefers-reduced-motion){{.f{{animation:none}}}}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#1b1f27"/>{"".join(groups)}</svg>\n'
    )


def main() -> None:
    """Write the recording to the file of the first argument."""
    file, *options = sys.argv[1:]
    pieces = chunks([sys.executable, "-m", "localspec", "demo", *options])
    shown = frames(pieces, " ".join(["localspec demo", *options]))
    picture = svg(shown)
    while len(picture.encode()) > MOST:
        shown = [*shown[:-1:2], shown[-1]]
        picture = svg(shown)
    Path(file).write_text(picture, encoding="utf-8")
    sys.stderr.write(f"{file}: {len(picture.encode()) / 1e3:.0f} kB, {shown[-1][0] + HOLD:.1f} s\n")


if __name__ == "__main__":
    main()
