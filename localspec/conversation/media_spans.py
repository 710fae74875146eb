"""Media spans: the images and sounds of a turn, and where they stand in its text.

People read a chip in place of an image, such as [cat.png 640 x 480]. It is text, so whoever shows,
finds or copies turns need not know of images. Which letters of a turn are such a chip is kept apart
from them: nobody can write one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from localspec.engine.media_marks import as_lines
from localspec.utils.format import format_bytes, format_seconds, printable
from localspec.utils.media_file import image_size, is_sound, sound_seconds

# What a user sends: a text, or parts, of which some are images or sounds.
Content = str | Sequence[Mapping[str, Any]]
# Behind a chip, these follow at once.
_CLOSING = ".,;:!?)]}"


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """An image or a sound of a turn, of whose content [start:end] is the chip, with its spaces.

    name: of the file, as it was given; may be empty. data: its contents. key: their digest.
    """

    start: int
    end: int
    name: str
    data: bytes = field(repr=False)
    key: str = ""

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", sha256(self.data).hexdigest())

    @property
    def chip(self) -> str:
        """What people read in its place."""
        return chip(self.name, self.data)

    @property
    def part(self) -> Mapping[str, Any]:
        """The part of a message that it was."""
        return media_part(self.name, self.data)


def media_part(name: str, data: bytes) -> Mapping[str, Any]:
    """A part of a message that is an image or a sound. name: of its file. data: its contents."""
    kind = "audio" if is_sound(data) else "image"
    return {"type": kind, kind: data, "name": name}


def replaced(content: str, by: Iterable[tuple[int, int, str]]) -> str:
    """A content in which other texts stand for some parts. by: their start, end and text."""
    text, at = "", 0
    for start, end, instead in by:
        text += content[at:start] + instead
        at = end
    return text + content[at:]


def chip(name: str, data: bytes) -> str:
    """What people read in place of an image or a sound."""
    size, kind = format_bytes(len(data)), "image"
    if is_sound(data):
        seconds, kind = sound_seconds(data), "sound"
        size = format_seconds(seconds) if seconds else size
    elif shape := image_size(data):
        size = f"{shape[0]} x {shape[1]}"
    return f"[{printable(Path(name).name) or kind} {size}]"


def laid_out(parts: Iterable[str | tuple[str, bytes]]) -> tuple[str, tuple[MediaSpan, ...]]:
    """Texts and files as a turn has them; chips get spaces that the model does not read.

    Beside a code block, which may have a name above it, a chip is a paragraph of its own.
    """
    text, spans = "", list[MediaSpan]()
    for part in as_lines(parts):
        if isinstance(part, str):
            if spans and part[:1] not in _CLOSING and not part[:1].isspace():
                gap = _gap(part.splitlines()[:2])
                spans[-1] = replace(spans[-1], end=spans[-1].end + len(gap))
                text += gap
            text += part
        else:
            is_open = text[-1:] in ("", " ", "\n", *"([{")
            gap = "" if is_open else _gap(text.splitlines()[-1:])
            shown = gap + chip(*part)
            spans.append(MediaSpan(len(text), len(text) + len(shown), *part))
            text += shown
    return text, tuple(spans)


def _gap(beside: Iterable[str]) -> str:
    return "\n\n" if any(line.startswith("```") for line in beside) else " "
