"""A thinking budget that ends within a draft."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from fakes.pycode import load
from fakes.templates import R1
from fakes.tiny import write_tiny
from fakes.toy import ToyCache, ToyModel, ToyTarget, fixed

from localspec.control.explanation import Explanation
from localspec.conversation.answer_writer import AnswerWriter
from localspec.conversation.reasoned_text import INSERTED, ReasonedText
from localspec.conversation.reasoning import THINK, Splitter
from localspec.conversation.session import Session
from localspec.conversation.thinking_budget import ThinkingBudget
from localspec.conversation.turns import TokenizedText
from localspec.drafters.draft_model import DraftModel
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.engine import Engine
from localspec.engine.prompt import Chat
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.server.reply import Reply
from localspec.server.text_request import TextRequest
from localspec.speculation.decoder import Decoder
from localspec.speculation.rules import RULES
from localspec.stats import Stats

N_VOCAB, LENGTH = 12, 30
TOY = ToyModel.random(N_VOCAB, seed=21, spread=2.0)
DEPTH = 5
BUDGETS = range(1, 2 * DEPTH + 2)
OPTIONS: Any = {"temperature": 0, "ignore_eos": True, "max_tokens": 40}


class Characters:
    """A vocabulary whose tokens are characters, or some longer texts."""

    def __init__(self, *longer: str) -> None:
        self._longer = longer

    def piece(self, token: int) -> bytes:
        return self.piece_text(token).encode()

    def piece_text(self, token: int) -> str:
        return chr(token) if token >= 0 else self._longer[-token - 1]

    def ends_generation(self, token: int) -> bool:
        return False

    def spell_after(self, text: str) -> list[int]:
        return [*map(ord, text)]


def writer_of(
    text: str, *, budget: int, thinking: bool = True, stops: Sequence[str] = ()
) -> Iterator[AnswerWriter]:
    """The writer after each character of a text, until the budget is spent."""
    vocabulary, detokenizer = Characters(), Detokenizer(stops)
    writer = AnswerWriter(vocabulary, detokenizer, THINK, thinking=thinking, budget=budget)
    yield writer
    for character in text:
        if writer.budget.is_spent():
            return
        writer.add(ord(character), detokenizer.push(character.encode()))
        yield writer


@pytest.mark.parametrize("budget", range(12))
@pytest.mark.parametrize(
    ("text", "thinking"),
    [
        ("why not</think>so", True),
        (" <think>why not</think>so", False),
        ("<th is none", False),
        ("a </b> c</think>so", True),
    ],
)
def test_what_may_be_written_at_once_never_passes_the_budget(
    text: str, thinking: bool, budget: int
) -> None:
    """The room is never too large, and in reasoning it is all there is of the budget."""
    rooms, spent_at = [], None
    for count, writer in enumerate(writer_of(text, budget=budget, thinking=thinking)):
        rooms.append(writer.budget.room())
        if writer.budget.is_spent():
            spent_at = count
    if spent_at is None:
        assert rooms[-1] > len(text)
        return
    assert all(count + room <= spent_at for count, room in enumerate(rooms[:-1]))
    assert min(rooms[:-1], default=1) >= 1
    if thinking and text.startswith("why"):
        assert rooms[:-1] == [*range(budget, 0, -1)]


@pytest.mark.parametrize(
    ("budget", "closed"), [(3, "why"), (4, "why</think>"), (11, "why</think>")]
)
def test_a_closing_tag_that_is_begun_is_written_once(budget: int, closed: str) -> None:
    *_, writer = writer_of("why</think>so", budget=budget)
    assert writer.budget.is_spent() == (closed == "why")
    assert writer.raw.startswith(closed)


def test_what_only_looks_like_a_closing_tag_ends_at_its_difference() -> None:
    *_, writer = writer_of("a</thx and more", budget=3)
    assert writer.budget.is_spent() and writer.raw == "a</thx"


@pytest.mark.parametrize(
    ("more", "room", "ended"), [(0, 9, "length"), (1, 9, None), (9, 0, "context"), (9, 1, None)]
)
def test_where_no_answer_fits_behind_the_closing_tag_it_is_not_written(
    more: int, room: int, ended: str | None
) -> None:
    writer = AnswerWriter(Characters(), Detokenizer(), THINK, thinking=True, budget=0)
    tag = len(writer.closing_tokens)
    written = writer.write(pytest.fail, prompt=7, most=tag + more, context=7 + tag + room)
    first = next(written, None)
    assert (first is None, writer.stop_reason) == (ended is not None, ended)
    assert len(writer.tokens) == writer.inserted == (tag if ended is None else 0)
    written.close()
    assert writer.stop_reason == (ended or "cancelled")


def test_a_character_is_not_ended_within() -> None:
    detokenizer = Detokenizer()
    budget = ThinkingBudget(1, Splitter(THINK, thinking=True), detokenizer)
    assert budget.room() == 1
    for byte, is_spent in ((b"\xc3", False), (b"\xa9", True)):
        detokenizer.push(byte)
        budget.count()
        assert budget.is_spent() is is_spent and budget.room() == 1


def test_a_model_that_begins_tags_for_ever_is_ended() -> None:
    *_, writer = writer_of("<" * 500, budget=5)
    assert writer.budget.is_spent() and 5 < writer.budget.used < 30


def test_what_a_stop_string_holds_back_may_be_a_tag() -> None:
    *_, writer = writer_of("why</think>so", budget=5, stops=["</answer>"])
    assert writer.raw.startswith("why</think>") and not writer.budget.is_spent()


def test_a_tag_that_a_stop_string_holds_back_is_said_once() -> None:
    """It may be one ordinary token, whose text comes with the next."""
    vocabulary, detokenizer = Characters("</think>"), Detokenizer(["</think>\nUser"])
    writer = AnswerWriter(vocabulary, detokenizer, THINK, thinking=True)
    said = thought = ""
    for token in [ord("a"), -1, *map(ord, "\nso")]:
        split = writer.add(token, detokenizer.push(vocabulary.piece(token)))
        said, thought = said + split.said, thought + split.thought
    assert (thought, said, writer.raw) == ("a", "so", "a</think>\nso")


def test_what_a_stop_string_holds_back_is_text_where_none_follows() -> None:
    for closes in (True, False):
        *_, writer = writer_of("whyx", budget=4, stops=["xyz"])
        assert writer.raw == "why"
        split = writer._close_thought() if closes else writer.end()
        assert split.thought == "x"
        assert writer.raw == "whyx" + (THINK.ending if closes else "")


@pytest.mark.parametrize("given", ["", "h\u00e9"])
def test_tokens_of_a_stop_string_and_of_the_end_are_not_written(given: str) -> None:
    class Ending(Characters):
        def ends_generation(self, token: int) -> bool:
            return token == -1

    vocabulary, detokenizer = Ending(""), Detokenizer(["</s>"])
    writer = AnswerWriter(vocabulary, detokenizer, THINK, thinking=True)
    if given:
        writer.give(TokenizedText(given, (*map(ord, given),)))
    for token in map(ord, "ab"):
        writer.add(token, detokenizer.push(vocabulary.piece(token)))
    whole = TokenizedText(f"{given}ab", (*map(ord, f"{given}ab"),))
    assert writer.written == whole and writer.is_thinking == (not given)
    for token in (*map(ord, "</s>"), -1):
        writer.add(token, detokenizer.push(vocabulary.piece(token)))
    assert writer.written == whole
    assert writer.tokens == [*whole.tokens, *map(ord, "</s>")]


def test_a_part_of_a_character_that_stands_alone_is_text() -> None:
    class Bytes(Characters):
        def piece(self, token: int) -> bytes:
            return bytes([token])

    writer = AnswerWriter(Bytes(), Detokenizer(["b"]), None, thinking=False)
    assert writer.text_of([97, 0xC3]) == "a\ufffd" and writer.text_of([98]) == "b"


def test_of_control_tokens_only_tags_are_text() -> None:
    class Controls(Characters):
        def piece(self, token: int) -> bytes:
            return super().piece(token) if token >= 0 else b""

    vocabulary, detokenizer = Controls("</think>", "<|other|>"), Detokenizer()
    writer = AnswerWriter(vocabulary, detokenizer, THINK, thinking=True)
    for token in [ord("a"), -2, -1, -2, ord("b")]:
        writer.add(token, detokenizer.push(vocabulary.piece(token)))
    assert writer.raw == "a</think>b" and writer.written.tokens == (97, -2, -1, -2, 98)


def test_a_step_commits_no_more_than_it_may() -> None:
    """Drafts of the target's own model are accepted as a whole, up to that bound."""

    def decoded(bound: int | None) -> tuple[list[int], list[int]]:
        text = [3, 1, 4, 1, 5]
        drafter = DraftModel(ToyCache(TOY), name="same", n_vocab=N_VOCAB)
        sampler = Sampler(SamplingParams(), Noise(3))
        target = ToyTarget(TOY, text)
        stats = Stats()
        decoder = Decoder(target, fixed(drafter, DEPTH), RULES["coupled"], sampler, text, stats)
        decoder.most = None if bound is None else lambda: bound
        tokens = [token.id for token in decoder.run(LENGTH)]
        return tokens, [record.accepted + 1 for record in stats.records]

    free, steps = decoded(None)
    assert steps[1] == DEPTH + 1
    for bound in range(1, DEPTH + 3):
        tokens, steps = decoded(bound)
        assert tokens == free
        assert steps[1:-1] == [min(bound, DEPTH + 1)] * len(steps[1:-1])


@pytest.fixture(params=["llama", "gemma3", "qwen35", "mamba"])
def thinker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A model that drafts for itself, so that whole drafts are accepted."""
    path = write_tiny(tmp_path / "thinker.gguf", request.param, template=R1, context=512)
    with load(path, path, threads=1, context=512) as engine:
        yield engine


@pytest.mark.parametrize("budget", BUDGETS)
def test_nothing_is_read_again_where_the_budget_ends_within_a_draft(
    thinker: Engine, budget: int
) -> None:
    """Some caches cannot take back what a step committed: they would read the prompt again."""
    with Session(thinker, thinking_budget=budget, depth=DEPTH, **OPTIONS) as session:
        answer = session.send("abc")
        assert "</think>" in answer.result().raw
        assert answer.stats.accepted > 0 and answer.stats.prompt_again == 0
    chat = Chat([{"role": "user", "content": "abc"}])
    reasoned = ReasonedText(thinker, chat, budget=budget, depth=DEPTH, **OPTIONS)
    evaluated: list[int] = []
    for _ in reasoned:
        evaluated.append(reasoned._part.stats.prompt_again)
    assert reasoned.is_budget_spent and max(evaluated) == 0
    reply, (thought, _) = replied(reasoned)
    assert thought == reasoned.thought
    assert reply.budget_spent and reply.generation and reply.generation.stats.prompt_again == 0


def replied(reasoned: ReasonedText) -> tuple[Reply, tuple[str, str]]:
    """What the server replies to the same request, and its text: reasoning and answer."""
    engine, settings = reasoned._engine, reasoned.settings
    prompt, budget = tuple(reasoned.prompt), reasoned.budget
    asked = TextRequest(prompt, settings, THINK, True, thinking_budget=budget)
    reply = Reply(engine.slots.own, asked, lambda: False)

    async def read() -> tuple[str, str]:
        async with reply.deltas() as deltas:
            found = [delta async for delta in deltas]
        return "".join(each.thought for each in found), "".join(each.text for each in found)

    return reply, asyncio.run(read())


@pytest.mark.parametrize("budget", [0, 1, 6])
def test_sessions_scripts_and_requests_have_the_same_text(tmp_path: Path, budget: int) -> None:
    """Wherever it ends: in the reasoning, for want of room for an answer, or in the answer."""
    path = write_tiny(tmp_path / "thinker.gguf", "llama", template=R1, context=512)
    ended = []
    with load(path, draft="none", threads=1, context=512) as engine:
        chat = Chat([{"role": "user", "content": "abc"}])
        closing = len(engine.model.tokenize_after(THINK.ending))
        for most in range(1, budget + closing + 4):
            options = {**OPTIONS, "max_tokens": most}
            reasoned = ReasonedText(engine, chat, budget=budget, **options)
            result = reasoned.result()
            with Session(engine, thinking_budget=budget, **options) as session:
                answer = session.send("abc")
                turn = answer.result()
            reply, text = replied(reasoned)
            tags = {each.stats.inserted_tokens for each in (answer, reply, result)}
            assert tags == {closing if reply.budget_spent else 0}
            # What counts for `max_tokens` is in the stats of all three.
            assert [each.stats.text_tokens for each in (answer, reply, result)] == (
                [len(reply.tokens) + max(tags)] * 3
            )
            assert text == (turn.thought, turn.content) == (reasoned.thought, reasoned.said)
            assert result.stop_reason == turn.stop_reason == reply.stop_reason == "length"
            if budget:
                assert result.stats.prompt_tokens == reply.stats.prompt_tokens
                assert reply.stats.prompt_tokens == len(reasoned.prompt)
                assert answer.stats.prompt_tokens == len(reasoned.prompt)
            ended.append((reply.budget_spent, len(reply.tokens)))
    assert [spent for spent, _ in ended] == sorted(spent for spent, _ in ended)
    assert {spent for spent, _ in ended} == {False, True}


@pytest.mark.parametrize("budget", [0, 4])
def test_each_token_has_its_own_log_probability(tmp_path: Path, budget: int) -> None:
    """But for those of the closing tag, which no model wrote."""
    path = write_tiny(tmp_path / "thinker.gguf", "llama", template=R1, context=512)
    asked: Any = {**OPTIONS, "logprobs": True, "top_logprobs": 2}
    with load(path, draft="none", threads=1, context=512) as engine:
        chat = Chat([{"role": "user", "content": "abc"}])
        text = ReasonedText(engine, chat, budget=budget, **asked)
        result = text.result()
        alone = engine.generate(
            [*text.prompt, *result.token_ids[:-1]], **{**asked, "max_tokens": 1}
        )
    assert text.is_budget_spent and result.logprobs and result.top_logprobs and alone.logprobs
    assert len(result.top_logprobs) == len(result.token_ids)
    written = [origin != INSERTED for origin in result.origins]
    assert [each is not None for each in result.logprobs] == written
    assert alone.token_ids == result.token_ids[-1:]
    assert result.logprobs[-1] == pytest.approx(alone.logprobs[0], abs=1e-4)
    assert len(result.to_dict()["logprobs"]) == len(result.token_ids)


@pytest.mark.parametrize("most", [1, 30])
def test_the_stats_of_a_text_without_reasoning_are_of_its_prompt(tmp_path: Path, most: int) -> None:
    """Also where an answer has no room behind the closing tag, and none is written."""
    path = write_tiny(tmp_path / "thinker.gguf", "llama", template=R1, context=512)
    with load(path, draft="none", threads=1, context=512) as engine:
        chat = Chat([{"role": "user", "content": "abc"}])
        text = ReasonedText(engine, chat, budget=0, **{**OPTIONS, "max_tokens": most})
        for _ in text.reading():
            pass
        read = replace(text.stats)
        assert read.prompt_tokens == len(text.prompt) == read.prompt_evaluated + 1
        stats = text.result().stats
        assert stats.prompt_tokens == read.prompt_tokens
        assert stats.prompt_evaluated == read.prompt_evaluated
        assert bool(stats.inserted_tokens) == (most > 1)


def test_only_a_chat_prompt_whose_answer_is_free_has_reasoning(tmp_path: Path) -> None:
    channels = R1 + "{# <|channel|> #}"
    for template, grammar, reasons in (
        (R1, None, True),
        (R1, "root ::= .*", False),
        (channels, None, False),
    ):
        path = write_tiny(tmp_path / "thinker.gguf", "llama", template=template, context=512)
        with load(path, draft="none", threads=1, context=512) as engine:
            chat = Chat([{"role": "user", "content": "abc"}])
            for prompt in (chat, "abc"):
                text = ReasonedText(engine, prompt, grammar=grammar, **OPTIONS)
                assert text.is_reasoned == (reasons and prompt is chat)


def test_what_is_asked_of_a_text_holds_behind_its_reasoning(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "thinker.gguf", "llama", template=R1, context=512)
    explained: list[Explanation] = []
    cancel = Event()
    with load(path, path, threads=1, context=512) as engine:
        chat = Chat([{"role": "user", "content": "abc"}])
        text = ReasonedText(
            engine,
            chat,
            budget=4,
            cancel=cancel,
            explain=explained.append,
            seed=9,
            rule="token",
            **OPTIONS,
        )
        for token, _ in text:
            if text.is_budget_spent and token.origin != INSERTED:
                break
        before = len(explained)
        for _ in range(12):
            next(text)
        assert len(explained) > before > 0
        cancel.set()
        result = text.result()
    assert (result.stop_reason, result.seed) == ("cancelled", 9)
    assert result.token_ids == [token.id for token in text.tokens]
    assert len(result.token_ids) < OPTIONS["max_tokens"]
    assert result.text == text.thought + THINK.ending + text.said
    assert result.stats.text_tokens == len(result.token_ids)


def test_what_may_begin_a_tag_is_text_at_the_end(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "thinker.gguf", "llama", template=R1, context=512)
    with load(path, draft="none", threads=1, context=512) as engine:
        *_, token = engine.model.tokenize("<", add_special=False, parse_special=False)
        options = {**OPTIONS, "max_tokens": 3, "logit_bias": {token: 100.0}}
        text = ReasonedText(engine, Chat([{"role": "user", "content": "abc"}]), **options)
        assert text.result().text == text.thought == "<<<"
