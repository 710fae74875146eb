"""Search index: with FTS5, without it, and after use without it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fakes.saved_sessions import found_titles, query, save_session

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
    """An archive with FTS5, and one as if SQLite was built without it."""
    if request.param == "without":
        monkeypatch.setattr(search_index, "has_fts5", lambda connection: False)
    with closing(Archive(file)) as archive:
        yield archive
    indexed = query(file, "SELECT count(*) FROM sqlite_master WHERE name = 'found'")
    assert indexed == [(request.param == "FTS5",)]


def test_all_words_must_be_in_one_turn(searched: Archive) -> None:
    save_session(searched, "red apples", "nothing")
    save_session(searched, "a green apple")
    save_session(searched, "apples", "something Red")
    assert found_titles(searched, "apple") == ["apples", "a green apple", "red apples"]
    assert found_titles(searched, "RED app") == ["red apples"]
    assert found_titles(searched, "red green") == found_titles(searched, "pear") == []


def test_parts_of_words_and_other_languages_are_found(searched: Archive) -> None:
    save_session(searched, "東京に行きたい")
    save_session(searched, "preposterous")
    assert found_titles(searched, "行きた") == ["東京に行きたい"]
    assert found_titles(searched, "poster") == ["preposterous"]


def test_a_snippet_is_one_line_around_the_word(searched: Archive) -> None:
    save_session(searched, "first", f"{'before ' * 50}\nthe\n\x1bNeedle\n{'after ' * 50}")
    [(_, hit)] = searched.search("needle")
    snippet = hit.snippet
    assert snippet.startswith("…") and snippet.endswith("…") and len(snippet) < 100
    assert "before the Needle after" in snippet
    save_session(searched, "short needles")
    assert searched.search("NEED")[0][1].snippet == "short needles"


def test_a_growing_answer_is_found(searched: Archive) -> None:
    answer = Conversation([Turn("user", "q"), Turn("assistant", "the be")]).turns[1]
    key = searched.create("tiny", None)
    searched.save(key, [], answer)
    answer.content += "ginning"
    searched.save(key, [], answer)
    assert found_titles(searched, "beginning") == ["q"]
    answer.content = "other"
    searched.save(key, [], answer)
    assert found_titles(searched, "beginning") == []


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
def test_queries_with_special_characters(
    searched: Archive, words: str, expected: list[str]
) -> None:
    save_session(searched, "a -> 'b' (100%) \"c\" x_y \\ ^")
    assert found_titles(searched, words) == expected


def test_the_index_is_rebuilt_after_use_without_fts5(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Archive(file)) as archive:
        removed = save_session(archive, "with it, and removed")
        save_session(archive, "with it")
    with monkeypatch.context() as patch:
        patch.setattr(search_index, "has_fts5", lambda connection: False)
        with closing(Archive(file)) as archive:
            save_session(archive, "without it")
            archive.delete(removed)
            assert found_titles(archive, "ith it") == ["without it", "with it"]
    with closing(Archive(file)) as archive:
        save_session(archive, "with it again")
        assert found_titles(archive, "it") == ["with it again", "without it", "with it"]
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("INSERT INTO found (found, rank) VALUES ('integrity-check', 1)")
