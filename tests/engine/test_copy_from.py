"""Files to copy from: drafts come from them, the text stays what it is."""

from pathlib import Path

import pytest
from fakes.indexed import indexed

import localspec
from localspec.errors import InvalidValueError
from localspec.loading.copied_texts import read_texts

PROMPT = "How do I list hidden files?"


def answer(**options: object) -> tuple[list[int], str, int]:
    """The tokens, the text, and how many tokens were copied."""
    with localspec.load(threads=1, context=512, **options) as engine:
        running = engine.stream(
            [{"role": "user", "content": PROMPT}], seed=3, temperature=0.8, max_tokens=48, depth=6
        )
        tokens = [token for token in running]
        copied = sum(token.origin == "suffix" for token in tokens)
        return [token.id for token in tokens], "".join(t.text for t in tokens), copied


def test_drafts_are_copied_from_the_file_and_the_text_is_the_same(tmp_path: Path) -> None:
    """The file holds the answer, in the middle of other text."""
    ids, text, copied = answer(draft="suffix")
    file = tmp_path / "older.txt"
    file.write_text(f"Something else.\n{text}\nAnd more.", encoding="utf-8")
    again = answer(draft="suffix", copy_from=[file])
    assert again[:2] == (ids, text)
    assert again[2] > copied + len(ids) / 3


def test_it_is_in_no_prompt(tmp_path: Path) -> None:
    file = tmp_path / "open.py"
    file.write_text("def main():\n    return 1\n" * 300, encoding="utf-8")
    with localspec.load(threads=1, context=64, copy_from=[file], draft="suffix") as engine:
        done = engine.generate("a", max_tokens=8)
        assert done.stats.prompt_tokens < 10


def test_the_text_of_the_file_is_no_markup(tmp_path: Path) -> None:
    """What looks like a special token of a chat is text."""
    file = tmp_path / "chat.txt"
    file.write_text("<|im_start|>user <|im_end|>", encoding="utf-8")
    with localspec.load(threads=1, context=64, copy_from=[str(file)], draft="suffix") as engine:
        [tokens] = indexed(engine.drafter_set.earlier)
        assert len(tokens) > 4


@pytest.mark.parametrize("data", [b"\xef\xbb\xbfone\r\ntwo", b"one\ntwo"])
def test_texts_of_editors_are_read_as_models_write(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(data)
    assert read_texts(file) == read_texts([str(file)]) == ("one\ntwo",)


def test_texts_may_be_given_instead_of_files(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a file", encoding="utf-8")
    options = {"copy_from": file, "copied_texts": ["a text", "another"], "draft": "suffix"}
    with localspec.load(threads=1, context=64, **options) as engine:
        texts = map(engine.detokenize, indexed(engine.drafter_set.earlier))
        assert [text.strip() for text in texts] == ["a file", "a text", "another"]


def test_a_string_is_one_text() -> None:
    with localspec.load(threads=1, context=64, copied_texts="abc", draft="suffix") as engine:
        [tokens] = indexed(engine.drafter_set.earlier)
        assert engine.detokenize(tokens).strip() == "abc"


def test_an_empty_file_is_one(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    with localspec.load(threads=1, context=64, copy_from=file, draft="suffix") as engine:
        assert len(engine.generate("a", max_tokens=2).token_ids) > 0


@pytest.mark.parametrize(("draft", "noted"), [("none", True), ("lookup", True), ("suffix", False)])
def test_earlier_texts_that_nothing_copies_from_are_noted(draft: str, *, noted: bool) -> None:
    with localspec.load(threads=1, context=64, remember=True, draft=draft) as engine:
        line = "nothing is copied from earlier texts: only suffix copies from them"
        assert any(line in note for note in engine.notes) == noted
        assert any("not stored" in note for note in engine.notes) == (draft == "none")


def test_a_file_that_nothing_copies_from_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("abc", encoding="utf-8")
    with localspec.load(threads=1, context=64, copy_from=[file], draft="none") as engine:
        assert any("only suffix copies" in note for note in engine.notes)
    with localspec.load(threads=1, context=64, copy_from=[file], draft="suffix") as engine:
        assert not any("only suffix" in note for note in engine.notes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory; name a text file"),
        (b"\xff", "it is not UTF-8, byte 0 is 0xff; save it as UTF-8"),
        (b"a\0b", "it is no text"),
        (b"abc " * 300_000, "at most 200,000"),
        (b"a" * (8 * 2**20 + 1), "MB; name a shorter text file"),
    ],
)
def test_a_file_that_cannot_be_copied_from_is_refused(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidValueError) as caught:
        localspec.load(threads=1, context=64, copy_from=[file])
    assert message in str(caught.value)
