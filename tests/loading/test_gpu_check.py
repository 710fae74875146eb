"""GPU check: GPUs are tried out once; those that do not work are not used, and it is said."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.pycode import PYCODE
from fakes.workers import real_worker, require_rpc

import localspec
from localspec.errors import ExactnessError, ModelLoadError
from localspec.llama import devices, gpu_trial, library, unfit_gpus
from localspec.llama.devices import Device, computes_on_gpu, usual_gpus
from localspec.llama.gpu_trial import least_correlation, run_gpu_trial
from localspec.llama.model_params import model_params
from localspec.llama.placement import DEFAULT, Placement
from localspec.loading import fingerprints, gpu_check
from localspec.loading.config import RuntimeConfig
from localspec.loading.gpu_check import check_gpus
from localspec.utils.child_process import ChildExit

GPUS = [
    Device("CUDA0", "a GPU", "gpu", 8, 8),
    Device("Vulkan0", "another", "gpu", 8, 8),
    Device("Vulkan1", "in the processor", "integrated gpu", 8, 8),
    Device("CPU", "a CPU", "cpu", 8, 8),
]
WORKS = ChildExit(0, "beguncomputedright", "")
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"
ENDS = ChildExit(-6, "begun", f"{NO_KERNEL}\n  in function x\n/src/ggml-cuda.cu:98: CUDA error\n")
WRONG = ChildExit(7, "beguncomputed", "it computes other numbers (0.01)")
SLOW = ChildExit(-9, "begun", "", timed_out=True)
# Wide passes have kernels of their own, which take long to compile.
ALL_BUT_WIDE = ChildExit(-9, "begunwide", "", timed_out=True)
FULL = ChildExit(5, "begun", "alloc_tensor_range: failed to allocate CUDA0 buffer of size 9")
Trials = Callable[..., list[str]]


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Trials:
    """Set how trials end, by device; returns the list of those that were tried out."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(unfit_gpus, "_reasons", {})
    monkeypatch.setattr(gpu_check, "_tried", set())
    for module in (devices, gpu_check, fingerprints):
        monkeypatch.setattr(module, "devices", lambda: GPUS)

    def prepare(**ends: ChildExit) -> list[str]:
        seen: list[str] = []

        def run(path: Path, device: str, **_options: Any) -> ChildExit:
            assert path.is_file()
            seen.append(device)
            return ends[device]

        monkeypatch.setattr(gpu_check, "run_gpu_trial", run)
        return seen

    return prepare


def test_what_works_is_tried_once(tried: Trials) -> None:
    seen = tried(CUDA0=WORKS, Vulkan0=WORKS)
    for _ in range(2):
        check_gpus(RuntimeConfig())
    assert seen == ["CUDA0", "Vulkan0"]
    assert (usual_gpus(), unfit_gpus.notes()) == (["CUDA0", "Vulkan0"], ())
    check_gpus(RuntimeConfig.of(device=["none"]))
    assert seen == ["CUDA0", "Vulkan0"]


def next_process(patch: pytest.MonkeyPatch) -> None:
    """Forget what this process knows."""
    patch.setattr(unfit_gpus, "_reasons", {})
    patch.setattr(gpu_check, "_tried", set())


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ENDS, r"llama.cpp failed there \(CUDA error: no kernel image is available"),
        (ChildExit(-11, "begun", ""), r"llama.cpp failed there \(SIGSEGV\)"),
        # The function that fails may be one that allocates; "no_alloc" is in every log.
        (
            ChildExit(
                -6, "begun", f"{NO_KERNEL}\n  in function ggml_gallocr_alloc\nno_alloc = 0\n"
            ),
            "no kernel image",
        ),
        # SYCL exits, Metal returns an error.
        (ChildExit(1, "begun", "Native API failed."), r"failed there \(Native API failed"),
        (ChildExit(1, "begun", "could not evaluate 40 tokens"), "could not evaluate 40 tokens"),
        (WRONG, "it computes other numbers"),
        (ChildExit(-11, "begunwide", ""), r"llama.cpp failed there \(SIGSEGV\)"),
        (SLOW, "it was not ready within 120 s; the next start tries again"),
    ],
)
def test_what_does_not_work_is_not_used_and_tried_again_by_the_next_process(
    tried: Trials, monkeypatch: pytest.MonkeyPatch, end: ChildExit, reason: str
) -> None:
    seen = tried(CUDA0=end, Vulkan0=WORKS)
    signature = fingerprints.machine_signature()
    check_gpus(RuntimeConfig())
    assert usual_gpus() == ["Vulkan0"]
    assert fingerprints.machine_signature() != signature
    [note] = unfit_gpus.notes()
    assert note.startswith("CUDA0 is not used: ")
    with pytest.raises(ModelLoadError, match=rf"device CUDA0 \(a GPU\) cannot be used: .*{reason}"):
        check_gpus(RuntimeConfig.of(device=["cuda0"]))
    with pytest.raises(ModelLoadError, match="choose another device, or none"):
        check_gpus(RuntimeConfig.of(draft_device=["CUDA0"]))
    assert seen == ["CUDA0", "Vulkan0"]
    next_process(monkeypatch)
    check_gpus(RuntimeConfig())
    assert seen == ["CUDA0", "Vulkan0", "CUDA0"]


@pytest.mark.parametrize(
    "end",
    [
        FULL,
        ChildExit(-6, "begun", "CUDA error: out of memory"),
        ChildExit(-6, "begun", "vk::Device::allocateMemory: ErrorOutOfDeviceMemory"),
        ChildExit(-6, "begun", "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED"),
        ChildExit(5, "begun", "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackError)"),
        ChildExit(1, "begun", "level_zero backend failed: UR_RESULT_ERROR_OUT_OF_RESOURCES"),
        ChildExit(-6, "begun", "terminate called after throwing an instance of 'std::bad_alloc'"),
        ChildExit(0xC0000017, "begun", ""),
        ChildExit(0xC000013A, "begun", ""),
        ChildExit(-6, "begun", "CUDA error: all CUDA-capable devices are busy or unavailable"),
        ChildExit(1, "", "No module named llama_cpp"),
        ChildExit(-15, "begun", ""),
        ChildExit(-11, "", "the processor's turn"),
        ChildExit(-9, "", "", timed_out=True),
        ChildExit(2, "begun", "device 'CUDA0' is not here"),
    ],
)
def test_a_trial_that_tells_nothing(
    tried: Trials, monkeypatch: pytest.MonkeyPatch, end: ChildExit
) -> None:
    """The GPU is used as before, and the next process tries again."""
    seen = tried(CUDA0=end, Vulkan0=WORKS)
    for _ in range(2):
        check_gpus(RuntimeConfig())
    assert usual_gpus() == ["CUDA0", "Vulkan0"]
    assert seen == ["CUDA0", "Vulkan0"]
    next_process(monkeypatch)
    check_gpus(RuntimeConfig())
    assert seen == ["CUDA0", "Vulkan0", "CUDA0"]


def test_numbers_that_are_right_count_whatever_ends_the_process(tried: Trials) -> None:
    """Some drivers crash at the exit."""
    tried(CUDA0=ChildExit(-11, "beguncomputedright", "x"), Vulkan0=WORKS)
    check_gpus(RuntimeConfig())
    assert usual_gpus() == ["CUDA0", "Vulkan0"]


def test_a_drafter_beside_workers_may_be_on_a_gpu(tried: Trials) -> None:
    seen = tried(CUDA0=ENDS, Vulkan0=WORKS)
    check_gpus(RuntimeConfig.of(device=["127.0.0.1:1"]))
    assert seen == ["CUDA0", "Vulkan0"]
    assert usual_gpus() == ["Vulkan0"]


def test_without_others_one_in_the_processor_and_then_the_processor(tried: Trials) -> None:
    seen = tried(CUDA0=ENDS, Vulkan0=ENDS, Vulkan1=ENDS)
    check_gpus(RuntimeConfig())
    assert seen == ["CUDA0", "Vulkan0", "Vulkan1"]
    assert usual_gpus() == []
    assert not computes_on_gpu(DEFAULT)
    assert fingerprints.gpus(DEFAULT) == []


@pytest.mark.parametrize(
    ("ends", "expected"),
    [({}, ["CUDA0", "CUDA1"]), ({"CUDA0": ENDS}, ["CUDA1", "Vulkan0"])],
    ids=["works", "by another backend"],
)
def test_a_card_that_two_backends_find_is_used_once(
    tried: Trials, monkeypatch: pytest.MonkeyPatch, ends: dict[str, ChildExit], expected: list[str]
) -> None:
    cards = ("0000:01:00.0", "0000:02:00.0")
    found = [
        *(Device(f"CUDA{number}", "a GPU", "gpu", 8, 8, card) for number, card in enumerate(cards)),
        *(Device(f"Vulkan{number}", "a", "gpu", 8, 8, card) for number, card in enumerate(cards)),
        Device("Vulkan2", "in the processor", "integrated gpu", 8, 8, "0000:00:02.0"),
    ]
    for module in (devices, gpu_check):
        monkeypatch.setattr(module, "devices", lambda: found)
    seen = tried(**{"CUDA0": WORKS, "CUDA1": WORKS, "Vulkan0": WORKS, **ends})
    check_gpus(RuntimeConfig())
    assert usual_gpus() == expected
    assert set(seen) == {"CUDA0", "CUDA1", *expected}


def test_gpus_in_processors_are_those_of_one_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [("SYCL0", "integrated gpu"), ("Vulkan0", "integrated gpu"), ("CPU", "cpu")]
    found = [Device(name, "a", kind, 8, 8) for name, kind in kinds]
    monkeypatch.setattr(devices, "devices", lambda: found)
    assert usual_gpus() == ["SYCL0"]


def test_a_model_is_loaded_without_them(tried: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would use every GPU where it is not told otherwise."""
    tried(CUDA0=ENDS, Vulkan0=WORKS)
    monkeypatch.setattr("localspec.llama.model_params.can_offload", lambda: True)
    monkeypatch.setattr("localspec.llama.model_params.gpu_pointers", lambda: {"Vulkan0": 77})
    assert not model_params(DEFAULT).values.devices
    check_gpus(RuntimeConfig())
    params = model_params(DEFAULT)
    assert (params.kept[0][0], params.kept[0][1], params.is_offloaded) == (77, None, True)
    unfit_gpus.add("Vulkan0", "it is broken too")
    monkeypatch.setattr("localspec.llama.model_params.usual_gpus", list)
    params = model_params(DEFAULT)
    assert (params.kept[0][0], params.values.n_gpu_layers, params.is_offloaded) == (None, 0, False)


def test_a_load_says_so(tried: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tried(CUDA0=ENDS, Vulkan0=WRONG, Vulkan1=ENDS)
    with localspec.load(PYCODE.target, "none", context=64, threads=1) as engine:
        notes = [note for note in engine.notes if "is not used" in note]
        assert len(engine.generate("def f", max_tokens=3).token_ids) == 3
    assert seen == ["CUDA0", "Vulkan0", "Vulkan1"]
    assert [note.split()[0] for note in notes] == seen


def test_a_damaged_result_is_no_result(
    tried: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tried(CUDA0=WORKS, Vulkan0=WORKS)
    check_gpus(RuntimeConfig())
    for file in tmp_path.rglob("gpu_trials/*"):
        file.write_text(json.dumps({"works": "yes"}))
    next_process(monkeypatch)
    check_gpus(RuntimeConfig())
    assert seen == ["CUDA0", "Vulkan0"] * 2


def test_a_gpu_that_is_not_ready_again_and_again_is_left_alone_for_a_week(
    tried: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trial would take two minutes."""
    now = 1.7e9
    monkeypatch.setattr(gpu_check, "time", lambda: now)
    seen = tried(CUDA0=SLOW, Vulkan0=WORKS)
    for asked in (1, 2, 3, 3, 3):
        next_process(monkeypatch)
        check_gpus(RuntimeConfig())
        assert (seen.count("CUDA0"), usual_gpus()) == (asked, ["Vulkan0"])
        assert "it was not ready within 120 s" in unfit_gpus.notes()[0]
    assert "120 s, 3 times" in unfit_gpus.notes()[0]
    # The doctor asks anew, and what works then is known to work.
    tried(CUDA0=WORKS, Vulkan0=WORKS)
    next_process(monkeypatch)
    check_gpus(RuntimeConfig(), again=True)
    assert usual_gpus() == ["CUDA0", "Vulkan0"]
    next_process(monkeypatch)
    seen = tried(CUDA0=SLOW, Vulkan0=SLOW)
    check_gpus(RuntimeConfig())
    assert (seen, usual_gpus()) == ([], ["CUDA0", "Vulkan0"])


@pytest.mark.parametrize(("end", "days"), [(WORKS, 30), (SLOW, 7), (ALL_BUT_WIDE, 1)])
def test_what_was_found_is_forgotten_in_time(
    tried: Trials, monkeypatch: pytest.MonkeyPatch, end: ChildExit, days: int
) -> None:
    """A new driver may have made it better or worse, and nothing tells of it."""
    seen = tried(CUDA0=end, Vulkan0=WORKS)
    for each in range(3):
        monkeypatch.setattr(gpu_check, "time", lambda each=each: 1.7e9 + each)
        next_process(monkeypatch)
        check_gpus(RuntimeConfig())
        assert ("CUDA0" in usual_gpus()) == (end is not SLOW)
    for passed, more in ((days - 0.1, 0), (days + 0.1, 1)):
        seen.clear()
        monkeypatch.setattr(gpu_check, "time", lambda passed=passed: 1.7e9 + 2 + passed * 86400)
        next_process(monkeypatch)
        check_gpus(RuntimeConfig())
        assert seen.count("CUDA0") == more


# The trial itself.


def test_a_trial_on_a_device_that_works() -> None:
    """A worker stands for a GPU: its passes are computed by another process."""
    require_rpc()
    with real_worker() as worker:
        ended = run_gpu_trial(PYCODE.target, str(worker.address), seconds=120, action="trying")
    assert (ended.exit_code, ended.output) == (0, "begunwidecomputedright"), ended.errors


def test_a_device_that_fails_in_a_real_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that goes away is an error of the library: it says so in the child's log."""
    require_rpc()
    monkeypatch.setattr(gpu_check, "_tried", set())
    with real_worker() as worker:
        address = str(worker.address)
    ended = run_gpu_trial(PYCODE.target, address, seconds=120, action="trying")
    assert ended.output == "begun"
    assert ended.exit_code != 0 and ended.last_error
    assert gpu_check._fault(ended)


@pytest.mark.parametrize("wrong", ["other", "nan", "constant", "one row", "the wide one"])
def test_a_device_that_computes_other_numbers(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    logits, random = gpu_trial._logits, np.random.default_rng(0)

    def wrongly(path: Path, placement: Placement | None = None, *_: Any) -> np.ndarray:
        right = logits(path)
        if placement is None:
            return right
        if "one" in wrong:
            right[47 if wrong == "one row" else -1] = random.normal(size=right.shape[1])
            return right
        values = {"other": random.normal(size=right.shape), "nan": np.nan, "constant": 1.0}
        return np.full_like(right, values[wrong])

    monkeypatch.setattr(gpu_trial, "_logits", wrongly)
    with pytest.raises(ExactnessError, match="it computes other numbers than the processor"):
        gpu_trial.gpu_trial(PYCODE.target, "CUDA0")


def test_rounding_is_no_other_number() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 1000)).astype(np.float32)
    noise = np.random.default_rng(1).normal(size=rows.shape).astype(np.float32)
    assert least_correlation(rows, rows + 0.1 * noise) > 0.99


def test_the_key_of_a_result_is_the_build_and_the_device(
    tried: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tried(CUDA0=WORKS, Vulkan0=WORKS)
    check_gpus(RuntimeConfig())
    monkeypatch.setattr(library, "build_signature", lambda: ["another build"])
    check_gpus(RuntimeConfig())
    assert seen == ["CUDA0", "Vulkan0"] * 2
