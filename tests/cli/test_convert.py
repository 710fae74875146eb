"""`localspec convert` at the terminal, from folders and from a Hub on this machine."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.command_line import Run, localspec, own_folders
from fakes.eagle3 import write_head, write_target
from fakes.hub import Hub
from fakes.hub_repo import Repo
from fakes.published import eagle3_config, eagle3_tensors, published

from localspec.errors import (
    DrafterMismatchError,
    InvalidValueError,
    ModelLoadError,
    ModelNotFoundError,
)
from localspec.gguf.check import check_drafter
from localspec.gguf.reader import read_header

HEAD_WIDTH = 24


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "tiny-F32.gguf")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    tensors = eagle3_tensors(write_head(tmp_path / "made.gguf"))
    (tmp_path / "made.gguf").unlink()
    return published(tmp_path / "tiny-eagle3", tensors, eagle3_config(HEAD_WIDTH))


@pytest.fixture
def hub(source: Path, tmp_path: Path) -> Iterator[Hub]:
    (tmp_path / "weights.bin").write_bytes(b"\x80\x02")
    files = {path.name: path for path in source.iterdir()}
    repos = {
        "zoo/tiny-eagle3": Repo(files),
        "zoo/pickled": Repo({"pytorch_model.bin": tmp_path / "weights.bin"}),
        "zoo/empty": Repo({"config.json": files["config.json"]}),
    }
    with Hub(repos) as hub:
        yield hub


@pytest.fixture
def folders(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """The environment in which that Hub is the Hub."""
    home = str(tmp_path / "hf")
    return {**own_folders(tmp_path), "HF_ENDPOINT": hub.endpoint, "HF_HOME": home}


def test_a_folder(cli: Run, source: Path, target: Path, tmp_path: Path) -> None:
    out = tmp_path / "eagle3-tiny-Q8_0.gguf"
    done = cli("convert", str(source), "--target", str(target))
    assert (done.code, done.out) == (0, f"{out}\n")
    assert done.lines[-1].startswith("localspec: eagle3-tiny-Q8_0.gguf: eagle3, ")
    check_drafter(out)
    again = cli("convert", str(source), "--target", str(target), "--json")
    assert again.record["path"] == str(out)
    assert again.record["written"] is False
    assert "as it was before" in again.err


def test_a_repository_of_the_hub(folders: dict[str, str], target: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    arguments = ("convert", "zoo/tiny-eagle3", "--target", str(target), "-o", str(out))
    done = localspec(*arguments, **folders)
    assert done.code == 0, done.err
    said = read_header(out).metadata["localspec.converted.source"]
    assert isinstance(said, str)
    assert said.startswith("zoo/tiny-eagle3@")
    out.unlink()
    offline = localspec(*arguments, **folders, HF_HUB_OFFLINE="1")
    assert offline.code == 0, offline.err
    assert "the checkpoint on this disk is taken" in offline.err
    assert read_header(out).metadata["localspec.converted.source"] == said


@pytest.mark.parametrize(
    ("repository", "code", "said"),
    [
        ("zoo/pickled", ModelLoadError.exit_code, "pytorch_model.bin is pickled"),
        ("zoo/empty", ModelNotFoundError.exit_code, "no *.safetensors"),
        ("zoo/nothing", ModelNotFoundError.exit_code, "zoo/nothing"),
    ],
)
def test_repositories_without_a_head(
    folders: dict[str, str], target: Path, repository: str, code: int, said: str
) -> None:
    done = localspec("convert", repository, "--target", str(target), **folders)
    assert (done.code, len(done.lines)) == (code, 1), done.err
    assert said in done.err
    assert not list(Path(folders["HF_HUB_CACHE"]).rglob("*.bin"))


def test_one_line_and_a_code_for_each_refusal(
    cli: Run, source: Path, target: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = write_target(tmp_path / "other" / "other.gguf", tokens=265)
    weights, config = source / "model.safetensors", source / "config.json"

    def refused(code: int, said: str, *arguments: str) -> None:
        done = cli("convert", *arguments)
        assert (done.code, len(done.lines), done.out) == (code, 1, ""), done.err
        assert said in done.err

    named = (str(source), "--target", str(target))
    refused(InvalidValueError.exit_code, "--layers is 'a'", *named, "--layers", "a")
    refused(InvalidValueError.exit_code, "--layers is 2,3,99", *named, "--layers", "2,3,99")
    refused(InvalidValueError.exit_code, "--type is 'Q4_K_M'", *named, "--type", "Q4_K_M")
    refused(ModelNotFoundError.exit_code, "no checkpoint", "not/there/x", "--target", str(target))
    refused(ModelLoadError.exit_code, "config.json", str(weights), "--target", str(config))
    refused(DrafterMismatchError.exit_code, "has 265", str(source), "--target", str(other))
    weights.write_bytes(weights.read_bytes()[:-8])
    refused(ModelLoadError.exit_code, "no sound safetensors file", *named)
    config.write_text("{")
    weights.unlink()
    refused(ModelNotFoundError.exit_code, "no *.safetensors", *named)


SLOW = """
import sys, time
from localspec.conversion import published
usual = published.encode
def slow(*arguments):
    time.sleep(0.2)
    return usual(*arguments)
published.encode = slow
from localspec.cli.main import main
main()
"""


def test_killed_while_it_writes_it_leaves_no_file(
    source: Path, target: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.gguf"
    arguments = ["convert", str(source), "--target", str(target), "-o", str(out)]
    with subprocess.Popen([sys.executable, "-c", SLOW, *arguments]) as process:
        until = time.monotonic() + 60
        while not list(tmp_path.glob(".out.gguf.*.part")) and time.monotonic() < until:
            time.sleep(0.02)
        process.kill()
    assert list(tmp_path.glob(".out.gguf.*.part"))
    assert not out.exists()
    done = localspec(*arguments)
    assert done.code == 0, done.err
    check_drafter(out)
    assert not list(tmp_path.glob(".out.gguf.*.part"))
