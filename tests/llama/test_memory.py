"""Nothing is allocated that grows with context times vocabulary."""

import subprocess
import sys

from localspec.models import gguf_check, memory, registry

MEASURE = """
import sys
import psutil
import localspec
from localspec.engine import load
context = int(sys.argv[1])
with load(context=context, threads=1) as engine:
    engine.generate("def f(x):", max_tokens=16, seed=1)
    print(psutil.Process().memory_info().rss)
"""


def resident(context: int) -> int:
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, str(context)], check=True, capture_output=True, text=True
    )
    return int(run.stdout)


def test_a_longer_context_costs_its_keys_and_values_and_no_more() -> None:
    pair = registry.bundled()
    assert pair.drafter is not None
    headers = [gguf_check.check_generative(path) for path in (pair.target, pair.drafter)]
    small, large = 1024, 65536
    caches = sum(
        (memory.cache_bytes(header, large) or 0) - (memory.cache_bytes(header, small) or 0)
        for header in headers
    )
    # Logits for every position would be (65536 - 1024) * 4096 floats: another 1,056 MB.
    assert resident(large) - resident(small) < caches + 64 * 2**20
