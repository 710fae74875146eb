"""Ctrl-C at one place after the other: wherever Python looks for signals, each place once."""

import dis
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from types import CodeType, FrameType
from typing import Any

# Behind these instructions a signal's handler may run, and raise; and where a function begins.
LOOKS = ("CALL", "JUMP_BACKWARD")


class Interrupter:
    """Raises KeyboardInterrupt once, at the place of a number, in code of some files.

    place: where it was raised; None before. error: what came out of the work. A call of a Python
    function only counts where that begins: behind it, Python does not look.
    """

    def __init__(self, number: int, files: tuple[str, ...]) -> None:
        self.place: tuple[str, int] | None = None
        self.error: BaseException | None = None
        self._left, self._files = number, files
        # Frames whose last instruction was one of LOOKS.
        self._looks: set[int] = set()

    def run(self, work: Callable[[], object]) -> None:
        """Call `work` in this thread, a new one, with the interrupt."""
        sys.settrace(self._enter)
        try:
            work()
        except BaseException as error:
            self.error = error
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        if frame.f_back:
            self._looks.discard(id(frame.f_back))
        if not frame.f_code.co_filename.endswith(self._files):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._look(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            if id(frame) in self._looks:
                self._looks.discard(id(frame))
                self._look(frame)
            if operations(frame.f_code)[frame.f_lasti].startswith(LOOKS):
                self._looks.add(id(frame))
        elif event == "return":
            self._looks.discard(id(frame))
        return self._step

    def _look(self, frame: FrameType) -> None:
        self._left -= 1
        if not self._left:
            self.place = (frame.f_code.co_qualname, frame.f_lineno)
            raise KeyboardInterrupt


_operations: dict[CodeType, dict[int, str]] = {}


def operations(code: CodeType) -> dict[int, str]:
    """The names of a function's instructions, by their offsets."""
    if code not in _operations:
        _operations[code] = {each.offset: each.opname for each in dis.get_instructions(code)}
    return _operations[code]


def each_interrupt(work: Callable[[], object], files: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Call `work` with an interrupt at each place of these files; yields each place afterwards.

    Meanwhile no garbage is collected: finalizers of what other tests have left swallow interrupts.
    """
    number = 1
    gc.collect()
    gc.disable()
    try:
        while True:
            interrupter = Interrupter(number, files)
            thread = threading.Thread(target=interrupter.run, args=(work,), daemon=True)
            thread.start()
            thread.join(30)
            assert not thread.is_alive(), interrupter.place
            if interrupter.place is None:
                if interrupter.error:
                    raise interrupter.error
                return
            assert isinstance(interrupter.error, KeyboardInterrupt), interrupter.place
            yield interrupter.place
            number += 1
    finally:
        gc.enable()


@contextmanager
def one_interrupt() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Yields what sends SIGINT to the main thread until something holds: once it is an interrupt.

    One signal is not enough: where it comes right before the main thread begins to wait for a lock,
    Python looks at it behind the wait.
    """
    interrupts = iter([KeyboardInterrupt()])

    def handle(*_: object) -> None:
        for each in interrupts:
            raise each

    def send(until: Callable[[], object]) -> None:
        while not until():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            sleep(0.01)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield send
    finally:
        signal.signal(signal.SIGINT, before)
