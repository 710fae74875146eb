"""Wordings: the many ways in which people ask the same question.

HELD_OUT wordings are never trained on; they are for measuring.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wordings:
    """Question templates. {d}: "list all files", {D}: "List all files", {c}: the command."""

    with_command: Sequence[str]
    without_command: Sequence[str]
    what: Sequence[str]
    about: Sequence[str]
    examples: Sequence[str]


TRAINED = Wordings(
    with_command=(
        "How do I {d} with {c}?", "How do I {d} with {c}?", "How can I {d} using {c}?",
        "How do I use {c} to {d}?", "With {c}, how do I {d}?", "I use {c}. How do I {d}?",
        "What is the {c} command to {d}?", "Use {c} to {d}.", "{D} with {c}.", "{D} using `{c}`.",
        "How to {d} in {c}?", "how to {d} with {c}", "{c}: {d}", "{c} {d}", "{d} {c}",
        "I want to {d} with {c}.", "I'd like to {d}. I have {c}.", "Show me how {c} can {d}.",
        "What do I type to {d} with `{c}`?", "Can {c} {d}?", "Does {c} let me {d}?",
        "Which options of {c} {d}?", "Give me a {c} command that lets me {d}.",
        "Please show me how to {d} using {c}.", "I need {c} to {d}.",
    ),
    without_command=(
        "How do I {d}?", "How do I {d}?", "How do I {d}?", "How can I {d}?", "How could I {d}?",
        "I want to {d}.", "I need to {d}.", "I'd like to {d}.", "{D}.", "{D}", "{d}",
        "Give me the command to {d}.", "Which command lets me {d}?", "What's the command to {d}?",
        "What is the command to {d}?", "how to {d}", "How to {d}?", "Show me how to {d}.",
        "Tell me how to {d}.", "command to {d}", "What should I type to {d}?",
        "Is there a way to {d}?", "What is the best way to {d}?", "In the terminal, how do I {d}?",
        "Hi, how do I {d}?", "Can you tell me how to {d}?", "What can I use to {d}?",
    ),
    what=(
        "What does `{c}` do?", "What does `{c}` do?", "What does {c} do?", "Explain `{c}`.",
        "explain {c}", "What is `{c}` for?", "What happens when I run `{c}`?",
        "What would `{c}` do?", "Can you explain `{c}` to me?", "Tell me what `{c}` does.",
        "I found `{c}` in a script. What is it?", "`{c}`?", "what is {c}",
        "What is the meaning of `{c}`?",
    ),
    about=(
        "What is {c}?", "What is `{c}`?", "What does {c} do?", "Tell me about {c}.",
        "When would I use {c}?", "what is {c}", "Explain {c}.", "What is the {c} command?",
        "What can I do with {c}?", "Describe `{c}`.", "Why would I need {c}?", "{c}?",
    ),
    examples=(
        "Show me how to use {c}.", "Give me examples of {c}.", "How do I use {c}?",
        "{c} cheat sheet", "{c} examples", "Show me some {c} commands.", "How does {c} work?",
        "Teach me {c}.", "What are common uses of {c}?", "Examples for `{c}`, please.",
    ),
)  # fmt: skip

HELD_OUT = Wordings(
    with_command=(
        "What would I run to {d} with {c}?", "Could you help me {d} using {c}?",
        "I am trying to {d} with {c}.", "Is it possible to {d} in {c}?",
    ),
    without_command=(
        "What would I run to {d}?", "Could you help me {d}?", "I am trying to {d}.",
        "Quick question: how would I {d}?",
    ),
    what=("Could you tell me what `{c}` is doing?", "What is the effect of `{c}`?"),
    about=("Could you tell me what {c} is good for?",),
    examples=("Walk me through {c}.",),
)  # fmt: skip

# Each word with what people say instead.
_SYNONYMS = {
    "list": ("show", "display", "see", "print"),
    "display": ("show", "print", "see"),
    "show": ("display", "see", "print"),
    "print": ("show", "display"),
    "view": ("see", "show"),
    "create": ("make", "add"),
    "generate": ("create", "make"),
    "remove": ("delete", "get rid of"),
    "delete": ("remove", "get rid of"),
    "directory": ("folder", "dir"),
    "directories": ("folders",),
    "folder": ("directory",),
    "execute": ("run",),
    "run": ("execute", "start"),
    "start": ("launch", "run"),
    "launch": ("start", "open"),
    "stop": ("end", "halt"),
    "specific": ("given", "particular", "certain"),
    "specified": ("given", "specific"),
    "search": ("look",),
    "find": ("search for", "look for", "locate"),
    "convert": ("turn", "change", "transform"),
    "retrieve": ("get", "fetch"),
    "fetch": ("get", "download"),
    "get": ("show", "fetch"),
    "multiple": ("several", "many", "some"),
    "modify": ("change", "edit"),
    "change": ("set", "modify"),
    "edit": ("change", "modify"),
    "copy": ("duplicate",),
    "count": ("get the number of",),
    "compress": ("zip", "pack"),
    "extract": ("unpack", "decompress"),
    "download": ("get", "fetch"),
    "connect": ("log in",),
    "output": ("print", "write"),
    "update": ("upgrade", "refresh"),
    "upgrade": ("update",),
    "rename": ("change the name of",),
    "verify": ("check", "test"),
    "check": ("see", "verify", "test"),
    "enable": ("turn on", "activate"),
    "disable": ("turn off", "deactivate"),
    "open": ("start", "view"),
    "all": ("every", "all the"),
    "using": ("with",),
    "contents": ("content",),
    "current": ("this",),
    "set": ("change",),
    "kill": ("end", "terminate", "stop"),
    "terminate": ("kill", "end"),
}
_OPENINGS = (
    "Hi, ", "Hey, ", "Hello! ", "Please, ", "Ok, ", "So, ", "Now, ", "Sorry, ", "Help: ",
    "One more: ", "Tell me: ", "Say, ", "I am new to this, ", "On a server, ", "In bash, ",
    "I forgot, ", "As a beginner, ", "Well, ", "And ", "Next: ", "My question: ", "Could you say, ",
)  # fmt: skip
_FILLER = {"a", "an", "the", "specific", "specified", "given", "all", "some", "its", "your"}


def lowered(description: str) -> str:
    """A description as it stands inside a sentence: "List files" -> "list files"."""
    ordinary = len(description) > 1 and description[1].islower()
    return description[0].lower() + description[1:] if ordinary else description


def rephrased(description: str, rng: random.Random) -> str:
    """The description in other words, or with fewer of them; sometimes as it is."""
    if rng.random() < 0.35:
        return description
    steps: list[Callable[[str, random.Random], str]] = [_synonyms]
    if rng.random() < 0.4:
        steps.append(_without_remarks)
    if rng.random() < 0.25:
        steps.append(_without_fillers)
    if rng.random() < 0.12:
        steps.append(_with_one_word_less)
    for step in steps:
        description = step(description, rng) or description
    return description


def typed(question: str, rng: random.Random) -> str:
    """The question as people type it: behind a greeting, no capital, no question mark."""
    if rng.random() < 0.2:
        question = rng.choice(_OPENINGS) + lowered(question)
    if rng.random() < 0.15:
        question = question[0].lower() + question[1:]
    if rng.random() < 0.15:
        question = question.rstrip("?.")
    return question


def _synonyms(text: str, rng: random.Random) -> str:
    def swap(match: re.Match[str]) -> str:
        word = match[0]
        others = _SYNONYMS.get(word.lower())
        if others is None or rng.random() < 0.55:
            return word
        other = rng.choice(others)
        return other[0].upper() + other[1:] if word[0].isupper() else other

    return re.sub(r"[A-Za-z]+", swap, text)


def _without_remarks(text: str, _: random.Random) -> str:
    return re.sub(r"\s*\([^)]*\)", "", text).strip()


def _without_fillers(text: str, _: random.Random) -> str:
    return " ".join(word for word in text.split() if word.lower() not in _FILLER)


def _with_one_word_less(text: str, rng: random.Random) -> str:
    words = text.split()
    if len(words) > 4:
        del words[rng.randrange(2, len(words))]
    return " ".join(words)
