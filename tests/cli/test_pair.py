"""`localspec pair` on vocabularies that agree and differ in every way, as files on disk."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakes.mamba import write_mamba
from fakes.vocabularies import words, write_model
from huggingface_hub import constants

import localspec
from localspec.cli.main import localspec as command_line
from localspec.control.acceptance import DraftCounts, Tally
from localspec.errors import (
    DrafterMismatchError,
    InvalidValueError,
    ModelLoadError,
    ModelNotFoundError,
)
from localspec.loading import acceptance_priors, learnt_rates
from localspec.models import speed_up
from localspec.models.registry import bundled
from localspec.utils.paths import config_folder

FITS, HARMLESS, UNFIT = "fits", "differs, harmless", "does not fit"
THROUGH_TEXT = "differs, through text"
THROUGH_TEXT_LINE = "different vocabulary: drafts go through text"
# The exit code and the record of a call.
Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No models but the bundled ones are known, and small targets are taken for large ones."""
    monkeypatch.setattr(speed_up, "_QUICK_BYTES", 0)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_model(tmp_path / "target.gguf", words(), layers=4)


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
        code = command_line(["pair", *map(str, arguments), "--json"], standalone_mode=False)
        return code, json.loads(capsys.readouterr().out)

    return ask


def check_of(record: dict[str, Any], name: str) -> tuple[str, str]:
    [found] = [each for each in record["checks"] if each["name"] == name]
    return found["verdict"], found["detail"]


def differing(record: dict[str, Any]) -> set[str]:
    return {each["name"] for each in record["checks"] if each["verdict"] != FITS}


class Case(NamedTuple):
    """What of the drafter is not as in the target; the check that says so, how, in which words."""

    name: str
    changes: dict[str, Any]
    check: str
    verdict: str
    said: str


# SentencePiece needs a token for every byte.
BYTES = {300 + byte: f"<0x{byte:02X}>" for byte in range(256)}
TEXTS, SIZE = "token texts", "vocabulary size"
CASES = [
    Case("equal", {}, TEXTS, FITS, "all 600 equal"),
    Case("padded by 64", {"count": 664}, SIZE, HARMLESS, "the drafter's last 64 are"),
    Case("padded by 128", {"count": 728}, SIZE, HARMLESS, "the drafter's last 128 are"),
    Case("padded by 129", {"count": 729}, SIZE, THROUGH_TEXT, "differs by more than 128"),
    Case("shorter by 64", {"count": 536}, SIZE, HARMLESS, "the target's last 64 are"),
    Case(
        "the first that is compared",
        {"changed": {5: "x"}},
        TEXTS,
        THROUGH_TEXT,
        "vocabulary differs at token 5: target 'w5', drafter 'x'",
    ),
    Case(
        "three, and padded",
        {"count": 610, "changed": {300: "x", 301: "y", 599: "z"}},
        TEXTS,
        THROUGH_TEXT,
        "at token 300: target 'w300', drafter 'x' (and at 2 more)",
    ),
    Case(
        "below the fifth only",
        {"changed": {1: "x", 4: "y"}},
        TEXTS,
        HARMLESS,
        "differs at token 1: target 'w1', drafter 'x' (and at 1 more); the first 5 may",
    ),
    Case(
        "beyond the shorter one's end",
        {"count": 620, "changed": {610: "x"}},
        TEXTS,
        FITS,
        "all 600 equal",
    ),
    Case(
        "type",
        {"tokenizer": "llama", "changed": BYTES},
        "vocabulary type",
        THROUGH_TEXT,
        "target 2, drafter 1",
    ),
    Case("type that changes texts", {"tokenizer": "t5"}, "vocabulary type", UNFIT, "drafter 4"),
    Case("BOS, never added", {"ggml__bos_token_id": 7}, "BOS", HARMLESS, "target 11, drafter 7"),
    Case("EOS, never added", {"ggml__eos_token_id": 7}, "EOS", HARMLESS, "target 11, drafter 7"),
    Case(
        "BOS added",
        {"ggml__add_bos_token": True},
        "BOS",
        THROUGH_TEXT,
        "target False, drafter True",
    ),
    Case(
        "EOS added",
        {"ggml__add_eos_token": True},
        "EOS",
        THROUGH_TEXT,
        "target False, drafter True",
    ),
    Case("template", {"chat_template": "{{ 1 }}"}, "chat template", HARMLESS, "the target's is"),
    Case(
        "end of turn",
        {"ggml__eot_token_id": 9},
        "special tokens",
        HARMLESS,
        "EOT (target none, drafter 9); the target's count",
    ),
    Case("context", {"context": 256}, "context", HARMLESS, "the drafter was made for 256"),
    Case("larger", {"layers": 8}, "size", HARMLESS, "nothing to gain"),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_differs_is_told(case: Case, target: Path, tmp_path: Path, asked: Ask) -> None:
    keys = {"layers": 1, **case.changes}
    tokens = words(keys.pop("count", 600), keys.pop("changed", {}))
    drafter = write_model(tmp_path / "drafter.gguf", tokens, **keys)
    code, record = asked(target, drafter)
    verdict, detail = check_of(record, case.check)
    assert verdict == case.verdict
    assert case.said in detail
    fits = verdict != UNFIT
    assert (code, record["fits"]) == (0 if fits else 6, fits)
    assert (detail in record["conclusion"]) is not fits
    through_text = verdict == THROUGH_TEXT
    assert (THROUGH_TEXT_LINE in record["conclusion"]) is through_text
    assert record["kind"] == ("draft-model through text" if through_text else "draft-model")


@pytest.mark.parametrize("which", ["bos", "eos"])
def test_another_token_that_is_added_goes_through_text(
    which: str, tmp_path: Path, asked: Ask
) -> None:
    target, drafter = (
        write_model(
            tmp_path / f"{token}.gguf",
            words(),
            layers=layers,
            **{f"ggml__add_{which}_token": True, f"ggml__{which}_token_id": token},
        )
        for token, layers in [(1, 4), (3, 1)]
    )
    code, record = asked(target, drafter)
    assert code == 0
    said = f"{which.upper()} differs: target 1, drafter 3"
    assert check_of(record, which.upper()) == (THROUGH_TEXT, said)


def test_equal_models_differ_in_nothing(target: Path, tmp_path: Path, asked: Ask) -> None:
    drafter = write_model(tmp_path / "drafter.gguf", words(), layers=1)
    _, record = asked(target, drafter)
    assert differing(record) == set()
    gain = record["gain"]
    assert 1 < gain["low"] < gain["high"] and gain["rate"] is None


def test_the_first_check_that_fails_is_the_conclusion(
    target: Path, tmp_path: Path, asked: Ask
) -> None:
    tokens = words(800, {77: "x"})
    drafter = write_model(tmp_path / "drafter.gguf", tokens, tokenizer="t5")
    _, record = asked(target, drafter)
    assert differing(record) >= {"vocabulary type", "vocabulary size", "token texts"}
    assert "vocabulary type differs" in record["conclusion"]
    assert record["gain"] is None


def test_what_a_drafter_of_another_vocabulary_may_gain(
    target: Path, tmp_path: Path, asked: Ask
) -> None:
    """Less than one of the same vocabulary: it is suggested behind that one."""
    other = write_model(tmp_path / "other.gguf", words(700, {9: "x"}), layers=1)
    same = write_model(tmp_path / "same.gguf", words(), layers=1)
    gains = [asked(target, each)[1]["gain"] for each in (other, same)]
    assert 1 < gains[0]["high"] < gains[1]["high"]
    add_pair("mine", target, other)
    assert THROUGH_TEXT_LINE in asked(target)[1]["conclusion"]


def test_the_same_file_gains_nothing(target: Path, asked: Ask) -> None:
    code, record = asked(target, target)
    assert code == 0 and differing(record) == {"size"}
    assert "gains nothing" in record["conclusion"]


def test_a_running_state_is_no_reason_against(
    target_path: Path, tmp_path: Path, asked: Ask
) -> None:
    recurrent = write_mamba(tmp_path / "mamba.gguf", target_path)
    code, record = asked(target_path, recurrent)
    assert code == 0 and "rollback" in differing(record)
    code, record = asked(recurrent)
    assert code == 0 and record["conclusion"].startswith("n-gram only")


@pytest.mark.slow
def test_a_context_memory_cannot_hold(target: Path, tmp_path: Path, asked: Ask) -> None:
    drafter = write_model(tmp_path / "drafter.gguf", words(), layers=1)
    code, record = asked(target, drafter, "--ctx", "2000000000")
    assert code == 6 and check_of(record, "memory")[0] == UNFIT
    assert "give a smaller --ctx" in record["conclusion"]


# Without a drafter.


def test_candidates_come_the_most_promising_first(
    tmp_path: Path,
    asked: Ask,
) -> None:
    other = write_model(tmp_path / "other.gguf", words(), layers=1)
    target, drafter = bundled()
    add_pair("terminal-7b", target, other)
    code, record = asked("terminal")
    assert code == 0
    assert [(each["file"], each["fits"]) for each in record["candidates"]] == [
        (str(drafter), True),
        (str(other), True),
    ]
    kinds = [each["kind"] for each in record["candidates"]]
    assert kinds == ["draft-model", "draft-model through text"]
    assert record["conclusion"].startswith(f"best: {drafter.stem}, about ")


def test_what_is_known_and_not_here_is_listed(target: Path, asked: Ask) -> None:
    add_pair("mine", target, "someone/tiny-GGUF:Q8_0")
    code, record = asked(target)
    assert code == 0 and record["not_downloaded"] == "someone/tiny-GGUF:Q8_0"
    assert "localspec pull someone/tiny-GGUF:Q8_0" in record["conclusion"]


def test_a_model_is_known_by_its_name(target: Path, asked: Ask) -> None:
    found = shutil.copy(target, target.with_name("Qwen3-8B-IQ3_S.gguf"))
    assert asked(found)[1]["not_downloaded"] == "Qwen/Qwen3-0.6B-GGUF:Q8_0"
    unlike = shutil.copy(target, target.with_name("Qwen3-8Bx-IQ3_S.gguf"))
    assert asked(unlike)[1]["not_downloaded"] is None


def test_why_no_model_drafts(target: Path, asked: Ask) -> None:
    said = asked(target)[1]["conclusion"]
    assert said.startswith("n-gram only, because no smaller model on this machine has the")
    assert "about 600 BPE tokens" in said
    found = shutil.copy(target, target.with_name("phi-4-Q8_0.gguf"))
    said = asked(found)[1]["conclusion"]
    assert said.startswith("n-gram only, because its vocabulary has 100,352 tokens")


def test_a_drafter_that_is_known_to_lose_is_no_answer(target: Path, asked: Ask) -> None:
    found = shutil.copy(target, target.with_name("gpt-oss-20b-mxfp4.gguf"))
    record = asked(found)[1]
    [head] = record["missing"]
    assert head["kind"] == "eagle3" and "0.82 x on an integrated GPU" in head["objection"]
    assert record["conclusion"] == f"n-gram only, because {head['objection']}"


def test_a_target_that_is_too_quick_gains_nothing(
    asked: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table and the conclusion say the same."""
    monkeypatch.setattr(speed_up, "_QUICK_BYTES", 32e6)
    shown = asked("terminal", bundled().drafter)[1]["conclusion"]
    assert "fits terminal, but gains nothing: the target is so small that" in shown
    record = asked("terminal")[1]
    assert record["conclusion"].startswith("no drafter pays: the target is so small that")
    assert [each["fits"] for each in record["candidates"]] == [True]


def test_drafters_that_fit_and_gain_nothing(asked: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_up, "usual_rates", lambda _kind: (0.01, 0.02))
    record = asked("terminal")[1]
    assert [each["fits"] for each in record["candidates"]] == [True]
    assert "the drafts of the models that fit cost more than they save" in record["conclusion"]


def test_suggestions_are_named_without_their_folders(capsys: pytest.CaptureFixture[str]) -> None:
    command_line(["pair", "terminal"], standalone_mode=False)
    rows, conclusion = capsys.readouterr().out.split("\n\n")
    name = bundled().drafter.stem
    assert rows.splitlines()[1].startswith(f"{name} ")
    assert conclusion.startswith(f"best: {name}, about ")


def test_what_was_measured_is_taken(asked: Ask) -> None:
    target, drafter = bundled()
    files = target, [drafter]
    rates = {drafter.stem: 0.5, "suffix": 0.9}
    best = acceptance_priors.BestSetting("suffix", "coupled", None, 1.5)
    acceptance_priors.store(*files, acceptance_priors.stored_forecast(*files, 0.2, rates, best))
    _, record = asked("terminal", drafter)
    gain = record["gain"]
    assert gain["rate"] == 0.5 and gain["timed"] is False
    assert gain["low"] == gain["high"]
    assert "from sizes; 50% of its tokens were right" in record["conclusion"]
    learnt_rates.add(target, drafter, "coupled", 0.2, DraftCounts(Tally(30, 40)))
    _, record = asked("terminal", drafter)
    assert record["gain"]["rate"] == 0.75
    assert "75% of its tokens were right for earlier texts" in record["conclusion"]


def test_times_that_were_measured_are_taken(asked: Ask) -> None:
    drafter = bundled().drafter
    assumed = asked("terminal", drafter)[1]["gain"]
    with localspec.load() as engine:  # which measures them
        engine.generate("def f", max_tokens=1)
    _, record = asked("terminal", drafter)
    gain = record["gain"]
    assert gain["timed"] and not assumed["timed"] and gain["high"] != assumed["high"]
    if "gains nothing" not in record["conclusion"]:
        assert "times measured here" in record["conclusion"]


def add_pair(name: str, target: Path, drafter: str | Path) -> None:
    config_folder().mkdir(parents=True, exist_ok=True)
    text = f'[pairs.{name}]\ntarget = "{target}"\ndrafter = "{drafter}"\n'
    (config_folder() / "models.toml").write_text(text)


# For people, and errors.


def test_a_table_and_a_conclusion(capsys: pytest.CaptureFixture[str]) -> None:
    drafter = bundled().drafter
    assert command_line(["pair", "terminal", str(drafter)], standalone_mode=False) == 0
    rows, conclusion = capsys.readouterr().out.split("\n\n")
    lines = rows.splitlines()
    assert lines[0].split() == ["check", "verdict", "detail"]
    assert len(lines) == 12 and all(" fits " in line for line in lines[1:])
    assert conclusion.startswith(f"{drafter} fits terminal, about ")
    assert conclusion.count("\n") == 1


def test_a_name_of_the_target_is_refused_as_by_generate() -> None:
    with pytest.raises(DrafterMismatchError, match="terminal is the target, which cannot speed"):
        command_line(["pair", "terminal", "terminal"], standalone_mode=False)


def test_names_that_are_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="did you mean terminal"):
        command_line(["pair", "terminals"], standalone_mode=False)
    with pytest.raises(ModelNotFoundError, match="there is no model file"):
        command_line(["pair", "terminal", str(tmp_path / "none.gguf")], standalone_mode=False)
    with pytest.raises(InvalidValueError, match="context is 1"):
        command_line(["pair", "terminal", "--ctx", "1"], standalone_mode=False)
    text = tmp_path / "text.gguf"
    text.write_text("no model")
    with pytest.raises(ModelLoadError, match="is not a GGUF file"):
        command_line(["pair", "terminal", str(text)], standalone_mode=False)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("qwen3-14b", "its drafters are draft-model Qwen/Qwen3-0.6B-GGUF:Q8_0"),
        ("Qwen/Qwen3-8B-GGUF:Q8_0", "draft-model Qwen/Qwen3-0.6B-GGUF:Q8_0, dflash AtomicChat/"),
        ("qwen3.5-9b", "its drafters are mtp in the target, dflash onion515/Qwen3.5-9B-DFlash"),
        ("phi4", "no model drafts for it: its vocabulary has 100,352 tokens"),
    ],
)
def test_a_pair_that_was_not_downloaded_is_known_all_the_same(name: str, known: str) -> None:
    with pytest.raises(ModelNotFoundError) as raised:
        command_line(["pair", name], standalone_mode=False)
    assert f"localspec pull {name}" in str(raised.value)
    assert known in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "code", "lines"),
    [
        (["terminal", "terminal-5m-q4_0"], 0, 0),
        (["terminal", "terminal"], 6, 1),
        (["terminal", "other.gguf"], 6, 0),
        (["nope"], 3, 1),
        (["text.gguf"], 5, 1),
    ],
)
def test_exit_codes(arguments: list[str], code: int, lines: int, tmp_path: Path) -> None:
    write_model(tmp_path / "other.gguf", words(), layers=1, tokenizer="t5")
    (tmp_path / "text.gguf").write_text("no model")
    done = subprocess.run(
        [sys.executable, "-m", "localspec", "pair", *arguments],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == lines
