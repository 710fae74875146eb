"""What doctor finds, from facts: about builds, GPUs, containers, folders and the Hub."""

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.doctor import library_probe, probe
from localspec.doctor.finding import Finding, Severity, error, exit_code_of, note, ok
from localspec.doctor.folders import folder_finding, localspec_folders
from localspec.doctor.gpus import Gpu, gpus, in_registry
from localspec.doctor.hub_findings import hub_findings
from localspec.doctor.library_findings import library_findings
from localspec.doctor.machine import memory, threads
from localspec.doctor.probe import Probe, ProbeResult
from localspec.doctor.versions import rebuild, requirement, within
from localspec.engine import engine
from localspec.engine.engine import Engine
from localspec.errors import InvalidValueError
from localspec.llama import library
from localspec.llama.devices import cpu_features, devices
from localspec.utils.cgroups import processor_limit
from localspec.utils.installer import installer
from localspec.utils.processor import processor_features
from localspec.utils.shell import command_line

NVIDIA = Gpu("an NVIDIA GPU", "-DGGML_CUDA=on")
INTEL = Gpu("an Intel GPU", "-DGGML_VULKAN=on", modest=True)
CUDA0 = {"name": "CUDA0", "description": "H200", "kind": "gpu", "free": 10**10, "total": 2 * 10**10}
CPU = {"name": "CPU", "description": "EPYC", "kind": "cpu", "free": 10**10, "total": 10**10}
PAIR = {"tokens": 16, "same": True, "accepted": 9, "tokens_per_second": 700.0}


def of(topic: str, found: list[Finding]) -> Finding:
    return next(each for each in found if each.topic == topic)


def built(**facts: Any) -> ProbeResult:
    usual = {"cpu_features": ["AVX2"], "gpu_backends": [], "devices": [CPU], "missing": {}}
    return ProbeResult({"library": {**usual, **facts}, "pair": PAIR})


# Versions.


@pytest.mark.parametrize(
    ("version", "inside"),
    [
        ("0.3.36", True),
        ("0.3.35", False),
        ("0.3.100", True),
        ("0.3.36.post1", True),
        ("0.3.40+cu124", True),
        ("0.4", False),
        ("0.4.0", False),
        ("1.0.0rc1", False),
    ],
)
def test_the_range_of_versions(version: str, inside: bool) -> None:
    assert within(version, "llama-cpp-python<0.4,>=0.3.36") is inside


def test_the_range_is_that_of_the_package() -> None:
    assert requirement().startswith("llama-cpp-python")
    assert within(library.version(), requirement())
    assert not within("0.0.1", requirement())


@pytest.mark.parametrize(
    ("marker", "command"),
    [
        ("uv-receipt.toml", "uv pip install --python {folder} --force-reinstall"),
        ("pipx_metadata.json", "pipx runpip {folder.name} install --force-reinstall"),
        ("pyvenv.cfg", f"{command_line([sys.executable])} -m pip install --force-reinstall"),
    ],
)
def test_a_remedy_is_for_the_tool_that_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str, command: str
) -> None:
    (tmp_path / marker).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert rebuild().startswith(command.format(folder=tmp_path))


def test_where_the_environment_is_activated_a_remedy_names_pip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin"]))
    assert rebuild().startswith("pip install --force-reinstall")


# The library itself.


def test_this_build_uses_what_this_processor_has() -> None:
    compiled = cpu_features()
    assert compiled
    assert " " not in "".join(compiled)


def test_the_processor_is_a_device() -> None:
    device = next(device for device in devices() if device.kind == "cpu")
    assert device.name and device.total >= device.free > 0


def test_symbols_that_are_there_and_that_are_not() -> None:
    assert library.symbol("llama_n_rs_seq", None) is not None
    assert library.symbol("llama_no_such_function", None) is None
    assert all(names for names in library.missing_functions().values())


# The build.


def test_a_build_that_does_not_use_the_processor() -> None:
    found = of("processor", library_findings(built(), {"AVX2", "AVX512"}, []))
    assert found.severity is Severity.WARNING
    assert "AVX512" in found.text and "AVX2" not in found.text
    assert found.remedy is not None
    assert found.remedy.startswith(f'CMAKE_ARGS="-DGGML_NATIVE=on" {installer()}')
    assert requirement() in found.remedy


def test_a_build_that_does() -> None:
    assert of("processor", library_findings(built(), {"AVX2"}, [])).severity is Severity.OK


@pytest.mark.parametrize(
    ("backends", "devices", "present", "severity", "remedy"),
    [
        ([], [CPU], [], Severity.OK, None),
        ([], [CPU], [NVIDIA], Severity.WARNING, 'CMAKE_ARGS="-DGGML_CUDA=on"'),
        ([], [CPU], [INTEL], Severity.NOTE, 'CMAKE_ARGS="-DGGML_VULKAN=on"'),
        (["cuda"], [CPU], [NVIDIA], Severity.WARNING, "driver"),
        (["vulkan"], [CPU], [], Severity.NOTE, None),
        (["cuda"], [CUDA0, CPU], [NVIDIA], Severity.OK, None),
    ],
)
def test_gpus_and_builds(
    backends: list[str],
    devices: list[dict[str, Any]],
    present: list[Gpu],
    severity: Severity,
    remedy: str | None,
) -> None:
    found = of("gpu", library_findings(built(gpu_backends=backends, devices=devices), [], present))
    assert found.severity is severity
    assert (CUDA0 in devices) or all(backend in found.text for backend in backends)
    assert (found.remedy is None) == (remedy is None)
    assert (remedy or "") in (found.remedy or "")


def test_a_device_is_named_with_its_memory() -> None:
    found = of("gpu", library_findings(built(gpu_backends=["cuda"], devices=[CUDA0]), [], []))
    assert found.text == "CUDA0 (H200), 10.00 GB of 20.00 GB free"


def test_symbols_that_are_missing_are_a_note() -> None:
    found = of("llama.cpp", library_findings(built(missing={"flying": ["llama_fly"]}), [], []))
    assert found.severity is Severity.NOTE
    assert "flying" in found.text and "llama_fly" in found.text


def test_a_library_that_cannot_be_loaded() -> None:
    found = library_findings(ProbeResult({}, "it was ended by signal 4"), [], [])
    assert [each.severity for each in found] == [Severity.ERROR]
    assert "signal 4" in found[0].text
    assert exit_code_of(found) == 5


def test_a_pair_that_does_not_run() -> None:
    probed = ProbeResult({"library": built().facts["library"]}, "it ended with 1: no memory")
    found = of("trial", library_findings(probed, [], []))
    assert (found.severity, found.exit_code) == (Severity.ERROR, 5)
    assert "no memory" in found.text
    assert "LOCALSPEC_DEBUG" in (found.remedy or "")
    crash = ProbeResult(probed.facts, "it was ended by signal 4", crashed=True)
    crashed = library_findings(crash, [], [])
    assert "GGML_NATIVE" in (of("trial", crashed).remedy or "")
    library = {**probed.facts["library"], "cpu_features": ["AVX512", "AMX_INT8"]}
    crashed = library_findings(
        ProbeResult({"library": library}, "it was ended by signal 11", crashed=True), [], []
    )
    assert "-mno-amx-tile" in (of("trial", crashed).remedy or "")


def test_a_pair_that_does_not_come_to_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "endless_child.py").write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(probe, "_SECONDS", 0)
    with Probe("endless_child") as endless:
        result = endless.result()
    assert result.timed_out and not result.crashed
    result = replace(result, facts={"library": built().facts["library"]})
    found = of("trial", library_findings(result, [], []))
    assert found.severity is Severity.ERROR
    assert "once more" in (found.remedy or "")


def test_a_backend_without_a_driver_is_found_by_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("llama", "ggml", "ggml-base", "ggml-cpu", "ggml-vulkan", "ggml-cpu-haswell"):
        (tmp_path / f"lib{name}.so").touch()
    bound = SimpleNamespace(_name=str(tmp_path / "libllama.so"))
    monkeypatch.setattr(library, "_bound_library", lambda: bound)
    assert library.gpu_backends() == ["vulkan"]


@pytest.mark.parametrize(
    ("here", "remedy"), [([], ""), ([Gpu("an AMD GPU", "-DGGML_VULKAN=on")], "-DGGML_VULKAN=on")]
)
def test_a_gpu_that_is_not_used(here: list[Gpu], remedy: str) -> None:
    unfit = {"Vulkan0": "it computes other numbers than the processor (correlation 0.01)"}
    facts = {**built().facts, "unfit_gpus": unfit}
    found = library_findings(ProbeResult(facts), [], here)
    warned = next(each for each in found if "Vulkan0" in each.text)
    assert warned.severity is Severity.WARNING
    assert warned.text == f"Vulkan0 is not used: {unfit['Vulkan0']}"
    assert "driver" in (warned.remedy or "") and remedy in (warned.remedy or "")
    assert of("trial", found).severity is Severity.OK


def test_a_device_without_equal_digits() -> None:
    """Drafts may change the text there, which is no bug."""
    why = "reproducible is not possible for x.gguf here: do without"
    pair = {**PAIR, "same": False, "not_reproducible": why}
    found = library_findings(ProbeResult({**built().facts, "pair": pair}), [], [])
    trial, said = [each for each in found if each.topic == "trial"]
    assert trial.severity is Severity.OK and trial.text.startswith("the bundled pair runs (9 ")
    assert (said.severity, said.text) == (Severity.NOTE, why)


@pytest.mark.parametrize("possible", [True, False])
def test_the_pair_is_tried_without_equal_digits_where_there_are_none(
    monkeypatch: pytest.MonkeyPatch, possible: bool
) -> None:
    asked: list[bool] = []

    usual = engine.load

    def load(*models: Any, reproducible: bool, **options: Any) -> Engine:
        asked.append(reproducible)
        if reproducible and not possible:
            raise InvalidValueError("reproducible is not possible here")
        return usual(*models, reproducible=reproducible, **options)

    monkeypatch.setattr(engine, "load", load)
    facts = library_probe.pair_facts()
    assert asked == ([True, True] if possible else [True, False, False])
    assert facts["not_reproducible"] == (None if possible else "reproducible is not possible here")
    assert facts["tokens"] == 16
    if possible:
        assert facts["same"]


@pytest.mark.parametrize(
    ("compiled", "remedy"),
    [(["AVX512", "AMX_INT8"], "-mno-amx-tile"), (["AVX2"], "-DGGML_NATIVE=on")],
)
def test_a_build_that_is_used_without_extra_buffers(compiled: list[str], remedy: str) -> None:
    facts = {
        **built(cpu_features=compiled).facts,
        "pair": {**PAIR, "without_extra_buffers": "it is slow"},
    }
    found = library_findings(ProbeResult(facts), [], [])
    warned = of("llama.cpp", found)
    assert warned.severity is Severity.WARNING
    assert "it is slow" in warned.text
    assert remedy in (warned.remedy or "")
    assert of("trial", found).severity is Severity.OK


def test_a_build_without_amx_only() -> None:
    found = of("processor", library_findings(built(), {"AVX2", "AMX_INT8"}, []))
    assert found.severity is Severity.NOTE
    assert "GCC 13" in (found.remedy or "")


def test_a_text_that_drafts_change() -> None:
    probed = ProbeResult({**built().facts, "pair": {**PAIR, "same": False}})
    assert of("trial", library_findings(probed, [], [])).exit_code == 7


def test_the_first_error_decides() -> None:
    found = [ok("a", ""), note("b", ""), error("c", "", "", 5), error("d", "", "", 7)]
    assert exit_code_of(found) == 5
    assert exit_code_of(found[:2]) == 0


# The machine.


@pytest.mark.parametrize(
    ("file", "content", "name"),
    [
        ("dev/nvidia0", "", "an NVIDIA GPU"),
        ("sys/class/drm/renderD128/device/vendor", "0x10de\n", "an NVIDIA GPU"),
        ("sys/class/drm/renderD128/device/vendor", "0x1002\n", "an AMD GPU"),
        ("sys/class/drm/renderD128/device/vendor", "0x8086\n", "an Intel GPU"),
        ("sys/class/drm/renderD128/device/vendor", "0x1af4\n", None),
        ("dev/nvidiactl", "", None),
    ],
)
def test_gpus_by_their_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, content: str, name: str | None
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    assert [gpu.name for gpu in gpus(tmp_path)] == ([name] if name else [])


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for the tool")
@pytest.mark.parametrize(
    ("script", "found"),
    [("echo 'GPU 0: NVIDIA H200'", True), ("echo no driver >&2; exit 9", False)],
)
def test_gpus_by_nvidias_tool(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, found: bool
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (NVIDIA in gpus(tmp_path)) is found


def test_the_useful_gpu_comes_first(tmp_path: Path) -> None:
    for number, vendor in ((128, "0x8086"), (129, "0x1002")):
        file = tmp_path / f"sys/class/drm/renderD{number}/device/vendor"
        file.parent.mkdir(parents=True)
        file.write_text(vendor)
    assert [gpu.modest for gpu in gpus(tmp_path)][-2:] == [False, True]


class Registry:
    """Windows' registry, as far as it is read: display adapters by their numbers."""

    HKEY_LOCAL_MACHINE = "HKLM"

    def __init__(self, adapters: dict[str, str | None]) -> None:
        self._adapters = adapters

    def OpenKey(self, key: str, name: str) -> Any:
        if key == self.HKEY_LOCAL_MACHINE:
            assert name.startswith("SYSTEM\\CurrentControlSet\\Control\\Class\\{4d36e968")
            if not self._adapters:
                raise FileNotFoundError(name)
            return nullcontext("adapters")
        if self._adapters[name] is None:
            raise PermissionError(name)
        return nullcontext(self._adapters[name])

    def QueryInfoKey(self, _key: str) -> tuple[int, int, int]:
        return len(self._adapters), 0, 0

    def EnumKey(self, _key: str, number: int) -> str:
        return [*self._adapters][number]

    def QueryValueEx(self, key: str, name: str) -> tuple[str, int]:
        assert name == "MatchingDeviceId"
        if not key:
            raise FileNotFoundError(name)
        return key, 1


@pytest.mark.parametrize(
    ("adapters", "names"),
    [
        ({"0000": r"PCI\VEN_8086&DEV_9A49", "0001": r"pci\ven_10de&dev_25a2"}, ["Intel", "NVIDIA"]),
        ({"0000": r"ROOT\BasicDisplay", "Properties": None, "0001": r"PCI\VEN_1002&X"}, ["AMD"]),
        ({"0000": "", "0001": r"PCI\VEN_15AD&DEV_0405"}, []),
        ({}, []),
    ],
)
def test_gpus_in_the_registry_of_windows(adapters: dict[str, str | None], names: list[str]) -> None:
    found = in_registry(Registry(adapters))
    assert [gpu.name.split()[1] for gpu in found] == names


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such file")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("flags\t\t: fpu avx avx2 avx512f", {"AVX", "AVX2", "AVX512"}),
        ("Features\t: fp asimd asimddp", {"NEON", "DOTPROD"}),
        ("model name\t: nothing said", set()),
    ],
)
def test_what_a_processor_can(tmp_path: Path, line: str, found: set[str]) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\n{line}\n")
    assert processor_features(file) == found
    assert processor_features(tmp_path / "none") == frozenset()


def container(root: Path, **files: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("1:cpu:/\n0::/a/b\n")
    for where, text in files.items():
        level, _, name = where.partition("__")
        file = root / "sys/fs/cgroup" / {"top": ".", "a": "a", "b": "a/b"}[level] / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_the_tightest_limit_on_time_counts(tmp_path: Path) -> None:
    files = {
        "b__cpu.max": "400000 100000\n",
        "a__cpu.max": "150000 100000\n",
        "top__cpu.max": "max",
    }
    assert processor_limit(container(tmp_path, **files)) == 1.5


def test_no_limits(tmp_path: Path) -> None:
    assert processor_limit(tmp_path) is None
    assert processor_limit(container(tmp_path, **{"b__cpu.max": "max 100000"})) is None


def test_little_memory() -> None:
    assert memory(10**9).severity is Severity.WARNING
    assert memory(10**11).severity is Severity.OK
    assert "can be had" in memory(None).text


def test_threads_in_a_container() -> None:
    found = threads(8, 2.5)
    assert (found.severity, found.remedy) == (Severity.NOTE, "--threads 2")
    assert threads(8, 8.0).severity is Severity.OK
    assert threads(8, None).severity is Severity.OK
    assert threads(None, 0.5).severity is Severity.OK


# Folders.


def test_a_folder_that_is_to_be_made(tmp_path: Path) -> None:
    assert folder_finding("cache", tmp_path / "not" / "yet", "HERE").severity is Severity.OK


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = folder_finding("cache", tmp_path / "file" / "folder", "HERE")
    assert found.severity is Severity.WARNING
    assert "HERE" in (found.remedy or "")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a full disk nobody can write to")
def test_a_disk_that_is_full() -> None:
    found = folder_finding("cache", Path("/proc/localspec"), "HERE")
    assert found.severity is Severity.WARNING
    assert "/proc/localspec" in found.text


def test_every_folder_of_our_own_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "data").touch()
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    found = localspec_folders()
    assert [of(each, found).severity for each in ("config", "data", "cache")] == [
        Severity.OK,
        Severity.WARNING,
        Severity.OK,
    ]


def test_pairs_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    assert of("pairs", localspec_folders()).severity is Severity.OK
    (tmp_path / "models.toml").write_text("[pairs.x]\ntarget = 1\n")
    found = of("pairs", localspec_folders())
    assert (found.severity, found.exit_code) == (Severity.ERROR, 2)
    assert str(tmp_path / "models.toml") in found.text


# The Hub.


def settings(tmp_path: Path, **more: Any) -> ProbeResult:
    known = {"version": "2.0", "cache": str(tmp_path), "token_file": None, "offline": None}
    return ProbeResult({"hub": {**known, **more}, "interrupted": []})


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_a_token_is_told_by_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "none" in of("hub token", hub_findings(settings(tmp_path))).text
    assert (
        "/t/token" in of("hub token", hub_findings(settings(tmp_path, token_file="/t/token"))).text
    )
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    found = hub_findings(settings(tmp_path))
    assert of("hub token", found).text.endswith("from HF_TOKEN")
    assert "secret" not in repr(found)


def test_an_endpoint_without_what_may_be_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://me:secret@hub.example/mirror?key=secret")
    found = hub_findings(settings(tmp_path))
    assert any("hub.example/mirror" in each.text for each in found)
    assert "secret" not in repr(found)


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_is_a_note(tmp_path: Path, name: str) -> None:
    found = hub_findings(settings(tmp_path, offline=name))
    assert any(each.remedy == f"unset {name}" for each in found)


def test_interrupted_downloads(tmp_path: Path) -> None:
    parts = [
        {"model": "user/repo:Q8_0", "bytes": 3 * 10**9, "resumable": True},
        {"model": "user/other", "bytes": 5 * 10**6, "resumable": False},
    ]
    found = hub_findings(ProbeResult({**settings(tmp_path).facts, "interrupted": parts}))
    told = [each for each in found if each.topic == "downloads"]
    assert [each.severity for each in told] == [Severity.NOTE, Severity.NOTE]
    assert [each.remedy for each in told] == [
        "localspec pull user/repo:Q8_0",
        "localspec rm user/other",
    ]
    assert "3.00 GB" in told[0].text and "5.0 MB" in told[1].text


def test_without_huggingface_hub() -> None:
    found = hub_findings(ProbeResult({}, "it ended with 1: ModuleNotFoundError"))
    assert [each.severity for each in found] == [Severity.ERROR]
    assert exit_code_of(found) == 1


# Children.


@pytest.mark.parametrize(
    ("ending", "failure"),
    [
        ("", None),
        ("raise SystemExit('no more')", "it ended with 1: no more"),
        ("import os; os.abort()", "it was ended by signal 6"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to tell")
def test_what_a_child_told_before_it_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: str, failure: str | None
) -> None:
    code = (
        f"from localspec.doctor.probe import report_facts\nreport_facts('first', [1])\n{ending}\n"
    )
    (tmp_path / "child_of_test.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    with Probe("child_of_test") as child:
        crashed = "signal" in (failure or "")
        assert child.result() == ProbeResult({"first": [1]}, failure, crashed)
