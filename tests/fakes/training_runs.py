"""A training in a process of its own, which can be killed: `python -m fakes.training_runs`.

    python -m fakes.training_runs TARGET FOLDER PHASE [--resume]

It ends itself by SIGKILL in PHASE, or not at all where PHASE is none of them.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from fakes.cut_target import letters

RUNTIME = {"threads": 1, "context": 256, "gpu_layers": 0}
TOKENS = 1200
# The share of a phase that is done when the process is killed.
MIDDLE = {"training": 0.5, "trying the drafter": 0.3}


def request(target: Path, out: Path | None = None, *, seed: int | None = 3, **options):  # type: ignore[no-untyped-def]
    """A training of a tiny target."""
    from localspec.distillation.material import TextSource
    from localspec.training.drafter_kind import KindOptions
    from localspec.training.training_request import TrainingRequest

    source = TextSource(target, lambda _: letters(60), seed, RUNTIME)
    options = {"tokens": TOKENS, "options": KindOptions(layers=2), **options}
    return TrainingRequest(source, "draft-model", "letters", out=out, **options)


def train(made, watch=lambda _: None, cancel=None, said=None):  # type: ignore[no-untyped-def]
    """Run a training with one thread; what it says is added to `said`."""
    import torch

    from localspec.training.own_training import OwnTraining

    torch.set_num_threads(1)
    say = ([] if said is None else said).append
    return OwnTraining(made, watch, say, cancel or threading.Event()).run()


def main(target: str, folder: str, phase: str, *flags: str) -> None:
    import torch

    from localspec.distillation import last_trial, texts
    from localspec.training import budget, rounds
    from localspec.training.own_training import OwnTraining

    torch.set_num_threads(1)
    texts.ANSWER, last_trial.TOKENS = 24, 8  # type: ignore[misc]
    budget.ROUNDS, rounds._SAVE_SECONDS = 4, 0.0  # type: ignore[misc]
    seen: list[str] = []

    def watch(progress) -> None:  # type: ignore[no-untyped-def]
        # In the middle of the phase, where there is one.
        if progress.phase == phase and progress.share >= MIDDLE.get(phase, 0.0):
            seen.append(phase)
            if len(seen) == 2 or phase != "writing texts":
                os.kill(os.getpid(), signal.SIGKILL)

    made = request(Path(target), Path(folder) / "draft.gguf", resume="--resume" in flags)
    done = OwnTraining(made, watch, print, threading.Event()).run()
    sys.stdout.write(f"{len(done.trials)} trials, {done.history}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
