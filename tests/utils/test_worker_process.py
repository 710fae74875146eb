"""Worker processes: what a request's limits are about."""

from contextlib import closing
from pathlib import Path

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
