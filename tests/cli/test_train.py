"""`localspec train` at the terminal: its texts, its refusals, and what it leaves behind."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from fakes.command_line import Run
from fakes.cut_target import letters, write_cut_target

import localspec
from localspec.cli.train_output import stopped_text
from localspec.cli.train_texts import prompts_from
from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError, LocalspecError, ModelNotFoundError
from localspec.models.kinds import DRAFT_MODEL
from localspec.models.registry import bundled
from localspec.models.trained_drafters import TrainedDrafter, add_trained, trained_drafters
from localspec.utils.installer import installer

TORCH = importlib.util.find_spec("torch") is not None
RUNTIME = {"threads": 1, "context": 512, "gpu_layers": 0}
QUICK = ("--threads", "1", "--ctx", "512", "--gpu-layers", "0")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "home"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_cut_target(tmp_path / "target.gguf")


def asked(target: Path, *sources: str) -> list[object]:
    with localspec.load(target, draft="none", **RUNTIME) as engine:
        return list(prompts_from(sources, target)(engine))


def test_a_model_that_is_not_there_is_said_before_torch(
    cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.cli.train._require_torch", lambda: pytest.fail("too early"))
    done = cli("train", "nosuch")
    assert done.code == ModelNotFoundError.exit_code
    assert "there is no model 'nosuch'" in done.err


def test_without_torch_the_way_to_it(
    cli: Run, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec

    def none(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "torch" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", none)
    done = cli("train", str(target))
    assert (done.code, done.out) == (LocalspecError.exit_code, "")
    assert done.lines == [
        "localspec: error: training needs torch, which is not installed here: "
        f"{installer()} 'localspec[train]'"
    ]


@pytest.mark.slow
def test_prompts_that_come_along_suit_the_target(target: Path) -> None:
    general = asked(target)
    assert len(general) > 1500 and len({str(each) for each in general}) == len(general)
    terminal = asked(bundled().target)
    assert len(terminal) > 800
    messages = terminal[0]
    assert isinstance(messages, list) and messages[0]["role"] == "user"


def test_prompts_of_files(target: Path, tmp_path: Path) -> None:
    lines = [json.dumps({"messages": [{"role": "user", "content": each}]}) for each in "abc"]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text("short\n\n" + "word " * 300 + "\n\n" + "last " * 3)
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "one.md").write_text("one")
    (folder / "two.md").write_text("two")
    found = asked(target, *(str(tmp_path / name) for name in ("a.jsonl", "b.txt", "c")))
    assert [each[0]["content"] for each in found[:3]] == ["a", "b", "c"]  # type: ignore[index]
    assert isinstance(found[3], str) and found[3].startswith("short\n\nword word")
    passages = [str(each) for each in found[3:-2]]
    assert all(300 <= len(each) <= 600 for each in passages)
    assert " ".join(passages).split() == ["short", *["word"] * 300, *["last"] * 3]
    assert found[-2:] == ["one", "two"]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_text_without_blank_lines_is_used_as_a_whole(
    target: Path, tmp_path: Path, end: str
) -> None:
    lines = [f"    line {number} of a long text" for number in range(200)]
    (tmp_path / "a.txt").write_bytes(end.join(lines).encode())
    (tmp_path / "b.txt").write_text("x" * 1500)
    found = [str(each) for each in asked(target, str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))]
    own, shapeless = found[:-3], found[-3:]
    assert [line for each in own for line in each.split("\n")] == lines
    assert all(300 <= len(each) <= 600 for each in own[:-1])
    assert shapeless == ["x" * 600, "x" * 600, "x" * 300]


def test_prompts_of_conversations(target: Path) -> None:
    from localspec_tui.archive import Archive

    with pytest.raises(InvalidValueError, match="--from chats: there are no conversations yet"):
        prompts_from(["chats"], target)
    conversation = Conversation()
    for role, content in (("user", "an"), ("assistant", "br"), ("user", "cs"), ("assistant", "dt")):
        conversation.add(Turn(role, content))  # type: ignore[arg-type]
    archive = Archive()
    key = archive.create("target", "be brief")
    archive.save(key, [], conversation.last)
    archive.close()
    first, second = asked(target, "chats")
    assert [each["content"] for each in first] == ["be brief", "an"]  # type: ignore[attr-defined]
    assert [each["content"] for each in second] == [  # type: ignore[attr-defined]
        "be brief",
        "an",
        "br",
        "cs",
    ]


def test_sources_that_cannot_be_read(target: Path, tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty.txt", tmp_path / "binary.txt"
    empty.write_text(" \n")
    binary.write_bytes(b"\xff\x00")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": 1}')
    for source, said in (
        (empty, "there is no text in it"),
        (binary, "it is not UTF-8"),
        (broken, "line 1 is"),
        (tmp_path / "none.txt", "No such file"),
        (tmp_path / "none.jsonl", "No such file"),
    ):
        with pytest.raises(InvalidValueError, match=f"--from .*{source.name}: {said}"):
            prompts_from([str(source)], target)


def test_a_trained_drafter_is_listed_shown_and_deleted(
    cli: Run, target: Path, tmp_path: Path
) -> None:
    made = write_cut_target(tmp_path / "draft-model-x-Q8_0.gguf", tied=True, quantised=True)
    add_trained(target, TrainedDrafter(DRAFT_MODEL, made, target.name, True))
    assert f"draft-model {made}, found with the target" in cli("show", str(target)).out
    names = [each["name"] for each in cli("ls", "--json").record["models"]]
    assert str(made) in names
    pair = cli("pair", str(target), "--json")
    assert pair.code == 0 and made.name in pair.out
    dry = cli("rm", made.name, "--dry-run")
    assert dry.code == 0 and f"{made}: a drafter that was made here" in dry.out
    assert made.exists()
    done = cli("rm", made.stem, "--yes")
    assert done.code == 0 and "freed" in done.err and not made.exists()
    assert trained_drafters(target) == []
    assert cli("rm", made.name, "--yes").code == ModelNotFoundError.exit_code


def test_one_that_gains_less_comes_last(target: Path, tmp_path: Path) -> None:
    from localspec.models.own_drafters import own_drafters

    files = [write_cut_target(tmp_path / f"{name}.gguf", seed=4) for name in "abc"]
    for file, preferred in zip(files, (False, True, False), strict=True):
        add_trained(target, TrainedDrafter(DRAFT_MODEL, file, target.name, preferred))
    assert [each.file for each in own_drafters(target)] == [files[1], files[2], files[0]]
    files[2].unlink()
    assert [each.file for each in own_drafters(target)] == [files[1], files[0]]
    other = write_cut_target(tmp_path / "other.gguf", seed=9)
    assert not own_drafters(other)


def test_a_report_without_a_place_is_refused_first(cli: Run, target: Path, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none" / "report.html"):
        done = cli("train", str(target), "--report", str(place))
        assert done.code == InvalidValueError.exit_code
        assert done.lines == [
            f"localspec: error: --report {place}: it must be a file in a folder that exists"
        ]


def test_a_report_replaces_no_other_file(
    cli: Run, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, new = target.read_bytes(), tmp_path / "new"
    for options, said in (
        ((target,), f"{target}: it exists and is no page; name another file"),
        ((new, "-o", tmp_path / "." / "new"), f"{new}: -o names the same file; name another file"),
    ):
        done = cli("train", str(target), "--report", *map(str, options))
        assert done.code == InvalidValueError.exit_code
        assert done.lines == [f"localspec: error: --report {said}"]
    assert target.read_bytes() == before and not new.exists()
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = cli("train", str(target), "--report", str(new))
    assert done.lines == [
        f"localspec: error: --report {new}: it cannot be written; name another file"
    ]


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_bad_options_are_refused_before_anything_is_loaded(
    cli: Run, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.distillation.material.load", None)
    (tmp_path / "file").write_text("x")
    for options, said in (
        (("--seed", "-1"), "--seed is -1"),
        (("--seed", str(2**64)), f"--seed is {2**64}"),
        (("--threads", "0"), "--threads is 0"),
        (("--cache-gb", "nan"), "--cache-gb is nan; it is from 0 to"),
        (("--cache-gb", "inf"), "--cache-gb is inf"),
        (("--cache-gb", "-1"), "--cache-gb is -1"),
        (("--resume", "--anew"), "--resume is set, and so is anew"),
        (("-o", str(tmp_path / "file" / "x.gguf")), "file is no folder in which files can be made"),
    ):
        done = cli("train", str(target), *options)
        assert (done.code, len(done.lines)) == (InvalidValueError.exit_code, 1), done.err
        assert said in done.err
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = cli("train", str(target), "-o", str(tmp_path / "x.gguf"))
    assert done.code == InvalidValueError.exit_code and "x.gguf cannot be written" in done.err


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
@pytest.mark.slow
def test_a_training_from_start_to_end(
    cli: Run, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.distillation import last_trial, texts

    monkeypatch.setattr(texts, "ANSWER", 24)
    monkeypatch.setattr(last_trial, "TOKENS", 8)
    file = tmp_path / "texts.txt"
    file.write_text("\n\n".join(letters(4)))
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": each}) for each in letters(40)))
    options = ("--from", str(prompts), "--tokens", "200", "--layers", "2", *QUICK)
    page = tmp_path / "report.html"
    done = cli("train", str(target), *options, "--json", "--report", str(page))
    assert done.code == 0, done.err
    record = done.record
    first = page.read_text(encoding="utf-8")
    assert f"the page is {page}" in done.err and record["seconds"]["taken"] > 0
    assert "prompts (prompts.jsonl)" in first and str(tmp_path) not in first
    # Of a training that has ended the page is made again, without training.
    again = cli("train", str(target), *options, "--json", "--resume", "--report", str(page))
    assert again.record == record and page.read_text(encoding="utf-8") == first
    assert "this training has ended; --anew trains again" in again.err
    assert "writing texts" not in again.err
    assert record["finished"] and record["kind"] == "draft-model"
    assert Path(record["path"]).parent == tmp_path / "home" / "data" / "drafters"
    assert record["acceptance_by_round"][0][0] > 0 and len(record["trials"]) == 6
    assert "writing texts" in done.err and "accepted untrained" in done.err
    written = cli("generate", "-m", str(target), "--raw", "-n", "8", *QUICK, "--stats", "an")
    assert written.code == 0
    left_out = Path(record["path"]).stem + ".gguf is left out: it is no faster than plain"
    assert Path(record["path"]).stem in written.err
    assert (left_out in written.err) == (not record["pays"]), written.err
    refused = cli("train", str(target), *options, "--kind", "best")
    assert refused.code == InvalidValueError.exit_code
    assert "--kind is 'best'; it is one of draft-model" in refused.err
    few = cli("train", str(target), "--from", str(file), *QUICK)
    assert few.code == InvalidValueError.exit_code
    assert "there is 1 prompt, and a training needs 16" in few.err


@pytest.mark.skipif(not TORCH or sys.platform == "win32", reason="torch is not installed")
@pytest.mark.slow
def test_ctrl_c_before_there_is_a_drafter(target: Path) -> None:
    command = [sys.executable, "-m", "localspec", "train", str(target), "--minutes", "30", *QUICK]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "writing the first texts" in line:
                break
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert running.returncode == 130
    last = said.splitlines()[-1].removeprefix("localspec: ")
    kept = re.match(r"stopped; ([1-9][\d,]*) tokens of answers are kept", last)
    assert last == stopped_text(int(kept[1].replace(",", "")) if kept else 0)


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
@pytest.mark.slow
@pytest.mark.parametrize("place", ["draft_model_kind._untrained_rate", "rounds.Rounds._step"])
def test_ctrl_c_while_torch_computes(
    cli: Run, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Where nothing is kept, once; in a batch, which would come to its end, a second time."""
    from localspec.distillation import texts

    def interrupted(*_: object) -> None:
        for _number in range(2):
            signal.raise_signal(signal.SIGINT)
        pytest.fail("it goes on")

    monkeypatch.setattr(texts, "ANSWER", 24)
    monkeypatch.setattr(f"localspec.training.{place}", interrupted)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": each}) for each in letters(40)))
    options = ("--from", str(prompts), "--tokens", "200", "--layers", "2", *QUICK)
    done = cli("train", str(target), *options)
    assert done.code == 130
    kept = re.fullmatch(
        r"localspec: stopped; (\d+) tokens of answers are kept, and what was read of them: "
        "--resume goes on",
        done.lines[-1],
    )
    assert kept and int(kept[1]) > 100


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_ctrl_c_while_the_target_loads(
    cli: Run, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **_options: object) -> None:
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it goes on")

    monkeypatch.setattr("localspec.distillation.material.load", interrupted)
    done = cli("train", str(target), *QUICK)
    assert done.code == 130
    assert done.lines == [f"localspec: {stopped_text(0)}"]


class _Interrupted(ModuleType):
    """A module whose import Ctrl-C interrupts."""

    def __getattr__(self, name: str) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_while_torch_is_imported_says_so(
    cli: Run, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "localspec.training.own_training"
    monkeypatch.setitem(sys.modules, name, _Interrupted(name))
    monkeypatch.setattr("localspec.cli.train._require_torch", lambda: None)
    done = cli("train", str(target), *QUICK)
    assert done.code == 130 and not done.out
    assert done.err.strip() == f"localspec: {stopped_text(0)}"
