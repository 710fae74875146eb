"""Which slot a request gets: its conversation finds its own again, without an id."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fakes.tiny import tiny_model

import localspec
from localspec.engine.slot import Slot
from localspec.engine.slots import Slots
from localspec.errors import ModelLoadError
from localspec.generation_config import GenerationConfig
from localspec.server.slot_pool import SlotPool

SETTINGS: dict[str, Any] = {"max_tokens": 6, "temperature": 0, "ignore_eos": True}
FAMILIES = ["llama", "gemma3", "mamba", "qwen35"]
LONG, SHORT = [1, *range(20, 120)], 10


@contextmanager
def opened(family: str, slots: int, draft: Any = "none") -> Iterator[SlotPool]:
    with localspec.load(tiny_model(family), draft, threads=1, context=512) as engine:
        pool = SlotPool(engine, slots, 8)
        yield pool
        pool.close()


@pytest.fixture(params=FAMILIES)
def pool(request: pytest.FixtureRequest) -> Iterator[SlotPool]:
    with opened(request.param, 3) as opened_pool:
        yield opened_pool


def test_fewer_slots_than_asked_for_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Slots.open

    def scarce(slots: Slots) -> Slot:
        if slots.further:
            raise ModelLoadError("there is no room, 1 MB are free; close another session")
        return honest(slots)

    monkeypatch.setattr(Slots, "open", scarce)
    with opened("llama", 4) as pool:
        assert len(pool.slots) == 2
        assert pool.note == (
            "2 slots, not 4: there is no room, 1 MB are free; "
            "start the server with a smaller --ctx for more"
        )


def answer(pool: SlotPool, prompt: list[int]) -> tuple[int, list[int], int]:
    """The slot that a request gets, the text so far, and how much of the prompt was evaluated."""

    async def write() -> tuple[int, list[int], int]:
        async with pool.slot_for(prompt) as chosen:
            generation = chosen.slot.start(prompt, GenerationConfig.of(**SETTINGS))
            found = generation.result()
            return chosen.number, [*prompt, *found.token_ids], found.stats.prompt_evaluated

    return asyncio.run(write())


def some(first: int, count: int = SHORT) -> list[int]:
    return [*range(first, first + count)]


def test_a_conversation_finds_its_slot_again(pool: SlotPool) -> None:
    """By its tokens, whatever its beginning has in common with others."""
    starts = [[1, *some(20 + 30 * number, 60)] for number in range(3)]
    first = [answer(pool, start) for start in starts]
    assert {slot for slot, _, _ in first} == {0, 1, 2}
    for _ in range(2):
        for number in (2, 0, 1):
            slot, text, _ = first[number]
            again, longer, evaluated = answer(pool, [*text, *some(150)])
            assert again == slot
            # What is new, and the last token of the answer, which was never evaluated.
            assert evaluated == SHORT + 1
            first[number] = again, longer, evaluated


def test_conversations_that_begin_alike_take_nothing_from_each_other(pool: SlotPool) -> None:
    """As those of one agent, behind the same long instructions."""
    first = [answer(pool, [*LONG, *some(150 + 20 * number, 40)]) for number in range(3)]
    assert {slot for slot, _, _ in first} == {0, 1, 2}
    for slot, text, _ in first:
        again, _, evaluated = answer(pool, [*text, *some(130)])
        assert (again, evaluated) == (slot, SHORT + 1)


def test_the_same_beginning_is_evaluated_once_or_twice(pool: SlotPool) -> None:
    """Attention shares its cells; other memories keep a copy where the second one differs."""
    shares = pool.slots[0].slot.target.shares_cells
    found = [answer(pool, [*LONG, *some(150 + 20 * number, 40)]) for number in range(4)]
    assert [evaluated for _, _, evaluated in found] == [141, 40 if shares else 141, 40, 40]


def test_choices_share_their_prompt(pool: SlotPool) -> None:
    """The others begin once the first has read it, and is writing."""
    config = GenerationConfig.of(**SETTINGS)
    first = pool.slots[0].slot.start(LONG, config)
    written = [next(first).id, next(first).id]
    second = pool.slots[1].slot.start(LONG, config)
    assert [next(second).id, next(second).id] == written
    assert second.stats.prompt_evaluated == 1
    assert [token.id for token in first] == [token.id for token in second]


def test_a_conversation_whose_reasoning_is_left_out(pool: SlotPool) -> None:
    """Each prompt leaves the text before where its answer began: only what follows is read."""
    prompt, evaluated = LONG, []
    for turn in range(4):
        _, _, count = answer(pool, [*prompt, 7, 8])  # where the reasoning begins
        evaluated.append(count)
        prompt = [*prompt, *some(130 + turn, 40)]
    shares = pool.slots[0].slot.target.shares_cells
    assert evaluated[2:] == [42, 42] if shares else max(evaluated[2:]) <= 2 * 42


def test_a_text_that_is_another_one_takes_the_oldest_place() -> None:
    with opened("llama", 2) as pool:
        answer(pool, [*LONG, *some(150, 100)])
        other, *_ = answer(pool, [1, *some(200, 50)])
        answer(pool, [*LONG, *some(150, 100), 5])
        # It shares less than half of the first text, which was used last.
        slot, _, evaluated = answer(pool, [*LONG, 9, 9])
        assert (slot, evaluated) == (other, 2)


def test_a_short_text_that_is_asked_for_again_keeps_its_slot(pool: SlotPool) -> None:
    """Of a beginning this short nothing would be copied to an empty slot."""
    prompt = [1, *some(20, 18)]
    first, *_ = answer(pool, prompt)
    again, _, evaluated = answer(pool, prompt)
    assert (again, evaluated) == (first, 1)


def test_an_answer_that_is_asked_for_again_keeps_its_slot() -> None:
    """Where no slot is empty: the reasoning of an answer is left out of the next prompt."""
    with opened("llama", 1) as pool:
        _, text, _ = answer(pool, LONG)
        assert answer(pool, [*LONG, *some(200)])[2] == SHORT
        assert answer(pool, text)[2] == len(text) - len(LONG)
    with opened("mamba", 2) as pool:
        slot, _, _ = answer(pool, LONG)
        answer(pool, [1, *some(200)])
        # A state is kept where a prompt ends.
        assert answer(pool, LONG) == (slot, answer(pool, LONG)[1], 1)


def test_a_request_that_goes_away_as_a_slot_becomes_free_takes_nothing_of_it() -> None:
    async def write(pool: SlotPool, ends: asyncio.Event) -> None:
        async with pool.slot_for(LONG):
            await ends.wait()

    async def scene(pool: SlotPool) -> None:
        ends = [asyncio.Event() for _ in range(4)]
        first, gone, third = (asyncio.create_task(write(pool, end)) for end in ends[:3])
        while pool.waiting < 2:
            await asyncio.sleep(0)
        # In the next turn of the loop the first one ends, and then `gone` is told.
        ends[0].set()
        gone.cancel()
        await asyncio.wait([first, gone])
        fourth = asyncio.create_task(write(pool, ends[3]))
        while not pool.waiting:
            await asyncio.sleep(0)
            assert not fourth.done()
        for end in ends:
            end.set()
        await asyncio.gather(first, third, fourth)
        assert pool.busy == pool.waiting == 0

    with opened("llama", 1) as pool:
        asyncio.run(scene(pool))
