"""Terminal corpus: questions and answers follow from the pages, and held-out wordings stay out."""

import json
import random
import re
from dataclasses import fields
from pathlib import Path

import pytest

from localspec.training.bundled_pair.terminal_corpus import (
    Corpus,
    Example,
    edit,
    how,
    read_pages,
    what,
)
from localspec.training.bundled_pair.wordings import HELD_OUT, TRAINED, rephrased

PAGES = [
    {
        "command": "tar",
        "platform": "common",
        "about": "Archiving utility.",
        "examples": [
            ["E[x]tract a (compressed) archive [f]ile:", "tar xvf {{source.tar[.gz|.bz2]}}"],
            ["[c]reate an archive in a directory", "tar {{[-C|--directory]}} {{a|b}} -cf {{x}}"],
            ["Display help", "tar --help"],
            ["See another page", "tldr gtar"],
        ],
    },
    {
        "command": "zip",
        "platform": "linux",
        "about": "Package and compress.",
        "examples": [
            ["Display help", "zip -h"],
            *([f"Add {count} files to an archive", f"zip {count}"] for count in range(12)),
        ],
    },
    {"command": "am", "platform": "android", "about": "", "examples": [["Start", "am start"]]},
]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    file = tmp_path / "pages.jsonl"
    file.write_text("\n".join(map(json.dumps, PAGES)), encoding="utf-8")
    return Corpus(read_pages(file))


def example(corpus: Corpus, what: str) -> Example:
    return next(each for each in corpus.examples if each.what == what)


def test_marks_become_what_a_person_types(corpus: Corpus) -> None:
    extract = example(corpus, "Extract a (compressed) archive file")
    assert extract.line == "tar xvf source.tar[.gz" and extract.stem == "tar xvf"
    assert extract.answer == "Use `tar`:\n```sh\ntar xvf source.tar[.gz\n```"
    create = example(corpus, "create an archive in a directory")
    assert create.line == "tar -C a -cf x" and create.stem == "tar -C"


def test_pages_of_other_platforms_and_pointers_to_pages_are_left_out(corpus: Corpus) -> None:
    assert [page.command for page in corpus.pages] == ["tar", "zip"]
    assert all(not each.line.startswith("tldr") for each in corpus.examples)


def test_what_several_commands_do_is_asked_with_the_command(corpus: Corpus) -> None:
    shared, rng = example(corpus, "Display help"), random.Random(1)
    assert shared.named
    assert all("tar" in how(shared, TRAINED, rng) for _ in range(50))
    unnamed = example(corpus, "Extract a (compressed) archive file")
    assert any("tar" not in how(unnamed, TRAINED, rng) for _ in range(50))


def test_held_out_wordings_are_not_trained() -> None:
    for kind in fields(TRAINED):
        trained, held_out = getattr(TRAINED, kind.name), getattr(HELD_OUT, kind.name)
        assert held_out and not set(trained) & set(held_out)


def test_a_line_or_its_beginning_is_explained(corpus: Corpus) -> None:
    extract, rng = example(corpus, "Extract a (compressed) archive file"), random.Random(2)
    turns = [what(extract, TRAINED, rng) for _ in range(80)]
    assert {turn.answer for turn in turns} == {"Extract a (compressed) archive file."}
    assert any(turn.question == "What does `tar xvf` do?" for turn in turns)


def expected(wish: str, script: list[str]) -> list[list[str]]:
    """What the script may be after the wish."""
    lower = wish.lower()
    if "sudo" in lower:
        return [[line if line.startswith("#") else f"sudo {line}" for line in script]]
    if "comments" in lower:
        return [[line for line in script if not line.startswith("#")]]
    if "repeat" in lower or "again" in lower or "copy" in lower:
        return [script]
    if "first error" in lower or "set -e" in lower:
        first = int(script[0] == "#!/bin/sh")
        return [[*script[:first], "set -e", *script[first:]]]
    words = [word.strip("`:.") for word in wish.split()]
    return [
        [re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, line) for line in script]
        for old in words
        for new in words
        if old != new
    ]


def test_edits_change_what_was_asked_and_nothing_else(corpus: Corpus) -> None:
    rng = random.Random(3)
    for _ in range(300):
        turn = edit(corpus.examples, rng)
        lines = turn.question.replace("```sh\n", "").replace("\n```", "").split("\n")
        wish = lines[0] if lines[0].endswith(":") else lines[-1]
        lines.remove(wish)
        answer = turn.answer.removeprefix("```sh\n").removesuffix("\n```").split("\n")
        assert answer in expected(wish, lines), turn


def test_a_pass_is_new_each_time_and_the_same_for_a_seed(corpus: Corpus) -> None:
    first, again = (corpus.conversations(random.Random(4)) for _ in range(2))
    assert first == again != corpus.conversations(random.Random(5))
    questions = {turn.question for chat in first for turn in chat}
    assert any("size" in question for question in questions)  # of the everyday questions
    assert any(len(chat) > 1 for chat in first)


def test_other_words_keep_what_is_asked() -> None:
    rng = random.Random(6)
    said = {rephrased("List all files in a directory", rng) for _ in range(100)}
    assert len(said) > 10 and all("file" in each for each in said if len(each.split()) > 4)
