"""Wait policy: waits are short where that is quicker, and only there."""

from contextlib import suppress
from itertools import cycle
from pathlib import Path
from statistics import median

import pytest
from fakes.busy_machine import Machine

from localspec.llama.context import single_sequence
from localspec.llama.model import Model
from localspec.llama.wait_policy import WaitPolicy, gnu_switch
from localspec.loading.threads import busy_cores
from localspec.speculation.draft import NOTHING
from localspec.utils.busy_cores import BUSY, allowed_cores

# Long waits beside busy programs: most passes are quick, and a few take many times as long.
TAIL = [0.03, 0.03, 0.04, 0.03, 0.9, 0.04, 0.03, 0.3, 0.03, 0.04]


@pytest.mark.parametrize(
    ("busy", "threads"),
    [(0.0, 2), (0.3, 2), (2.0, 1)],
    ids=["quiet", "hardly busy", "one thread waits for nobody"],
)
def test_waits_stay_long(busy: float, threads: int) -> None:
    machine = Machine(busy, a=([1.0], [0.1]))
    machine.run("a", 200, threads)
    assert not machine.switched
    assert machine.policy.short_passes == 0


def test_waits_stay_long_where_all_find_room() -> None:
    machine = Machine(2.0, a=([1.0], [0.1]))
    machine.policy = WaitPolicy(machine.switched.append, machine, 8, lambda: machine.now)
    machine.run("a", 200)
    assert not machine.switched
    machine.run("a", 200, threads=7)
    assert machine.policy.short


def test_waits_stay_long_where_there_is_no_choice() -> None:
    machine = Machine(2.0, a=([1.0], [0.1]))
    machine.policy = WaitPolicy(None, machine, 2, lambda: machine.now)
    machine.run("a", 200)
    assert not machine.policy.short


def test_a_busy_machine_gets_short_waits() -> None:
    machine = Machine(2.0, a=(TAIL, [0.06]))
    took = machine.run("a", 400)
    assert machine.policy.short
    always_long = sum(TAIL) * 40
    assert took < 0.5 * always_long
    assert machine.policy.short_passes > 300


def test_a_tail_that_comes_late_is_seen() -> None:
    """At first long waits look better; then passes of them are slow now and then."""
    machine = Machine(2.0, a=([0.03] * 30 + TAIL * 60, [0.06]))
    machine.run("a", 30)
    assert not machine.policy.short
    machine.run("a", 60)
    assert machine.policy.short


def test_short_waits_that_are_slower_are_tried_rarely() -> None:
    machine = Machine(1.0, a=([0.02], [0.03]))
    took = machine.run("a", 5500)
    assert not machine.policy.short
    # Six a minute.
    assert 6 <= machine.policy.short_passes <= 6 * (took / 60 + 1), took


def test_a_small_gain_is_not_taken() -> None:
    machine = Machine(1.0, a=([0.1], [0.095]))
    machine.run("a", 100)
    assert not machine.policy.short


def test_waits_are_long_again_on_a_quiet_machine() -> None:
    machine = Machine(2.0, a=([0.1], [0.05]))
    machine.run("a", 100)
    assert machine.policy.short
    machine.busy = 0.1
    # At the next look.
    machine.run("a", 12)
    assert not machine.policy.short
    # And what was found out then is not believed any more.
    machine.busy = 2.0
    machine.run("a", 5)
    assert not machine.policy.short


def test_it_changes_with_the_machine_while_that_stays_busy() -> None:
    machine = Machine(2.0, a=([0.1], [0.05]))
    machine.run("a", 100)
    machine._seconds["a"] = {False: cycle([0.02]), True: cycle([0.05])}
    machine.run("a", 2000)
    assert not machine.policy.short
    machine._seconds["a"] = {False: cycle([0.1]), True: cycle([0.05])}
    machine.run("a", 2000)
    assert machine.policy.short


@pytest.mark.parametrize("gains", [True, False])
@pytest.mark.parametrize("kinds", ["dddt", "dt", "ddtu"])
def test_passes_of_two_models_are_not_mixed_up(kinds: str, gains: bool) -> None:
    """A target's pass takes 20 times as long as a drafter's, and comes at its turn."""
    short = 0.6 if gains else 1.5
    costs = {"d": 0.01, "t": 0.2, "u": 0.9}
    machine = Machine(2.0, **{kind: ([each], [short * each]) for kind, each in costs.items()})
    machine.run(kinds, 120)
    assert machine.policy.short == gains


def test_a_pass_that_fails_tells_nothing() -> None:
    machine = Machine(2.0, a=([0.1], [0.05]))
    for _ in range(20):
        machine.now += 1
        with pytest.raises(OSError, match="lost"), machine.policy.during("a", 2):
            raise OSError("lost")
    assert not machine.switched
    machine.run("a", 100)
    assert machine.policy.short


def sleeps() -> int:
    """How often threads of this process went to sleep until now."""
    name = "voluntary_ctxt_switches:"
    found = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            lines = task.joinpath("status").read_text().splitlines()
            found += next(int(line.split()[1]) for line in lines if line.startswith(name))
    return found


def test_the_real_switch(target_model: Model) -> None:
    switch = gnu_switch()
    if switch is None or len(allowed_cores()) < 2:
        pytest.skip("needs GNU's OpenMP and two cores")
    if busy_cores() >= BUSY:
        pytest.skip("other programs are busy, so threads sleep either way")
    found = list[int]()
    with single_sequence(target_model, n_ctx=256, threads=2) as text:
        text.extend([1, 2, 3])

        def sleeps_of(passes: int) -> int:
            before = sleeps()
            for _ in range(passes):
                text.score(4, NOTHING)
                text.truncate(3)
            return sleeps() - before

        for short in (False, True) * 4:
            switch(short)
            # A thread takes some passes to end up on a core of its own, a team to end.
            sleeps_of(200)
            found.append(sleeps_of(40))
        switch(False)
    # Those that wait shortly sleep several times per pass.
    assert median(found[::2]) < 80 < median(found[1::2]), found
