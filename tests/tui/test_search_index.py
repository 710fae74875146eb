"""Search: words are found where they are, whatever is typed and however SQLite was built."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fakes.saved_sessions import found, kept, query

from localspec.conversation.turns import Conversation, Turn
from localspec_tui import search_index
from localspec_tui.archive import Archive


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "sessions.sqlite3"


@pytest.fixture(params=["FTS5", "without"])
def searched(
    request: pytest.FixtureRequest, file: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Archive]:
    """With the search index, and as where SQLite was built without it."""
    if request.param == "without":
        monkeypatch.setattr(search_index, "has_fts5", lambda connection: False)
    with closing(Archive(file)) as archive:
        yield archive
    indexed = query(file, "SELECT count(*) FROM sqlite_master WHERE name = 'found'")
    assert indexed == [(request.param == "FTS5",)]


def test_words_are_found_where_all_of_them_are(searched: Archive) -> None:
    kept(searched, "red apples", "nothing")
    kept(searched, "a green apple")
    kept(searched, "apples", "something Red")
    assert found(searched, "apple") == ["apples", "a green apple", "red apples"]
    assert found(searched, "RED app") == ["red apples"]
    assert found(searched, "red green") == found(searched, "pear") == []


def test_other_languages_and_parts_of_words(searched: Archive) -> None:
    kept(searched, "東京に行きたい")
    kept(searched, "preposterous")
    assert found(searched, "行きた") == ["東京に行きたい"]
    assert found(searched, "poster") == ["preposterous"]


def test_a_snippet_is_a_line_around_what_was_found(searched: Archive) -> None:
    kept(searched, "first", f"{'before ' * 50}\nthe\n\x1bNeedle\n{'after ' * 50}")
    [(_, snippet)] = searched.search("needle")
    assert snippet.startswith("…") and snippet.endswith("…") and len(snippet) < 100
    assert "before the Needle after" in snippet
    kept(searched, "short needles")
    assert searched.search("NEED")[0][1] == "short needles"


def test_what_an_answer_says_is_found_while_it_grows(searched: Archive) -> None:
    answer = Conversation([Turn("user", "q"), Turn("assistant", "the be")]).turns[1]
    key = searched.create("tiny", None)
    searched.save(key, [], answer)
    answer.content += "ginning"
    searched.save(key, [], answer)
    assert found(searched, "beginning") == ["q"]
    answer.content = "other"
    searched.save(key, [], answer)
    assert found(searched, "beginning") == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", []),
        (" \n\t", []),
        ('"', ["a -> 'b' (100%) \"c\" x_y \\ ^"]),
        ('"c"', ["a -> 'b' (100%) \"c\" x_y \\ ^"]),
        ("->", ["a -> 'b' (100%) \"c\" x_y \\ ^"]),
        ("a -> b", ["a -> 'b' (100%) \"c\" x_y \\ ^"]),
        ("100%", ["a -> 'b' (100%) \"c\" x_y \\ ^"]),
        ("x_y", ["a -> 'b' (100%) \"c\" x_y \\ ^"]),
        ("\\", ["a -> 'b' (100%) \"c\" x_y \\ ^"]),
        ("_%", []),
        ("*", []),
        ("NOT", []),
        ("a AND", []),
        ("NEAR(a b)", []),
        ("content:a", []),
        ("{a b}:c", []),
        ("^-(*)'\"", []),
        ("\0", []),
        ("\udc80 \x1b", []),
        ("%" * 2000, []),
        ("zz " * 2000, []),
        ("z" * 200_000, []),
    ],
)
def test_odd_words(searched: Archive, words: str, expected: list[str]) -> None:
    kept(searched, "a -> 'b' (100%) \"c\" x_y \\ ^")
    assert found(searched, words) == expected


def test_the_index_catches_up_with_what_was_said_without_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Archive(file)) as archive:
        removed = kept(archive, "with it, and removed")
        kept(archive, "with it")
    with monkeypatch.context() as patch:
        patch.setattr(search_index, "has_fts5", lambda connection: False)
        with closing(Archive(file)) as archive:
            kept(archive, "without it")
            archive.delete(removed)
            assert found(archive, "ith it") == ["without it", "with it"]
    with closing(Archive(file)) as archive:
        kept(archive, "with it again")
        assert found(archive, "it") == ["with it again", "without it", "with it"]
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("INSERT INTO found (found, rank) VALUES ('integrity-check', 1)")
