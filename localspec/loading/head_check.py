"""Head check: whether a head can read the hidden states of its target, before either is loaded.

llama.cpp ends the whole process where an architecture hands out no hidden states, or where a head's
matrices do not fit its target's. So each pair is tried once in a child process; what it showed is
remembered.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.gguf.facts import Facts
from localspec.gguf.heads import MTP_KINDS, Head, head_of, require_fitting
from localspec.gguf.reader import display_name
from localspec.llama.hidden_states import require_functions
from localspec.llama.hidden_states_probe import BEGUN, TARGET_DONE, run_hidden_states_probe
from localspec.llama.sequence import KVSequence
from localspec.loading.verdicts import not_started, remembered_verdict, require_memory
from localspec.speculation.draft import Draft
from localspec.speculation.passes import draft_pass
from localspec.utils.child_process import ChildExit
from localspec.utils.option_names import options

# No weights are read: half a second on a slow machine.
_SECONDS = 60


def checked_head(target: Facts, drafter: Facts) -> Head:
    """Return what the head reads of its target.

    Raises DrafterMismatchError if it cannot read this target, and ModelLoadError for a broken head.
    """
    path, target_path = drafter.files[0], target.files[0]
    require_functions()
    head = head_of(path, drafter.header, target.header)
    require_fitting(path, drafter.header, target_path, target.header)
    files = [*target.files, *drafter.files]
    problem = remembered_verdict(
        "head_checks", "problem", files, lambda: _probe(target, path, head)
    )
    if problem:
        raise DrafterMismatchError(problem)
    return head


def unreadable_rows(target: Facts, layers: Sequence[int]) -> str:
    """Return why this llama.cpp hands out no rows of these layers; an empty text if it does.

    Raises ModelLoadError where that cannot be found out.
    """
    require_functions()
    return remembered_verdict(
        "head_checks", "rows", target.files, lambda: _probe_rows(target, layers)
    )


def _probe_rows(target: Facts, layers: Sequence[int]) -> str:
    name = display_name(target.files[0].name)
    action = f"trying out the hidden rows of {name}"
    try:
        ended = run_hidden_states_probe(
            target.files[0], None, layers, seconds=_SECONDS, action=action
        )
    except OSError as error:
        raise not_started(f"the hidden rows of {name}", error) from error
    if ended.exit_code == 0:
        return ""
    require_memory(ended, f"the hidden rows of {name}")
    if BEGUN in ended.output:
        return _only_if_final(ended, _no_rows(target, ended))
    raise ModelLoadError(f"the hidden rows of {name} cannot be tried out: {ended.reason}")


def _no_rows(target: Facts, ended: ChildExit) -> str:
    return (
        f"hidden rows of {target.header.architecture} cannot be read by this llama.cpp "
        f"({ended.reason})"
    )


def require_last_rows(target: KVSequence, name: str, head: Head) -> None:
    """Raise DrafterMismatchError if the head reads rows behind the last layer and there are none.

    The library gives zeros then. The target's text stays as it is.
    """
    last = target.context.hidden.n_layer
    if last not in head.layers:
        return
    if not trial_rows(target, last).any():
        raise DrafterMismatchError(
            f"{display_name(name)} cannot draft for {display_name(target.model.path.name)}: "
            "llama.cpp hands out no rows behind the last layer of this architecture; "
            f"use {options(draft='suffix')}"
        )


def trial_rows(target: KVSequence, layer: int) -> NDArray[np.float32]:
    """Return what this target hands out as the rows of a layer, or OUTPUT, in a trial pass.

    The target's text stays as it is.
    """
    text = target.state()
    target.truncate(0)
    try:
        (scores,) = target.context.decode([draft_pass(target, 0, Draft([0]), (layer,))])
        return scores.hidden[layer].copy()
    finally:
        target.restore(text)


def _probe(target: Facts, path: Path, head: Head) -> str:
    """Return what is wrong, an empty text if nothing is.

    Raises ModelLoadError for a result that is not to be remembered.
    """
    name, of = display_name(path.name), display_name(target.files[0].name)
    try:
        ended = run_hidden_states_probe(
            target.files[0],
            path,
            head.layers,
            block=head.block.size if head.block else 1,
            mtp=head.kind in MTP_KINDS,
            seconds=_SECONDS,
            action=f"trying out {name}",
        )
    except OSError as error:
        raise not_started(name, error) from error
    if ended.exit_code == 0:
        return ""
    require_memory(ended, name)
    if TARGET_DONE in ended.output:
        return _only_if_final(
            ended, f"{name} does not fit {of}: {ended.reason}; use the head that was made for it"
        )
    if BEGUN in ended.output:
        return _only_if_final(
            ended,
            f"{name} cannot draft for {of}: {_no_rows(target, ended)}; use another drafter",
        )
    raise ModelLoadError(
        f"{name} cannot be tried out: {ended.reason}; use {options(draft='suffix')}"
    )


def _only_if_final(ended: ChildExit, problem: str) -> str:
    """Return the problem; raise it if it may be another one at the next try."""
    if ended.crashed or ended.exit_code == ModelLoadError.exit_code:
        return problem
    raise ModelLoadError(problem)
