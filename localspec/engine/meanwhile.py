"""Meanwhile: passes of the target, and beside them what their texts leave until then.

The calling thread computes the target's passes. For a text alone, the drafter's own thread computes
passes of the drafter until that is done; for several texts, another thread does what their drafters
do in Python. None holds Python's lock while the library computes.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from localspec.llama.compute_thread import OwnThread
from localspec.llama.context import Context
from localspec.llama.sequence import KVSequence
from localspec.speculation.aside import Aside
from localspec.speculation.passes import Pass, Passes, Scores, direct

_Result = TypeVar("_Result")


def compute(requested: Pass) -> Scores:
    """Compute a pass, and as many of its `meanwhile` as there is time for.

    Returns, or raises, after the last of them has ended.
    """
    passes = requested.meanwhile
    first = next(passes, None) if passes else None
    thread = cast(KVSequence, first.sequence).model.thread if first else None
    if passes is None or first is None or thread is None:
        return direct(requested)
    return _beside(
        thread,
        lambda is_done: _compute_until(is_done, passes, first),
        lambda: direct(requested),
    )


def decode(
    context: Context, passes: Sequence[Pass], thread: Callable[[], OwnThread]
) -> list[Scores]:
    """Compute passes in one decode, and beside it what they have to do aside.

    thread: returns the one that does that. Returns, or raises, after the last of it has ended; what
    there was no time for is left.
    """
    asides = [each.aside for each in passes if each.aside]
    if not asides:
        return context.decode(passes)
    try:
        own = thread()
    except RuntimeError:  # no thread can be started
        return context.decode(passes)
    return _beside(
        own,
        lambda is_done: _do_until(is_done, asides),
        lambda: context.decode(passes),
    )


def _beside(
    thread: OwnThread, work: Callable[[list[bool]], None], compute: Callable[[], _Result]
) -> _Result:
    """Compute here, and let a thread work until that is done; return, or raise, behind both.

    work: is given a list that is empty until then.
    """
    # An event's lock could stay locked behind an interrupt.
    is_done: list[bool] = []
    task = thread.task(lambda: work(is_done))
    try:
        task.submit()
        result = compute()
    finally:
        task.wait(lambda: is_done.append(True))
    task.result()
    return result


def _do_until(is_done: list[bool], asides: Sequence[Aside]) -> None:
    """Do one after the other, until the decode is done."""
    for aside in asides:
        if is_done:
            return
        aside.do()


def _compute_until(is_done: list[bool], passes: Passes[None], requested: Pass) -> None:
    """Compute passes, the first one in any case, until the target's is done or they end."""
    try:
        while True:
            try:
                scores = direct(requested)
            except Exception as error:
                requested = passes.throw(error)
                continue
            requested = passes.send(scores)
            if is_done:
                return
    except StopIteration:
        return
