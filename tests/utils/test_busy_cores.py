"""Busy cores: what other programs use, and not this one."""

import os
import subprocess
import sys
from time import sleep

import pytest

from localspec.utils.busy_cores import BusyCores, allowed_cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux")
def test_the_load_of_others_is_seen() -> None:
    """A program that computes on one core; how much of it, is the machine's business."""
    core = min(allowed_cores())
    code = f"import os; os.sched_setaffinity(0, [{core}])\nprint(flush=True)\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert busy.stdout is not None
        busy.stdout.readline()
        cores = BusyCores()
        sleep(1)
        found = cores.mean()
        assert found is not None and found > 0.3
    finally:
        busy.kill()
        busy.communicate()


@pytest.mark.skipif(os.name == "nt", reason="the times of ended programs")
def test_ended_programs_of_this_one_are_others_only_if_wanted() -> None:
    all_others, others = BusyCores(), BusyCores(children=True)
    code = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    found, less = all_others.mean(), others.mean()
    assert found is not None and less is not None and less < found


def test_this_program_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores of this process, the last of them idle; it computed for half of the time."""
    clocks = iter([(0.0, 5.0, 7.0), (10.0, 10.0, 17.0), (12.0, 12.0, 25.0)])
    monkeypatch.setattr(BusyCores, "_times", lambda _self: next(clocks))
    monkeypatch.setattr("localspec.utils.busy_cores.allowed_cores", lambda: frozenset(range(4)))
    cores = BusyCores()
    assert cores.mean() == 4 - 1 - 0.5
    assert cores.mean() == 0


def test_the_share_of_all_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four cores three are busy, then all, then none; who computed does not count."""
    clocks = iter([(0.0, 5.0, 7.0), (10.0, 6.0, 17.0), (12.0, 6.0, 17.0), (14.0, 14.0, 25.1)])
    monkeypatch.setattr(BusyCores, "_times", lambda _self: next(clocks))
    monkeypatch.setattr("localspec.utils.busy_cores.allowed_cores", lambda: frozenset(range(4)))
    cores = BusyCores()
    assert [cores.share(), cores.share(), cores.share()] == [0.75, 1.0, 0.0]


def test_not_too_often() -> None:
    cores = BusyCores()
    assert cores.mean(least_seconds=60) is None
    sleep(0.02)
    found = cores.mean(least_seconds=0.01)
    assert found is not None
    assert 0 <= found <= len(allowed_cores())
    assert cores.mean(least_seconds=60) is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux")
def test_only_cores_that_this_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert allowed_cores() == {min(before)}
    finally:
        os.sched_setaffinity(0, before)
    assert allowed_cores() == before
