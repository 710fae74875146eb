"""Prompt set: questions and wishes of many kinds, for users who name no texts of their own.

What matters is that the target's answers are of the kinds that people ask for; whether they are
right does not. So the prompts are put together from forms and subjects, and shuffled once.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import product

from localspec.distillation import prompt_subjects as subjects

Prompts = Sequence[str]

_EXPLAIN = (
    "Explain {} to a beginner.",
    "Tell me about {}, and why it matters.",
    "Give me three facts about {} that most people do not know.",
    "Write a short paragraph about {}.",
    "What are common mistakes with {}?",
    "I have ten minutes. Teach me the basics of {}.",
    "List the advantages and disadvantages of {} in a table.",
    "How would you describe {} in one sentence?",
)
_WRITE = (
    "Write an email to {}. Keep it friendly and short.",
    "Write a polite letter to {} that asks for more time.",
    "Draft a short message to {} that says thank you.",
    "How do I answer {} without being rude?",
)
_CODE = (
    "Write a {1} function to {0}.",
    "Show me how to {0} in {1}, with a short explanation.",
    "In {1}, I want to {0}. Add a test.",
    "My {1} program should {0}, but it is slow. How can I make it faster?",
)
_PLAN = (
    "Make a plan for {}.",
    "What do I need for {}? Answer as a list.",
    "Give me step by step instructions for {}.",
    "What could go wrong with {}, and how do I prevent it?",
)
_STORY = (
    "Write a short story about {}.",
    "Write a poem of eight lines about {}.",
    "Write a dialogue between two friends about {}.",
    "Invent a title and a first paragraph for a novel about {}.",
)
_EDIT = (
    "Correct the spelling and grammar, and change nothing else:\n\n{}",
    "Shorten this to one sentence:\n\n{}",
    "Rewrite this in a more formal tone:\n\n{}",
    "Translate into German:\n\n{}",
    "Translate into French, then into Spanish:\n\n{}",
    "List the names, places and dates in this text as JSON:\n\n{}",
    "Answer as a JSON object with the keys topic, mood and summary:\n\n{}",
)
_TERMINAL = (
    "How do I {}?",
    "Which command lets me {}?",
    "I want to {}.",
    "Show me how to {} in the terminal.",
    "What do I type to {}?",
    "Command to {}, please.",
)
_COMMAND = (
    "What does `{}` do?",
    "What is {} for?",
    "Show me examples of {}.",
    "How do I use {}?",
    "Explain the command {}.",
)


def general_prompts(seed: int = 0) -> Prompts:
    """Prompts for a model that answers anything."""
    return _shuffled(_general(), seed)


def terminal_prompts(seed: int = 0) -> Prompts:
    """Prompts about the terminal, for the bundled model and what is scaled from it."""
    tasks = (form.format(each) for form, each in product(_TERMINAL, subjects.SHELL_TASKS))
    commands = (form.format(each) for form, each in product(_COMMAND, subjects.COMMANDS))
    return _shuffled([*tasks, *commands], seed)


def _general() -> Iterator[str]:
    for forms, things in (
        (_EXPLAIN, subjects.TOPICS),
        (_WRITE, subjects.PEOPLE),
        (_PLAN, subjects.UNDERTAKINGS),
        (_STORY, subjects.SCENES),
        (_EDIT, subjects.PASSAGES),
    ):
        for form, thing in product(forms, things):
            yield form.format(thing)
    for form, task, language in product(_CODE, subjects.CODE_TASKS, subjects.LANGUAGES):
        yield form.format(task, language)
    yield from subjects.QUESTIONS
    yield from (f"{a} or {b}: which one would you choose, and why?" for a, b in subjects.CHOICES)
    yield from (
        f"Please compute {a} {sign} {b} and show your work."
        for a, sign, b in product((17, 128, 3.5, 999), ("+", "-", "*", "/"), (4, 36, 0.25, 1024))
    )


def _shuffled(prompts: Iterator[str] | Sequence[str], seed: int) -> Prompts:
    found = list(dict.fromkeys(prompts))
    random.Random(seed).shuffle(found)
    return found
