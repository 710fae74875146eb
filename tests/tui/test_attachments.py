"""Attachments: files in messages, completion of their paths, and refusals."""

import os
from pathlib import Path
from typing import Any

import pytest
from fakes.projectors import picture, sound
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.conversation.message import as_turn
from localspec.errors import InvalidValueError
from localspec_tui import attached_file, attachments
from localspec_tui.attached_file import MAX_BYTES
from localspec_tui.attachments import Attachments, typed_message, with_images_of
from localspec_tui.completion import completion, objection, quoted_completion
from localspec_tui.file_names import complete_path, similar_file
from localspec_tui.message_history import recalled

FILES = Attachments()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.py").write_text("print(1)\n")
    (tmp_path / "my notes.txt").write_text("one\ntwo\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "deep.md").write_text("Use:\n```\nx\n```\n")
    return tmp_path


def test_a_file_becomes_a_code_block_with_its_name(folder: Path) -> None:
    text = "Explain @main.py to me"
    assert FILES.attach(text) == "Explain\n\nmain.py:\n```py\nprint(1)\n```\n\nto me"
    assert FILES.names(text) == ["main.py"]


@pytest.mark.parametrize("quote", "\"'")
def test_a_path_with_spaces_is_quoted(folder: Path, quote: str) -> None:
    text = f"@{quote}my notes.txt{quote}"
    assert FILES.attach(text) == "my notes.txt:\n```txt\none\ntwo\n```"
    assert FILES.names(text) == ["my notes.txt"]


def test_several_files_and_the_text_between_them(folder: Path) -> None:
    text = "See @main.py, then (@src/deep.md).\n    indented"
    assert FILES.names(text) == ["main.py", "src/deep.md"]
    before, rest = FILES.attach(text).split("\n\nmain.py:\n", 1)
    between, after = rest.split("\n\nsrc/deep.md:\n", 1)
    assert before == "See"
    assert between == "```py\nprint(1)\n```\n\n, then ("
    assert after.endswith("\n\n).\n    indented")


def test_a_line_after_a_file_keeps_its_indentation(folder: Path) -> None:
    assert FILES.attach("@main.py\n    x = 2").endswith("```\n\n    x = 2")


def test_the_fence_is_longer_than_any_in_the_file(folder: Path) -> None:
    text = FILES.attach("@src/deep.md")
    assert text == "src/deep.md:\n````md\nUse:\n```\nx\n```\n````"


@pytest.mark.parametrize(
    "message",
    [
        "Explain @main.py to me",
        "@src/deep.md",
        '@"my notes.txt" @main.py',
        "See @main.py, then (@src/deep.md).\n    indented",
        "@main.py\n    x = 2",
        "No file, but ```py\ncode\n```",
        "Two\n\nparagraphs, @main.py and\n\none more",
    ],
)
def test_what_was_typed_comes_back(folder: Path, message: str) -> None:
    assert FILES.detach(FILES.attach(message)) == message


@pytest.mark.parametrize("change", ["changed", "gone", "elsewhere"])
def test_a_file_that_is_another_one_now_stays_a_code_block(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    text = FILES.attach("Explain @main.py and @src/deep.md")
    if change == "changed":
        (folder / "main.py").write_text("print(2)\n")
    elif change == "gone":
        (folder / "main.py").unlink()
    else:
        monkeypatch.chdir(folder / "src")
    expected = text if change == "elsewhere" else text.partition("\n\nsrc/deep.md:")[0]
    assert FILES.detach(text) == expected + ("" if change == "elsewhere" else " @src/deep.md")


def test_an_image_stays_one_behind_a_file_with_an_open_block(folder: Path) -> None:
    (folder / "cat.png").write_bytes(CAT)
    (folder / "open.md").write_text("Begin a block with ```\n")
    turn = as_turn(FILES.attach("@open.md @cat.png"), "user")
    (folder / "open.md").unlink()
    again = Attachments.of(turn).attach(typed_message(turn))
    assert again == [said("open.md:\n````md\nBegin a block with ```\n````"), image()]


@pytest.mark.parametrize("became", ["folder", "binary"])
def test_a_word_that_cannot_be_attached_any_more_leaves_the_message_as_it_is(
    folder: Path, became: str
) -> None:
    text = FILES.attach("Ask @late about @main.py")
    assert isinstance(text, str)
    (folder / "cat.png").write_bytes(CAT)
    message = FILES.attach("Ask @late about @main.py and @cat.png")
    if became == "folder":
        (folder / "late").mkdir()
    else:
        (folder / "late").write_bytes(b"\0\1")
    assert FILES.detach(text) == text == recalled(text)
    turn = as_turn(message, "user")
    assert typed_message(turn) == turn.content.replace("[cat.png 64 x 48]", "@cat.png")


@pytest.mark.parametrize(
    "text", ["main.py:\n```py\nprint(1)\n```\nto me", "a\nmain.py:\n```py\nprint(1)\n```"]
)
def test_code_blocks_that_no_file_became_stay(folder: Path, text: str) -> None:
    assert FILES.detach(text) == text


def test_home_and_absolute_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    monkeypatch.chdir(folder / "src")
    for name in ("~/main.py", f"{folder}/main.py"):
        assert FILES.names(f"@{name}") == [name]
        assert FILES.attach(f"@{name}") == f"{name}:\n```py\nprint(1)\n```"


@pytest.mark.parametrize(
    "text",
    [
        "ask @nobody about it",
        "write to me@main.py",
        "`@main.py` is only named",
        "```\n@main.py\n```",
        "```\n@main.py is in an open block",
        "a lone @ and @ main.py",
        '@"no such file" and @"unclosed',
        "@" + "long" * 2000,
        "@nul\0byte",
        "",
    ],
)
def test_a_word_that_is_no_path_stays(folder: Path, text: str) -> None:
    assert FILES.attach(text) == text
    assert FILES.names(text) == []


def test_the_largest_file_is_attached_and_one_byte_more_is_refused(folder: Path) -> None:
    (folder / "big.txt").write_text("x" * MAX_BYTES)
    assert "x" * MAX_BYTES in FILES.attach("@big.txt")
    (folder / "big.txt").write_text("x" * (MAX_BYTES + 1))
    assert "256 KiB" in refused("@big.txt")


def test_a_file_that_is_no_text_is_refused(folder: Path) -> None:
    (folder / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (folder / "zero.bin").write_bytes(b"ab" * 4000 + b"\0cd")
    line = "@image.png is no text, JPEG, PNG, GIF, BMP, WAV, MP3 or FLAC; convert it to one of"
    assert refused("see @image.png").startswith(line)
    (folder / "image.png").write_bytes(b"RIFF\0\x10\0\0WEBP" + b"\xff" * MAX_BYTES)
    line = "@image.png is a WebP image; convert it to JPEG or PNG, or put the word between back"
    assert refused("see @image.png").startswith(line)
    assert "@zero.bin is no text: it has a zero byte" in refused("see @zero.bin")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    line = "@latin.txt cannot be read: it is not UTF-8, byte 3 is 0xe9; save it as UTF-8, or put"
    assert refused("@latin.txt").startswith(line)
    assert "@src is a folder; name the files in it, each after an @" in refused("see @src.")


CAT, WAV = picture(), sound(0.5)


def image(name: str = "cat.png", data: bytes = CAT) -> dict[str, Any]:
    return {"type": "image", "image": data, "name": name}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


MESSAGES = {
    "What is this? @cat.png": [said("What is this?"), image()],
    "@cat.png What is this?": [image(), said("What is this?")],
    "@cat.png": [image()],
    "(@cat.png, @a.wav)": [
        said("("),
        image(),
        said(","),
        {"type": "audio", "audio": WAV, "name": "a.wav"},
        said(")"),
    ],
    "Is @main.py in @cat.png?": [
        said("Is\n\nmain.py:\n```py\nprint(1)\n```\n\nin"),
        image(),
        said("?"),
    ],
    "@cat.png @main.py": [image(), said("main.py:\n```py\nprint(1)\n```")],
}


@pytest.mark.parametrize("typed", MESSAGES)
def test_images_and_sounds_stand_where_they_are_named(folder: Path, typed: str) -> None:
    (folder / "cat.png").write_bytes(CAT)
    (folder / "a.wav").write_bytes(WAV)
    assert FILES.attach(typed) == MESSAGES[typed]
    assert len(FILES.names(typed)) == typed.count("@")


@pytest.mark.parametrize("typed", MESSAGES)
def test_a_turn_with_images_comes_back_as_it_was_typed(folder: Path, typed: str) -> None:
    turn = as_turn(MESSAGES[typed], "user")
    assert typed_message(turn) == typed
    # The files are gone, and the turn has them.
    assert Attachments.of(turn).attach(typed) == MESSAGES[typed]
    assert Attachments.of(turn).missing(typed) is None
    (folder / "main.py").unlink()
    assert Attachments.of(turn).attach(typed_message(turn)) == MESSAGES[typed]


def test_names_that_need_quotes_come_back(folder: Path) -> None:
    for name in ("my cat.png", "it's.png", 'a"b.png', "cat.png.", "~/cat.png"):
        turn = as_turn([said("a"), image(name)], "user")
        typed = typed_message(turn)
        assert Attachments.of(turn).attach(typed) == [said("a"), image(name)]


@pytest.mark.parametrize(
    ("names", "typed"),
    [
        ([""], "a @image"),
        (["a\n.png"], "a @a?.png"),
        (["a\"'.png"], "a @\"a''.png\""),
        (["a\udc80.png", "a\x1b.png"], 'a @a?.png @"a?.png 2"'),
        (["PM\u202f1.png"], 'a @"PM\u202f1.png"'),
    ],
)
def test_every_image_of_a_turn_can_be_named(folder: Path, names: list[str], typed: str) -> None:
    message = [said("a"), *map(image, names)]
    turn = as_turn(message, "user")
    assert typed_message(turn) == typed
    assert Attachments.of(turn).attach(typed) == message
    kept = with_images_of(turn, "b")
    assert Attachments.of(turn).attach(kept) == [*message[1:], said("b")]


def test_images_of_one_name_are_told_apart(folder: Path) -> None:
    dog = picture(seed=9)
    message = [image(), said("is not"), image(data=dog), said("but"), image()]
    turn = as_turn(message, "user")
    assert typed_message(turn) == '@cat.png is not @"cat.png 2" but @cat.png'
    assert Attachments.of(turn).attach(typed_message(turn)) == message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(names=st.lists(st.text(st.characters(exclude_categories=())), min_size=1, max_size=3))
def test_images_of_any_names_come_back(folder: Path, names: list[str]) -> None:
    message = [said("a"), *(image(name) for name in names)]
    turn = as_turn(message, "user")
    assert Attachments.of(turn).attach(typed_message(turn)) == message


def test_names_with_the_spaces_of_screenshots_are_completed(folder: Path) -> None:
    for name in ("Shot\u202fPM.png", "Shot\x1bPM.png"):
        (folder / name).write_bytes(CAT)
    assert [*complete_path("Shot")] == ['"Shot\u202fPM.png"']
    assert completion('Read @"Shot') == '\u202fPM.png"'


def test_another_text_of_a_turn_keeps_its_images(folder: Path) -> None:
    (folder / "dog.png").write_bytes(CAT)
    turn = as_turn([said("a"), image(), image("my cat.png"), image()], "user")
    assert with_images_of(turn, "b") == '@cat.png @"my cat.png" b'
    assert with_images_of(turn, "//b") == '@cat.png @"my cat.png" /b'
    assert with_images_of(turn, "b @cat.png") == "b @cat.png"
    assert with_images_of(turn, f"b @{folder}/dog.png") == f"b @{folder}/dog.png"
    assert with_images_of(as_turn("a", "user"), "b") == "b"


def test_images_that_cannot_be_read_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "huge.png").write_bytes(CAT[:16] + b"\0\0\xff\xff" * 2 + CAT[24:])
    line = "@huge.png: an image of 65535 x 65535 pixels was given; make it smaller than 64 million"
    assert refused("see @huge.png") == line
    (folder / "long.wav").write_bytes(sound(0.1)[:24])
    assert "whose length cannot be trusted" in refused("@long.wav")
    (folder / "cat.png").write_bytes(CAT + bytes(MAX_BYTES))
    assert FILES.attach("@cat.png") == [image(data=CAT + bytes(MAX_BYTES))]
    monkeypatch.setattr(attached_file, "MOST_BYTES", MAX_BYTES + 9)
    assert refused("@cat.png").startswith("@cat.png has more than 262.2 kB; make it small")


def test_a_photo_whose_size_stands_behind_much_else_is_an_image(folder: Path) -> None:
    def segment(marker: int, data: bytes) -> bytes:
        return bytes([0xFF, marker]) + (len(data) + 2).to_bytes(2, "big") + data

    frame = bytes([8, 0, 48, 0, 64, 3]) + bytes(9)
    more = segment(0xE1, b"http://ns.adobe.com/xmp/extension/\0" + b"a" * 60_000)
    photo = b"\xff\xd8" + more * 5 + segment(0xC0, frame) + segment(0xDA, bytes(10)) + b"\xff\xd9"
    assert photo.index(frame) > MAX_BYTES
    (folder / "cat.png").write_bytes(photo)
    assert FILES.attach("@cat.png") == [image(data=photo)]


@pytest.mark.parametrize(
    "text", ["BM is how the name of a car begins", "ID3 is a tag", "\ufeffcaf\u00e9"]
)
def test_texts_that_begin_as_images_or_sounds_are_texts(folder: Path, text: str) -> None:
    (folder / "cars.txt").write_bytes(text.encode("utf-16-le" if text[0] == "\ufeff" else "utf-8"))
    assert text.removeprefix("\ufeff") in FILES.attach("@cars.txt")


@pytest.mark.parametrize("rest", [b"\xe2\xe3\xcf", b"\0" * 300_000, b"a" * 300_000])
def test_a_pdf_is_refused_with_the_way_to_its_text(folder: Path, rest: bytes) -> None:
    (folder / "a.pdf").write_bytes(b"%PDF-1.7\n" + rest)
    line = "@a.pdf is a PDF; attach its text (pdftotext FILE.pdf FILE.txt writes it), or put"
    assert refused("@a.pdf").startswith(line)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_refused_without_waiting_for_it(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert "@pipe is no file" in refused("@pipe")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(folder: Path) -> None:
    (folder / "main.py").chmod(0)
    assert "Permission denied" in refused("@main.py")


def refused(text: str) -> str:
    with pytest.raises(InvalidValueError) as caught:
        FILES.attach(text)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_windows_line_ends_and_byte_order_marks_are_removed(folder: Path, encoding: str) -> None:
    (folder / "dos.txt").write_bytes("one\r\ntwo\r\n".encode(encoding))
    assert FILES.attach("@dos.txt") == "dos.txt:\n```txt\none\ntwo\n```"


def test_file_names_in_an_attached_file_are_not_attached(folder: Path) -> None:
    (folder / "loop.txt").write_text("@loop.txt @main.py")
    assert FILES.attach("@loop.txt") == "loop.txt:\n```txt\n@loop.txt @main.py\n```"
    assert FILES.names("@loop.txt") == ["loop.txt"]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("See @my", '"my notes.txt"'),
        ("@my notes", ""),
        ('@"my', ""),
        ("@ma", ""),
        ("@", ""),
        ("/x @my", ""),
    ],
)
def test_a_name_with_spaces_is_completed_with_quotes(folder: Path, line: str, path: str) -> None:
    assert quoted_completion(line) == path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("explain @my notes.txt, please", "my notes.txt"),
        ("explain @./my notes.txt", "./my notes.txt"),
        ("@my notes.txts", None),
        ("@my notes", None),
        ('@"my notes.txt"', None),
        ("`@my notes.txt`", None),
        ("@main.py", None),
    ],
)
def test_a_name_with_spaces_needs_quotes(folder: Path, text: str, name: str | None) -> None:
    assert FILES.unquoted(text) == name
    if name:
        assert f'needs quotes: @"{name}"' in (objection(text, FILES) or "")


def test_arguments_of_commands_are_completed(folder: Path) -> None:
    (folder / "own.gguf").touch()
    for line, rest in {
        "/model qwen3-8": "b",
        "/model termin": "al",
        "/model ow": "n.gguf",
        "/model ./o": "wn.gguf",
        "/model sr": "c/",
        "/model ma": "",
        "/model": "",
        "/model ": "",
        "/model qwen3-8b qw": "",
        "/draft su": "ffix",
        "/draft none": "",
        "/draft suffix, loo": "kup",
        "/draft suffix,ng": "ram",
        "/set temp": "erature",
        "/set xtc_p": "robability",
        "/set temperature ma": "",
        "/think ": "on",
        "/think of": "f",
        "/drop-oldest o": "n",
        "/save ma": "",
        "/nothing o": "",
    }.items():
        assert completion(line) == rest, line


def test_completions_are_the_entries_of_the_folder(folder: Path) -> None:
    (folder / ".hidden").touch()
    (folder / "Makefile").touch()
    assert [*complete_path("")] == ["main.py", "Makefile", '"my notes.txt"', "src/"]
    assert [*complete_path("ma")] == ["main.py", "Makefile"]
    assert [*complete_path("src/")] == ["src/deep.md"]
    assert [*complete_path("src/d")] == ["src/deep.md"]
    assert [*complete_path(".h")] == [".hidden"]
    assert [*complete_path('"my')] == ['"my notes.txt"']
    assert [*complete_path("nothing/")] == []
    assert [*complete_path("main.py/")] == []


def test_every_completed_file_can_be_attached(folder: Path) -> None:
    (folder / "a b").mkdir()
    (folder / "a b" / "c d.txt").write_text("x")
    assert [*complete_path("a")] == ['"a b/']
    for name in [*complete_path('"a b/'), *complete_path("m")]:
        assert FILES.names(f"@{name}") == [name.strip('"')]
        assert str(FILES.attach(f"@{name}")).startswith(name.strip('"'))


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("Read @nothere.txt, please", "nothere.txt"),
        ("Read (@src/gone)", "src/gone"),
        ('Read @"my gone notes"', "my gone notes"),
        ("@main.py and @~/gone.md.", "~/gone.md"),
        ("Read @main", "main"),
        ("Read @mian.py", "mian.py"),
        ("Read @src/deeep", "src/deeep"),
        ("Read @main.py", None),
        ("Ask @alice.", None),
        ("@property and `@nothere.txt`", None),
        ("@app.route('/')", None),
        ("me@example.com", None),
    ],
)
def test_a_file_that_is_missing(folder: Path, text: str, missing: str | None) -> None:
    assert FILES.missing(text) == missing


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("mian.py", "main.py"),
        ("main", "main.py"),
        ("src/deeep.md", "deep.md"),
        ("alice", None),
        ("mai", None),
        ("gone/main.py", None),
        ("nul\0byte/main.py", None),
        ("nofile.py", None),
    ],
)
def test_a_misspelt_name_is_like_that_of_a_file(
    folder: Path, name: str, similar: str | None
) -> None:
    assert similar_file(name) == similar


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Ask @alice, then @bob.", "alice"),
        ("Read @main.py", None),
        ("`@alice`", None),
        ("me@example.com", None),
        ("@property\ndef area(self): ...", None),
    ],
)
def test_a_word_that_attaches_nothing(folder: Path, text: str, word: str | None) -> None:
    assert FILES.unattached(text) == word


def test_many_words_are_not_compared_with_file_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def similar(name: str) -> str | None:
        compared.append(name)
        return None

    monkeypatch.setattr(attachments, "similar_file", similar)
    assert FILES.missing("@Override\n" * 2000) is None
    assert compared == ["Override"]
    assert FILES.missing(" ".join(f"@user{i}" for i in range(500))) is None
    assert len(compared) == 1
    assert FILES.missing("@gone.txt " + "@someone " * 500) == "gone.txt"


def test_a_path_goes_on_as_it_was_typed(folder: Path) -> None:
    """Also where another one, which begins with capitals, comes before it."""
    (folder / "README.md").write_text("x")
    (folder / "report.txt").write_text("x")
    assert completion("Read @re") == "port.txt"
    assert completion("  // see @re") == completion("//see @re") == "port.txt"
    assert completion(" /edit @re") == ""
    assert completion("Read @RE") == "ADME.md"
    assert completion("Read @Re") == ""
    assert completion("Ask @re about it") == ""
    assert completion('Read @"my n') == 'otes.txt"'


NAMES = (" @cat.png", ' @"my cat.png"', "(@cat.png", "\n@main.py", " @src/deep.md", " @nobody")
TYPED = st.lists(
    st.sampled_from([*NAMES, " words", ")", ",", "?", " ", "\n", "\n\n", "`code`"]),
    min_size=1,
    max_size=9,
).map("".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(typed=TYPED)
def test_any_message_with_images_comes_back_as_what_was_read(folder: Path, typed: str) -> None:
    for name in ("cat.png", "my cat.png"):
        (folder / name).write_bytes(CAT)
    message = FILES.attach(typed)
    if isinstance(message, str):
        return
    turn = as_turn(message, "user")
    for name in ("cat.png", "my cat.png"):
        (folder / name).unlink()
    again = Attachments.of(turn).attach(typed_message(turn))
    assert again == message
