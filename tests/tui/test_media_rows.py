"""Images and sounds of saved conversations: kept once, as long as a conversation has them."""

import json
import sqlite3
import time
from base64 import b64decode
from contextlib import closing, nullcontext
from pathlib import Path
from threading import Thread
from threading import enumerate as enumerate_threads

import pytest
from fakes.projectors import picture
from fakes.saved_sessions import query

from localspec.cli import train_texts
from localspec.conversation.message import as_turn
from localspec.conversation.turns import Conversation, Turn
from localspec_tui import database, schema
from localspec_tui.archive import Archive
from localspec_tui.export import export_session

CAT, DOG = picture(64, 48, seed=1), picture(40, 70, seed=2)


def question(*images: tuple[str, bytes], text: str = "What?") -> Turn:
    media = [{"type": "image", "image": data, "name": name} for name, data in images]
    return as_turn([*media, {"type": "text", "text": text}], "user")


def save(archive: Archive, *turns: Turn) -> str:
    conversation = Conversation(turns)
    key = archive.create("tiny", None, conversation=conversation)
    archive.save(key, turns, conversation.last)
    assert archive.problem is None
    return key


def reopened(archive: Archive, file: Path, key: str) -> list[Turn]:
    archive.close()
    with closing(Archive(file)) as again:
        turns = again.open(key).conversation.turns
        assert again.problem is None
        return turns


def files(file: Path) -> int:
    [(count,)] = query(file, "SELECT count(*) FROM media_file")
    return int(count)


def test_images_are_read_back_as_they_were_saved(archive: Archive, file: Path) -> None:
    asked = question(("a/my cat.png", CAT), ("dog.png", DOG))
    odd = {"type": "image", "image": CAT, "name": "\udc80.png"}
    sent = as_turn([*(span.part for span in asked.media), odd], "user")
    key = save(archive, asked, Turn("assistant", "A cat.", stop_reason="eos"), sent)
    turns = reopened(archive, file, key)
    assert [turn.content for turn in turns][:2] == [asked.content, "A cat."]
    assert turns[0].media == asked.media and turns[1].media == ()
    assert [span.data for span in turns[2].media] == [CAT, DOG, CAT]
    assert [span.name for span in turns[2].media][-1] == "?.png"
    assert files(file) == 2


def test_a_file_goes_with_the_last_conversation_that_has_it(archive: Archive, file: Path) -> None:
    first = save(archive, question(("cat.png", CAT)), question(("dog.png", DOG)))
    second = save(archive, question(("also.png", CAT)))
    archive.delete(first)
    assert files(file) == 1
    assert archive.open(second).conversation.turns[0].media[0].data == CAT
    archive.delete(second)
    assert files(file) == 0 and query(file, "SELECT * FROM media") == []


def shrunk(file: Path) -> int:
    """The size of a file with its log, once all threads have ended that give room back."""
    for thread in enumerate_threads():
        if thread.name == "shrink":
            thread.join()
    return sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))


def delete_unshrunk(archive: Archive, key: str) -> None:
    """Delete a session as a process does that ends at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "Thread", lambda **_: Thread(target=int))
        archive.delete(key)


def test_the_disk_gets_back_what_large_images_took(
    archive: Archive, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another window has the file open, and writes, or a process has ended before."""
    monkeypatch.setattr(database, "_MUCH", 2**20)
    monkeypatch.setattr(database, "_PAUSE", 0)
    rest = bytes(2**22)
    kept = save(archive, question(("dog.png", DOG)))
    deleted = [save(archive, question((name, CAT + rest + name.encode()))) for name in "abc"]
    last = save(archive, question(("cat.png", CAT)))
    with closing(Archive(file)) as other:
        archive.delete(deleted[0])
        added = save(other, question(("also.png", CAT)))
        assert shrunk(file) < 3 * 2**22
        delete_unshrunk(archive, deleted[1])
        delete_unshrunk(archive, deleted[2])
        assert query(file, "PRAGMA freelist_count") > [(2000,)]
        Archive(file).close()
        assert shrunk(file) < 2**20
        for key, data in ((kept, DOG), (last, CAT), (added, CAT)):
            assert other.open(key).conversation.turns[0].media[0].data == data
    assert query(file, "PRAGMA integrity_check") == [("ok",)]


def test_a_chat_saves_while_room_is_given_back(
    archive: Archive, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not wait at all, and the thread waits for nobody who reads."""
    monkeypatch.setattr(database, "_SHORT_TIMEOUT", 0)
    monkeypatch.setattr(database, "_BUSY_TIMEOUT", 3600)
    delete_unshrunk(archive, save(archive, question(("large.png", CAT + bytes(2**20)))))
    pauses = list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        with closing(Archive(file)) as window:
            window.set_patient(False)
            save(window, Turn("user", "said"))

    monkeypatch.setattr(time, "sleep", pause)
    thread = Thread(target=database._shrink, args=(file,), daemon=True)
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM session").fetchall() == [(0,)]
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    assert len(archive.list()) == len(pauses) > 3
    assert {*pauses} == {database._PAUSE} and query(file, "PRAGMA freelist_count") == [(0,)]


def test_a_file_that_is_gone_is_not_made_to_give_room_back(tmp_path: Path) -> None:
    database._shrink(tmp_path / "gone.sqlite3")
    assert not (tmp_path / "gone.sqlite3").exists()


@pytest.mark.parametrize(
    "damage",
    [None, "UPDATE media SET file = 'x'", "UPDATE media SET turn = 99", "DELETE FROM media_file"],
)
def test_what_is_deleted_leaves_nothing_on_the_disk(
    archive: Archive, file: Path, damage: str | None
) -> None:
    save(archive, question(("cat.png", CAT)))
    if damage:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute(damage)
    archive.delete_all()
    assert files(file) == 0 and query(file, "SELECT * FROM media") == []
    archive.close()
    assert CAT[60:120] not in file.read_bytes()


def test_a_file_of_an_older_version_keeps_free_pages_until_all_is_deleted(
    archive: Archive, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = save(archive, question(("cat.png", CAT + bytes(2**20))))
    save(archive, Turn("user", "said"))
    archive.close()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("PRAGMA auto_vacuum = NONE; VACUUM")
    started = list[object]()
    monkeypatch.setattr(database, "_MUCH", 2**10)
    monkeypatch.setattr(database, "_shrink", started.append)
    with closing(Archive(file)) as again:
        again.delete(large)
        assert query(file, "PRAGMA freelist_count") > [(200,)]
        assert query(file, "PRAGMA auto_vacuum") == [(0,)]
        again.delete_all()
        assert query(file, "PRAGMA auto_vacuum") == [(2,)]
        assert not started
        again.delete(save(again, question(("cat.png", CAT + bytes(2**20)))))
        shrunk(file)
        assert started == [file]


def test_a_conversation_that_was_deleted_elsewhere_is_saved_with_its_images(
    archive: Archive, file: Path
) -> None:
    asked = question(("cat.png", CAT))
    key = save(archive, asked)
    with closing(Archive(file)) as other:
        other.delete(key)
    answer = Turn("assistant", "A cat.", stop_reason="eos")
    archive.live(key).conversation.add(answer)
    archive.save(key, [answer], answer)
    assert reopened(archive, file, key)[0].media == asked.media


def test_a_file_of_a_version_without_images_goes_on(file: Path) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in (*schema.TABLES, *schema._INDEXES):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {schema._APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 9")
        connection.execute(
            "INSERT INTO session (key, model, settings, changed, length) VALUES ('a','b','{}',1,1)"
        )
        connection.execute(
            "INSERT INTO turn (session, key, role, content, thought, raw, spelt, tokens, "
            "vocabulary, template, edited) VALUES (1,'c','user','said','','','','[]','','',0)"
        )
    with closing(Archive(file)) as archive:
        assert archive.problem is None
        assert [turn.content for turn in archive.open("a").conversation.everything()] == ["said"]
        key = save(archive, question(("cat.png", CAT)))
        assert reopened(archive, file, key)[0].media[0].data == CAT


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE media_file SET data = x'00' || substr(data, 2)",
        "UPDATE media_file SET data = 'text'",
        "UPDATE media SET stop = 99",
        "UPDATE media SET start = 50",
        "UPDATE media SET start = 1",
        "UPDATE media SET stop = 20",
        "UPDATE media SET start = 0.5",
        "UPDATE media SET stop = 1e300",
        "UPDATE media SET name = x'ff'",
        "DELETE FROM media_file",
    ],
)
def test_of_a_damaged_image_its_name_is_left(archive: Archive, file: Path, damage: str) -> None:
    key = save(archive, question(("cat.png", CAT)))
    archive.close()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(damage)
    with closing(Archive(file)) as again:
        [turn] = again.open(key).conversation.turns
        assert turn.content == "[cat.png 64 x 48] What?" and turn.media == ()
        assert again.problem == "1 damaged image of “[cat.png 64 x 48] What?” left out"
        assert again.messages(9)


def test_earlier_messages_name_their_files(archive: Archive) -> None:
    save(archive, question(("cat.png", CAT)), question(("my dog.png", DOG)), Turn("user", "so"))
    assert archive.messages(9) == ["@cat.png What?", '@"my dog.png" What?', "so"]
    assert archive.messages(2) == ['@"my dog.png" What?', "so"]


def test_a_private_chat_has_images_too(file: Path) -> None:
    with closing(Archive(file, private=True)) as archive:
        key = save(archive, question(("cat.png", CAT)))
        assert archive.open(key).conversation.turns[0].media[0].data == CAT
    assert not file.exists()


def test_exports(archive: Archive, tmp_path: Path) -> None:
    session = archive.read(save(archive, question(("cat.png", CAT))))
    markdown, whole = tmp_path / "a.md", tmp_path / "a.json"
    line = f"written: {markdown}; it names images and sounds, and a .json file has them"
    assert export_session(session, str(markdown)) == line
    assert "[cat.png 64 x 48] What?" in markdown.read_text()
    assert export_session(session, str(whole)) == f"written: {whole}"
    [media] = json.loads(whole.read_text())["turns"][0]["media"]
    assert (media["start"], media["end"], media["name"]) == (0, 18, "cat.png")
    assert b64decode(media["data"]) == CAT


def test_conversations_with_images_do_not_train(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(archive, Turn("user", "one"), question(("cat.png", CAT)), Turn("user", "two"))
    monkeypatch.setattr(train_texts, "opened_archive", lambda: nullcontext(archive))
    assert [*train_texts._conversations()] == [({"role": "user", "content": "one"},)]
