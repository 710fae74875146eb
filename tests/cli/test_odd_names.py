"""Names that name nothing are one clear line, wherever a command takes a name."""

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.command_line import Run
from fuzz.campaign import Campaign
from fuzz.command import Ends
from fuzz.names import NAMES, name_case

FULL = Path("/dev/full")


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own, for what commands write and look for."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_odd_name_is_one_line(cli: Run, away: Path) -> None:
    def command(*arguments: str, typed: str = "") -> Ends:
        # What pytest catches takes no bytes that are not UTF-8; standard error does.
        done = cli(*(each.encode("utf-8", "replace").decode() for each in arguments))
        return Ends(done.code, done.err)

    campaign = Campaign().run(name_case(command), range(400))
    assert not campaign.faults, campaign.report()


@pytest.mark.parametrize("name", NAMES[:-1], ids=range(len(NAMES) - 1))
def test_a_model_of_this_name_is_not_there(name: str, cli: Run, away: Path) -> None:
    done = cli("show", name)
    assert done.code in (2, 3, 5), done.err
    assert len(done.lines) == 1 and len(done.err) < 1200


@pytest.mark.parametrize("home", ["~nouser", "~nouser/x", "/dev/null/x", "a" * 300])
def test_a_home_that_cannot_be_is_named(
    home: str, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", home)
    for arguments in (["ls"], ["config", "path"], ["show", "nothing"]):
        done = cli(*arguments)
        assert "unexpected" not in done.err and len(done.lines) <= 3, done.err
    if home.startswith("~"):
        assert done.lines[-1].startswith(f"localspec: error: LOCALSPEC_HOME is {home!r}")


def test_a_loop_of_links_is_one_line(cli: Run, away: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = away / "loop.gguf"
    loop.symlink_to(loop.name)
    named = [["show"], ["rm", "--yes"], ["audit"], ["pull", "--from"], ["generate", "a", "-m"]]
    named += [["convert", "--target", "bundled"], ["config", "set", "model"]]
    for arguments in named:
        done = cli(*arguments, str(loop))
        assert "unexpected" not in done.err and len(done.lines) <= 2, done.err
    for variable in ("HF_HUB_CACHE", "LOCALSPEC_HOME"):
        monkeypatch.setenv(variable, str(loop))
        folder = ["pull", "--from", str(away)]
        for arguments in (["ls"], ["config", "set", "threads", "1"], ["show", "x"], folder):
            done = cli(*arguments)
            assert "unexpected" not in done.err and len(done.lines) <= 2, done.err


@pytest.mark.parametrize("size", ["1e300", "nan", "-1", "0", "9" * 400, "true", '"x"'])
def test_a_size_that_no_file_has_is_refused(size: str, cli: Run, away: Path) -> None:
    (away / "home").mkdir()
    text = f"[pairs.q]\ntarget = 'a/b'\nsizes = {{Q = {size}}}\n"
    (away / "home" / "models.toml").write_text(text)
    done = cli("ls", "--all")
    assert done.code == 2 and len(done.lines) == 1 and len(done.err) < 1200
    assert "[pairs.q]: sizes is" in done.err or "models.toml" in done.err


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["show", "--help"], ["--version"], ["ls"]])
def test_a_full_output_is_one_line(arguments: list[str]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "localspec", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("localspec: error: standard output cannot be written: No space")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("key", ["/proc/self/mem", "/dev/zero", "/dev/full"])
def test_a_key_file_is_read_within_bounds(key: str, cli: Run, away: Path) -> None:
    if not Path(key).exists():
        pytest.skip(f"needs {key}")
    done = cli("serve", "--api-key-file", key, "-m", "nothing")
    assert done.code == 2 and done.lines == [done.err.strip()]
    assert key in done.err
