"""`localspec pair` on drafters of every kind: who fits whom, and the check that fails."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import assistant, mtp
from fakes.dflash import SHAPES as BLOCKS
from fakes.dflash import BlockShape, write_block_head
from fakes.eagle3 import write_head, write_target
from fakes.fork_heads import write_fork_head
from fakes.matrix_heads import write_medusa, write_mlp
from fakes.pard import write_pard
from fakes.tiny import write_tiny
from fakes.vocabularies import words, write_model
from huggingface_hub import constants

from localspec.cli.main import localspec as command_line
from localspec.errors import ModelLoadError
from localspec.gguf.facts import facts_of
from localspec.loading import acceptance_check
from localspec.models import speed_up
from localspec.models.kinds import THROUGH_TEXT
from localspec.models.registry import user_file
from localspec.models.suggestions import drafter_checks, drafter_kind, drafter_model
from localspec.models.vocabulary_match import CheckResult, failed_check
from localspec.utils.stored_json import store_json

Files = dict[str, Path]
Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("kinds")
    target = write_target(folder / "owl-3.8-27B-F32.gguf")

    def at(name: str) -> Path:
        return folder / f"{name}.gguf"

    return {
        "target": target,
        "words": write_model(at("words"), words(), layers=4),
        "qwen3": write_tiny(at("qwen3"), "qwen3"),
        "qwen35": write_tiny(at("qwen35"), "qwen35"),
        "mamba": write_tiny(at("mamba"), "mamba"),
        "eagle3": write_head(at("eagle3")),
        "eagle3 of layer 40": write_head(at("deep"), reads=(1, 2, 40)),
        "eagle3 of width 48": write_head(at("wide"), target_hidden_size=48),
        "dflash": write_block_head(at("dflash")),
        "dflash with its own matrices": write_block_head(at("own"), BLOCKS["own matrices"]),
        "dflash of qwen3": write_block_head(at("of-qwen3"), family="qwen3"),
        "dspark": write_block_head(at("dspark"), BlockShape(markov=4)),
        "dflash2": write_block_head(at("dflash2"), BlockShape(candidates=4)),
        "medusa": write_medusa(at("medusa")),
        "mlp": write_mlp(at("mlp")),
        "trunk": mtp.write_target(at("trunk"), heads=0),
        "mtp": mtp.write_sidecar(at("mtp")),
        "gemma4": assistant.write_target(at("gemma4")),
        "assistant": assistant.write_assistant(at("mtp-gemma4")),
        "pard": write_pard(at("pard")),
        "small": write_target(at("small"), seed=3),
        "fork": write_fork_head(at("fork")),
        "assistant of a fork": write_fork_head(at("assistant"), "gemma4_assistant"),
    }


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_up, "_QUICK_BYTES", 0)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
        code = command_line(["pair", *map(str, arguments), "--json"], standalone_mode=False)
        return code, json.loads(capsys.readouterr().out)

    return ask


@pytest.mark.parametrize(
    ("target", "drafter", "kind", "fails"),
    [
        ("target", "eagle3", "eagle3", None),
        ("gemma4", "assistant", "assistant", None),
        ("target", "assistant", "assistant", "assistant of gemma4 models, and"),
        ("target", "dflash", "dflash", None),
        ("target", "dflash with its own matrices", "dflash", None),
        ("target", "dflash2", "dflash2", None),
        ("target", "dspark", "dspark", None),
        ("target", "medusa", "medusa", None),
        ("target", "mlp", "mlp", None),
        ("trunk", "mtp", "mtp", None),
        ("target", "mtp", "mtp", "is a head of"),
        ("target", "pard", "draft-model", None),
        ("target", "small", "draft-model", None),
        ("target", "eagle3 of layer 40", "eagle3", "reads hidden states of layer 40, and"),
        ("target", "eagle3 of width 48", "eagle3", "reads hidden states of 48 numbers"),
        ("target", "dflash of qwen3", "dflash", "vocabulary"),
        ("target", "words", THROUGH_TEXT, None),
        ("words", "eagle3", "eagle3", "reads hidden states"),
        ("words", "dflash", "dflash", "reads hidden states"),
        ("words", "dspark", "dspark", "reads hidden states"),
        ("words", "small", THROUGH_TEXT, None),
        ("qwen3", "eagle3", "eagle3", ""),
        ("qwen3", "small", THROUGH_TEXT, None),
        ("qwen35", "dflash2", "dflash2", ""),
        ("qwen35", "eagle3", "eagle3", ""),
        ("mamba", "small", THROUGH_TEXT, None),
        ("mamba", "eagle3 of layer 40", "eagle3", "reads hidden states of layer 40"),
    ],
)
def test_which_kind_fits_which_target(
    files: Files, target: str, drafter: str, kind: str, fails: str | None
) -> None:
    models = facts_of(files[target]), drafter_model(files[drafter])
    assert drafter_kind(*models) == kind
    failed = failed_check(drafter_checks(*models))
    if fails is None:
        assert failed is None
    else:
        assert failed and fails in failed.detail and failed.verdict is CheckResult.UNFIT


def test_a_head_that_reads_its_target_fits(files: Files, asked: Ask) -> None:
    code, record = asked(files["target"], files["eagle3"])
    verdicts = {each["name"]: each["verdict"] for each in record["checks"]}
    assert code == 0 and record["kind"] == "eagle3" and record["fits"]
    assert verdicts["trial"] == verdicts["hidden states"] == "fits"
    assert "eagle3" in {each["detail"] for each in record["checks"]}


def test_a_target_without_hidden_states_is_found_out(files: Files, asked: Ask) -> None:
    code, record = asked(files["mamba"], files["dflash"])
    assert code == 6 and not record["fits"]
    failed = [each for each in record["checks"] if each["verdict"] == "does not fit"]
    assert failed[0]["name"] in ("trial", "hidden states")


@pytest.mark.parametrize("name", ["fork", "assistant of a fork"])
def test_a_file_of_a_fork_does_not_fit(files: Files, asked: Ask, name: str) -> None:
    code, record = asked(files["target"], files[name])
    assert code == 6 and [each["name"] for each in record["checks"]] == ["architecture"]
    assert "only a fork of llama.cpp loads" in record["conclusion"]


def test_a_head_that_was_not_accepted_is_of_another_checkpoint(files: Files, asked: Ask) -> None:
    target, head = files["target"], files["dspark"]
    store_json(acceptance_check._file([target, head]), {"rate": 0.005})
    code, record = asked(target, head)
    assert code == 6 and "made for another checkpoint" in record["conclusion"]
    store_json(acceptance_check._file([target, files["dflash"]]), {"rate": 0.6})
    code, record = asked(target, files["dflash"])
    assert code == 0 and record["gain"]["rate"] == 0.6
    assert "60% of its tokens were right for its first use" in record["conclusion"]


def test_a_head_named_after_another_version_is_doubted(files: Files, tmp_path: Path) -> None:
    for named, verdict in (
        ("owl-3.8-27B", CheckResult.FITS),
        ("owl-3.6-27B", CheckResult.HARMLESS),
    ):
        head = files["eagle3"].rename(tmp_path / f"eagle3-{named}-F32.gguf")
        try:
            found = drafter_checks(facts_of(files["target"]), drafter_model(head))
        finally:
            head.rename(files["eagle3"])
        [checkpoint] = [each for each in found if each.name == "checkpoint"]
        assert checkpoint.verdict is verdict, checkpoint.detail


def test_what_is_known_best_comes_first(files: Files, asked: Ask, tmp_path: Path) -> None:
    """Measured here, then reports in their order, then assumptions, then what loses."""
    target = files["target"]
    user_file().parent.mkdir(parents=True, exist_ok=True)
    entries = {
        "dspark": 'report = "2 x"',
        "small": "",
        "dflash2": 'report = "1.5 x"',
        "dflash": "",
        "eagle3": 'loses = "it was slower"',
        "fork": "",
    }
    kinds = {"small": "draft-model", "fork": "dflash"}
    user_file().write_text(
        f'[pairs.owl]\ntarget = "{target}"\n'
        + "".join(
            f'[[pairs.owl.drafters]]\nkind = "{kinds.get(name, name)}"\nfile = "{files[name]}"\n'
            f'source = "me"\n{more}\n'
            for name, more in entries.items()
        )
    )
    store_json(acceptance_check._file([target, files["dflash"]]), {"rate": 0.9})
    record = asked(target)[1]
    found = {Path(each["file"]).stem: each for each in record["candidates"]}
    useful = [name for name, each in found.items() if each["fits"] and not each["loses"]]
    assert useful[:3] == ["dflash", "dspark", "dflash2"]
    assert found["dflash"]["known_by"] == "its first use" and found["dflash"]["gain"]["rate"] == 0.9
    assert found["dspark"]["report"] == "2 x" and found["dspark"]["known_by"] == "reports"
    assert found["eagle3"]["loses"] == "it was slower"
    assert found["fork"]["failed"]["name"] == "file"
    assert record["conclusion"].startswith("best: dflash.gguf, about ")


def test_a_broken_head_is_one_line(files: Files, tmp_path: Path) -> None:
    cut, empty = tmp_path / "cut.gguf", tmp_path / "empty.gguf"
    cut.write_bytes(files["eagle3"].read_bytes()[:2000])
    empty.touch()
    for path in (cut, empty):
        with pytest.raises(ModelLoadError) as raised:
            command_line(["pair", str(files["target"]), str(path)], standalone_mode=False)
        assert path.name in str(raised.value) and "\n" not in str(raised.value)


def test_heads_inside_are_a_drafter_of_the_file(asked: Ask, tmp_path: Path) -> None:
    whole = mtp.write_target(tmp_path / "whole-F32.gguf")
    code, record = asked(whole, whole)
    assert code == 0 and record["kind"] == "mtp" and record["fits"]
    [inside] = [each for each in asked(whole)[1]["candidates"] if each["kind"] == "mtp"]
    assert inside["name"] == "mtp in the target" and inside["fits"]
    # A draft reads the layer of the head, and the target's output matrix.
    facts = facts_of(whole)
    [output] = [each.size for each in facts.tensors if each.name == "output.weight"]
    last = (facts.number("block_count") or 0) - 1
    head = [each.size for each in facts.tensors if each.name.startswith(f"blk.{last}.")]
    assert speed_up.drafting_bytes(facts, facts, "mtp") == sum(head) + output
