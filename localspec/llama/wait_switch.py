"""Wait switch: makes the waits of GNU's OpenMP short, and long again, while the process runs."""

import ctypes
import os
import threading
from typing import Protocol

from localspec.llama import openmp
from localspec.utils.busy_cores import allowed_cores

# Who sets these has decided how threads wait, or how many there may be.
_DECIDED = (
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "OMP_DYNAMIC",
    "OMP_THREAD_LIMIT",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "GOMP_CPU_AFFINITY",
)
# Threads that there must be room for beside those that are needed: others may begin meanwhile.
_SPARE = 4


class WaitSwitch(Protocol):
    """Makes waits long or short. is_short: how they are."""

    is_short: bool

    def make(self, *, short: bool, threads: int) -> bool:
        """Make waits short, or long again; return whether anything was done for it.

        threads: those of the coming passes, 2 or more.
        """
        ...


class GnuSwitch:
    """The switch of GNU's OpenMP.

    As soon as it has more threads than there are cores, in use or not, they spin a three-thousandth
    as long. So a thread of ours keeps a team that does nothing, as large as that takes. Where there
    is no room for so many threads, waits stay long.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.is_short = False
        self._library = library
        self._team: _IdleTeam | None = None
        self._size = 0

    def make(self, *, short: bool, threads: int) -> bool:
        """Make waits short, or long again; return whether anything was done for it."""
        size = max(2, len(allowed_cores()) - threads + 2) if short else 0
        if size <= self._size and short == bool(self._size):
            return False
        if self._team:
            self.is_short, self._size = False, 0
            self._team.close()
            self._team = None
        if short:
            self._team = _IdleTeam(self._library, size)
            self.is_short = self._team.start()
            self._size = size
        return True


class _IdleTeam:
    """A team of threads that wait for work until it is closed."""

    def __init__(self, library: ctypes.CDLL, size: int) -> None:
        self._library = library
        self._size = size
        self._begun, self._end = threading.Event(), threading.Event()
        self._made = False
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def start(self) -> bool:
        """Make the threads; return whether there is room for them."""
        try:
            self._thread.start()
            self._begun.wait()
        except RuntimeError:
            return False
        except BaseException:
            self._end.set()
            raise
        return self._made

    def close(self) -> None:
        """End the threads."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _keep(self) -> None:
        try:
            if self._has_room():
                nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
                self._library.GOMP_parallel(nothing, None, self._size, 0)
                self._made = True
        finally:
            self._begun.set()
        # The team ends with this thread.
        self._end.wait()

    def _has_room(self) -> bool:
        """Whether so many threads can be made: OpenMP ends the process where they cannot."""
        end, threads = threading.Event(), list[threading.Thread]()
        try:
            for _ in range(self._size + _SPARE):
                threads.append(threading.Thread(target=end.wait, daemon=True))
                threads[-1].start()
        except RuntimeError:
            threads.pop()
            return False
        finally:
            end.set()
            for each in threads:
                each.join()
        return True


def wait_switch() -> GnuSwitch | None:
    """The switch of this process; None where there is nothing to switch."""
    library = openmp.gnu_library()
    if library and hasattr(library, "GOMP_parallel") and not any(map(os.environ.get, _DECIDED)):
        return GnuSwitch(library)
    return None
