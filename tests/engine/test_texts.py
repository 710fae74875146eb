"""`generate` for lists of prompts, tokens of a text and back, results as JSON, what repr tells."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from fakes.generate_runs import posix
from fakes.interrupts import one_interrupt
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.cli.generate_output import generation_record
from localspec.conversation.reasoned_text import ReasonedText
from localspec.conversation.session import Session
from localspec.engine import side_by_side
from localspec.engine.engine import Engine, load
from localspec.engine.prompt import TextPrompt
from localspec.engine.slots import Slots
from localspec.errors import InvalidValueError, LocalspecError
from localspec.llama.model import Model

OPTIONS: dict[str, Any] = {"max_tokens": 8, "temperature": 0}


class BrokenError(Exception):
    """An error of the caller's own."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with load(draft="suffix", threads=1, context=256) as engine:
        yield engine


def message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_list_of_texts_in_its_order(engine: Engine) -> None:
    prompts = [f"def f{number}(" for number in range(20)]
    found = engine.generate(prompts, **OPTIONS)
    assert [each.stats.prompt_tokens for each in found] == [
        len(engine.tokenize(each)) for each in prompts
    ]
    alone = [engine.generate(each, **OPTIONS) for each in prompts]
    # Texts beside others differ at near-ties only.
    assert sum(a.text == b.text for a, b in zip(alone, found, strict=True)) > 10
    assert engine.slots.further == []


def test_lists_of_chats_and_of_ids(engine: Engine) -> None:
    one = engine.generate([message("def")], **OPTIONS)
    assert [each.text for each in engine.generate([[message("def")]], **OPTIONS)] == [one.text]
    ids = engine.tokenize("import os")
    by_ids = engine.generate([ids, ids[:2]], **OPTIONS)
    assert by_ids[0].token_ids == engine.generate("import os", **OPTIONS).token_ids
    assert len(engine.generate(("a", "b"), **OPTIONS)) == 2


def test_no_prompts_have_no_texts(engine: Engine) -> None:
    assert engine.generate([], **OPTIONS) == []
    with pytest.raises(InvalidValueError, match="the prompt is empty"):
        engine.stream([], **OPTIONS)
    with pytest.raises(InvalidValueError, match="max_tokens is 0"):
        engine.generate([], max_tokens=0)


@pytest.mark.parametrize(
    ("prompts", "told"),
    [
        (["a", 5], "number 1: the prompt is 5"),
        (["a", None], "number 1"),
        ([[message("a")], "a", [-1]], "number 2: prompt token is -1"),
        (["a", message("a")], "number 1"),
        ([[], [4]], "number 0: the prompt is empty"),
        (["a", "b " * 300], "number 1: the prompt has"),
    ],
)
def test_a_wrong_prompt_among_others_is_named(engine: Engine, prompts: Any, told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        engine.generate(prompts, **OPTIONS)
    with pytest.raises(InvalidValueError, match="generate takes a list"):
        engine.stream(["a", "b"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"role": "user", "contents": "hi"}, "has no content; .*its keys: role, contents"),
        ({"role": "system"}, "has no content"),
        ({"role": "assistant", "text": "hi"}, "has no content"),
        ({}, "has no role"),
        ({"rolle": "user", "content": "hi"}, "has no role; .*its keys: rolle, content"),
        ({"role": 5, "content": "hi"}, "role is 5; give a text"),
    ],
)
def test_a_message_that_lacks_something_is_named(
    engine: Engine, wrong: dict[str, Any], told: str
) -> None:
    for ask in (engine.generate, engine.stream):
        with pytest.raises(InvalidValueError, match=rf"messages\[1\](\.| ){told}"):
            ask([message("a"), wrong], **OPTIONS)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([{"type": "image_url", "image_url": {"url": "x"}}], r"\[0\]\.type is 'image_url'; .*text"),
        ([{"type": "text", "text": "a"}, {"b": 1}], r"\[1\]\.type is None"),
        ([{"type": "text", "text": 5}], r"\[0\]\.text is 5"),
        (["a"], r"\[0\] is 'a'; it must be a part"),
        ({"a": 1}, r" is {'a': 1}; it must be a text"),
        (b"a", r" is b'a'"),
        (5, r" is 5"),
    ],
)
def test_a_content_that_is_no_text_is_refused(engine: Engine, content: Any, told: str) -> None:
    for ask in (engine.generate, engine.stream):
        with pytest.raises(InvalidValueError, match=rf"messages\[0\]\.content{told}"):
            ask([{"role": "user", "content": content}], **OPTIONS)


def test_parts_that_are_text_are_its_lines(engine: Engine) -> None:
    parts = [{"type": "text", "text": "def"}, {"text": "f"}, {"type": "refusal", "refusal": "no"}]
    found = engine.stream([{"role": "user", "content": parts}], **OPTIONS)
    assert found.prompt == engine.stream([message("def\nf\nno")], **OPTIONS).prompt


def test_answers_that_call_tools_need_no_content(engine: Engine) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answer: dict[str, Any] = {"role": "assistant", "tool_calls": [call]}
    for each in (answer, {**answer, "content": None}):
        assert engine.generate([message("a"), each, message("b")], **OPTIONS).token_ids


def test_what_cancels_is_an_event_and_what_is_told_reasons_a_function(engine: Engine) -> None:
    wrong: Any = 5
    for ask in (engine.generate, engine.stream, engine.astream):
        with pytest.raises(InvalidValueError, match=r"cancel is 5; it must be a threading\.Event"):
            ask("a", cancel=wrong, **OPTIONS)
        with pytest.raises(InvalidValueError, match=r"^explain is 5; it must be a function$"):
            ask("a", explain=wrong, **OPTIONS)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_are_no_token_ids(engine: Engine, kind: Any) -> None:
    given = kind(b"abc")
    for ask in (engine.generate, engine.stream):
        with pytest.raises(InvalidValueError, match=r"the prompt is bytes; decode"):
            ask(given, **OPTIONS)
    with pytest.raises(InvalidValueError, match=r"number 1: the prompt is bytes"):
        engine.generate(["a", given], **OPTIONS)


def test_a_prompt_is_tokenized_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenize, tokenized = Model.tokenize, list[str]()

    def counted(self: Model, text: str, *, add_special: bool = True) -> list[int]:
        tokenized.append(text)
        return tokenize(self, text, add_special=add_special)

    monkeypatch.setattr(Model, "tokenize", counted)
    engine.generate(["a", "b"], **OPTIONS)
    engine.generate("c", **OPTIONS)
    assert tokenized == ["a", "b", "c"]


def test_prompts_that_can_be_read_only_once(engine: Engine) -> None:
    ids = engine.tokenize("import os")
    known = engine.generate(ids, **OPTIONS).token_ids
    assert engine.generate(iter(ids), **OPTIONS).token_ids == known  # type: ignore[call-overload]
    found = engine.generate([iter(ids), iter(ids)], **OPTIONS)  # type: ignore[list-item]
    assert [each.token_ids for each in found] == [known] * 2


def test_a_prompt_belongs_to_its_model(target_path: Path, drafter_path: Path) -> None:
    prompt = TextPrompt("import os")
    with Model(target_path) as one, Model(drafter_path) as other:
        assert prompt.tokens(one, 16) is prompt.tokens(one, 16)
        first = prompt.tokens(one, 16)
        assert prompt.tokens(other, 16) is not first
        assert prompt.tokens(other, 16) == other.tokenize("import os")
    # Closed models tokenize nothing.
    assert prompt.tokens(other, 16) == first
    with pytest.raises(LocalspecError, match="closed"):
        prompt.tokens(one, 16)


def test_an_error_ends_the_others(engine: Engine) -> None:
    """Of the others, most have not begun."""
    began: list[str] = []

    def write(prompt: str, stopped: Any) -> str:
        began.append(prompt)
        if prompt == "2":
            raise BrokenError
        while not stopped():
            pass
        return prompt

    with pytest.raises(BrokenError):
        side_by_side.side_by_side([str(n) for n in range(100)], write, lambda: False)
    assert len(began) <= 2 * side_by_side.AT_ONCE


@posix
def test_an_interrupt_begins_no_other_text() -> None:
    began = list[str]()

    def write(prompt: str, stopped: Any) -> None:
        began.append(prompt)
        if len(began) == side_by_side.AT_ONCE:
            interrupt(stopped)
        while not stopped():
            sleep(0.001)

    with one_interrupt() as interrupt, pytest.raises(KeyboardInterrupt):
        side_by_side.side_by_side([str(n) for n in range(100)], write, lambda: False)
    assert len(began) == side_by_side.AT_ONCE


def test_threads_of_a_list_are_no_daemons_and_end() -> None:
    before = threading.enumerate()

    def write(prompt: str, _: Any) -> bool:
        return threading.current_thread().daemon

    assert side_by_side.side_by_side(["a", "b"], write, lambda: False) == [False, False]
    assert threading.enumerate() == before


def test_an_error_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    start, tries = threading.Thread.start, list[int]()

    def refused(thread: threading.Thread) -> None:
        tries.append(1)
        if len(tries) > 3:
            start(thread)
        else:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="new thread"):
        side_by_side.side_by_side(["a", "b"], lambda each, _: each, lambda: False)


def test_a_cancelled_text_uses_no_slot(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    cancel = threading.Event()
    cancel.set()
    monkeypatch.delattr(Slots, "_free_slot")
    found = engine.generate("a", cancel=cancel, **OPTIONS)
    assert (found.text, found.stop_reason) == ("", "cancelled")
    assert found.stats.prompt_tokens == len(engine.tokenize("a"))


def test_no_interrupt_comes_into_the_start_of_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool would not wait for the thread, and its text would still use a slot."""
    start, starters = threading.Thread.start, list[threading.Thread]()

    def noted(thread: threading.Thread) -> None:
        starters.append(threading.current_thread())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    texts = side_by_side.side_by_side(["a", "b"], lambda each, _: each * 2, lambda: False)
    assert texts == ["aa", "bb"]
    assert starters and threading.main_thread() not in starters


def test_cancelling_a_list_gives_what_there_is(engine: Engine) -> None:
    cancel = threading.Event()
    cancel.set()
    found = engine.generate(["a", "b"], cancel=cancel, **OPTIONS)
    assert [(each.text, each.stop_reason) for each in found] == [("", "cancelled")] * 2


@settings(max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_tokens_of_a_text_and_back(engine: Engine, text: str) -> None:
    assert engine.detokenize(engine.tokenize(text)) == text
    assert engine.detokenize(engine.tokenize(text, add_special=False)) == text


def test_tokens_that_are_none(engine: Engine) -> None:
    for ids, told in (
        ([99999], "token is 99999"),
        ("abc", "ids is"),
        (5, "ids is 5"),
        (b"x", r"^ids is b'x'; it must be token ids$"),
    ):
        with pytest.raises(InvalidValueError, match=told):
            engine.detokenize(ids)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="Unicode"):
        engine.tokenize("\udcff")
    for text in (5, None, b"a", [5]):
        with pytest.raises(InvalidValueError, match=r"^text is .*; it must be a text$"):
            engine.tokenize(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"logprobs": True}, {"top_logprobs": 3, "logprobs": True}])
def test_a_result_as_json_is_that_of_the_command(engine: Engine, options: dict[str, Any]) -> None:
    running = ReasonedText(engine, "def f(", **{**OPTIONS, "logprobs": False, **options})
    result = running.result()
    as_json = json.loads(json.dumps(result.to_dict()))
    record = generation_record(engine, running)
    for token in record["logprobs"] or ():
        for likely in token["top"]:
            assert likely.pop("text") == engine.model.piece_text(likely["id"])
    assert as_json == {key: record[key] for key in as_json}
    assert result.text == as_json["text"]


def test_how_they_look(engine: Engine) -> None:
    name = engine.model.path.stem
    assert repr(engine) == f"<Engine {name}, draft: suffix, context 256>"
    with Session(engine, **OPTIONS) as session:
        answer = session.send("abc")
        assert repr(answer) == "<Answer '', unfinished, 0 tokens>"
        answer.result()
        assert repr(answer).startswith(f"<Answer {answer.text!r}, length, 8 tokens")
        used = session.gauge.used
        assert repr(session) == f"<Session {name}, 2 turns, {used} of 256 tokens>"
    running = engine.stream("def f(", **OPTIONS)
    assert repr(running) == "<Generation '', unfinished, 0 tokens>"
    result = running.result()
    assert repr(running).startswith(f"<Generation {result.text!r}, length, 8 tokens")
    assert repr(result).startswith(f"<Result {result.text!r}, stopped: length, 8 tokens, ")
    assert repr(result.stats).startswith("<Stats 8 tokens, ")
    assert repr(result).endswith(" tok/s>")
