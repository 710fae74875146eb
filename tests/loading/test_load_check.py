"""A model that ends the process ends a child first; what was found is remembered."""

import math
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fakes.gguf_document import Document, parse
from fakes.smoke_tests import ForkedSmokeTests
from fakes.tiny import write_tiny

from localspec.errors import ModelLoadError
from localspec.gguf.check import check_generative
from localspec.gguf.reader import Header, read_header
from localspec.gguf.types import TENSOR_TYPES
from localspec.llama.smoke_test import run_smoke_test
from localspec.loading import load_check
from localspec.loading.fingerprints import machine_signature
from localspec.loading.load_check import require_loadable
from localspec.utils import processor
from localspec.utils.child_process import BEGUN

Change = Callable[[Document], None]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of any file; of the library it is, from the session's start.

    Children are real ones.
    """
    monkeypatch.setattr(load_check, "run_smoke_test", run_smoke_test)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on, no child can be started."""
    return lambda: monkeypatch.setattr(sys, "executable", "/nowhere/python")


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on, the child is a shell script."""

    def become(script: str) -> None:
        program = tmp_path / "child"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(program))
        monkeypatch.setattr(load_check, "_LEAST_SECONDS", 1 if "sleep" in script else 60)

    return become


def tiny(path: Path, *changes: Change, family: str = "llama") -> Path:
    document = parse(write_tiny(path, family))
    for change in changes:
        change(document)
    path.write_bytes(document.assembled())
    return path


def stored_as(name: str, kind: str) -> Change:
    """A tensor of zeros in another type."""
    number = next(number for number, each in TENSOR_TYPES.items() if each.name == kind)

    def change(document: Document) -> None:
        tensor = next(each for each in document.tensors if each.name == name.encode())
        _, elements, size = TENSOR_TYPES[number]
        tensor.kind, tensor.data = number, bytes(math.prod(tensor.shape) // elements * size)

    return change


def rotating_half(document: Document) -> None:
    """What llama.cpp asserts of one architecture and not of another."""
    for entry in document.entries:
        if entry.key == b"general.architecture":
            entry.value = b"smollm3"
        entry.key = entry.key.replace(b"llama.", b"smollm3.")
    rotated = document.named("smollm3.rope.dimension_count")
    assert rotated
    rotated.value //= 2


def refusal(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        require_loadable(path, read_header(path))
    message = str(caught.value)
    assert message.isprintable()
    assert path.name in message
    return message


def test_a_valid_model_is_checked_once(tmp_path: Path, no_child: Callable[[], None]) -> None:
    path = tiny(tmp_path / "tiny.gguf")
    require_loadable(path, read_header(path))
    no_child()
    require_loadable(path, read_header(path))
    path.touch()
    assert "could be started" in refusal(path)


FATAL = {
    "f64-norm": ("llama", stored_as("blk.0.attn_norm.weight", "F64")),
    "f16-norm": ("gemma3", stored_as("blk.1.attn_q_norm.weight", "F16")),
    "integer-bias": ("gpt2", stored_as("blk.0.ffn_up.bias", "I32")),
    "f16-convolution": ("mamba", stored_as("blk.0.ssm_conv1d.weight", "F16")),
    "f64-matrix": ("llama", stored_as("blk.0.ffn_down.weight", "F64")),
    "integer-matrix": ("qwen3", stored_as("blk.1.attn_k.weight", "I32")),
}


@pytest.mark.parametrize("case", FATAL)
def test_both_checks_find_what_crashes_llama(case: str, tmp_path: Path) -> None:
    family, change = FATAL[case]
    path = tiny(tmp_path / f"{case}.gguf", change, family=family)
    with pytest.raises(ModelLoadError, match="stores tensor"):
        check_generative(path)
    assert "llama.cpp ended (" in refusal(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forks_end_as_children_do(tmp_path: Path) -> None:
    """Other tests have their files tried by forks."""
    cut = tiny(tmp_path / "cut.gguf")
    cut.write_bytes(cut.read_bytes()[:-100])
    files = [tiny(tmp_path / "tiny.gguf"), cut, tiny(tmp_path / "half.gguf", rotating_half)]
    options = {"extra_buffers": False, "seconds": 60}
    with ForkedSmokeTests() as forks:
        for file in files:
            child, fork = run_smoke_test(file, **options), forks.run(file, **options)
            assert (fork.exit_code, fork.last_error) == (child.exit_code, child.last_error)
            assert BEGUN in fork.output
        assert fork.crashed
        assert forks.run(files[0], extra_buffers=False, seconds=0).timed_out


def test_what_ended_llama_is_remembered(tmp_path: Path, no_child: Callable[[], None]) -> None:
    path = tiny(tmp_path / "half.gguf", rotating_half)
    with pytest.raises(ModelLoadError, match="rotates 4 of the 8 dimensions"):
        check_generative(path)
    message = refusal(path)
    assert "llama.cpp ended (smollm3.cpp:" in message
    assert "GGML_ASSERT" in message
    no_child()
    assert refusal(path) == message
    tiny(path)
    assert "could be started" in refusal(path)


def test_what_llama_refuses_by_itself_is_not_remembered(
    tmp_path: Path, no_child: Callable[[], None]
) -> None:
    path = tiny(tmp_path / "less.gguf", lambda document: document.tensors.pop(3) and None)
    assert "not found" in refusal(path)
    no_child()
    assert "could be started" in refusal(path)


@pytest.mark.skipif(os.name == "nt", reason="needs a shell")
@pytest.mark.parametrize(
    ("script", "says", "remembered"),
    [
        ("echo begun; kill -KILL $$", "llama.cpp ended (SIGKILL)", False),
        ("echo begun; kill -SEGV $$", "llama.cpp ended (SIGSEGV)", True),
        ("echo begun; echo std::bad_alloc >&2; kill -ABRT $$", "bad_alloc", False),
        (
            "echo begun; echo 'GGML_ASSERT(ctx->mem_buffer != NULL)' >&2; kill -ABRT $$",
            "; close what else uses memory",
            False,
        ),
        ("printf 'begun'; printf 'a\\033[1m\\nb\\033[1mc' >&2; kill -ABRT $$", "b?[1mc)", True),
        ("echo no module >&2; exit 1", "no module; reinstall", False),
        ("echo begun; exec sleep 600", "within 1 s", False),
    ],
)
def test_how_a_child_ends(
    script: str, says: str, remembered: bool, tmp_path: Path, child: Callable[[str], None]
) -> None:
    path = tiny(tmp_path / "tiny.gguf")
    child(script)
    assert says in refusal(path)
    child("echo begun")
    if remembered:
        assert says in refusal(path)
    else:
        require_loadable(path, read_header(path))


def test_another_processor_is_tried_again(
    tmp_path: Path, no_child: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny(tmp_path / "tiny.gguf")
    require_loadable(path, read_header(path))
    no_child()
    require_loadable(path, read_header(path))
    signature = machine_signature()
    monkeypatch.setattr(processor, "processor_name", lambda: "another")
    assert machine_signature() != signature
    assert "could be started" in refusal(path)


@pytest.mark.skipif(os.name == "nt", reason="needs a shell")
def test_every_part_counts(tmp_path: Path, child: Callable[[str], None]) -> None:
    parts = [tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        part.write_bytes(b"GGUF")
    header = Header(3, {"split.count": 2}, ())
    child("echo begun")
    require_loadable(parts[0], header)
    child("exit 1")
    require_loadable(parts[0], header)
    parts[1].write_bytes(b"GGUF again")
    with pytest.raises(ModelLoadError):
        require_loadable(parts[0], header)


HANGS = """
import time
import llama_cpp
from pathlib import Path

def hang(path, params):
    Path({marker!r}).touch()
    time.sleep(600)

llama_cpp.llama_model_load_from_file = hang
"""


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_child_does_not_outlive_its_parent(how: signal.Signals, tmp_path: Path) -> None:
    """The library of the child hangs in the middle of loading."""
    marker = tmp_path / "loading"
    (tmp_path / "sitecustomize.py").write_text(HANGS.format(marker=str(marker)))
    code = "from localspec.loading.load_check import check_extra_buffers; check_extra_buffers()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    ) as parent:
        while not marker.exists():
            assert parent.poll() is None
            time.sleep(0.05)
        [child] = psutil.Process(parent.pid).children()
        parent.send_signal(how)
        _, alive = psutil.wait_procs([child], timeout=60)
        assert alive == []
        complaints = parent.communicate()[1]
    assert parent.returncode == -how
    assert (b"KeyboardInterrupt" in complaints) == (how is signal.SIGINT)


def not_a_number(value: float) -> Change:
    """Of the output: its norm for infinity; for NaN, which some kernels lose, all its rows."""

    def change(document: Document) -> None:
        tensors = {each.name: each for each in document.tensors}
        norm = tensors[b"output_norm.weight"]
        norm.data = struct.pack("<f", value) + norm.data[4:]
        if math.isnan(value):
            output = tensors.get(b"output.weight") or tensors[b"token_embd.weight"]
            of_floats = TENSOR_TYPES[output.kind].name == "F32"
            # A quantised block begins with its scale.
            first = struct.pack("<f" if of_floats else "<e", value)
            row = len(output.data) // output.shape[-1]
            rows = range(0, len(output.data), row)
            output.data = b"".join(first + output.data[at + len(first) : at + row] for at in rows)

    return change


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt2", "mamba"])
def test_weights_that_are_not_numbers_are_seen_by_the_trial(
    tmp_path: Path, value: float, family: str
) -> None:
    path = tiny(tmp_path / "model.gguf", not_a_number(value), family=family)
    with pytest.raises(ModelLoadError, match="logits that are no numbers") as caught:
        require_loadable(path, read_header(path))
    assert caught.value.exit_code == 5
    assert "model.gguf" in str(caught.value)
