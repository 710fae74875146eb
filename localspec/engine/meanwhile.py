"""Meanwhile: a pass of the target, and beside it what its drafter draws ahead.

The calling thread computes the target's pass, and the drafter's own thread computes passes of the
drafter until that is done. Neither holds Python's lock while the library computes.
"""

from typing import cast

from localspec.llama.sequence import KVSequence
from localspec.speculation.passes import Pass, Passes, Scores, direct


def compute(requested: Pass) -> Scores:
    """Compute a pass, and as many of its `meanwhile` as there is time for.

    Returns, or raises, after the last of them has ended.
    """
    passes = requested.meanwhile
    first = next(passes, None) if passes else None
    thread = cast(KVSequence, first.sequence).model.thread if first else None
    if passes is None or first is None or thread is None:
        return direct(requested)
    # An event's lock could stay locked behind an interrupt.
    is_done: list[bool] = []
    task = thread.task(lambda: _compute_until(is_done, passes, first))
    try:
        task.submit()
        scores = direct(requested)
    finally:
        task.wait(lambda: is_done.append(True))
    task.result()
    return scores


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
