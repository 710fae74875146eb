"""Edited answers: a user's text in place of an answer, from which the model goes on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import tiny as tiny_models
from fakes.pycode import load
from fakes.templates import R1
from fakes.tiny import TURNS, write_tiny

from localspec.conversation.events import Ended, Piece
from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation, Turn
from localspec.conversation.unfinished import is_unfinished
from localspec.engine.engine import Engine
from localspec.errors import InvalidValueError

LENGTH = 16
# The prompt opens the reasoning where it is switched on.
SWITCHED = TURNS + "{% if add_generation_prompt and thinking %}<think>{% endif %}"
OPTIONS: dict[str, Any] = {"seed": 7, "ignore_eos": True, "max_tokens": LENGTH}


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(family: str = "llama", template: str = TURNS, draft: bool = True) -> Engine:
        path = write_tiny(tmp_path / f"{len(made)}.gguf", family, template=template, context=512)
        made.append(load(path, path if draft else "none", threads=1, context=512))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen35"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_drafts_and_caches_change_nothing_of_what_follows_an_edit(
    tiny: Callable[..., Engine], family: str, temperature: float
) -> None:
    """The same ids as of a fresh process that drafts nothing."""
    options = {**OPTIONS, "temperature": temperature}
    with Session(tiny(family), depth=3, **options) as session:
        first = session.send("ab").result()
        session.send("cd").result()
        edited = session.edit_answer(1, f"{first.content[:7]} abc")
        assert is_unfinished(edited) and session.turns == [first.before, edited]
        given = edited.written
        assert edited.edited == len(given.tokens) and given.text == edited.content
        answer = session.continue_answer()
        answer.result()
        assert answer.turn is edited and edited.stop_reason == "length"
        assert answer.stats.generated_tokens == LENGTH
        assert edited.written.tokens[: edited.edited] == given.tokens
        # What was said before the first difference is not read again.
        stats = answer.stats
        assert stats.prompt_evaluated + stats.prompt_again < stats.prompt_tokens
    kept = Turn("user", "ab"), Turn("assistant", given.text, raw=given.text, written=given)
    kept[1].edited, kept[1].vocabulary, kept[1].seed = edited.edited, edited.vocabulary, edited.seed
    kept[1].stop_reason = "edited"
    with Session(tiny(family, draft=False), conversation=Conversation(kept), **options) as fresh:
        assert fresh.continue_answer().result().written == edited.written


def test_the_old_answer_stays_as_a_variant(tiny: Callable[..., Engine]) -> None:
    with Session(tiny(), temperature=1, **OPTIONS) as session:
        first = session.send("ab").result()
        later = session.send("cd").result()
        edited = session.edit_answer(1, "abcabc")
        assert session.conversation.variants(first) == (first, edited)
        assert edited.variant == 1 and edited.seed == first.seed + 1
        session.choose(first)
        assert session.turns[-1] is later
        # A message may follow the text as it is.
        session.choose(edited)
        answer = session.send("ef").result()
        assert [turn.content for turn in session.turns[:3]] == ["ab", "abcabc", "ef"]
        assert answer.content and not is_unfinished(edited)
        assert "abcabc" in session.written.text


def test_an_answer_that_was_only_cut_does_not_end_as_it_did(tiny: Callable[..., Engine]) -> None:
    with Session(tiny(), temperature=1, **OPTIONS) as session:
        first = session.send("ab").result()
        cut = session.edit_answer(1, first.content[:4])
        session.continue_answer().result()
        assert cut.content.startswith(first.content[:4])
        assert not cut.content.startswith(first.content)


def test_it_goes_on_after_a_stop_with_the_room_it_had(tiny: Callable[..., Engine]) -> None:
    whole, stopped = [], []
    for found, pieces in ((whole, LENGTH), (stopped, 5)):
        with Session(tiny(), temperature=1, **OPTIONS) as session:
            session.send("ab").result()
            edited = session.edit_answer(1, "abcabc" * 8)
            answer = session.continue_answer()
            for count, _ in enumerate((each for each in answer if isinstance(each, Piece)), 1):
                if count == pieces:
                    break
            answer.close()
            if pieces < LENGTH:
                session.continue_answer().result()
            found += edited.written.tokens
    assert stopped == whole and len(whole) == 48 + LENGTH


def test_reasoning_is_kept_apart(tiny: Callable[..., Engine]) -> None:
    with Session(tiny("llama", R1), thinking_budget=4, temperature=0, **OPTIONS) as session:
        first = session.send("ab").result()
        assert first.thought and first.content
        edited = session.edit_answer(1, "other")
        assert (edited.thought, edited.content) == (first.thought, "other")
        # The reasoning has the tokens that it was generated with.
        count = len(edited.written.tokens) - len("other")
        assert edited.written.tokens[:count] == first.written.tokens[:count]
        session.continue_answer().result()
        assert edited.thought == first.thought and edited.content.startswith("other")
        # Of reasoning that had not ended, the text is the answer's beginning.
        session.thinking_budget = None
        cut = session.regenerate(max_tokens=3).result()
        assert cut.thought and not cut.content
        edited = session.edit_answer(1, "so")
        assert (edited.thought, edited.content) == (cut.thought, "so")
        assert edited.raw == f"{cut.raw}\n</think>\n\nso"
        session.continue_answer().result()
        assert edited.thought == cut.thought and edited.content.startswith("so")


def test_it_fits_the_prompt_of_now(tiny: Callable[..., Engine]) -> None:
    """Reasoning that was off is on now, and an answer of another model had other tags."""
    engine = tiny("llama", SWITCHED)
    with Session(engine, template_options={"thinking": False}, temperature=0, **OPTIONS) as session:
        first = session.send("ab").result()
        assert first.thinking is False
        session.template_options = {"thinking": True}
        edited = session.edit_answer(1, "abc")
        assert (edited.thinking, edited.thought, edited.content) == (True, "", "abc")
        assert edited.raw == "\n</think>\n\nabc"
        session.continue_answer().result()
        assert edited.content.startswith("abc") and not edited.thought
        interrupted = Turn("assistant", "a", "hm", stop_reason="interrupted")
        session.template_options = {"thinking": False}
        session.reset(Conversation([Turn("user", "a"), interrupted]))
        edited = session.edit_answer(1, "abc")
        assert edited.raw == "<think>\nhm\n</think>\n\nabc"
        session.continue_answer().result()
        assert edited.thought == "hm" and edited.content.startswith("abc")


def test_a_stop_string_in_the_users_text_ends_nothing(tiny: Callable[..., Engine]) -> None:
    with Session(tiny(), temperature=0, stop=["STOP"], **OPTIONS) as session:
        session.send("ab").result()
        edited = session.edit_answer(1, "noSTOPhere,ST")
        session.continue_answer().result()
        assert edited.content.startswith("noSTOPhere,ST")
        assert len(edited.written.tokens) == edited.edited + LENGTH


TEXTS = ["\n\n  abc", " abc", "abc", "a▁b", "<own> abc\n<own>", "é\n ", "</think>\n\nabc", "<thi"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("template", [TURNS, R1])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_what_was_edited_stays_as_it_was_written(
    tiny: Callable[..., Engine],
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    template: str,
    text: str,
) -> None:
    """Newlines behind reasoning, and spaces that SentencePiece would add or take away."""
    tags = {"<own>": 4, "<think>": 3, "</think>": 3}
    words = ["▁", *tags]
    monkeypatch.setattr(tiny_models, "_WORDS", [*words, *tiny_models._WORDS[len(words) :]])
    monkeypatch.setattr(tiny_models, "_TYPES", tags)
    engine = tiny(family, template)
    options = {**OPTIONS, "max_tokens": 4, "stop": ["STOP", "c\n"]}
    with Session(engine, thinking_budget=4, temperature=1, **options) as session:
        first = session.send("ab", max_tokens=20).result()
        assert bool(first.thought) == (template is R1)
        edited = session.edit_answer(1, text)
        assert (edited.content, edited.thought) == (text, first.thought)
        assert edited.raw.endswith(text)
        tokens = edited.written.tokens
        pieces = b"".join(map(engine.model.piece, tokens)).decode("utf-8", "replace")
        assert pieces.endswith(text.replace("▁", " ") if family == "llama" else text)
        for room in (4, 8):  # it was cut off there, and goes on once more
            answer = session.continue_answer()
            said = "".join(event.said for event in answer if isinstance(event, Piece | Ended))
            assert edited.content.startswith(text) and edited.content.endswith(said)
            assert edited.thought == first.thought and edited.raw.endswith(edited.content)
            assert edited.written.tokens[: edited.edited] == tokens
            assert len(edited.written.tokens) == len(tokens) + room


def test_what_cannot_be_edited_is_refused(tiny: Callable[..., Engine]) -> None:
    with Session(tiny(), temperature=0, **OPTIONS) as session:
        session.send("ab").result()
        before = session.turns
        for number, text, problem in (
            (2, "x", "there is no turn 2; there are 2, from 0 on"),
            (0, "x", "turn 0 is not an answer"),
            (1, " \n", "the answer is empty"),
            (1, "\ud800", "no valid Unicode"),
            (1, "<think> is a tag", "begins with '<think>', and would be read as reasoning"),
        ):
            with pytest.raises(InvalidValueError, match=problem):
                session.edit_answer(number, text)
        assert session.turns == before and len(session.conversation.variants(before[1])) == 1
