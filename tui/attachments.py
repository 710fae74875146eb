"""Attachments: puts files into a message that names them: texts, images and sounds.

A file is named `@notes.txt`, `@~/notes.txt` or `@"my notes.txt"`, but not between backticks.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count, groupby
from typing import Any

from localspec.conversation.media_spans import Content, MediaSpan, replaced
from localspec.conversation.turns import Turn
from localspec.errors import InvalidValueError
from localspec.utils.media_file import is_sound
from localspec_tui.attached_file import Attached, attached_file, file_contents
from localspec_tui.file_names import path_of, quoted, similar_file, spaced_file, typeable
from localspec_tui.slash_commands import as_message

# Code, or an @ that begins a word.
_CODE_OR_WORD = re.compile(
    r"""(?P<fence>`{3,}).*?(?:(?P=fence)`*|\Z) | `[^`\n]*`
    | (?<![^\s(\[{]) @ (?: "(?P<double>[^"\n]+)" | '(?P<single>[^'\n]+)' | (?P<bare>\S+) )""",
    re.DOTALL | re.VERBOSE,
)
_AFTER_WORDS = ".,;:!?)]}"
_END_OF_WORD = re.compile(r"[.,;:!?)\]}]*(?:\s|\Z)")
_GAP = re.compile(r"[ \t]*\n+|[ \t]+")
# More words than this are no file names, and comparing each with those there would take long.
_MOST_COMPARED = 30
# A code block with a name above it.
_NAMED_BLOCK = re.compile(r"^(?P<name>[^\n]+):\n(?P<fence>`{3,})\w*\n.*?\n(?P=fence)$", re.M | re.S)
# A word after @ that is meant as a file, unlike the name of a person or a decorator.
_FILE_NAME = re.compile(r"[^()]*(?:[/\\][^()]*|\.\w{1,5})")


@dataclass(frozen=True, slots=True)
class Attachments:
    """What a message may name: files, and the images and sounds that its turn has already.

    known: those of the turn, by the names that stand for them; their files may have changed.
    """

    known: Mapping[str, MediaSpan] = field(default_factory=dict)

    @classmethod
    def of(cls, turn: Turn | None) -> "Attachments":
        """Those of another text of a turn. None: of a new message.

        Each image has a name that can be typed and is no other's.
        """
        known: dict[str, MediaSpan] = {}
        for span in turn.media if turn else ():
            known.setdefault(_name_in(known, span), span)
        return cls(known)

    def attach(self, text: str) -> Content:
        """Replace each name in a message by a code block with the file.

        A word after @ that is no existing path stays. With an image or a sound the message is a
        list of parts. Raises InvalidValueError for a folder, and for a file that is too large, or
        neither a text nor one of these.
        """
        parts: list[Attached] = []
        end = 0
        for match, name in self._named(text):
            parts += [_text_between(text, end, match.start()), self._attached(name)]
            end = match.start("bare") + len(name) if match["bare"] else match.end()
        if not parts:
            return text
        parts.append(_text_between(text, end, len(text)))
        return _joined(parts)

    def names(self, text: str) -> list[str]:
        """The names in a message that attach something, as they were typed."""
        return [name for _, name in self._named(text)]

    def detach(self, text: str) -> str:
        """Undo `attach`: the message with the names of its files instead of their text.

        A file that has changed since, or is gone, stays a code block; all of them do where a word
        has become the name of what cannot be attached.
        """
        parts: list[str] = []
        end = 0
        for match in _NAMED_BLOCK.finditer(text):
            if _has_text(match["name"], match[0]):
                name = f'"{match["name"]}"' if " " in match["name"] else match["name"]
                parts += [text[end : match.start()].removesuffix("\n\n"), f"@{name}"]
                # With the blank line behind it.
                end = match.end() + 2
        if not parts:
            return text
        parts.append(text[end:])
        message = ""
        for part in filter(None, parts):
            message += _gap(message, part) + part
        try:
            whole = self.attach(text) if self.known else text
            is_same = self.attach(message) == whole
        except (InvalidValueError, OSError):
            return text
        return message if is_same else text

    def missing(self, text: str) -> str | None:
        """Return the first word after @ that is meant as a file and is none, or None.

        A word that is almost the name of a file there is meant as that.
        """
        missing = dict(self._unknown(text))
        compared = len(missing) <= _MOST_COMPARED
        for name, is_file_name in missing.items():
            if is_file_name or (compared and similar_file(name)):
                return name
        return None

    def unquoted(self, text: str) -> str | None:
        """Return the first name of a file after @ that needs quotes, as it has spaces, or None."""
        bare = [each for each in _CODE_OR_WORD.finditer(text) if each["bare"]]
        for match in bare[:_MOST_COMPARED]:
            if not self._name(match) and (name := spaced_file(text[match.start("bare") :])):
                return name
        return None

    def unattached(self, text: str) -> str | None:
        """Return the first word after @ that no file has as its name; None in several lines.

        Those are mostly code, whose decorators look the same.
        """
        return None if "\n" in text else next((name for name, _ in self._unknown(text)), None)

    def changed(self, text: str) -> str | None:
        """Return the first name of a known image in a text whose file is another one now."""
        for _, name in self._named(text):
            if (span := self.known.get(name)) and name == span.name:
                with suppress(InvalidValueError, OSError):
                    if file_contents(name) != span.data:
                        return name
        return None

    def _named(self, text: str) -> Iterator[tuple[re.Match[str], str]]:
        """Yield where a text attaches something, and the name of that."""
        for match in _CODE_OR_WORD.finditer(text):
            if name := self._name(match):
                yield match, name

    def _unknown(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield words after @ that attach nothing, and whether each is written as a path."""
        for match in _CODE_OR_WORD.finditer(text):
            name = match["double"] or match["single"] or (match["bare"] or "").rstrip(_AFTER_WORDS)
            if name and not self._name(match):
                yield name, not match["bare"] or bool(_FILE_NAME.fullmatch(name))

    def _name(self, match: re.Match[str]) -> str | None:
        """What a match names, if it exists."""
        bare = match["bare"] or ""
        names = (match["double"], match["single"], bare, bare.rstrip(_AFTER_WORDS))
        return next((each for each in names if each and self._exists(each)), None)

    def _exists(self, name: str) -> bool:
        return name in self.known or os.path.exists(path_of(name))

    def _attached(self, name: str) -> Attached:
        span = self.known.get(name)
        return span.part if span else attached_file(name)


def _joined(parts: Iterable[Attached]) -> Content:
    """The texts as one, or as those between images and sounds."""
    joined: list[Mapping[str, Any]] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, str)):
        if not is_text:
            joined += [part for part in group if not isinstance(part, str)]
        elif text := "\n\n".join(part for part in group if isinstance(part, str) and part):
            # What follows an image is apart from it anyway.
            joined.append({"type": "text", "text": text.lstrip() if joined else text})
    has_media = any(part["type"] != "text" for part in joined)
    return joined if has_media else "".join(part["text"] for part in joined)


def with_names(content: str, media: Iterable[tuple[int, int, str]]) -> str:
    """A message with the names of its images and sounds, as they are typed.

    media: where their chips stand in the content, and the names of their files.
    """
    named = []
    for start, end, name in media:
        shown = content[start:end]
        ends = shown[-1:].isspace() or _END_OF_WORD.match(content, end)
        if name and shown.strip():
            written = quoted(typeable(name), always=not ends)
            named.append((start, end, shown.replace(shown.strip(), f"@{written}")))
    return replaced(content, named)


def typed_message(turn: Turn) -> str:
    """A turn of the user with the names of its files, as they were typed."""
    attachments = Attachments.of(turn)
    named = ((span.start, span.end, _name_in(attachments.known, span)) for span in turn.media)
    return attachments.detach(with_names(turn.content, named))


def with_images_of(turn: Turn, text: str) -> str:
    """Another text of a turn behind the names of its images and sounds, unless it names some."""
    attachments = Attachments.of(turn)
    message = attachments.attach(text)
    if not attachments.known or not isinstance(message, str):
        return text
    return " ".join((*(f"@{quoted(name)}" for name in attachments.known), as_message(text)))


def _name_in(known: Mapping[str, MediaSpan], span: MediaSpan) -> str:
    """The name of an image or a sound among others; those that have the same get numbers."""
    name = typeable(span.name or ("sound" if is_sound(span.data) else "image"))
    numbered = chain([name], (f"{name} {number}" for number in count(2)))
    others = {each for each, at in known.items() if (at.name, at.key) != (span.name, span.key)}
    return next(each for each in numbered if each not in others)


def _text_between(text: str, start: int, end: int) -> str:
    """The part of a message before, between or after file names."""
    gap = _GAP.match(text, start, end) if start else None
    return text[gap.end() if gap else start : end].rstrip()


def _gap(before: str, after: str) -> str:
    """What stands between two parts of a message of which one is a file name."""
    if not before or before[-1] in "([{" or after[0] in _AFTER_WORDS:
        return ""
    return "\n" if after[0].isspace() else " "


def _has_text(name: str, block: str) -> bool:
    """Whether a file still has the text of a code block."""
    try:
        return attached_file(name) == block
    except (InvalidValueError, OSError):
        return False
