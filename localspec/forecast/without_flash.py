"""Without flash attention: what passes would take on this machine behind a text, over with it.

On a processor the library's flash attention computes each row of a pass by itself, and plain
attention all rows in one product of matrices. So behind long texts wide passes can be quicker
without it, and reading a prompt slower. Only measuring tells; nothing is changed unasked, as the
last digits differ.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

from localspec.engine.engine import Engine
from localspec.errors import ModelLoadError
from localspec.llama.pass_timing import seconds_of_pass, seconds_of_second_pass
from localspec.llama.rollback import Rollback
from localspec.llama.sequence import KVSequence

WIDTHS = (1, 4, 8)
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class WithoutFlash:
    """Times without flash attention over those with it, behind a text of `tokens` tokens.

    passes: by rows. reading: of the text.
    """

    tokens: int
    passes: dict[int, float]
    reading: float


def without_flash(
    engine: Engine, text: Sequence[int], progress: Callable[[str], object] = lambda _: None
) -> WithoutFlash | None:
    """Compare both ways behind a text, in caches of their own. progress: is told that it begins.

    None where the user has chosen, on a GPU, whose flash attention is quicker, for models with
    running states, which have little attention, and where memory is too small for the caches.
    """
    loaded = engine.slots.own.loaded
    runtime, target = loaded.runtime, loaded.target
    if runtime.flash is not None or target.rollback is not Rollback.PARTIAL:
        return None
    if target.model.is_offloaded or runtime.kv_type != "f16":
        return None
    progress("measuring passes without flash attention")
    cells = len(text) + max(WIDTHS)
    try:
        with ExitStack() as stack:
            on, off = (
                each.context_for(target.model, loaded.header, each.context_params(cells))
                for each in (runtime, replace(runtime, flash_attention=False))
            )
            stack.callback(on.close)
            stack.callback(off.close)
            return _compared(on, off, text)
    except ModelLoadError:
        return None


def _compared(on: KVSequence, off: KVSequence, text: Sequence[int]) -> WithoutFlash:
    for each in (on, off):
        seconds_of_pass(each, 1)  # a first pass takes many times as long as those after it
    reading = _reading(off, text) / _reading(on, text)
    ratios: dict[int, list[float]] = {rows: [] for rows in WIDTHS}
    for number in range(_ROUNDS):
        for rows in WIDTHS:
            ways = (on, off) if number % 2 == 0 else (off, on)
            took = {each: seconds_of_second_pass(each, rows) for each in ways}
            ratios[rows].append(took[off] / took[on])
    return WithoutFlash(len(text), {rows: median(each) for rows, each in ratios.items()}, reading)


def _reading(sequence: KVSequence, text: Sequence[int]) -> float:
    sequence.truncate(0)
    began = perf_counter()
    sequence.set_tokens(text)
    return perf_counter() - began
