"""Conversations with images and sounds: what the model reads, what people read, what is refused."""

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from fakes.projectors import KINDS, picture, seeing_model, sound, tiny_projector, write_ears
from fakes.pycode import load as load_pycode
from fakes.templates import GEMMA, PARTS

import localspec
from localspec.cli.prompt import as_prompt
from localspec.conversation.events import Dropped, Ended, Notice
from localspec.conversation.media_spans import MediaSpan
from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation, Turn
from localspec.engine.engine import Engine
from localspec.engine.media_marks import media_mark, without_pieces
from localspec.engine.prompt import warn_left_out
from localspec.errors import InvalidValueError
from localspec.llama import media
from localspec.utils.media import has_media

LOAD: dict[str, Any] = {"context": 300, "threads": 1, "kv_type": "f32", "flash_attention": False}
OPTIONS: dict[str, Any] = {"max_tokens": 12, "temperature": 0.9, "seed": 3, "ignore_eos": True}
CAT, DOG = picture(64, 48, seed=1), picture(40, 70, seed=2)


def image(data: bytes = CAT, name: str = "") -> dict[str, Any]:
    return {"type": "image", "image": data, "name": name}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    tiny_projector("llama")
    with localspec.load(seeing_model("llama"), draft="suffix", **LOAD) as loaded:
        yield loaded


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine, **OPTIONS) as opened:
        yield opened


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model without a projector."""
    return Path(copy(seeing_model("llama"), tmp_path_factory.mktemp("lonely") / "lonely.gguf"))


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each image had that was encoded."""
    library, found = media.mtmd_library(), list[int]()
    encode = library.mtmd_encode_chunk

    def counted(handle: Any, chunk: Any) -> Any:
        found.append(int(library.mtmd_input_chunk_get_n_tokens(chunk)))
        return encode(handle, chunk)

    monkeypatch.setattr(library, "mtmd_encode_chunk", counted)
    return found


MESSAGES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "before": ([image(name="a/cat.png"), said("What?")], "[cat.png 64 x 48] What?"),
    "behind": ([said("What?"), image()], "What? [image 64 x 48]"),
    "between": (
        [said("Is ("), image(name="cat.png"), said(") like"), image(DOG, "dog.png"), said("?")],
        "Is ([cat.png 64 x 48]) like [dog.png 40 x 70]?",
    ),
    "lines": (
        [said("One\ntwo"), image(name="c"), image(DOG, "d"), said("three\nfour")],
        "One\ntwo [c 64 x 48] [d 40 x 70] three\nfour",
    ),
    "code": (
        [said("```\na\n```"), image(name="c"), said("a.py:\n```\nb\n```")],
        "```\na\n```\n\n[c 64 x 48]\n\na.py:\n```\nb\n```",
    ),
    "alone": ([image(name="cat.png")], "[cat.png 64 x 48]"),
    "several texts": ([said("a"), said("b"), image(name="c"), said("d")], "a\nb [c 64 x 48] d"),
    "odd": ([image(name="a\x1b[2J\nb.png"), said("?")], "[a?[2J?b.png 64 x 48]?"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_of_parts_is_read_as_in_every_other_place(session: Session, name: str) -> None:
    parts, shown = MESSAGES[name]
    answer = session.send(parts).result()
    [question, _] = session.turns
    assert question.content == shown
    assert [each.data for each in question.media] == [p["image"] for p in parts if "image" in p]
    if name == "before":  # as `localspec generate --image` has it
        asked = as_prompt(session.engine, "What?", None, media=[CAT])
        tokens = session.engine.stream(asked, **OPTIONS).prompt
        assert list(session.written.tokens[: len(tokens)]) == tokens
    message = [{"role": "user", "content": parts}]
    expected = session.engine.generate(message, **OPTIONS)
    assert list(answer.written.tokens) == expected.token_ids
    written = session.written
    assert list(written.tokens[: expected.stats.prompt_tokens]) == (
        session.engine.stream(message, **OPTIONS).prompt
    )
    assert "|media" not in written.text and "[image]" in written.text


def test_a_file_of_this_machine_has_its_name(session: Session, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(CAT)
    for part in ({"image": tmp_path / "cat.png"}, {"path": str(tmp_path / "cat.png")}):
        session.reset()
        session.send([{"type": "image", **part}, said("a")], max_tokens=1).result()
        assert session.turns[0].content == "[cat.png 64 x 48] a"
        assert session.turns[0].media[0].name == str(tmp_path / "cat.png")
    (tmp_path / "cat.png").unlink()
    with pytest.raises(InvalidValueError, match=r"message\[0\].path is .*cat.png'; it cannot be"):
        session.send([{"type": "image", "path": str(tmp_path / "cat.png")}])


def test_what_looks_like_an_image_is_a_text(session: Session) -> None:
    session.send([image(name="cat.png"), said("a")]).result()
    typed = session.turns[0].content
    session.reset()
    answer = session.send(typed).result()
    assert not has_media(session.written.tokens)
    expected = session.engine.generate([{"role": "user", "content": typed}], **OPTIONS)
    assert list(answer.written.tokens) == expected.token_ids


@pytest.mark.parametrize("family", KINDS)
def test_no_image_is_encoded_twice(family: str, encoded: list[int]) -> None:
    tiny_projector(family)
    options = LOAD | {"context": 480}
    with (
        localspec.load(seeing_model(family), draft="suffix", **options) as seeing,
        Session(seeing, **OPTIONS) as session,
    ):
        for seed, text in enumerate(("one", "two", "three")):
            known = session.gauge.used
            ended = list(session.send([said(text), image(picture(50, 50, seed=seed))]))[-1]
            assert isinstance(ended, Ended)
            # Beside what is new, only the last token of the answer before.
            assert ended.stats.prompt_evaluated <= ended.stats.prompt_tokens - max(0, known - 1)
        assert len(encoded) == 3
        session.regenerate().result()
        session.edit(2, [said("another"), session.turns[2].media[0].part]).result()
        session.edit(0, [said("first"), session.turns[0].media[0].part]).result()
        session.choose(next(iter(session.conversation.everything())))
        session.send("and now?").result()
        assert len(encoded) == 3


def test_variants_forks_and_copies_keep_images(session: Session) -> None:
    first = session.send([image(), said("a")]).result()
    again = session.regenerate().result()
    assert first.before is again.before and session.turns[0].media
    with session.fork() as fork:
        assert fork.turns[0].media == session.turns[0].media
        assert fork.send("b").result().written == session.send("b").result().written
        assert fork.written.tokens == session.written.tokens
    last = session.turns[-1]
    with Session(session.engine, conversation=session.conversation, **OPTIONS) as opened:
        assert opened.regenerate(seed=last.seed and last.seed - 1).result().content == last.content


def test_a_conversation_goes_on_as_in_a_fresh_process(engine: Engine) -> None:
    with Session(engine, **OPTIONS) as session:
        session.send([said("What is this?"), image()], max_tokens=7).result()
        session.send([image(DOG), said("and this?")]).result()
        session.edit(2, [image(DOG), said("or that?"), image()]).result()
        answer = session.send("why?").result()
        kept = session.conversation
    with localspec.load(engine.model.path, draft="none", **LOAD) as fresh:
        before = Conversation([turn.copy() for turn in kept.turns[:-2]])
        with Session(fresh, conversation=before, **OPTIONS) as session:
            assert session.send("why?").result().written == answer.written


def test_an_answer_that_was_stopped_goes_on(session: Session) -> None:
    whole = session.send([image(), said("a")], max_tokens=12).result()
    session.reset()
    session.send([image(), said("a")], max_tokens=5).result()
    assert session.continue_answer(max_tokens=7).result().written == whole.written


def test_old_images_leave_a_full_context(engine: Engine) -> None:
    with Session(engine, when_full="drop", **OPTIONS) as session:
        dropped = 0
        for seed in range(16):
            answer = session.send([image(picture(48, 48, seed=seed)), said("what is that?")])
            dropped += sum(isinstance(event, Dropped) for event in answer)
            assert answer.gauge.used <= 300
            # The rows of the images that are left, whole ones.
            rows = sum(token < 0 for token in session.written.tokens)
            assert rows and rows % 16 == 0
        assert dropped > 1


# What is refused, and what is left out.


def notices(answer: Any) -> list[str]:
    return [event.line for event in answer if isinstance(event, Notice)]


def refused(send: Callable[[], object], session: Session, told: str) -> None:
    before, last = [*session.conversation.everything()], session.conversation.last
    with pytest.raises(InvalidValueError, match=told):
        send()
    assert [*session.conversation.everything()] == before
    assert session.conversation.last is last


def test_a_model_without_a_projector_refuses_new_images_and_reads_names_of_old_ones(
    engine: Engine, lonely: Path
) -> None:
    told = r"lonely\.gguf reads texts only: there is no mmproj file beside it;.*name it with"
    parts = [image(name="cat.png"), said("a")]
    with Session(engine, **OPTIONS) as seeing:
        seeing.send(parts, max_tokens=3).result()
        conversation = seeing.conversation
    with (
        localspec.load(lonely, draft="suffix", **LOAD) as blind,
        Session(blind, conversation=conversation, **OPTIONS) as session,
    ):
        refused(lambda: session.send(parts), session, told)
        refused(lambda: session.edit(0, [image(DOG, "dog.png"), said("a")]), session, told)
        refused(session.continue_answer, session, "other images were read; load .*--|mmproj")
        answer = session.send("b")
        [line] = notices(answer)
        assert line == (
            "lonely.gguf cannot see or hear the files of this conversation; in their place it "
            "reads their names, such as [cat.png 64 x 48]"
        )
        assert not has_media(session.written.tokens)
        assert "[cat.png 64 x 48] a" in session.written.text
        assert notices(session.send("c")) == []
        session.send("d", max_tokens=2).result()
        assert session.continue_answer(max_tokens=2).result()
        assert session.turns[0].media
        # An edit keeps what was there, unread as before.
        session.edit(0, [image(name="cat.png"), said("e")]).result()
        assert "[cat.png 64 x 48] e" in session.written.text and session.turns[0].media


def test_an_answer_goes_on_where_the_image_that_was_not_read_is_dropped(
    engine: Engine, lonely: Path
) -> None:
    with Session(engine, **OPTIONS) as seeing:
        seeing.send([image(), said("a")], max_tokens=40).result()
        conversation = seeing.conversation
    with (
        localspec.load(lonely, draft="none", **{**LOAD, "context": 256}) as blind,
        Session(blind, conversation=conversation, **OPTIONS) as session,
    ):
        session.send("go on", max_tokens=400).result()
        assert session.turns[-1].stop_reason == "context"
        session.when_full = "drop"
        answer = session.continue_answer(max_tokens=5)
        assert any(isinstance(event, Dropped) for event in answer)
        session.continue_answer(max_tokens=5).result()
        # Another image would be another text.
        [span] = session.turns[0].media
        session.turns[0].media = (MediaSpan(span.start, span.end, span.name, DOG),)
        refused(session.continue_answer, session, "where other images were read")


def test_a_switch_of_models_leaves_and_brings_back_images(engine: Engine, lonely: Path) -> None:
    with (
        localspec.load(engine.model.path, draft="none", **LOAD) as switched,
        Session(switched, **OPTIONS) as session,
    ):
        session.send([image(), said("a")]).result()
        seen = session.written.tokens
        session.switch(model=lonely)
        assert notices(session.send("b"))
        session.switch(model=engine.model.path)
        session.conversation.back_to(session.turns[1])
        assert session.written.tokens == seen
        assert session.send([image(DOG), said("b")]).result().content


def test_a_template_that_refuses_an_image_shows_no_mark() -> None:
    template = "{% for m in messages %}{{ raise_exception('no: ' + m.content) }}{% endfor %}"
    tiny_projector("llama")
    parts, path = [image(), said("words")], seeing_model("llama")
    with (
        localspec.load(path, draft="none", chat_template=template, **LOAD) as engine,
        Session(engine, **OPTIONS) as session,
    ):
        refused(lambda: session.send(parts), session, r"\(no: \[image\]words\);")
        with pytest.raises(InvalidValueError, match=r"\(no: \[image\]words\);"):
            engine.stream([{"role": "user", "content": parts}], **OPTIONS)


CUT = "{% for m in messages %}u {{ m.content[:30] }}{% endfor %}a "
CUT_IN_A_MARK = "{% for m in messages %}u {{ m.content[:60] }}{% endfor %}a "
ONLY_THE_LAST = "u {{ (messages | selectattr('role', 'equalto', 'user') | list | last).content }}a "


@pytest.mark.parametrize("template", [CUT, CUT_IN_A_MARK])
def test_a_template_that_leaves_out_the_image_of_a_message_is_told(template: str) -> None:
    tiny_projector("llama")
    path, options = seeing_model("llama"), LOAD | {"chat_template": template}
    with (
        localspec.load(path, draft="none", **options) as engine,
        Session(engine, **OPTIONS) as session,
    ):
        told = r"leaves out an image of the message; try another template \(chat_template\)"
        for parts in ([image(), said("words")], [said("words"), image(), said("more")]):
            refused(lambda parts=parts: session.send(parts), session, told)
            with pytest.raises(InvalidValueError, match=told):
                engine.stream([{"role": "user", "content": parts}], **OPTIONS)
        assert session.send("words").result().content


LEAVES_OUT = "the chat template of {} leaves out images of earlier messages or of tools"
EARLIER_ARE_CUT = (
    "{% for m in messages %}{{ m.content if loop.last else m.content[:40] }}assistant {% endfor %}"
)


@pytest.mark.parametrize("template", [ONLY_THE_LAST, EARLIER_ARE_CUT])
def test_a_template_that_leaves_out_earlier_images_is_told_once(
    template: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In a session, and for messages. Nobody reads a piece of what stood for an image."""
    warn_left_out.cache_clear()
    tiny_projector("llama")
    path, options = seeing_model("llama"), LOAD | {"chat_template": template}
    parts, line = [image(), said("words")], LEAVES_OUT.format(path.name)
    with localspec.load(path, draft="none", **options) as engine, Session(engine) as session:
        for message, is_told in ((parts, False), ("and now", True), ("and then", False)):
            assert (Notice(line) in session.send(message, **OPTIONS)) is is_told
            assert "media" not in session.written.text
        assert Notice(line) not in session.send(parts, **OPTIONS)
        assert has_media(session.written.tokens)
        user = [{"role": "user", "content": each} for each in (parts, "and now")]
        answer, call = ({"role": "assistant", "content": each} for each in ("a thing", ""))
        tool = {"role": "tool", "content": parts}
        assert not caplog.messages
        for messages in ([user[0], answer, user[1]], user, [user[1], call, tool, user[0], user[1]]):
            prompt = engine.stream(messages, **OPTIONS).prompt
            assert not has_media(prompt)
            assert "media" not in "".join(map(engine.model.piece_text, prompt))
        assert caplog.messages == [line]


def test_a_piece_of_a_mark_is_taken_out_and_no_more() -> None:
    mark = media_mark(CAT)
    written = [{"content": mark}, {"content": media_mark(DOG)}]
    # 24: behind the secret.
    for end in range(24, len(mark)):
        behind = "d" if mark[end] == "a" else "a"
        text = f"{behind}ssistant {mark}"
        assert without_pieces(f"u{mark[:end]}{text}", written) == f"u{text}"
    assert without_pieces(f"u {mark[8:]}", written) == "u >"


def test_an_image_that_is_left_out_is_missed_where_it_was_sent_before() -> None:
    template = "{% for m in messages %}u {{ m.content[:110] }}{% endfor %}a "
    tiny_projector("llama")
    path, options = seeing_model("llama"), LOAD | {"chat_template": template}
    with localspec.load(path, draft="none", **options) as engine, Session(engine) as session:
        line, cut = Notice(LEAVES_OUT.format(path.name)), said("w" * 120)
        assert line not in session.send([image(), said("what")], **OPTIONS)
        refused(lambda: session.send([cut, image(DOG)]), session, "leaves out an image")
        assert line in session.send([cut, image()], **OPTIONS)


def test_a_letter_that_is_none_is_named_behind_an_image(session: Session) -> None:
    parts = [said("some words"), image(), said("\ud800")]
    refused(lambda: session.send(parts), session, r"no valid Unicode: .* is '\\ud800'")


def test_models_that_continue_texts_read_none() -> None:
    with load_pycode(draft="none", context=256, threads=1) as raw, Session(raw) as session:
        told = r"images and sounds are for chats, and pycode.* continues a text"
        refused(lambda: session.send([image(), said("a")]), session, told)
        session.conversation.add(Turn("user", "[a 1 x 1] b", media=(MediaSpan(0, 10, "a", CAT),)))
        assert notices(session.send("c", max_tokens=2))
        assert session.written.text.startswith("[a 1 x 1] bc")


def test_sounds_are_heard_and_images_are_not(lonely: Path, tmp_path: Path) -> None:
    ears = write_ears(tmp_path / "mmproj-ears.gguf")
    with (
        localspec.load(lonely, draft="suffix", mmproj=ears, **LOAD) as hearing,
        Session(hearing, **OPTIONS) as session,
    ):
        audio = {"type": "audio", "audio": sound(2.0), "name": "a.wav"}
        answer = session.send([said("What?"), audio]).result()
        assert session.turns[0].content == "What? [a.wav 2 s]"
        prompt = [{"role": "user", "content": [said("What?"), audio]}]
        assert list(answer.written.tokens) == hearing.generate(prompt, **OPTIONS).token_ids
        refused(lambda: session.send([image(), said("a")]), session, "this model sees nothing")
        refused(lambda: session.send([image(b"no")]), session, "this model sees nothing")
        span = MediaSpan(0, 10, "a", CAT)
        session.conversation.add(Turn("user", "[a 1 x 1] b", media=(span,)))
        assert notices(session.send("c"))


def test_damaged_files_are_refused(session: Session) -> None:
    session.send("a").result()
    for data, told in ((b"no", "is no JPEG, PNG"), (CAT[:60], "cannot be read")):
        refused(lambda data=data: session.send([image(data)]), session, told)  # type: ignore[misc]
    refused(lambda: session.send([said("")]), session, "the message is empty")
    refused(lambda: session.send([]), session, "the message is empty")
    refused(lambda: session.send([{"type": "video"}]), session, r"message\[0\].type is 'video'")
    assert session.send("b").result().content


def test_templates_that_merge_messages_keep_images(tmp_path: Path) -> None:
    tiny_projector("llama")
    options = LOAD | {"chat_template": GEMMA, "context": 512}
    with (
        localspec.load(seeing_model("llama"), draft="suffix", **options) as engine,
        Session(engine, system="Be kind.", **OPTIONS) as session,
    ):
        session.send([image(), said("a")]).result()
        assert sum(token < 0 for token in session.written.tokens) == 16
        session.send([said("b"), image(DOG)]).result()
        assert sum(token < 0 for token in session.written.tokens) == 32


def test_a_template_of_parts_gets_the_words_and_the_images() -> None:
    tiny_projector("llama")
    options = LOAD | {"chat_template": PARTS, "context": 512}
    parts = [said("ab"), image(), said("cd"), image(DOG)]
    with (
        localspec.load(seeing_model("llama"), draft="suffix", **options) as engine,
        Session(engine, system="Be kind.", **OPTIONS) as session,
    ):
        first = session.send(parts).result()
        messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": parts}]
        assert engine.generate(messages, **OPTIONS).token_ids == list(first.written.tokens)
        assert session.written.text.startswith(
            "<turn>system: Be kind.</turn>\n<turn>user: ab[image]cd[image]</turn>\n"
        )
        assert sum(token < 0 for token in session.written.tokens) == 32
        before = session.written.tokens
        session.send("ef").result()
        assert session.written.tokens[: len(before)] == before
        assert "<turn>user: ef</turn>" in session.written.text
