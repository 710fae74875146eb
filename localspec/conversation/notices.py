"""Notices: lines for the user about the models of a session, each said once."""

from collections.abc import Iterable

from localspec.conversation.transcript import Transcript
from localspec.engine.media_marks import LEAVES_OUT
from localspec.engine.slot import Slot
from localspec.engine.slots import Slots

_MERGED = "the model's template refuses these turns: some are joined into one"

_UNREAD = (
    "{} cannot see or hear the files of this conversation; in their place it reads their names, "
    "such as {}"
)


class Notices:
    """What the user of a slot was told of its models, by the engine's `notes` at first."""

    def __init__(self, slots: Slots, slot: Slot) -> None:
        self._slots, self._slot = slots, slot
        self._told = {*slot.loaded.notes, slots.failures}

    def new(self, transcript: Transcript, useless: Iterable[str] = ()) -> list[str]:
        """What the user was not told yet of the models, and of what they read otherwise.

        useless: which options have no effect, one line each.
        """
        loaded, failures = self._slot.loaded, self._slots.failures
        merged = _MERGED if transcript.merged else None
        unread = transcript.unread and _UNREAD.format(transcript.model.path.name, transcript.unread)
        left_out = transcript.leaves_out and LEAVES_OUT.format(transcript.model.path.name)
        projector = self._slot.target.model.projector
        own = loaded.apart, loaded.threads_note, projector and projector.note, loaded.drafters.lost
        lines = (merged, unread, left_out, *own, failures, *useless)
        new = [line for line in lines if line and line not in self._told]
        self._told.update(new)
        return new
