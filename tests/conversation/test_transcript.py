"""Transcript: turns as the prompt of one model, in the ways that its template takes them."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.tiny import TURNS, write_tiny

from localspec.conversation.transcript import Transcript, arrangements
from localspec.conversation.turns import EMPTY, TokenizedText, Turn
from localspec.engine.prompt import template_tokens, text_tokens
from localspec.errors import InvalidValueError
from localspec.llama.model import Model

REFUSES_PAIRS = (
    "{% for m in messages %}{% if loop.nextitem is defined and loop.nextitem.role == m.role %}"
    "{{ raise_exception('twice ' ~ m.role) }}{% endif %}{{ m.role[0] }}{{ m.content }};{% endfor %}"
)
REFUSES_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('a system') }}{% endif %}"
    "{{ m.role[0] }}{{ m.content }};{% endfor %}"
)
READS_REASONING = (
    "{% for m in messages %}{{ m.role[0] }}{{ m.content }}"
    "{% if m.reasoning_content is defined %}[{{ m.reasoning_content }}]{% endif %};{% endfor %}"
)
SHOWS = (
    "{{ tools | length }} {{ thinking }} {{ strftime_now('%Y-%m-%d') }} "
    "{% for m in messages %}{{ m.content }}{% endfor %}"
)


def user(*texts: str) -> list[Turn]:
    return [Turn("user", text) for text in texts]


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    template = getattr(request, "param", TURNS)
    with Model(write_tiny(tmp_path / "tiny.gguf", "llama", template=template)) as model:
        yield model


def test_messages_in_the_ways_that_a_template_may_take_them() -> None:
    a, b = ({"role": "user", "content": text} for text in "ab")
    c = {"role": "assistant", "content": "c", "reasoning_content": "why"}
    d = {"role": "assistant", "content": "d", "reasoning_content": "how"}
    system = {"role": "system", "content": "S"}
    both = {**c, "content": "c\n\nd"}
    messages: Any = [a, b, c, d]
    assert [*arrangements("S", messages)] == [
        [system, *messages],
        [system, {"role": "user", "content": "a\n\nb"}, both],
        [{"role": "user", "content": "S\n\na\n\nb"}, both],
    ]
    assert [*arrangements(None, messages)][2] == [{"role": "user", "content": "a\n\nb"}, both]


@pytest.mark.parametrize(
    ("template", "system", "texts", "merged"),
    [
        (REFUSES_PAIRS, None, "a", None),
        (REFUSES_PAIRS, "S", "ab", "sS;ua\n\nb;"),
        (REFUSES_SYSTEM, None, "ab", None),
        (REFUSES_SYSTEM, "S", "ab", "uS\n\na\n\nb;"),
    ],
)
def test_what_a_template_refuses_is_merged(
    model: Model, template: str, system: str | None, texts: str, merged: str | None
) -> None:
    transcript = Transcript(model, template)
    plain = "".join(f"u{text};" for text in texts)
    assert transcript.prompt(system, user(*texts)).text == (merged or plain)
    assert transcript.merged is (merged is not None)


def test_of_several_refusals_the_first_is_said(model: Model) -> None:
    """The one of the turns as they are."""
    transcript = Transcript(model, "{{ raise_exception('refused ' ~ messages | length) }}")
    with pytest.raises(InvalidValueError, match="refused 3"):
        transcript.prompt("S", user("a", "b"))


def wording(model: Model, template: str | None = TURNS) -> str | None:
    """The turns as a drafter reads them, which is this model here."""
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    transcript = Transcript(
        model, template, tools=tools, options={"thinking": 7}, began=datetime(2024, 2, 29)
    )
    worded = transcript.wording("S", user("a"))
    return worded(model) if worded else None


@pytest.mark.parametrize(
    ("model", "words"),
    [(SHOWS, "1 7 2024-02-29 Sa"), ("", None), ("{{ raise_exception('no') }}", None)],
    indirect=["model"],
)
def test_a_drafter_reads_the_turns_in_its_own_template(model: Model, words: str | None) -> None:
    assert wording(model) == words
    assert wording(model, None) is None


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        (READS_REASONING, "uq;aso[why];aplain;ub;"),
        (REFUSES_SYSTEM, "uq;a<think>why</think>so;aplain;ub;"),
        (None, "q<think>why</think>soplainb"),
    ],
)
def test_reasoning_is_read_apart_or_as_it_was_written(
    model: Model, template: str | None, prompt: str
) -> None:
    thought = Turn("assistant", "so", thought="why", raw="<think>why</think>so")
    turns = [*user("q"), thought, Turn("assistant", "plain"), *user("b")]
    assert Transcript(model, template).prompt(None, turns).text == prompt


def answer(model: Model, text: str) -> Turn:
    """An answer whose tokens are others than a tokenizer's."""
    written = TokenizedText(text, tuple(model.spell_after(text)))
    vocabulary = model.vocabulary_fingerprint
    return Turn("assistant", text, raw=text, written=written, vocabulary=vocabulary)


def test_tokens_of_answers_stay_and_what_stands_around_them_is_tokenized(model: Model) -> None:
    transcript, first = Transcript(model, TURNS), answer(model, "ab ab")
    [question, more] = user("q", "ab ab")
    asked = transcript.prompt(None, [question])
    assert asked.tokens == tuple(template_tokens(asked.text, model))
    begun = transcript.prompt(None, [question, first])
    assert begun == (asked.text + "ab ab", asked.tokens + first.written.tokens)
    whole = transcript.prompt(None, [question, first, more])
    rest = whole.text.removeprefix(begun.text)
    assert rest.startswith("</s>") and "ab ab" in rest
    assert whole.tokens == begun.tokens + tuple(text_tokens(rest, model.tokenize_after))
    # As tokens of another model, or none, they are read as text.
    for changed in ({"vocabulary": "another"}, {"written": EMPTY}):
        other = replace(first, key=str(changed), **changed)
        read = transcript.prompt(None, [question, other, more])
        assert read == (whole.text, tuple(template_tokens(whole.text, model)))
        assert transcript.prompt(None, [question, other]).text == begun.text + "</s><s>a "


def test_without_a_template_a_text_begins_as_a_model_wants_it(model: Model) -> None:
    tokens = Transcript(model, None).prompt(None, user("ab")).tokens
    assert tokens == tuple(model.tokenize("ab")) != tuple(model.tokenize_after("ab"))


def test_what_was_tokenized_before_is_that_of_the_same_turns(model: Model) -> None:
    transcript = Transcript(model, TURNS)
    first, second = answer(model, "ab"), answer(model, "cd")
    turns = [*user("q"), first, *user("r"), second]

    def is_fresh(system: str | None, turns: list[Turn]) -> bool:
        return transcript.prompt(system, turns) == Transcript(model, TURNS).prompt(system, turns)

    assert is_fresh(None, turns) and is_fresh("S", turns) and is_fresh(None, turns[2:])
    second.written = answer(model, "cdef").written
    assert is_fresh(None, turns)


def test_an_answer_behind_turns_that_are_refused_is_no_reason_to_read_all(model: Model) -> None:
    refuses = "{% if messages | length == 1 %}{{ raise_exception('one') }}{% endif %}" + TURNS
    second = answer(model, "cd")
    turns = [*user("q"), answer(model, "ab"), *user("r"), second]
    prompt = Transcript(model, refuses).prompt(None, turns)
    assert prompt.text.endswith("cd") and "q" in prompt.text
    assert prompt.tokens[-len(second.written.tokens) :] == second.written.tokens


def test_of_a_text_that_begins_otherwise_nothing_is_kept(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even an empty piece: then the rest would not be tokenized as a beginning."""
    monkeypatch.setattr(Model, "piece", lambda *_: b"x ")  # its space is no token of its own
    other = TokenizedText("x ", (5,))
    [rest] = Transcript(model, TURNS)._tokenize_rest([other], "<s>u q</s>")
    assert rest.tokens == tuple(template_tokens(rest.text, model))


def test_spaces_at_the_end_go_where_whole_tokens_spell_them(model: Model) -> None:
    pieces = [text.encode() for text in ("a", "b", "b ", " ", "\u3000")]
    transcript = Transcript(model, TURNS)
    transcript.model = SimpleNamespace(piece=pieces.__getitem__)  # type: ignore[assignment]
    for tokens, left in (
        ((0, 1, 3, 4), (0, 1)),
        ((0, 1, 4, 3, 3), (0, 1)),
        ((0, 2), None),
        ((0, 2, 3), None),
    ):
        written = b"".join(pieces[token] for token in tokens).decode()
        wanted = EMPTY if left is None else TokenizedText("ab", left)
        assert transcript._without_trailing_space(TokenizedText(written, tokens)) == wanted
