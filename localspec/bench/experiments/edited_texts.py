"""Edited texts: a source file or JSON records, and the same after an edit that people ask for.

Used by `copies` and `file_copies`. The files are the standard library's that the pair in
tests/pycode was not trained on. An answer is known beforehand, so it can be played as if a target
had written it.
"""

import json
import keyword
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from localspec.utils.bounded_file import MOST_TEXT_BYTES, read_at_most

FILES = ("heapq", "textwrap", "csv", "fractions", "statistics", "shlex")
# The lines of a piece of a file: about 2,000 tokens.
_LINES = 200
_RECORDS, _CHANGED = 24, 8
_NEW_NAMES = ("current_entry", "payload", "left_over", "source_text", "total", "make_result")
_CITIES = ("Leeds", "York", "Hull", "Bath", "Truro", "Durham", "Ely", "Wells")
_NAMES = ("Ada", "Tom", "Mina", "Lars", "Ivo", "Nora", "Pia", "Sam", "Uma", "Ben")

_Edit = Callable[[str, Random], str]


@dataclass(frozen=True, slots=True)
class EditedText:
    """before: the prompt's text. after: the answer. request: what the prompt asks for."""

    before: str
    after: str
    request: str

    @property
    def prompt(self) -> str:
        """The prompt, with an end after which the edited text begins."""
        return f"{self.before}\n\n{self.short_prompt}"

    @property
    def short_prompt(self) -> str:
        """The same prompt without the text that is edited."""
        return f"# {self.request}\n\n"


def renamed(text: str, random: Random) -> str:
    """Rename an identifier that occurs often."""
    words = Counter(re.findall(r"\b[a-z_]{4,}\b", text))
    common = [word for word, count in words.items() if count >= 6 and not keyword.iskeyword(word)]
    if not common:
        return text
    return re.sub(rf"\b{random.choice(sorted(common))}\b", random.choice(_NEW_NAMES), text)


def other_constants(text: str, random: Random) -> str:
    """Change every second number and every sixth short string."""

    def changed(found: re.Match[str]) -> str:
        if found[0][0] in "\"'":
            return f"{found[0][:-1]}_new{found[0][-1]}" if random.random() < 1 / 6 else found[0]
        return str(int(found[0]) + random.randrange(1, 50)) if random.random() < 0.5 else found[0]

    return re.sub(r"\b\d{1,9}\b|\"\w{1,20}\"|'\w{1,20}'", changed, text)


def other_lines(text: str, random: Random) -> str:
    """Insert a line and delete a line, once in about 25 lines each."""
    lines: list[str] = []
    for line in text.split("\n"):
        chance = random.random()
        if chance < 0.04:
            continue
        lines.append(line)
        if chance > 0.96:
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}log.debug('step %s', {random.randrange(100)})")
    return "\n".join(lines)


def other_signatures(text: str, random: Random) -> str:
    """Add a parameter to the functions, and a type for what they return."""
    parameter = random.choice(("strict=False", "limit=None", "verbose=0"))
    return re.sub(r"(def \w+\([^()\n]*)\):", rf"\1, {parameter}) -> object:", text)


def all_of_it(text: str, random: Random) -> str:
    """A commit of several edits."""
    for edit in (renamed, other_constants, other_lines, renamed):
        text = edit(text, random)
    return text


EDITS: dict[str, tuple[str, _Edit]] = {
    "rename": ("The same, with a better name.", renamed),
    "constants": ("The same, with other constants.", other_constants),
    "lines": ("The same, with logging and without what is not needed.", other_lines),
    "signatures": ("The same, with other signatures.", other_signatures),
    "commit": ("The same, after the next commit.", all_of_it),
}
RECORDS = "records"


def edited_files(kind: str) -> Iterator[EditedText]:
    """Yield the pieces of the files with an edit, a kind of EDITS."""
    request, edit = EDITS[kind]
    library = Path(sysconfig.get_path("stdlib"))
    for name in FILES:
        for number, piece in enumerate(pieces(_read(library / f"{name}.py"))):
            random = Random(f"{kind} {name} {number}")
            yield EditedText(piece, edit(piece, random), request)


def pieces(text: str) -> list[str]:
    """Cut a text into pieces of some hundred lines, without a short last one."""
    lines = text.split("\n")
    starts = range(0, max(1, len(lines) - _LINES // 2), _LINES)
    return ["\n".join(lines[start : start + _LINES]) for start in starts]


def edited_folders(before: Path, after: Path) -> Iterator[EditedText]:
    """Yield the files of a folder whose text is another in a second folder, and that text."""
    for path in sorted(after.glob("*.py")):
        if (before / path.name).is_file():
            old, new = _read(before / path.name), _read(path)
            if old != new:
                yield EditedText(old, new, "The same, in the next version.")


def edited_records() -> Iterator[EditedText]:
    """Yield lists of JSON records with some other values in each record."""
    for number in range(12):
        random = Random(f"{RECORDS} {number}")
        records = [_record(place, random) for place in range(1, _RECORDS + 1)]
        key = random.choice(("age", "city", "active", "email"))
        some = [
            {**each, key: _record(each["id"], random)[key]}
            if number % 2 or place % 3 == 0
            else each
            for place, each in enumerate(records)
        ]
        yield EditedText(_lines(records), _lines(some), f"The same, with another {key}.")


def _record(number: object, random: Random) -> dict[str, object]:
    name = random.choice(_NAMES)
    return {
        "id": number,
        "name": name,
        "email": f"{name.lower()}{random.randrange(1000)}@example.com",
        "age": random.randrange(18, 90),
        "city": random.choice(_CITIES),
        "active": random.random() < 0.5,
    }


def _lines(records: Sequence[dict[str, object]]) -> str:
    return "[\n" + ",\n".join(f"  {json.dumps(each)}" for each in records) + "\n]"


def _read(path: Path) -> str:
    return read_at_most(path, MOST_TEXT_BYTES).decode("utf-8")
