"""RPC server: the process of a worker, which llama.cpp's code may end.

`RpcServer` starts it, `main` is that process's program.
"""

import errno
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from time import monotonic
from typing import Any

from localspec.errors import ModelLoadError, WorkerError
from localspec.llama import rpc, rpc_build
from localspec.utils.child_process import ChildExit, ChildProcess, exit_code_of
from localspec.utils.closing import Closing
from localspec.utils.paths import cache_file
from localspec.utils.stored_json import stored, try_to_store
from localspec.workers import protocol
from localspec.workers.address import Address
from localspec.workers.hello import ask_version

# The most seconds until a worker listens: on a GPU, a driver may take long to start.
_START_SECONDS = 60.0
_POLL_SECONDS = 0.05


class RpcServer(Closing):
    """A worker that listens at `address`; use it in a `with`, which ends it.

    address: an IPv4 address of this machine, and a port; 0 is any free one. threads: of the
    processor. cache_folder: where large tensors are kept by their hash; None: nowhere. gpus: the
    names of those that are lent; the processor is where none is.

    Raises WorkerError if it does not start.
    """

    def __init__(
        self,
        address: Address,
        *,
        threads: int = 1,
        cache_folder: str | None = None,
        gpus: Sequence[str] = (),
    ) -> None:
        self.address = _free_address(address)
        arguments = [self.address.host, str(self.address.port), str(threads), cache_folder or ""]
        self._process = ChildProcess(__name__, *arguments, *gpus)
        try:
            self._wait_until_it_listens()
        except BaseException:
            self.close()
            raise

    def _wait_until_it_listens(self) -> None:
        # Whoever listens at all addresses of a machine listens at this one.
        host = "127.0.0.1" if self.address.host == "0.0.0.0" else self.address.host
        end = monotonic() + _START_SECONDS
        while monotonic() < end:
            if ended := self._process.ended(_POLL_SECONDS):
                raise _cannot_listen(self.address, ended.reason)
            with suppress(OSError):
                socket.create_connection((host, self.address.port), _START_SECONDS).close()
                return
        raise _cannot_listen(self.address, f"nothing for {_START_SECONDS:g} seconds")

    def ended(self, seconds: float = 0) -> ChildExit | None:
        """Wait for so long for its end; None if it still runs then."""
        return self._process.ended(seconds)

    def close(self) -> None:
        """End it."""
        self._process.close()


def _free_address(address: Address) -> Address:
    """Return an address at which nobody listens yet. Raises WorkerError."""
    try:
        with socket.create_server(address) as server:
            return Address(address.host, server.getsockname()[1])
    except OSError as error:
        # Python adds the address in words of its own, but on Windows.
        reason = error.strerror or str(error)
        if error.errno and os.name != "nt":
            reason = os.strerror(error.errno)
        elsewhere = error.errno == errno.EADDRNOTAVAIL
        raise _cannot_listen(address, reason, "--host" if elsewhere else "--port") from error


def _cannot_listen(address: Address, reason: str, other: str = "--port") -> WorkerError:
    return WorkerError(f"no worker can listen at {address} ({reason}); try another {other}")


@cache
def own_version() -> tuple[int, int, int]:
    """Return the version of the protocol that this machine's llama.cpp speaks.

    It tells only those that connect to it, so a worker is started for a moment, once per build.
    Raises WorkerError.
    """
    file = cache_file("rpc", [str(rpc_build.built_file()), "version"])
    if known := stored(file, _version):
        return known
    with RpcServer(Address("127.0.0.1", 0)) as server:
        version = ask_version(server.address)
    try_to_store(file, {"version": version})
    return version


def _version(record: Any) -> tuple[int, int, int]:
    major, minor, patch = map(int, record["version"])
    return major, minor, patch


def require_known_version() -> None:
    """Raise ModelLoadError unless this machine's llama.cpp speaks the version that we know."""
    rpc.require_available()
    if own_version() != protocol.VERSION:
        raise ModelLoadError(
            f"this build of llama.cpp speaks version {protocol.version_text(own_version())} of its "
            f"RPC protocol, and localspec {protocol.version_text(protocol.VERSION)}; install "
            "llama-cpp-python 0.3.36"
        )


def main(host: str, port: str, threads: str, cache_folder: str, *gpus: str) -> int:
    """Serve until this process is ended."""
    # The library prints what the parent says in words of its own.
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    address = Address(host, int(port))
    return exit_code_of(lambda: rpc.serve(address, int(threads), cache_folder or None, gpus)) or 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
