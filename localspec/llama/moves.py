"""Moves: all texts of a context leave its cache, for a larger one, for a while, or for good."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import llama_cpp

from localspec.errors import LOST, DeviceError, ModelLoadError

if TYPE_CHECKING:
    from localspec.llama.context import Context


def resize(context: "Context", texts: int) -> None:
    """Make a cache for so many texts, and those of heads beside it, and copy all texts to them.

    Raises ModelLoadError, and changes nothing, if the new caches do not fit beside the old ones;
    DeviceError if one was lost, and cannot be made anew.
    """
    for each in (context, *context.head_contexts):
        if each.has_failed:
            each.renew()
    with ExitStack() as undo:
        handle = context.new_handle(texts)
        undo.callback(llama_cpp.llama_free, handle)
        moves: list[tuple[Context, Any, int]] = [(context, handle, texts)]
        for head in context.head_contexts:
            places = head.places_beside(texts)
            moves.append((head, head.new_handle(places, handle), places))
            undo.callback(llama_cpp.llama_free, moves[-1][1])
        undo.pop_all()
    # Called last to first, and all of them, also after an interrupt.
    with ExitStack() as rest:
        for each, handle, places in moves:
            rest.callback(llama_cpp.llama_free, each.handle)
            rest.callback(each.move_to, handle, places)


def renew(context: "Context") -> None:
    """Make a cache anew, and those of heads beside it, as its device has failed.

    No scores may be in use. All texts are lost there, and evaluated again with their next passes.
    Raises DeviceError if memory is too small now: the next use tries again. For a head nothing is
    raised: its next use tries again.
    """
    for each in (*reversed(context.head_contexts), context):
        each.has_failed = True
        each.free()
    begin_anew(context)
    for head in context.head_contexts:
        with suppress(*LOST):
            begin_anew(head)


def begin_anew(context: "Context") -> None:
    """Make the cache of a context anew that was freed. Raises DeviceError where it does not fit."""
    try:
        context.begin_anew()
    except ModelLoadError as error:
        raise DeviceError(f"the device has failed, and then {error}") from error


@contextmanager
def emptied(context: "Context") -> Iterator[None]:
    """Copy all texts out of the cache, which may be emptied, and back into it at the end.

    No scores may be in use. A text that cannot be copied is evaluated again with its next pass.
    """
    copies = []
    for sequence in context.sequences:
        sequence.roll_back()
        copies.append(sequence.memory.copy() if sequence.memory.length else None)
    try:
        yield
    finally:
        for sequence, copy in zip(context.sequences, copies, strict=True):
            sequence.memory.move(copy)
