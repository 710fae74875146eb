"""Machine: findings about threads and memory."""

import psutil

from localspec.doctor.finding import Finding, note, ok, warning
from localspec.utils.format import format_bytes

_LITTLE_BYTES = 2 * 10**9


def threads(most: int | None, share: float | None) -> Finding:
    """Compare threads with the processor time there is.

    most: the threads that a large model gets, None if that is not known. share: the number of
    processors whose time a container gets, None where there is no limit.
    """
    logical = psutil.cpu_count() or 1
    text = f"{logical} processors" + (f", {most} threads for a large model" if most else "")
    if most and share is not None and share < most:
        return note(
            "threads",
            f"{text}, and this container gets the time of {share:g}",
            f"--threads {max(1, int(share))}",
        )
    return ok("threads", text)


def memory(free: int | None) -> Finding:
    """Check how much memory is left.

    free: the bytes that models can still get, limits of a container included; None if not known.
    """
    machine = psutil.virtual_memory()
    free = machine.available if free is None else free
    text = f"{format_bytes(free)} of {format_bytes(machine.total)} can be had"
    if free < _LITTLE_BYTES:
        return warning("memory", text, "end other programs, or take small models and --ctx 2048")
    return ok("memory", text)
