"""Edited texts: each edit changes what it says, and little else."""

from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from localspec.bench.experiments.edited_texts import (
    EDITS,
    edited_files,
    edited_folders,
    edited_records,
    other_signatures,
    pieces,
    renamed,
)


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_leaves_most_of_its_file(kind: str) -> None:
    texts = list(islice(edited_files(kind), 4))
    assert sum(text.before != text.after for text in texts) >= 3
    assert texts == list(islice(edited_files(kind), 4))
    for text in texts:
        lines = SequenceMatcher(None, text.before.split("\n"), text.after.split("\n"), False)
        assert lines.ratio() > 0.5
        assert text.prompt.startswith(text.before) and text.request in text.prompt


def test_records_have_other_values_and_the_same_keys() -> None:
    for text in edited_records():
        before, after = (each.split("\n") for each in (text.before, text.after))
        assert before != after and len(before) == len(after)
        assert [line.count(":") for line in before] == [line.count(":") for line in after]


def test_a_name_is_changed_everywhere() -> None:
    text = "value = value + other\n" * 6
    changed = renamed(text, Random(0))
    assert len(set(changed.split("\n"))) == 2 and changed.count("\n") == 6
    old = "value" if "value" not in changed else "other"
    assert old not in changed
    assert renamed("x = 1", Random(0)) == "x = 1"


def test_functions_get_a_parameter() -> None:
    assert other_signatures("def f(a):\n    return a", Random(0)).startswith("def f(a, ")


def test_no_piece_is_short_unless_the_text_is() -> None:
    for count in (1, 99, 250, 301, 950):
        cut = pieces("\n".join(map(str, range(count))))
        assert "\n".join(cut).split("\n") == [str(i) for i in range(count)][: 200 * len(cut)]
        assert len(cut) == 1 or all(each.count("\n") >= 99 for each in cut)


def test_only_files_that_differ_are_edits(tmp_path: Path) -> None:
    for folder, ends in (("before", "aaa"), ("after", "aba")):
        (tmp_path / folder).mkdir()
        for name, end in zip("xyz", ends, strict=True):
            (tmp_path / folder / f"{name}.py").write_text(f"{name} = {end}", encoding="utf-8")
    (tmp_path / "after" / "new.py").write_text("", encoding="utf-8")
    [text] = edited_folders(tmp_path / "before", tmp_path / "after")
    assert (text.before, text.after) == ("y = a", "y = b")
