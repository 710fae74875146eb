"""A build that crashes with extra buffer types is used without them afterwards."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.faulty_library import faulty_library
from fakes.tiny import write_tiny

from localspec.engine.engine import load
from localspec.errors import ModelLoadError
from localspec.llama import extra_buffers
from localspec.llama.dry_run import DryModel
from localspec.llama.library import captured_log
from localspec.llama.model import Model
from localspec.llama.model_params import model_params
from localspec.llama.placement import ON_PROCESSOR
from localspec.llama.sequence import KVSequence
from localspec.llama.smoke_test import run_smoke_test
from localspec.loading import calibration, load_check
from localspec.loading.config import RuntimeConfig
from localspec.loading.load_check import check_extra_buffers, loadable_header
from localspec.models import registry

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals")
WARNINGS = extra_buffers.warnings  # which other tests do without
PROMPT = "def fibonacci(n):"


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(extra_buffers, "_results", {})
    monkeypatch.setattr(extra_buffers, "warnings", WARNINGS)
    # Children are real ones, which get a faulty library.
    monkeypatch.setattr(load_check, "run_smoke_test", run_smoke_test)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The child processes started for checks: the file, and whether with extra buffers."""
    started: list[tuple[str, bool]] = []

    def counted(path: Path, *, extra_buffers: bool, **options: Any) -> Any:
        started.append((path.name, extra_buffers))
        return run_smoke_test(path, extra_buffers=extra_buffers, **options)

    monkeypatch.setattr(load_check, "run_smoke_test", counted)
    return started


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Give child processes a faulty library from now on."""

    def become(**options: bool) -> str:
        folder = faulty_library(tmp_path / "faulty", **options)
        monkeypatch.syspath_prepend(folder)
        return folder

    return become


def buffer_types(lines: list[str]) -> set[str]:
    """The buffer types of the loaded weights, from the log: CPU, CPU_Mapped, CPU_REPACK, AMX."""
    return {line.split()[1] for line in lines if "model buffer size" in line}


def test_no_extra_buffer_type_is_in_use_after_a_crash(faulty: Callable[..., str]) -> None:
    pair = registry.bundled()
    with captured_log() as lines, Model(pair.drafter, ON_PROCESSOR):
        usual = buffer_types(lines)
    faulty()
    with captured_log() as lines, load(gpu_layers=0) as engine:
        engine.generate(PROMPT, max_tokens=8, seed=1, depth=4)
        names = {engine.model.path, *engine.drafter_set.model_paths}
    assert names == {pair.target, pair.drafter}
    assert buffer_types(lines) <= {"CPU", "CPU_Mapped"}
    assert not model_params(ON_PROCESSOR).values.use_extra_bufts
    with captured_log() as lines, DryModel(pair.drafter, ON_PROCESSOR):
        assert buffer_types(lines) <= {"CPU", "CPU_Mapped"}
    if not usual - {"CPU", "CPU_Mapped"}:
        pytest.skip("this build has no extra buffer type for this processor")


def test_the_note_on_the_crash_says_what_it_costs_and_what_to_do(
    faulty: Callable[..., str],
) -> None:
    faulty()
    with load() as engine:
        [note] = [each for each in engine.notes if "llama.cpp" in each]
    assert "1.5 x" in note
    assert "localspec doctor" in note


def test_the_crash_is_noted_at_the_first_load_alone(
    faulty: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty()
    check_extra_buffers()  # as `pull` does, which loads nothing
    assert extra_buffers.notes() == extra_buffers.warnings() != ()
    assert extra_buffers.notes() == ()
    monkeypatch.setattr(extra_buffers, "_results", {})  # as in another process
    assert extra_buffers.notes() == ()
    assert extra_buffers.warnings()
    assert not extra_buffers.usable()


def test_a_healthy_library_is_tried_once(
    children: list[tuple[str, bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, drafter = registry.bundled()
    with load() as engine:
        if not extra_buffers.usable():
            pytest.skip("this build is not healthy")
        assert not engine.notes
    assert children == [(target.name, True)]
    loadable_header(drafter)
    monkeypatch.setattr(extra_buffers, "_results", {})  # as in another process
    loadable_header(target)
    loadable_header(write_tiny(tmp_path / "tiny.gguf", "llama"))
    assert children == [(target.name, True), ("tiny.gguf", False)]
    assert model_params(ON_PROCESSOR).values.use_extra_bufts


def test_the_bundled_model_is_tried_before_one_of_the_user(
    faulty: Callable[..., str], children: list[tuple[str, bool]], tmp_path: Path
) -> None:
    faulty()
    path = write_tiny(tmp_path / "tiny.gguf", "llama")
    loadable_header(path)
    assert children == [(registry.bundled().target.name, True), ("tiny.gguf", False)]
    assert not model_params(ON_PROCESSOR).values.use_extra_bufts


def test_a_library_that_crashes_anyway_is_refused(faulty: Callable[..., str]) -> None:
    faulty(always=True)
    for _ in range(2):
        with pytest.raises(ModelLoadError, match=r"SIGSEGV.*localspec doctor"):
            loadable_header(registry.bundled().target)
    loadable_header(registry.bundled().drafter)


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("llama.library.build_signature", ["another"]),
        ("utils.processor.processor_name", "another"),
        ("utils.processor.processor_features", {"AVX2"}),
    ],
)
def test_another_build_or_processor_is_tried_again(
    what: str,
    value: Any,
    faulty: Callable[..., str],
    children: list[tuple[str, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faulty()
    check_extra_buffers()
    monkeypatch.setattr(f"localspec.{what}", lambda: value)
    assert extra_buffers.usable()
    check_extra_buffers()
    assert len(children) == 2


def test_a_child_without_a_result_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "child"
    for script in ("echo begun; kill -KILL $$", "kill -SEGV $$", "echo begun; exit 5"):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(program))
        check_extra_buffers()
        assert extra_buffers.remembered() is None
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ModelLoadError, match="could be started"):
        loadable_header(registry.bundled().target)


def test_without_a_cache_the_result_holds_for_this_process(
    faulty: Callable[..., str], tmp_path: Path, children: list[tuple[str, bool]]
) -> None:
    (tmp_path / "home").touch()  # no folder can be made there
    faulty()
    check_extra_buffers()
    check_extra_buffers()
    assert not extra_buffers.usable()
    assert len(children) == 1


def test_costs_are_measured_again_after_a_crash(
    target_model: Model, make_context: Callable[..., KVSequence]
) -> None:
    runtime, path = RuntimeConfig(), target_model.path
    extra_buffers.remember(works=True)
    calibration.calibrate(make_context(target_model), {}, runtime)
    assert calibration.remembered(path, {}, runtime)
    extra_buffers.remember(works=False)
    assert calibration.remembered(path, {}, runtime) is None


def run(home: Path, folder: str, *arguments: str, text: str = "") -> Any:
    """Run localspec in a process that crashes if it uses extra buffers."""
    return subprocess.run(
        [sys.executable, "-m", "localspec", *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([folder, *sys.path]),
            "LOCALSPEC_HOME": str(home),
        },
    )


@pytest.mark.slow
def test_every_command_works_with_a_faulty_library(tmp_path: Path) -> None:
    folder, home = faulty_library(tmp_path / "faulty"), tmp_path / "home"
    generated = run(home, folder, "generate", PROMPT, "--seed", "6", "-n", "12", "--json")
    assert generated.returncode == 0, generated.stderr
    assert generated.stderr.count("localspec doctor") == 1
    assert len(json.loads(generated.stdout)["token_ids"]) == 12
    audited = run(home, folder, "audit", "-", text=generated.stdout)
    assert audited.returncode == 0, audited.stderr
    doctor = run(home, folder, "doctor", "--json")
    assert doctor.returncode == 0, doctor.stdout
    found = {each["topic"]: each for each in json.loads(doctor.stdout)["findings"]}
    assert found["trial"]["severity"] == "ok"
    assert found["llama.cpp"]["severity"] == "warning"
    assert "pip install" in found["llama.cpp"]["remedy"]
