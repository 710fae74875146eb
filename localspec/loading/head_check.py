"""Head check: whether a head can read the hidden states of its target, before either is loaded.

llama.cpp ends the whole process where an architecture hands out no hidden states, or where a head's
matrices do not fit its target's. So each pair is tried once in a child process; what it showed is
remembered.
"""

import json
from contextlib import suppress
from pathlib import Path

from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.gguf.facts import Facts
from localspec.gguf.heads import Head, head_of, require_fitting
from localspec.gguf.reader import display_name
from localspec.llama import library
from localspec.llama.hidden_states import require_functions
from localspec.llama.hidden_states_probe import BEGUN, TARGET_DONE, run_hidden_states_probe
from localspec.llama.sequence import KVSequence
from localspec.speculation.passes import Pass
from localspec.utils.child_process import ChildExit
from localspec.utils.paths import cache_file, stat_signature, write_atomically

# No weights are read: half a second on a slow machine.
_SECONDS = 60
_PROBLEM = "problem"
_REMEDY = "use --draft suffix"


def checked_head(target: Facts, drafter: Facts) -> Head:
    """Return what the head reads of its target.

    Raises DrafterMismatchError if it cannot read this target, and ModelLoadError for a broken head.
    """
    path, target_path = drafter.files[0], target.files[0]
    require_functions()
    head = head_of(path, drafter.header)
    require_fitting(path, drafter.header, target_path, target.header)
    files = [*target.files, *drafter.files]
    remembered = cache_file(
        "head_checks", [*map(stat_signature, files), *library.build_signature()]
    )
    problem = _read(remembered)
    if problem is None:
        problem = _probe(target_path, path, head)
        with suppress(OSError):  # then it is probed again the next time
            write_atomically(remembered, json.dumps({_PROBLEM: problem}))
    if problem:
        raise DrafterMismatchError(problem)
    return head


def require_last_rows(target: KVSequence, name: str, head: Head) -> None:
    """Raise DrafterMismatchError if the head reads rows behind the last layer and there are none.

    The library gives zeros then. The target's cache is empty afterwards, if this had to be tried.
    """
    last = target.context.hidden.n_layer
    if last not in head.layers:
        return
    target.truncate(0)
    (scores,) = target.context.decode([Pass(target, [0], hidden=(last,))])
    found = scores.hidden[last].any()
    target.truncate(0)
    if not found:
        raise DrafterMismatchError(
            f"{display_name(name)} cannot draft for {display_name(target.model.path.name)}: "
            f"llama.cpp hands out no rows behind the last layer of this architecture; {_REMEDY}"
        )


def _read(remembered: Path) -> str | None:
    """Return what is wrong, an empty text if nothing is; None if that is not known."""
    try:
        problem = json.loads(remembered.read_text(encoding="utf-8"))[_PROBLEM]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return problem if isinstance(problem, str) else None


def _probe(target: Path, path: Path, head: Head) -> str:
    """Return what is wrong, an empty text if nothing is.

    Raises ModelLoadError for a result that is not to be remembered.
    """
    name, of = display_name(path.name), display_name(target.name)
    try:
        ended = run_hidden_states_probe(
            target, path, head.layers, seconds=_SECONDS, action=f"trying out {name}"
        )
    except OSError as error:
        raise ModelLoadError(
            f"{name} cannot be tried out: {error.strerror or error}; "
            "no process could be started for it"
        ) from error
    if ended.exit_code == 0:
        return ""
    if TARGET_DONE in ended.output:
        return _only_if_final(
            ended, f"{name} does not fit {of}: {ended.reason}; use the head that was made for it"
        )
    if BEGUN in ended.output:
        return _only_if_final(
            ended,
            f"{name} cannot draft for {of}: llama.cpp hands out no hidden states of this "
            f"architecture ({ended.reason}); {_REMEDY}",
        )
    raise ModelLoadError(f"{name} cannot be tried out: {ended.reason}; {_REMEDY}")


def _only_if_final(ended: ChildExit, problem: str) -> str:
    """Return the problem; raise it if it may be another one at the next try."""
    if ended.crashed or ended.exit_code == ModelLoadError.exit_code:
        return problem
    raise ModelLoadError(problem)
