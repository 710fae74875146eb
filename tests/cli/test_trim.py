"""`localspec trim` at the terminal."""

from pathlib import Path

import pytest
from fakes.command_line import Run
from fakes.eagle3 import SHAPES, write_head, write_target
from fakes.matrix_heads import write_medusa

from localspec.cli.output import Output
from localspec.cli.trim_progress import TrimProgress
from localspec.conversation.turns import Conversation, Turn
from localspec.conversion.draft_trial import DraftTrial
from localspec.errors import DrafterMismatchError, InvalidValueError, ModelNotFoundError
from localspec.gguf.check import check_drafter
from localspec.models.locate import locate
from localspec.models.own_drafters import own_drafters

QUICK = ("--threads", "1", "--ctx", "512", "--gpu-layers", "0")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target.gguf")


@pytest.fixture
def head(tmp_path: Path) -> Path:
    return write_head(tmp_path / "head.gguf", SHAPES["whole vocabulary"])


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("anbt\n---\ndnenbt\n")
    return path


def test_the_targets_own_texts(
    cli: Run, head: Path, target: Path, prompts: Path, tmp_path: Path
) -> None:
    named = ("trim", str(head), "--target", str(target), "--prompts", str(prompts), *QUICK)
    before = head.read_bytes()
    done = cli(*named, "--tokens", "60")
    out = tmp_path / "head-60-tokens.gguf"
    assert (done.code, done.out) == (0, f"{out}\n"), done.err
    check_drafter(out)
    assert head.read_bytes() == before
    said = done.err
    assert "counting what the target writes" in said
    assert "measuring both heads, with 1 of the prompts" in said
    assert "keeps 60 of 283 tokens" in said
    assert "a pass of the head reads 27.2 kB -> 5.8 kB" in said
    assert "accepted: " in said
    assert f"next: localspec generate -m {target} --draft {out}" in said


@pytest.mark.parametrize("gains", [True, False])
def test_auto_takes_the_trimmed_head_where_the_cut_gains(
    gains: bool, cli: Run, target: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = target.parent
    speeds = iter((2.0 if gains else 0.9, 1.0))
    monkeypatch.setattr(DraftTrial, "speed", lambda *_: next(speeds))
    whole = write_head(folder / "eagle3-target-F32.gguf", SHAPES["whole vocabulary"])
    write_target(folder / "another.gguf")
    out = whole.with_name("eagle3-target-F32-60-tokens.gguf")
    named = ("trim", str(whole), "--target", str(target), "--prompts", str(prompts), *QUICK)
    done = cli(*named, "--tokens", "60")
    assert done.code == 0, done.err
    taken, left = (out, whole) if gains else (whole, out)
    assert ("--draft auto takes it for this model from now on" in done.err) == gains
    assert [each.file for each in own_drafters(target)][:2] == [taken, left]
    # By the name that `ls` and `pair` show.
    assert out.name in cli("pair", str(target)).out
    for command in (("show",), ("pair", str(target))):
        assert cli(*command, out.name).code == 0
    assert locate(out.stem) == out
    assert cli("rm", out.name, "--yes").code == 0 and not out.exists()
    assert [each.file for each in own_drafters(target)] == [whole]


def test_auto_finds_a_trimmed_head_of_any_name(
    cli: Run, head: Path, target: Path, prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "small.gguf"
    named = ("trim", str(head), "--target", str(target), "--prompts", str(prompts), *QUICK)
    assert cli(*named, "--tokens", "60", "-o", str(out)).code == 0
    written = cli("generate", "-m", str(target), "--raw", "-n", "8", "an", *QUICK)
    assert written.code == 0 and "draft: suffix or small" in written.err


def test_progress_says_how_long_all_of_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr("localspec.cli.trim_progress.monotonic", lambda: clock[0])
    shown: list[str] = []

    class Line:
        show = staticmethod(shown.append)

    progress = TrimProgress(Output(), Line(), 6)  # type: ignore[arg-type]
    progress.enter("counting tokens")
    for _ in range(2):
        clock[0] += 10
        progress()
    assert "the target writes 6 texts in all: about 50 s left" in capsys.readouterr().err
    assert shown == [
        "counting tokens: 0 of 6 texts",
        "counting tokens: 1 of 6 texts, 50 s left",
        "counting tokens: 2 of 6 texts, 40 s left",
    ]


def test_counted_files(cli: Run, head: Path, target: Path, prompts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("anbt dnenbt\n" * 100)
    named = ("trim", str(head), "--target", str(target), "--prompts", str(prompts), *QUICK)
    done = cli(*named, "--tokens", "60", "--count", str(folder), "--json")
    assert done.code == 0, done.err
    record = done.record
    assert record["covered"] == 1.0
    assert record["same_texts"]
    assert [record[name]["tokens"] for name in ("before", "after")] == [283, 60]
    assert record["after"]["bytes_per_pass"] < record["before"]["bytes_per_pass"]
    assert record["before"]["seconds_per_drafted_token"] > 0


def test_chats_are_counted(cli: Run, head: Path, target: Path, prompts: Path, home: Path) -> None:
    from localspec_tui.archive import Archive

    named = ("trim", str(head), "--target", str(target), "--prompts", str(prompts), *QUICK)
    empty = cli(*named, "--count", "chats")
    assert empty.code == InvalidValueError.exit_code
    assert "there are no conversations yet" in empty.err
    conversation = Conversation()
    conversation.add(Turn("user", "anbt"))
    conversation.add(Turn("assistant", "dnenbt"))
    archive = Archive()
    key = archive.create("target", None)
    archive.save(key, [], conversation.last)
    assert [*archive.contents()] == ["anbt", "dnenbt"]
    archive.close()
    done = cli(*named, "--count", "chats", "--json")
    assert done.code == 0, done.err
    assert done.record["covered"] == 1.0


def test_one_line_and_a_code_for_each_refusal(
    cli: Run, head: Path, target: Path, prompts: Path, tmp_path: Path
) -> None:
    def refused(code: int, said: str, *arguments: str) -> None:
        done = cli("trim", *arguments, "--target", str(target), "--prompts", str(prompts), *QUICK)
        assert (done.code, done.out) == (code, ""), done.err
        assert done.lines[-1].startswith("localspec: error: ")
        assert said in done.lines[-1]

    usage = InvalidValueError.exit_code
    texts = ("--count", str(prompts))
    refused(usage, "have no d2t", str(write_medusa(tmp_path / "medusa.gguf")))
    refused(usage, "reads no d2t", str(target))
    refused(usage, "--tokens is 1; the chat template", str(head), *texts, "--tokens", "1")
    refused(usage, "--tokens is 283", str(head), *texts, "--tokens", "283")
    refused(usage, "the head itself", str(head), *texts, "-o", str(head))
    refused(usage, "--count nothing", str(head), "--count", "nothing")
    (tmp_path / "empty.txt").write_text("")
    empty = ("--count", str(tmp_path / "empty.txt"))
    refused(usage, "empty.txt: there is no text in it", str(head), *empty)
    refused(ModelNotFoundError.exit_code, "no model file", str(tmp_path / "none.gguf"))
    other = write_head(tmp_path / "other.gguf", reads=(1, 2, 9))
    refused(DrafterMismatchError.exit_code, "layer 9", str(other))
