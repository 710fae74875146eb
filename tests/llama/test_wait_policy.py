"""Wait policy: waits are short where that is quicker, and only there."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from statistics import median
from threading import Event, Thread, active_count, current_thread, main_thread
from time import monotonic, sleep

import pytest
from fakes.busy_machine import FakeSwitch, Machine

from localspec.llama import openmp
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.wait_policy import WaitPolicy
from localspec.llama.wait_switch import WaitSwitch, wait_switch
from localspec.speculation.draft import NOTHING
from localspec.utils.busy_cores import BUSY, BusyCores, allowed_cores

# Long waits beside busy programs: most passes are quick, and a few take many times as long.
TAIL = [0.03, 0.03, 0.04, 0.03, 0.9, 0.04, 0.03, 0.3, 0.03, 0.04]


@pytest.mark.parametrize(
    ("busy", "threads"),
    [(0.0, 2), (0.3, 2), (2.0, 1)],
    ids=["quiet", "hardly busy", "one thread waits for nobody"],
)
def test_waits_stay_long(busy: float, threads: int) -> None:
    machine = Machine(busy, threads={"a": threads}, a=([1.0], [0.1]))
    machine.run("a", 200)
    assert not machine.switch.changes
    assert machine.policy.short_passes == 0


@pytest.mark.parametrize("threads", [6, 7])
def test_waits_are_short_where_not_all_find_room(threads: int) -> None:
    machine = Machine(2.0, cores=8, threads={"a": threads}, a=([1.0], [0.1]))
    machine.run("a", 200)
    assert machine.switch.is_short == (threads == 7)


def test_a_small_model_does_not_decide_for_a_large_one() -> None:
    """The drafter's threads find room, the target's do not; both compute by turns."""
    for short in (0.1, 3.0):
        machine = Machine(
            3.0, cores=8, threads={"t": 8, "d": 2}, t=([1.0], [short]), d=([0.1], [0.2])
        )
        machine.run("dddt", 400)
        assert machine.switch.is_short == (short < 1)
        assert machine.switch.changes < 10


def test_waits_are_long_again_once_all_find_room() -> None:
    """The other programs are still there, but the texts are of a smaller model."""
    machine = Machine(2.0, cores=8, threads={"a": 8, "b": 4}, a=([1.0], [0.1]), b=([1.0], [2.0]))
    machine.run("a", 100)
    assert machine.switch.is_short
    machine.run("b", 20)
    assert not machine.switch.is_short


def test_what_a_small_model_loses_counts_too() -> None:
    """Its own threads find room, but wait as those of the large model do."""
    kinds = {"t": ([1.0], [0.85]), "d": ([0.1], [0.2])}
    machine = Machine(3.0, cores=8, threads={"t": 8, "d": 2}, **kinds)
    assert machine.run("dddt", 400) < 1.05 * 130
    assert not machine.switch.is_short


def test_there_may_be_no_choice() -> None:
    machine = Machine(2.0, a=([1.0], [0.1]))
    machine.policy = WaitPolicy(None, machine, 2, lambda: machine.now)
    machine.run("a", 200)
    assert machine.policy.short_passes == 0


def test_a_switch_that_fails_is_not_counted() -> None:
    machine = Machine(2.0, switch=FakeSwitch(stuck=True), a=([1.0], [0.1]))
    machine.run("a", 200)
    assert machine.policy.short_passes == 0


def test_nothing_is_known_before_the_first_look() -> None:
    machine = Machine(2.0, a=([0.01], [0.001]))
    machine.now = 0.0
    machine.run("a", 49)
    assert not machine.switch.changes


def test_a_busy_machine_gets_short_waits() -> None:
    machine = Machine(2.0, a=(TAIL, [0.06]))
    took = machine.run("a", 400)
    assert machine.switch.is_short
    always_long = sum(TAIL) * 40
    assert took < 0.5 * always_long
    assert machine.policy.short_passes == sum(machine.ways) > 300


def test_a_tail_that_comes_late_is_seen() -> None:
    """At first long waits look better; then passes of them are slow now and then."""
    machine = Machine(2.0, a=([0.03] * 30 + TAIL * 60, [0.06]))
    machine.run("a", 30)
    assert not machine.switch.is_short
    machine.run("a", 60)
    assert machine.switch.is_short


@pytest.mark.parametrize("seconds", [0.02, 1.0, 12.0, 70.0])
def test_short_waits_that_are_slower_are_tried_rarely(seconds: float) -> None:
    machine = Machine(1.0, a=([seconds], [1.5 * seconds]))
    took = machine.run("a", 5000)
    # Some passes a minute, or a twentieth of the time.
    assert 6 <= machine.policy.short_passes < 8 * (1 + min(took / 60, 5000 / 80))
    assert took < 1.06 * 5000 * seconds


@pytest.mark.parametrize("seconds", [0.05, 1.0, 12.0, 70.0])
def test_passes_of_any_length_get_short_waits(seconds: float) -> None:
    machine = Machine(1.0, a=([seconds], [0.4 * seconds]))
    machine.run("a", 3000)
    assert machine.policy.short_passes > 0.9 * 3000


def test_a_small_gain_is_not_taken() -> None:
    machine = Machine(1.0, a=([0.1], [0.095]))
    machine.run("a", 100)
    assert not machine.switch.is_short


def test_waits_are_long_again_on_a_quiet_machine() -> None:
    machine = Machine(2.0, a=([0.1], [0.05]))
    machine.run("a", 100)
    assert machine.switch.is_short
    machine.busy = 0.1
    # At the next look.
    machine.run("a", 12)
    assert not machine.switch.is_short
    # And what was found out then is not believed any more.
    machine.busy = 2.0
    machine.run("a", 5)
    assert not machine.switch.is_short


def test_it_changes_with_the_machine_while_that_stays_busy() -> None:
    machine = Machine(2.0, a=([0.1], [0.05]))
    machine.run("a", 100)
    machine.seconds["a"] = {False: cycle([0.02]), True: cycle([0.05])}
    machine.run("a", 2000)
    assert not machine.switch.is_short
    machine.seconds["a"] = {False: cycle([0.1]), True: cycle([0.05])}
    machine.run("a", 2000)
    assert machine.switch.is_short


@pytest.mark.parametrize("gains", [True, False])
@pytest.mark.parametrize("kinds", ["dddt", "dt", "ddtu"])
def test_passes_of_two_models_are_not_mixed_up(kinds: str, gains: bool) -> None:
    """A target's pass takes 20 times as long as a drafter's, and comes at its turn."""
    short = 0.6 if gains else 1.5
    costs = {"d": 0.01, "t": 0.2, "u": 0.9}
    machine = Machine(2.0, **{kind: ([each], [short * each]) for kind, each in costs.items()})
    machine.run(kinds, 120)
    assert machine.switch.is_short == gains


def test_one_kind_with_other_threads_is_another_kind() -> None:
    """With one thread more or less, waits of either length would seem to gain."""
    machine = Machine(2.0, a=([0.1], [0.1]))
    for number in range(200):
        with machine.policy.during("a", 2 + number % 2):
            machine.now += 0.2 if number % 2 else 0.1
    assert not machine.switch.is_short


def test_a_pass_that_fails_tells_nothing() -> None:
    machine = Machine(2.0, a=([0.1], [0.05]))
    for _ in range(20):
        machine.now += 1
        with pytest.raises(OSError, match="lost"), machine.policy.during("a", 2):
            raise OSError("lost")
    assert not machine.switch.changes
    machine.run("a", 100)
    assert machine.switch.is_short


def test_passes_at_the_same_time_tell_nothing() -> None:
    machine = Machine(2.0, a=([0.1], [0.05]), b=([0.1], [0.05]))

    def other() -> None:
        machine.run("b", 100)

    with machine.policy.during("a", 2):
        thread = Thread(target=other)
        thread.start()
        thread.join()
    assert not machine.switch.changes
    machine.run("b", 100)
    assert machine.switch.is_short


@pytest.mark.parametrize(
    "maps",
    [
        b"",
        b"7f00-7f01 r-xp 00000000 fe:00 7 /models/caf\xe9.gguf\n",
        b"7f00-7f01 r-xp 00000000 fe:00 7 /lib/libgomp.so.1 (deleted)\n",
        b"7f00-7f01 r-xp 00000000 fe:00 7 /x/site-packages/torch.libs/libgomp-1.so.1\n",
    ],
)
def test_no_library_is_found_where_there_is_none(
    maps: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "maps"
    file.write_bytes(maps)
    monkeypatch.setattr(openmp, "_MAPS", file)
    assert openmp.gnu_library.__wrapped__() is None
    monkeypatch.setattr(openmp, "_MAPS", tmp_path / "missing")
    assert openmp.gnu_library.__wrapped__() is None


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_THREAD_LIMIT"])
def test_who_has_decided_is_obeyed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "2")
    assert wait_switch() is None


def sleeps() -> int:
    """How often threads of this process went to sleep until now."""
    name = "voluntary_ctxt_switches:"
    found = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            lines = task.joinpath("status").read_text().splitlines()
            found += next(int(line.split()[1]) for line in lines if line.startswith(name))
    return found


@pytest.fixture
def switch() -> Iterator[WaitSwitch]:
    found = wait_switch()
    if found is None or len(allowed_cores()) < 2:
        pytest.skip("needs GNU's OpenMP and two cores")
    yield found
    found.make(short=False, threads=2)


@pytest.mark.slow
def test_the_real_switch(switch: WaitSwitch, target_model: Model) -> None:
    cores, found = BusyCores(), list[int]()
    with single_sequence(target_model, ContextParams(n_ctx=256, threads=2)) as text:
        text.extend([1, 2, 3])

        def sleeps_of(passes: int) -> int:
            before = sleeps()
            for _ in range(passes):
                text.score(4, NOTHING)
                text.truncate(3)
            return sleeps() - before

        for short in (False, True) * 4:
            changed = switch.make(short=short, threads=2)
            assert changed == (short or bool(found))
            assert switch.is_short == short
            assert not switch.make(short=short, threads=2)
            # A thread takes some passes to end up on a core of its own, a team to end.
            sleeps_of(200)
            found.append(sleeps_of(40))
    if (cores.mean() or 0.0) >= BUSY:
        pytest.skip("other programs are busy, so threads sleep either way")
    # Those that wait shortly sleep several times per pass.
    assert median(found[::2]) < 80 < median(found[1::2]), found


def test_waits_stay_long_where_threads_cannot_be_made(
    switch: WaitSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenMP itself would end the process."""
    start, left = Thread.start, [1]

    def limited(thread: Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(Thread, "start", limited)
    switch.make(short=True, threads=2)
    assert not switch.is_short


@pytest.mark.parametrize("wait", [1, 2], ids=["while a thread starts", "while it makes the team"])
def test_an_interrupt_leaves_no_team(
    wait: int, switch: WaitSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real, waits = active_count(), Event.wait, list[int]()

    def interrupted(event: Event, timeout: float | None = None) -> bool:
        if current_thread() is main_thread():
            waits.append(1)
            if len(waits) == wait:
                raise KeyboardInterrupt
        return real(event, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            switch.make(short=True, threads=2)
    assert not switch.is_short
    switch.make(short=False, threads=2)
    ends = monotonic() + 30
    while active_count() > before and monotonic() < ends:
        sleep(0.01)
    assert active_count() <= before
    assert switch.make(short=True, threads=2)
