"""Equality: whether all texts are those of plain decoding."""

from collections.abc import Sequence

from localspec.bench.configurations import PLAIN
from localspec.bench.prompt_sets import Task
from localspec.bench.runner import Run
from localspec.errors import ExactnessError
from localspec.utils.tokens import common_prefix


def require_same_texts(runs: Sequence[Run], tasks: Sequence[Task]) -> int:
    """Compare every text with that of plain decoding; return how many texts were compared.

    Raises ExactnessError, naming the first text that differs in any token.
    """
    plain = {(run.task, run.round): run.token_ids for run in runs if run.configuration == PLAIN}
    compared = 0
    for run in runs:
        theirs = plain.get((run.task, run.round))
        if run.configuration == PLAIN or theirs is None:
            continue
        if run.token_ids != theirs:
            raise ExactnessError(_difference(run, theirs, tasks[run.task]))
        compared += 1
    return compared


def _difference(run: Run, plain: Sequence[int], task: Task) -> str:
    where = common_prefix(run.token_ids, plain)
    ours, theirs = (
        f"token {ids[where]}" if where < len(ids) else "no token" for ids in (run.token_ids, plain)
    )
    return (
        f"{run.configuration} does not give the text of plain decoding: prompt {task.number} of "
        f"{task.set}, round {run.round + 1}, place {where} has {ours} and plain decoding "
        f"{theirs}; please report this"
    )
