"""Prompt sets: those that come with localspec, and a file of the user's.

A text file holds raw texts to be continued, with lines of nothing but `---` between them. A .jsonl
file holds an object per line: {"prompt": TEXT} or {"messages": [{"role": ..., "content": ...}]}.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt
from localspec.errors import InvalidValueError
from localspec.llama.chat_template import Message

# Name -> its file under prompts/.
SETS = {
    "code": "code.txt",
    "edit": "edit.txt",
    "prose": "prose.txt",
    "json": "json.txt",
    "chat": "chat.jsonl",
}
# An answer behind all of the texts above. Reading them takes its time, so only where it is named.
LONG = "long"
_SEPARATOR = "---"
_ROLES = {"system": "System", "user": "User", "assistant": "Assistant"}


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt: the set it is of, its number in there (from 1), and a text or chat messages."""

    set: str
    number: int
    content: str | tuple[Message, ...]

    @property
    def bytes(self) -> int:
        """Of its text: no prompt has more tokens, but for what a chat template adds."""
        if isinstance(self.content, str):
            return len(self.content.encode())
        return sum(len(message["content"].encode()) for message in self.content)

    def prompt_for(self, engine: Engine) -> Prompt:
        """As this engine takes it; a chat as a transcript, where the model is made for texts."""
        if isinstance(self.content, str):
            return self.content
        return list(self.content) if engine.prefers_chat else _transcript(self.content)


def tasks_of(names: Sequence[str], file: Path | None) -> list[Task]:
    """The prompts of these sets and of the file, by turns: the first of each, the second of each.

    So a benchmark that is stopped early has seen something of every set. Raises InvalidValueError
    for a set there is not, and for a file that cannot be used.
    """
    tasks = [task for name in dict.fromkeys(names) for task in shipped(name)]
    if file:
        tasks += read_tasks(file)
    return sorted(tasks, key=lambda task: task.number)


def shipped(name: str) -> list[Task]:
    """A set that comes with localspec. Raises InvalidValueError for another name."""
    if name == LONG:
        return _long()
    if name not in SETS:
        choices = ", ".join((*SETS, LONG))
        raise InvalidValueError(f"--set {name}: there is no such set; choose {choices}")
    file = resources.files("localspec.bench") / "prompts" / SETS[name]
    return _parsed(name, file.read_text(encoding="utf-8"), SETS[name])


def _long() -> list[Task]:
    """The first two prompts of code, each behind all texts of the other sets."""
    others = [task.content for name in SETS if name != "code" for task in shipped(name)]
    before = "\n\n".join(text for text in others if isinstance(text, str))
    code = shipped("code")[:2]
    return [Task(LONG, task.number, f"{before}\n\n{task.content}") for task in code]


def read_tasks(path: Path) -> list[Task]:
    """The prompts of a user's file; the set is called like the file, without its ending.

    Raises InvalidValueError when it is missing, empty, not UTF-8, or holds no prompts.
    """
    try:
        # A mark at the beginning, which some editors write, is no part of the text.
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InvalidValueError(
            f"--prompts {path}: {error.strerror}; name a text file, or leave it out for the sets "
            "that come with localspec"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidValueError(
            f"--prompts {path}: it is not UTF-8, byte {error.start} is "
            f"0x{error.object[error.start]:02x}; convert it first, for example with iconv"
        ) from error
    tasks = _parsed(path.stem, text.replace("\r\n", "\n"), path.name)
    if not tasks:
        raise InvalidValueError(
            f"--prompts {path}: it holds no prompt; write one, and {_SEPARATOR} on a line of its "
            "own before the next"
        )
    return tasks


def _parsed(name: str, text: str, file: str) -> list[Task]:
    contents = _of_json_lines(text, file) if file.endswith(".jsonl") else _of_text(text)
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


def _of_json_lines(text: str, file: str) -> Iterable[str | tuple[Message, ...]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        content = _content(line)
        if content is None:
            raise InvalidValueError(
                f"--prompts {file}: line {number} is {line!r:.60}; it must be "
                '{"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}'
            )
        yield content


def _content(line: str) -> str | tuple[Message, ...] | None:
    """What a line of JSON asks, or None when it is not as it must be."""
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
