"""Terminal corpus: pages of command examples become conversations in many wordings.

A page is one line of JSON: `command`, `platform`, `about` and `examples` as [what, command line],
made from tldr-pages (CC BY 4.0). `{{...}}` marks what a user fills in, `{{[-C|--directory]}}` a
short and a long option, `[x]` in a description the letter of an option.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from localspec.training.bundled_pair.wordings import TRAINED, Wordings, lowered, rephrased, typed

# What the files of models that were trained on it say of themselves.
ABOUT = {
    "author": "localspec",
    "license": "cc-by-4.0",
    "license__link": "https://creativecommons.org/licenses/by/4.0/",
    "source__url": "https://github.com/tldr-pages/tldr",
    "description": (
        "Answers questions about the terminal. Trained on tldr-pages (CC BY 4.0), "
        "Copyright (c) 2014-present the tldr-pages team and contributors."
    ),
}

PLATFORMS = ("common", "linux", "osx")
# How often a pass shows an example: of a page of PLATFORMS[0], of the others, of a command that
# everybody uses.
_COMMON, _OTHER, _EVERYDAY = 1.0, 0.3, 3.0


class Turn(NamedTuple):
    question: str
    answer: str


Conversation = list[Turn]


@dataclass(frozen=True, slots=True)
class Example:
    """One command line and what it does.

    stem: its first words, up to what a user fills in. named: whether a question for it has to name
    the command, since other commands do the same.
    """

    command: str
    platform: str
    what: str
    line: str
    stem: str
    named: bool

    @property
    def answer(self) -> str:
        return command_answer(self.command.split()[0], self.line)


@dataclass(frozen=True, slots=True)
class Page:
    command: str
    platform: str
    about: str
    examples: Sequence[Example]


def command_answer(command: str, line: str) -> str:
    return f"Use `{command}`:\n```sh\n{line}\n```"


def read_pages(path: Path) -> list[Page]:
    """The pages of PLATFORMS, without the examples that only point to another page."""
    raw = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    raw = [page for page in raw if page["platform"] in PLATFORMS]
    often = Counter(_plain(what).lower() for page in raw for what, _ in page["examples"])
    return [_page(page, often) for page in raw]


def _page(page: dict[str, object], often: Counter[str]) -> Page:
    command, platform = str(page["command"]), str(page["platform"])
    pairs = page["examples"]
    assert isinstance(pairs, list)
    examples = [
        Example(
            command,
            platform,
            _plain(what),
            _line(line),
            _stem(line),
            named=often[_plain(what).lower()] > 1 or len(what.split()) < 3,
        )
        for what, line in pairs
        if not line.startswith("tldr ")
    ]
    return Page(command, platform, _plain(str(page["about"])), examples)


def _plain(text: str) -> str:
    """A description without the marks of option letters, and without the colon at its end."""
    return re.sub(r"\[([^\]\s]{1,6})\]", r"\1", text).strip().rstrip(":").strip()


def _line(line: str) -> str:
    """A command line as somebody types it: short options, the first of several choices."""
    line = re.sub(r"\{\{\[([^|\]]+)\|[^\]]+\]\}\}", r"\1", line)
    return re.sub(r"\{\{(.*?)\}\}", lambda match: match[1].split("|")[0], line)


def _stem(line: str) -> str:
    line = re.sub(r"\{\{\[([^|\]]+)\|[^\]]+\]\}\}", r"\1", line)
    return line.split("{{")[0].strip()


class Corpus:
    """All that is trained on. `conversations` is one pass over it, in new wordings each time."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self.pages = pages
        self.examples = [example for page in pages for example in page.examples]
        self._siblings = {id(example): page for page in pages for example in page.examples}
        self._everyday = _read_pairs("everyday.txt")
        words = [line.removeprefix("sudo ").split() for _, line in self._everyday]
        self._tools = {" ".join(line[:count]) for line in words for count in (1, 2)}
        self._small_talk = _read_pairs("small_talk.txt")

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """One pass, shuffled: mostly one or two turns, some long ones."""
        short = [*self._of_examples(rng), *self._of_pages(rng), *self._of_people(rng)]
        rng.shuffle(short)
        chats: list[Conversation] = []
        for chat in short:
            if chats and (rng.random() < 0.12 or 1 < len(chats[-1]) < rng.choice((0, 0, 12))):
                chats[-1] = chats[-1] + chat  # a conversation goes on with something else
            else:
                chats.append(chat)
        chats += [[edit(self.examples, rng)] for _ in range(len(self.examples) // 15)]
        rng.shuffle(chats)
        return chats

    def _of_examples(self, rng: random.Random) -> Iterator[Conversation]:
        for example in self.examples:
            for _ in range(int(self._weight(example) + rng.random())):
                chat = [Turn(how(example, TRAINED, rng), example.answer)]
                if rng.random() < 0.12:
                    chat.append(self._follow_up(example, rng))
                yield chat
                if rng.random() < 0.2:
                    yield [what(example, TRAINED, rng)]

    def _weight(self, example: Example) -> float:
        if example.command in self._tools:
            return _EVERYDAY
        return _COMMON if example.platform == PLATFORMS[0] else _OTHER

    def _of_pages(self, rng: random.Random) -> Iterator[Conversation]:
        for page in self.pages:
            if page.about and rng.random() < 0.3:
                yield [Turn(_asked(TRAINED.about, rng, c=page.command), page.about)]
            if len(page.examples) > 1 and rng.random() < 0.04:
                yield [Turn(_asked(TRAINED.examples, rng, c=page.command), _listing(page))]

    def _of_people(self, rng: random.Random) -> Iterator[Conversation]:
        for wordings, line in self._everyday:
            for wording in rng.choices(wordings, k=5):
                asked = rng.choice(TRAINED.without_command).format(
                    d=wording, D=wording[0].upper() + wording[1:]
                )
                yield [Turn(typed(asked, rng), _everyday_answer(line))]
            asked = _asked(TRAINED.what, rng, c=line)
            yield [Turn(asked, f"{wordings[0][0].upper()}{wordings[0][1:]}.")]
        for wordings, answer in self._small_talk:
            for wording in rng.sample(wordings, min(6, len(wordings))):
                asked = wording[0].upper() + wording[1:] if rng.random() < 0.6 else wording
                yield [Turn(asked + rng.choice(("", "", "?", "!", ".")), answer)]

    def _follow_up(self, example: Example, rng: random.Random) -> Turn:
        page = self._siblings[id(example)]
        kinds: list[Callable[[], Turn]] = [
            lambda: Turn(rng.choice(_WHAT_WAS_THAT), example.what + "."),
            lambda: _and_how(rng.choice(page.examples), rng),
            lambda: Turn(
                _asked(TRAINED.about, rng, c=page.command), page.about or example.what + "."
            ),
        ]
        return rng.choice(kinds)()


_WHAT_WAS_THAT = (
    "What does that do?", "What does it do?", "Explain that.", "And what does that do exactly?",
    "what does this do", "Can you explain it?",
)  # fmt: skip
_AND_HOW = (
    "And how do I {d}?", "And to {d}?", "Now {d}.", "How do I {d} with it?", "What about {d}?",
)  # fmt: skip


def how(
    example: Example, wordings: Wordings, rng: random.Random, *, named: bool | None = None
) -> str:
    """A question that this command line answers. named: whether it names the command."""
    if named is None:
        named = example.named or rng.random() < 0.6
    templates = wordings.with_command if named else wordings.without_command
    words = rephrased(example.what, rng)
    return typed(_asked(templates, rng, c=example.command, d=lowered(words), D=words), rng)


def what(example: Example, wordings: Wordings, rng: random.Random) -> Turn:
    """A question what a command line does; some show its first words only."""
    stem = len(example.stem.split()) > 1 and rng.random() < 0.4
    shown = example.stem if stem else example.line
    return Turn(_asked(wordings.what, rng, c=shown), example.what + ".")


def _and_how(example: Example, rng: random.Random) -> Turn:
    return Turn(_asked(_AND_HOW, rng, d=lowered(rephrased(example.what, rng))), example.answer)


def _asked(templates: Sequence[str], rng: random.Random, **words: str) -> str:
    return rng.choice(templates).format(**words)


def _listing(page: Page) -> str:
    parts = [f"{example.what}:\n```sh\n{example.line}\n```" for example in page.examples[:6]]
    return "\n\n".join([page.about, *parts] if page.about else parts)


def edit(examples: Sequence[Example], rng: random.Random) -> Turn:
    """A script, and what to change in it: most of the answer repeats the question."""
    start = rng.randrange(len(examples) - 8)
    chosen = examples[start : start + rng.randint(2, 6)]
    if rng.random() < 0.3:
        chosen = rng.sample(examples, rng.randint(2, 5))
    lines = _script(chosen, rng)
    wish, edited = rng.choice(_EDITS)(lines, rng)
    shown = rng.random() < 0.8
    script = "\n".join(lines)
    before = f"```sh\n{script}\n```" if shown else script
    asked = f"{wish}\n{before}" if rng.random() < 0.8 else f"{before}\n{wish}"
    return Turn(asked, "```sh\n" + "\n".join(edited) + "\n```")


def _script(examples: Sequence[Example], rng: random.Random) -> list[str]:
    comments = rng.random() < 0.6
    lines = ["#!/bin/sh"] if rng.random() < 0.3 else []
    for example in examples:
        lines += [f"# {example.what}"] if comments else []
        lines.append(example.line)
    return lines


_REPLACE = (
    "Replace {a} with {b}:", "Replace `{a}` by `{b}` in this script:", "Rename {a} to {b}:",
    "Use {b} instead of {a}:", "Change {a} to {b}:", "Write {b} where it says {a}:",
    "Please change `{a}` to `{b}` here:",
)  # fmt: skip


def _replace(lines: list[str], rng: random.Random) -> tuple[str, list[str]]:
    words = [word for line in lines for word in re.findall(r"[A-Za-z_][\w.-]{2,}", line)]
    old = rng.choice(words or ["sh"])
    new = rng.choice(_NAMES)
    wish = rng.choice(_REPLACE).format(a=old, b=new)
    return wish, [re.sub(rf"(?<![\w]){re.escape(old)}(?![\w])", new, line) for line in lines]


def _sudo(lines: list[str], rng: random.Random) -> tuple[str, list[str]]:
    wish = rng.choice(("Put sudo in front of each command:", "Run these with sudo:"))
    return wish, [line if line.startswith("#") else f"sudo {line}" for line in lines]


def _uncomment(lines: list[str], rng: random.Random) -> tuple[str, list[str]]:
    wish = rng.choice(("Remove the comments:", "Delete all comments from this script:"))
    return wish, [line for line in lines if not line.startswith("#")]


def _repeat(lines: list[str], rng: random.Random) -> tuple[str, list[str]]:
    wish = rng.choice(("Repeat this script:", "Write this script again:", "Copy this:"))
    return wish, list(lines)


def _strict(lines: list[str], rng: random.Random) -> tuple[str, list[str]]:
    wish = rng.choice(("Make this script stop at the first error:", "Add set -e to this script:"))
    first = 1 if lines[0].startswith("#!") else 0
    return wish, [*lines[:first], "set -e", *lines[first:]]


_EDITS = (_replace, _replace, _replace, _sudo, _sudo, _uncomment, _repeat, _repeat, _strict)
_NAMES = (
    "podman", "docker", "backup", "notes.txt", "report", "server", "build", "main", "data",
    "photos", "music", "example", "test", "project", "config.yaml", "input.csv", "output",
    "target", "source", "archive", "release", "production", "staging", "alice", "bob", "db",
    "cache", "logs", "tmp", "video.mp4", "image.png", "python3", "node", "wget", "curl", "rsync",
    "zsh", "bash", "nvim",
)  # fmt: skip


def _everyday_answer(line: str) -> str:
    if line.startswith("command "):  # any command, with something behind it
        return f"```sh\n{line}\n```"
    return command_answer(_tool(line), line)


def _tool(line: str) -> str:
    return line.removeprefix("sudo ").split()[0]


def _read_pairs(name: str) -> list[tuple[list[str], str]]:
    """Lines `wording | wording => answer` of a file beside this one."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    pairs = [line.split(" => ", 1) for line in text.splitlines() if " => " in line]
    return [([wording.strip() for wording in left.split(" | ")], right) for left, right in pairs]
