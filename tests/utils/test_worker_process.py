"""Worker processes: what a request's limits are about."""

from contextlib import closing
from pathlib import Path
from time import sleep

import psutil
import pytest

from localspec.utils.worker_process import WorkerProcess

SLOW_TO_START = """
from time import process_time
from localspec.utils.worker_process import serve

while process_time() < 1:
    pass
serve(lambda request: request)
"""


def test_the_start_is_no_part_of_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_start.py").write_text(SLOW_TO_START)
    monkeypatch.syspath_prepend(str(tmp_path))
    with closing(WorkerProcess("slow_to_start", seconds=0.3, memory=10**9)) as worker:
        assert worker.ask({"a": 1}) == {"a": 1}


READY_WHEN_ALLOWED = """
from pathlib import Path
from time import sleep
from localspec.utils.worker_process import serve

while not Path({allowed!r}).exists():
    sleep(0.01)
serve(lambda request: request)
"""


def test_starting_a_worker_waits_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = tmp_path / "allowed"
    (tmp_path / "late.py").write_text(READY_WHEN_ALLOWED.format(allowed=str(allowed)))
    monkeypatch.syspath_prepend(str(tmp_path))
    with closing(WorkerProcess("late", seconds=5, memory=10**9)) as worker:
        worker.start()
        worker.start()
        allowed.touch()
        assert worker.ask({"a": 1}) == {"a": 1}
        worker.close()
        assert worker.ask({"a": 2}) == {"a": 2}, "no second worker was started"


def test_a_worker_that_was_killed_between_two_requests_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late.py").write_text(READY_WHEN_ALLOWED.format(allowed=str(tmp_path)))
    monkeypatch.syspath_prepend(str(tmp_path))
    here = psutil.Process()
    with closing(WorkerProcess("late", seconds=5, memory=10**9)) as worker:
        worker.start()
        for number in range(2):
            [child] = [each for each in here.children() if "late" in each.cmdline()]
            child.kill()
            # It is left for the worker's owner to wait for.
            while child.status() != psutil.STATUS_ZOMBIE:
                sleep(0.01)
            assert worker.ask({"a": number}) == {"a": number}


def test_where_no_process_can_be_started_the_request_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_args: object, **_options: object) -> None:
        raise OSError("no process")

    monkeypatch.setattr("subprocess.Popen", none)
    worker = WorkerProcess("localspec.llama.template_renderer", seconds=1, memory=10**9)
    worker.start()
    with pytest.raises(OSError, match="no process"):
        worker.ask({})
