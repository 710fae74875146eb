"""Thread change: another number of threads from the next text on, as the machine's load changed."""

from contextlib import ExitStack
from dataclasses import dataclass, replace

from localspec.control.cost_model import CostModel
from localspec.control.cost_profile import CostProfile
from localspec.errors import LOST, ModelLoadError
from localspec.llama.sequence import KVSequence
from localspec.loading import equal_digits
from localspec.loading.calibration import calibrate
from localspec.loading.config import RuntimeConfig
from localspec.loading.copy_sources import CopySources
from localspec.loading.drafter_set import DrafterSet
from localspec.loading.loader import LoadedModels
from localspec.loading.matrix_heads import LoadedMatrixHead
from localspec.loading.threads import quicker_threads
from localspec.speculation.equal_digits import EqualDigits

# Tokens of the caches of a trial: as many as a calibration reads.
_CELLS = 512


@dataclass(frozen=True, slots=True)
class ThreadChange:
    """What changes with the number of threads, for all texts of an engine.

    runtime: with the new number. note: a line for the user. costs: measured with that number; None
    without drafters. digits: tried with that number; None if the target never was tried.
    """

    runtime: RuntimeConfig
    note: str
    costs: CostProfile | None
    digits: EqualDigits | None

    def applied_to(self, loaded: LoadedModels) -> LoadedModels:
        """Compute one text with the new number from now on; no decode may be running.

        What was learnt of acceptance stays; what was learnt of costs is of the old number.
        """
        for sequence in (loaded.target, *loaded.drafter_set.sequences.values()):
            sequence.context.set_threads(self.runtime.threads_of(sequence.model))
        for matrices in _matrices(loaded):
            matrices.set_threads(self.runtime.threads_for(matrices.size))
        if self.costs:
            apart = loaded.target.context.splits_unequal
            loaded.policies.use_costs(CostModel.of(self.costs, unequal_apart=apart))
        return replace(
            loaded,
            runtime=self.runtime,
            costs=self.costs,
            digits=self.digits,
            threads_note=self.note,
        )


def thread_change(loaded: LoadedModels, busy: float) -> ThreadChange | None:
    """Find the number of threads where other programs keep `busy` cores busy.

    Passes are timed in small caches of their own, so that those of texts stay as they are. None if
    the present number is right, and if it cannot be found out: memory is too small, or a machine is
    gone.
    """
    usual = replace(loaded.runtime, most_threads=None)
    try:
        with ExitStack() as stack:
            snapshots = loaded.target.context.params.snapshots
            params = replace(usual.context_params(_CELLS), snapshots=snapshots)
            target = usual.context_for(loaded.target.model, loaded.header, params)
            stack.callback(target.close)
            runtime, note = quicker_threads(target, usual, busy)
            if runtime == loaded.runtime:
                return None
            costs = _costs(loaded, target, runtime, stack)
        digits = loaded.digits and equal_digits.measured(
            loaded.target.model, loaded.header, runtime
        )
    except (ModelLoadError, *LOST):
        return None
    count = runtime.threads_of(loaded.target.model)
    again = f"threads: {count} again, the usual number: other programs keep {busy:.1f} cores busy"
    return ThreadChange(runtime, note or again, costs, digits)


def _costs(
    loaded: LoadedModels, target: KVSequence, runtime: RuntimeConfig, stack: ExitStack
) -> CostProfile | None:
    """Measure the costs with this number of threads, or read those of an earlier time."""
    if loaded.costs is None:
        return None
    target.context.set_threads(runtime.threads_of(target.model))
    for matrices in _matrices(loaded):
        stack.callback(matrices.set_threads, matrices.threads)
        matrices.set_threads(runtime.threads_for(matrices.size))
    members = []
    for each in loaded.drafters.drafters:
        if (each.model or each.matrices) and not each.is_lost:
            members.append(each.for_sequence(target, runtime, CopySources()))
            stack.callback(members[-1].close)
    return calibrate(target, DrafterSet(tuple(members)).measured, runtime)


def _matrices(loaded: LoadedModels) -> list[LoadedMatrixHead]:
    """The heads that need no cache, whose threads are set apart from those of contexts."""
    return [each.matrices for each in loaded.drafters.drafters if each.matrices]
