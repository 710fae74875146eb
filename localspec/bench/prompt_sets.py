"""Prompt sets: the bundled ones, and files of the user.

A text file holds raw texts to continue, separated by lines that are just `---`. A .jsonl file holds
an object per line: {"prompt": TEXT} or {"messages": [{"role": ..., "content": ...}]}.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt
from localspec.errors import InvalidValueError
from localspec.gguf.reader import read_header
from localspec.llama.chat_template import Message
from localspec.models import registry
from localspec.utils.text_file import read_text_file

# Name -> its file under prompts/.
SETS = {
    "code": "code.txt",
    "edit": "edit.txt",
    "prose": "prose.txt",
    "json": "json.txt",
    "chat": "chat.jsonl",
    "terminal": "terminal.jsonl",
}
# Questions, edits and a second turn that the bundled pair was trained for, and other models not.
TERMINAL = "terminal"
# Prompts behind all texts of the other sets: long to read, so only measured when it is named.
LONG = "long"
_SEPARATOR = "---"
_ROLES = {"system": "System", "user": "User", "assistant": "Assistant"}


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt of a set. number: in the set, from 1. content: a text, or chat messages."""

    set: str
    number: int
    content: str | tuple[Message, ...]

    @property
    def bytes(self) -> int:
        """The bytes of its text: it has no more tokens, without those of a chat template."""
        if isinstance(self.content, str):
            return len(self.content.encode())
        return sum(len(message["content"].encode()) for message in self.content)

    def prompt_for(self, engine: Engine) -> Prompt:
        """The prompt for this engine: chat messages as a transcript, if the model takes texts."""
        if isinstance(self.content, str):
            return self.content
        return list(self.content) if engine.prefers_chat else _transcript(self.content)


def load_tasks(names: Sequence[str], file: Path | None) -> list[Task]:
    """Load these bundled sets and the file, in the order of the prompts' numbers.

    The first prompt of each set comes before the second of any, so that a benchmark that is stopped
    early has measured every set.

    Raises InvalidValueError for an unknown set, and for a file that cannot be used.
    """
    tasks = [task for name in dict.fromkeys(names) for task in bundled_tasks(name)]
    if file:
        tasks += read_tasks(file)
    return sorted(tasks, key=lambda task: task.number)


def prompts_hash(tasks: Sequence[Task]) -> str:
    """16 digits that tell other prompts apart."""
    return hashlib.sha256(json.dumps([each.content for each in tasks]).encode()).hexdigest()[:16]


def default_sets(target: Path) -> list[str]:
    """Return the sets for a target where the user names none.

    The bundled pair, and what is scaled from it, answers questions about the terminal only.
    """
    about = "general.description"  # a scaled file keeps what its source says of itself
    said, own = (
        read_header(path).metadata.get(about) for path in (target, registry.bundled().target)
    )
    if own and said == own:
        return [TERMINAL]
    return [name for name in SETS if name != TERMINAL]


def bundled_tasks(name: str) -> list[Task]:
    """Load a bundled set. Raises InvalidValueError for an unknown name."""
    if name == LONG:
        return _long_tasks()
    if name not in SETS:
        choices = ", ".join((*SETS, LONG))
        raise InvalidValueError(f"--set {name}: there is no such set; choose {choices}")
    file = resources.files("localspec.bench") / "prompts" / SETS[name]
    return _parsed(name, file.read_text(encoding="utf-8"), SETS[name], "--set")


def _long_tasks() -> list[Task]:
    """The first two prompts of the set code, each behind all texts of the other sets."""
    others = [task.content for name in SETS if name != "code" for task in bundled_tasks(name)]
    before = "\n\n".join(text for text in others if isinstance(text, str))
    code = bundled_tasks("code")[:2]
    return [Task(LONG, task.number, f"{before}\n\n{task.content}") for task in code]


def read_tasks(path: Path, option: str = "--prompts") -> list[Task]:
    """Load a file of the user; the set has the file's name, without its extension.

    option: for messages.
    Raises InvalidValueError for a file that is missing, is not UTF-8, or holds no prompt.
    """
    remedy = "name a text file, or leave it out for the sets that come with localspec"
    text = read_text_file(option, path, remedy)
    tasks = _parsed(path.stem, text, path.name, option)
    if not tasks:
        how = f", and {_SEPARATOR} on a line of its own before the next"
        how = ", a JSON object on each line" if path.suffix == ".jsonl" else how
        raise InvalidValueError(f"{option} {path}: it holds no prompt; write one{how}")
    return tasks


def _parsed(name: str, text: str, file: str, option: str) -> list[Task]:
    contents = _of_json_lines(text, file, option) if file.endswith(".jsonl") else _of_text(text)
    return [Task(name, number, content) for number, content in enumerate(contents, start=1)]


def _of_text(text: str) -> Iterable[str]:
    piece: list[str] = []
    for line in [*text.split("\n"), _SEPARATOR]:
        if line.rstrip() != _SEPARATOR:
            piece.append(line)
            continue
        # Tokenizers join a line break and what follows: a prompt that ends in one goes on badly.
        prompt = "\n".join(piece).strip("\n").rstrip()
        piece = []
        if prompt:
            yield prompt


def _of_json_lines(text: str, file: str, option: str) -> Iterable[str | tuple[Message, ...]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        content = _content(line)
        if content is None:
            raise InvalidValueError(
                f"{option} {file}: line {number} is {line!r:.60}; it must be "
                '{"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}'
            )
        yield content


def _content(line: str) -> str | tuple[Message, ...] | None:
    """The prompt in a line of JSON, or None if it is not an object as described above."""
    try:
        record = json.loads(line)
        # An escape can stand for half a character, which no model can be given.
        json.dumps(record, ensure_ascii=False).encode()
    except ValueError:
        return None
    match record:
        case {"prompt": str(prompt)} if prompt.strip():
            return prompt
        case {"messages": [*messages]} if messages and all(map(_is_message, messages)):
            return tuple(messages)
    return None


def _is_message(value: Any) -> bool:
    match value:
        case {"role": str(), "content": str()}:
            return True
    return False


def _transcript(messages: Sequence[Message]) -> str:
    turns = [
        f"{_ROLES.get(message['role'], message['role'])}: {message['content']}"
        for message in messages
    ]
    return "\n\n".join([*turns, "Assistant:"])
