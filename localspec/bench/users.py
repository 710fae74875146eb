"""Users: texts that are asked for at the same time, against the same texts one after the other.

Each user has a slot of one engine and a thread, as in `localspec serve`, so that the passes of
their texts share decodes. Both ways take turns, and so do the configurations. Every text begins
with empty caches, so each user's whole prompt is evaluated.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from localspec.bench.configurations import LoadedConfiguration, LoadedSweep
from localspec.bench.runner import WARM_UP_TOKENS, clear
from localspec.bench.workload import Workload, speed_behind_first
from localspec.engine.audit import Recorded, audit
from localspec.engine.engine import Engine
from localspec.engine.generation import Generation, Result
from localspec.engine.side_by_side import AT_ONCE, side_by_side
from localspec.engine.slot import Slot
from localspec.errors import ModelLoadError
from localspec.generation_config import GenerationConfig
from localspec.stats import Stats

# The most users: each has a thread.
MOST_USERS = AT_ONCE
_SlotsOf = Mapping[str, Sequence[Slot]]


@dataclass(frozen=True, slots=True)
class UserText:
    """The text of one user.

    task: index of the prompt. first_token, last_token: seconds from the moment when all users asked
    until this user had them; so a user who is served after others has waited for these.
    """

    task: int
    token_ids: list[int]
    first_token: float
    last_token: float
    stats: Stats

    @property
    def tokens_per_second(self) -> float | None:
        """The speed of the text from its first token on; None if it is too short to tell."""
        return speed_behind_first(len(self.token_ids), self.first_token, self.last_token)


@dataclass(frozen=True, slots=True)
class UsersRun:
    """The texts of some users in one round, together and one after the other.

    configuration: its name. round: from 0. compared: how many texts written together were compared
    with those written alone. same: how many of these are equal. near_ties: how many differ where
    rounding alone decides between two tokens.
    """

    configuration: str
    users: int
    round: int
    together: list[UserText]
    in_turn: list[UserText]
    compared: int
    same: int
    near_ties: int

    @property
    def tokens_per_second(self) -> float:
        """The speed of all texts together, reading the prompts included."""
        return total_speed(self.together)


def total_speed(texts: Sequence[UserText]) -> float:
    """Tokens per second of all texts, from the request to the last token of all."""
    tokens = sum(len(each.token_ids) for each in texts)
    return tokens / max(each.last_token for each in texts)


@contextmanager
def open_slots(sweep: LoadedSweep, users: int) -> Iterator[_SlotsOf]:
    """Open slots for so many users in each engine of a sweep, or as many as memory has room for.

    The slots are listed by configuration. Raises ModelLoadError if there is no room for any.
    """
    by_engine: dict[int, list[Slot]] = {}
    engines = {id(each.engine): each.engine for each in sweep.configurations}
    try:
        for key, engine in engines.items():
            by_engine[key] = []
            for number in range(users):
                try:
                    by_engine[key].append(engine.slots.open())
                except ModelLoadError as error:
                    if not number:
                        raise
                    sweep.left_out.append(f"more than {number} users are left out: {error}")
                    users = number
                    break
        yield {each.name: by_engine[id(each.engine)][:users] for each in sweep.configurations}
    finally:
        for key, slots in by_engine.items():
            for slot in slots:
                engines[key].slots.leave(slot)


def run_users(
    configurations: Sequence[LoadedConfiguration],
    slots: _SlotsOf,
    users: Sequence[int],
    workload: Workload,
    cancel: threading.Event,
) -> Iterator[UsersRun]:
    """Warm up, then yield each run as it ends, until `cancel` is set.

    slots: those of `open_slots`. users: how many ask at the same time, at most as many as there are
    slots. Each further user and round has the next seed and the next prompt.

    Every other round has the configurations in reverse order, and the texts together before those
    one after the other. A run that was cancelled halfway is not yielded.
    """
    most, prompts = max(users), workload.prompts

    def work(each: LoadedConfiguration, count: int, number: int, **more: Any) -> list[_Work]:
        own = {"depth": each.configuration.depth, **more}
        return [
            _Work(
                slots[each.name][user],
                (number + user) % len(prompts),
                prompts[(number + user) % len(prompts)],
                GenerationConfig.of(**{**workload.options_of(number * most + user), **own}),
            )
            for user in range(count)
        ]

    for each in configurations:
        _together(work(each, most, 0, max_tokens=WARM_UP_TOKENS), cancel)
    for number in range(workload.rounds):
        for count in users:
            for each in configurations if number % 2 == 0 else reversed(configurations):
                asked = work(each, count, number)
                together, in_turn = _measured(asked, number % 2 == 1, cancel)
                if cancel.is_set():
                    return
                yield _run(each, number, together, in_turn)


@dataclass(frozen=True, slots=True)
class _Work:
    """What one user asks for, and the slot for it."""

    slot: Slot
    task: int
    prompt: Sequence[int]
    settings: GenerationConfig


@dataclass(frozen=True, slots=True)
class _Written:
    """The text of a user, and how it was generated."""

    text: UserText
    running: Generation
    result: Result


def _measured(
    work: Sequence[_Work], together_first: bool, cancel: threading.Event
) -> tuple[list[_Written], list[_Written]]:
    """The texts together, and one after the other."""
    if together_first:
        together = _together(work, cancel)
        return together, _in_turn(work, cancel)
    in_turn = _in_turn(work, cancel)
    return _together(work, cancel), in_turn


def _together(work: Sequence[_Work], cancel: threading.Event) -> list[_Written]:
    for each in work:
        clear(each.slot)
    began = perf_counter()
    return side_by_side(work, lambda each, stopped: _write(each, began, stopped), cancel.is_set)


def _in_turn(work: Sequence[_Work], cancel: threading.Event) -> list[_Written]:
    for each in work:
        clear(each.slot)
    written: list[_Written] = []
    began = perf_counter()
    for each in work:
        written.append(_write(each, began, cancel.is_set))
        between = perf_counter()
        # The next prompt may begin like this one, whose cells it would share.
        clear(each.slot)
        began += perf_counter() - between
    return written


def _write(work: _Work, began: float, cancelled: Callable[[], bool]) -> _Written:
    slot, first = work.slot, 0.0
    with slot.lock:
        running = slot.start(work.prompt, work.settings, cancelled=cancelled)
    for _ in running:
        first = first or perf_counter() - began
    last = perf_counter() - began
    result = running.result()
    text = UserText(work.task, result.token_ids, first, last, running.stats)
    return _Written(text, running, result)


def _run(
    configuration: LoadedConfiguration,
    number: int,
    together: Sequence[_Written],
    in_turn: Sequence[_Written],
) -> UsersRun:
    compared = same = near_ties = 0
    for one, other in zip(together, in_turn, strict=True):
        # Under other rules a text depends on its drafts, and these on the times of passes.
        if not one.running.settings.verification.same_text:
            continue
        compared += 1
        equal = one.result.token_ids == other.result.token_ids
        same += equal
        near_ties += not equal and _is_near_tie(configuration.engine, one)
    return UsersRun(
        configuration.name,
        len(together),
        number,
        [each.text for each in together],
        [each.text for each in in_turn],
        compared,
        same,
        near_ties,
    )


def _is_near_tie(engine: Engine, written: _Written) -> bool:
    """Whether rounding explains every token that plain decoding alone would not have drawn."""
    result = written.result
    recorded = Recorded(
        engine.recipe(written.running), result.token_ids, result.origins, result.seed, result.rule
    )
    return not audit(engine, recorded).has_bug
