"""GPU trial: decode on a GPU and on the processor, and compare; this may end the process.

llama.cpp ends the process where a build has no kernels for a GPU, and some drivers compute wrong
numbers without an error. `run_gpu_trial` tries it out in a child process, `main` is that process's
program.
"""

import os
import sys
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import ExactnessError
from localspec.llama import library
from localspec.llama.batch_invariance import logits_by
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR, Placement
from localspec.utils.child_process import ChildExit, ChildProcess, exit_code_of

# Stages, as they are written to standard output: the processor has computed, the device has begun a
# wide pass and its numbers before that are right, it has computed all, and all are right.
BEGUN, WIDE, COMPUTED, RIGHT = "begun", "wide", "computed", "right"
# Passes of these rows, and behind them one of _WIDE rows: backends have other kernels for one row,
# for a few, for many, and for those of a prompt, which some drivers compile for minutes.
_ROWS, _WIDE = (40, 8, 2, 1), 160
# How logits differ from their mean over a text correlates by 0.998 and more on two devices, and not
# at all at two places.
_LEAST_CORRELATION = 0.9
_CONTEXT = 256


def run_gpu_trial(path: Path, device: str, *, seconds: float, action: str) -> ChildExit:
    """Try out a GPU with a model file in a child process.

    device: its name, as in Device. seconds: the time limit. action: reported as progress. The
    output has the stages that it came to, the errors those that the library has logged. Raises
    OSError where no process can be started.
    """
    with ChildProcess(__name__, str(path), device) as child:
        return child.wait(seconds=seconds, action=action)


def gpu_trial(path: Path, device: str) -> None:
    """Raise ExactnessError if a GPU computes other numbers than the processor."""
    # First the processor, so that what fails behind it is the device's.
    right = _logits(path)
    os.write(1, BEGUN.encode())

    def before_wide(narrow: NDArray[np.float32]) -> None:
        _require_equal(narrow, right[:-1])
        os.write(1, WIDE.encode())

    on_device = _logits(path, Placement(devices=(device,)), before_wide)
    os.write(1, COMPUTED.encode())
    _require_equal(on_device, right)
    os.write(1, RIGHT.encode())


def _require_equal(tried: NDArray[np.float32], right: NDArray[np.float32]) -> None:
    found = least_correlation(tried, right)
    if not found >= _LEAST_CORRELATION:  # NaN neither
        raise ExactnessError(
            f"it computes other numbers than the processor (correlation {found:.2f})"
        )


def least_correlation(tried: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    """The least correlation of two rows at the same place, less the mean of the right ones.

    tried, right: logits, (places, n_vocab). NaN if some are no numbers.
    """
    mean = right.mean(0, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        rows = zip(tried - mean, right - mean, strict=True)
        return float(np.min([np.corrcoef(one, other)[0, 1] for one, other in rows]))


def _logits(
    path: Path,
    placement: Placement = ON_PROCESSOR,
    before_wide: Callable[[NDArray[np.float32]], object] = lambda _narrow: None,
) -> NDArray[np.float32]:
    """The logits of tokens of a fixed text, (tokens, n_vocab), by passes of several widths.

    The last row is that of the last token of the wide pass. before_wide: called before it, with the
    rows of the others.
    """
    with (
        Model(path, placement) as model,
        single_sequence(model, ContextParams(n_ctx=_CONTEXT, threads=1)) as text,
    ):
        starts = accumulate(_ROWS, initial=0)
        parts = [
            logits_by(text, rows, start, rows) for rows, start in zip(_ROWS, starts, strict=False)
        ]
        before_wide(np.concatenate(parts))
        wide = text.extend([11 * place % 50 for place in range(_WIDE)])
        return np.concatenate([*parts, wide[None]])


def main(path: str, device: str) -> int:
    """Try out a device; return the exit code."""
    # The library says why it ends the process in its log.
    os.environ["LOCALSPEC_DEBUG"] = library.ERRORS
    return exit_code_of(lambda: gpu_trial(Path(path), device))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
