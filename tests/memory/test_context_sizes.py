"""What a context is said to take, beside what a process then takes."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.tiny import write_tiny

MIB = 2**20
MEASURE = """
import json, sys
from pathlib import Path
import localspec
from localspec.gguf.facts import facts_of
from localspec.llama.placement import ON_PROCESSOR
from localspec.memory.context_sizes import ContextSizes

def anonymous():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))

def written(context):
    options = {"context": context, "flash_attention": json.loads(sys.argv[2]), "threads": 1}
    with localspec.load(target, "none", gpu_layers=0, **options) as engine:
        prompt = [5 + number % 50 for number in range(context - 8)]
        engine.generate(prompt, max_tokens=4, ignore_eos=True)
        return anonymous(), engine.slots.own.loaded.runtime.context_params(context)

target = Path(sys.argv[1])
before, _ = written(256)
after, params = written(2048)
sizes = ContextSizes(target, facts_of(target).header, ON_PROCESSOR)
print(json.dumps([sizes.bytes_by_device(params)["CPU"], after - before]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sets how glibc gives memory back")
@pytest.mark.parametrize("flash_attention", [True, False])
def test_a_context_takes_what_was_said(tmp_path: Path, *, flash_attention: bool) -> None:
    target = write_tiny(tmp_path / "tiny.gguf", "llama", context=2048)
    # So that what was freed is given back at once.
    exact = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", MEASURE, str(target), json.dumps(flash_attention)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, **exact}
    )
    said, taken = json.loads(done.stdout)
    assert taken == pytest.approx(said, abs=4 * MIB)  # the library's work buffer: 8
