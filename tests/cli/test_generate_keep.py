"""`localspec generate --keep`: what is read again, and what a Ctrl-C leaves."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.command_line import Run
from fakes.generate_runs import posix

from localspec.cli.output import Output
from localspec.engine import kept_prompts, kept_store
from localspec.engine.kept_store import kept_folder
from localspec.engine.slot import Slot
from localspec.models.registry import bundled

pytestmark = pytest.mark.usefixtures("bare_environment")

LONG = "\n".join(f"def work_{number}(text):\n    return text[{number}:]" for number in range(40))
MODEL = ("-m", str(bundled().target), "--raw", "--ignore-eos")
OPTIONS = (*MODEL, "-n", "16", "--seed", "3", "--stats")
READ = re.compile(r"prompt (\d+) \((\d+) evaluated\)")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home. However busy the machine is, there is time to save."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(kept_store, "_ALWAYS", 1000.0)
    return tmp_path


def read(said: str) -> tuple[int, int]:
    """The tokens of the prompt, and how many of them were evaluated."""
    found = READ.search(said)
    assert found
    return int(found[1]), int(found[2])


def test_only_what_is_new_is_read(generate: Run) -> None:
    questions = [f"{LONG}\n\ndef {name}(" for name in ("last", "first", "middle")]
    plain = [generate(text, *OPTIONS) for text in questions]
    assert not kept_folder().exists()  # nobody asked for it
    kept = [generate(text, *OPTIONS, "--keep") for text in questions]
    assert [each.out for each in kept] == [each.out for each in plain]
    whole, first = read(kept[0].err)
    assert whole == first > 300
    assert all(read(each.err)[1] == 65 for each in kept[1:])
    assert all(read(each.err)[1] > 300 for each in plain)


def test_what_is_damaged_is_said(generate: Run) -> None:
    generate(LONG, *OPTIONS, "--keep", "--draft", "none")
    (path,) = kept_folder().glob("*.state")
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    done = generate(LONG, *OPTIONS, "--keep")
    assert (
        "localspec: the prompt has to be read again: the saved state is damaged; it was" in done.err
    )
    assert done.out == generate(LONG, *OPTIONS).out


def test_what_cannot_be_kept_is_said(generate: Run, home: Path) -> None:
    (home / "cache").mkdir()
    kept_folder().write_text("no folder")
    done = generate(LONG, *OPTIONS, "--keep")
    assert done.code == 0
    assert "localspec: the prompt is not kept: the state cannot be saved: " in done.err
    assert done.out == generate(LONG, *OPTIONS).out


@posix
def test_a_cancelled_text_leaves_its_prompt(generate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Output, "token", lambda *_: signal.raise_signal(signal.SIGINT))
        assert generate(LONG, *OPTIONS, "--keep").code == 130
    done = generate(LONG, *OPTIONS, "--keep")
    assert read(done.err)[1] == 65 and done.out == generate(LONG, *OPTIONS).out


def test_a_setting_keeps_and_an_option_does_not(
    generate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_KEEP", "on")
    generate(LONG, *OPTIONS, "--no-keep")
    assert not kept_folder().exists()
    generate(LONG, *OPTIONS)
    assert read(generate(LONG, *OPTIONS).err)[1] == 65
    monkeypatch.setenv("LOCALSPEC_KEEP", "yes")
    done = generate(LONG, *OPTIONS)
    assert done.code == 2
    assert "LOCALSPEC_KEEP is 'yes'; it must be one of on, off" in done.err


@posix
def test_ctrl_c_leaves_the_saving(generate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing half written."""
    save: Callable[..., str | None] = Slot.save

    def interrupted(slot: Slot, *args: object) -> str | None:
        signal.raise_signal(signal.SIGINT)
        return save(slot, *args)

    with monkeypatch.context() as patch:
        patch.setattr(kept_prompts.Slot, "save", interrupted)
        done = generate(LONG, *OPTIONS, "--keep")
    assert done.code == 0 and "was not saved: it was stopped" in done.err
    assert not [*kept_folder().iterdir()]
    assert read(generate(LONG, *OPTIONS, "--keep").err)[1] > 300
