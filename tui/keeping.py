"""Keeping: the end of a chat, where what the model has read is written to disk."""

from localspec.cli.interrupt import on_interrupt
from localspec.cli.status_line import StatusLine
from localspec_tui.engine_thread import EngineThread

_WORDS = "keeping what was read of the conversation; Ctrl-C leaves that"


def wait_until_kept(engine_thread: EngineThread, *, is_shown: bool = True) -> str | None:
    """Wait for it, or until a Ctrl-C; returns why it is not kept, None if it is, or need not be.

    is_shown: whether a line says so, where it takes a while.
    """
    if not engine_thread.keeps:
        return None
    with on_interrupt(lambda *_: engine_thread.give_up_keeping()), StatusLine() as status:
        if is_shown:
            status.show(_WORDS)
        return engine_thread.wait()
