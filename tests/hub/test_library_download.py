"""Why files are transferred by localspec: what huggingface_hub's own download does not do.

A test that fails here after an update of huggingface_hub is good news: that part of
`localspec/hub/transfer.py` can go.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hub import Hub
from fakes.hub_client import Child, asking, fetch, ranges, wait_for, why_not
from fakes.hub_repo import Repo
from fakes.pycode import PYCODE
from huggingface_hub import constants, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError

from localspec.errors import HubError
from localspec.hub.reference import Repository

TARGET = PYCODE.target
SIZE = TARGET.stat().st_size
SNAKE, WHALE = Repository("zoo/snake-GGUF"), Repository("zoo/whale-GGUF")
FILE = "snake-Q8_0.gguf"
ITS_OWN = """
import sys
from huggingface_hub import hf_hub_download
print(hf_hub_download(*sys.argv[1:]))
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    whale = Repo({"whale-Q8_0.gguf": 60 * 10**9})
    repos = {SNAKE.id: Repo({FILE: TARGET}), WHALE.id: whale}
    with Hub(repos) as hub, asking(hub.endpoint, tmp_path):
        yield hub


def parts() -> list[Path]:
    return [*Path(constants.HF_HUB_CACHE).glob("models--*/blobs/*.incomplete")]


@pytest.mark.slow
def test_killed_at_half_it_begins_anew(hub: Hub, tmp_path: Path) -> None:
    child = Child(hub, tmp_path)
    hub.faults.bytes_per_second = SIZE / 2
    with child.running(SNAKE.id, FILE, code=ITS_OWN) as process:
        wait_for(lambda: hub.sent >= SIZE // 2)
        process.kill()
        process.wait()
    hub.faults.bytes_per_second = None
    assert len(parts()) == 1
    with child.running(SNAKE.id, FILE, code=ITS_OWN) as process:
        out, err = process.communicate()
    assert Path(out.strip()).read_bytes() == TARGET.read_bytes(), err
    assert hub.requests[-1].sent == SIZE, "all of it again"
    assert len(parts()) == 1, "what the first run fetched is left behind"


def test_a_download_that_failed_leaves_nothing_to_go_on_from(hub: Hub) -> None:
    hub.faults.cut_after, hub.faults.cuts = SIZE // 2, 1
    hub.faults.statuses["cdn"] = [0, 500]
    with pytest.raises(HfHubHTTPError):
        hf_hub_download(SNAKE.id, FILE)
    assert hub.sent >= SIZE // 2 and not parts()
    # A transfer of ours has the rest sent, and no more.
    hub.faults.cut_after, hub.faults.cuts = SIZE // 2, 1
    hub.faults.statuses["cdn"] = [0, 500]
    fetch(SNAKE)
    assert ranges(hub)[-1] == f"bytes={SIZE // 2}-{SIZE - 1}"


def test_wrong_bytes_are_taken_for_right_ones(hub: Hub) -> None:
    hub.faults.wrong_bytes = True
    assert "sha256 is wrong" in why_not(HubError, SNAKE)
    wrong = Path(hf_hub_download(SNAKE.id, FILE))
    assert wrong.stat().st_size == SIZE and wrong.read_bytes() != TARGET.read_bytes()


def test_a_file_above_50_gb_is_not_fetched(hub: Hub) -> None:
    with warnings.catch_warnings(), pytest.raises(ValueError, match="too large"):
        warnings.simplefilter("ignore")  # the disk is too small as well
        hf_hub_download(WHALE.id, "whale-Q8_0.gguf")
