"""The names that `localspec pull` takes: pasted addresses, other capitals, parts of labels."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hub import Hub
from fakes.hub_repo import Repo
from fakes.pycode import PYCODE

from .test_pull import Shell

TARGET, DRAFTER = PYCODE
SNAKE = "Zoo/Snake-7m-GGUF"
PAIRS = f"""
[pairs.snake]
target = "{SNAKE}"
drafter = "zoo/worm-GGUF"
prompt = "raw"
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = {
        "README.md": Path(__file__),
        "snake-7m-Q8_0.gguf": TARGET,
        "mmproj-other-F16.gguf": DRAFTER,
        "snake-7m-imatrix.gguf": DRAFTER,
    }
    worm = Repo({"worm-Q4_0.gguf": DRAFTER})
    with Hub({SNAKE: Repo(files), "zoo/worm-GGUF": worm}) as hub:
        yield hub


@pytest.fixture
def shell(tmp_path: Path, hub: Hub) -> Shell:
    shell = Shell(tmp_path, hub)
    (tmp_path / "localspec" / "models.toml").write_text(PAIRS)
    return shell


@pytest.mark.slow
def test_a_pasted_address_is_fetched_and_found_again(shell: Shell) -> None:
    address = f"{shell.hub.endpoint}/{SNAKE}/resolve/main/snake-7m-Q8_0.gguf?download=true"
    done = shell.pull(address)
    target, drafter = map(Path, done.out.splitlines())
    assert target.read_bytes() == TARGET.read_bytes()
    assert drafter.read_bytes() == DRAFTER.read_bytes()
    assert f"{address} is the target of snake, whose drafter comes with it" in done.err
    written = shell("generate", "-m", address, "-n", "4", "def f(", HF_HUB_OFFLINE="1")
    assert written.code == 0 and written.out, written.err
    for again in (f"hf.co/{SNAKE}:Q8_0", f"https://huggingface.co/{SNAKE}/tree/main", "snake"):
        assert shell.pull(again).out.splitlines()[0] == str(target)
    assert shell.hub.sent == TARGET.stat().st_size + DRAFTER.stat().st_size


@pytest.mark.slow
def test_what_a_beginning_has_loaded_is_told(shell: Shell) -> None:
    shell.pull(f"{SNAKE}:Q8")
    for asked, told in ((f"{SNAKE}:q8", 1), (f"{SNAKE}:Q8_0", 0), ("snake:Q8", 1), ("snake", 0)):
        done = shell("generate", "-m", asked, "-n", "4", "def f(", HF_HUB_OFFLINE="1")
        line = f"{asked} is snake-7m-Q8_0.gguf here, the best quantisation that begins so"
        assert done.code == 0 and done.err.count(line) == told, done.err


@pytest.mark.slow
def test_other_capitals_are_the_same_repository(shell: Shell) -> None:
    done = shell.pull(f"{SNAKE.lower()}:q8_0")
    target, drafter = done.out.splitlines()
    assert f"models--{SNAKE.replace('/', '--')}" in target
    assert shell.pull(SNAKE.upper()).out == shell.pull("snake").out == done.out
    offline = shell.pull(SNAKE.upper(), HF_HUB_OFFLINE="1")
    assert offline.out == done.out and "here already" in offline.err
    assert shell.hub.sent == TARGET.stat().st_size + DRAFTER.stat().st_size
    folders = sorted(path.name for path in shell.cache.glob("models--*"))
    assert folders == ["models--Zoo--Snake-7m-GGUF", "models--zoo--worm-GGUF"]
    assert shell("rm", "--yes", f"{SNAKE.lower()}:q8_0").code == 0
    assert not Path(target).exists() and Path(drafter).exists()


def test_what_an_older_version_fetched_in_other_capitals_is_taken(shell: Shell) -> None:
    shell.pull(SNAKE)
    folder = shell.cache / f"models--{SNAKE.replace('/', '--')}"
    folder.rename(folder.with_name(folder.name.lower()))
    sent = shell.hub.sent
    done = shell.pull(SNAKE)
    assert "models--zoo--snake-7m-gguf" in done.out and shell.hub.sent == sent


@pytest.mark.slow
def test_a_drafter_of_another_pair_says_whose_it_is(shell: Shell, tmp_path: Path) -> None:
    shell.pull("snake")
    mine = tmp_path / "Snake-7m-mine.gguf"
    mine.write_bytes(TARGET.read_bytes())
    done = shell("generate", "-m", str(mine), "-n", "4", "def f(", HF_HUB_OFFLINE="1")
    assert done.code == 0, done.err
    origin = "draft-model zoo/worm-GGUF is of the pair snake: Snake-7m-mine.gguf is named after"
    assert f"{origin} {SNAKE}" in done.err
    own = shell("generate", "-m", "snake", "-n", "4", "def f(", HF_HUB_OFFLINE="1")
    assert own.code == 0 and "of the pair" not in own.err


@pytest.mark.slow
def test_a_fine_tune_comes_with_the_draft_model_of_its_namesake(shell: Shell) -> None:
    """As loading takes it."""
    shell.hub.repos["ann/night-GGUF"] = Repo({"snake-7m-night-Q8_0.gguf": TARGET})
    done = shell.pull("ann/night-GGUF")
    assert done.out.endswith("worm-Q4_0.gguf\n") and done.out.count("\n") == 2
    assert f"is of the pair snake: ann/night-GGUF is named after {SNAKE}" in done.err
    text = shell("generate", "-m", "ann/night-GGUF", "-n", "4", "def f(", HF_HUB_OFFLINE="1")
    assert text.code == 0 and "is of the pair snake" in text.err


@pytest.mark.slow
def test_a_label_may_be_named_by_how_it_begins(shell: Shell) -> None:
    done = shell.pull(f"{SNAKE}:q8", "--drafter", "none")
    assert done.out.endswith("snake-7m-Q8_0.gguf\n")
    assert shell("generate", "-m", f"{SNAKE}:Q8", "-n", "2", "a", HF_HUB_OFFLINE="1").code == 0


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (f"{SNAKE}:Q5", f"{SNAKE} has no Q5; it has Q8_0"),
        (f"{SNAKE}:F16", f"{SNAKE} has no F16; it has"),
        (
            f"{SNAKE}:mmproj-other-F16.gguf",
            f"mmproj-other-F16.gguf of {SNAKE} is no language model; it has",
        ),
        (f"https://hf.co/{SNAKE}/blob/main/README.md", f"README.md of {SNAKE} is no language mod"),
        (f"https://hf.co/{SNAKE}/tree/v2", "is of the revision v2, and only main is fetched"),
        ("https://hf.co/datasets/a/b", "https://hf.co/datasets/a/b is the address of no model"),
        ("https://hub.test/a/b", "hub.test is not the Hub in use (127.0.0.1"),
    ],
)
def test_what_is_no_model_is_one_line(shell: Shell, name: str, line: str) -> None:
    done = shell("pull", name)
    assert (done.code, done.out) == (3, "") and shell.hub.sent == 0
    [said] = done.err.splitlines()
    assert said.startswith("localspec: error: ") and line in said
