"""Copier: copies messages and their code to the clipboard, and says so."""

import asyncio
from typing import TYPE_CHECKING

from localspec_tui.clipboard import copied_note, copy_to_programs
from localspec_tui.code_blocks import code_blocks

if TYPE_CHECKING:
    from localspec_tui.app import ChatApp


class Copier:
    """Copies by the terminal, and by the programs of the desktop and of tmux."""

    def __init__(self, app: "ChatApp") -> None:
        self._app = app
        # The message whose code was copied last, and the number of the block, from 1.
        self._last_code = ("", 0)
        # A slow program must not overwrite a text that was copied after its own.
        self._lock = asyncio.Lock()

    def copy(self, text: str) -> None:
        """Copy a text."""
        self._last_code = ("", 0)
        self._copy(text)

    def copy_code(self, message: str) -> None:
        """Copy the last code block of a message; called again, the one before it, and so on."""
        blocks = code_blocks(message)
        if not blocks:
            self._app.notify("the message has no block of code", timeout=2)
            return
        last_message, last = self._last_code
        number = last - 1 if message == last_message and last > 1 else len(blocks)
        self._last_code = (message, number)
        self._copy(blocks[number - 1], f"block {number} of {len(blocks)}" * (len(blocks) > 1))

    def _copy(self, text: str, which: str = "") -> None:
        self._app.copy_to_clipboard(text)
        self._app.run_worker(self._copy_to_programs(text, which))

    async def _copy_to_programs(self, text: str, which: str) -> None:
        """Copy a text by programs, too, and say where it is now. which: of several."""
        async with self._lock:
            in_desktop, in_tmux = await asyncio.to_thread(copy_to_programs, text)
        note = copied_note(len(text), in_desktop=in_desktop, in_tmux=in_tmux)
        note = f"{which} {note}".lstrip()
        self._app.notify(note, timeout=2 if in_desktop else 6)
