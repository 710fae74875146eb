"""`localspec worker`: lend this machine's processor or GPUs to another one's localspec."""

import socket
from collections.abc import Sequence

import click

from localspec.cli.options import threads_option
from localspec.cli.output import Output, join_facts
from localspec.errors import InvalidValueError
from localspec.generation_config import require
from localspec.llama import rpc_build, unfit_gpus
from localspec.llama.bounds import MOST_THREADS
from localspec.llama.devices import devices, usual_gpus
from localspec.llama.rpc_server import RpcServer, own_version, require_known_version
from localspec.loading.config import RuntimeConfig
from localspec.loading.gpu_check import check_gpus
from localspec.utils.cores import performance_cores
from localspec.utils.format import format_bytes
from localspec.utils.paths import cache_folder, make_private_folder
from localspec.workers.address import DEFAULT_PORT, Address
from localspec.workers.protocol import version_text

_LOOPBACK, _EVERYWHERE = "127.", "0.0.0.0"


@click.command("worker")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address of this machine to listen at; 0.0.0.0 is all of them.",
)
@click.option(
    "--port", type=int, default=DEFAULT_PORT, show_default=True, help="0 is any free one."
)
@click.option(
    "--cache", is_flag=True, help="Keep large tensors on this disk, so that they are sent once."
)
@threads_option
@click.option(
    "--build", is_flag=True, help="Compile what llama.cpp lacks for it, in seconds, and end."
)
def worker(*, host: str, port: int, cache: bool, threads: int | None, build: bool) -> int:
    """Compute layers for localspec on another machine, which names this one with --rpc.

    A worker serves one program at a time, with its GPUs, or its processor where it has none. Both
    machines need the same version of llama-cpp-python. Ctrl-C ends it.
    """
    output = Output()
    if build:
        output.note("fetching llama.cpp's sources with pip, and compiling its RPC")
        output.data(f"{rpc_build.build()}\n")
        return 0
    require("port", port, 0, 65535)
    if threads is not None:
        require("threads", threads, 1, MOST_THREADS)
    address = Address(_ip_address(host), port)
    require_known_version()
    folder = _tensor_folder(output) if cache else None
    check_gpus(RuntimeConfig())
    for note in unfit_gpus.notes():
        output.note(note)
    _serve(address, threads or performance_cores(), folder, output)
    return 0


def _ip_address(host: str) -> str:
    """Return the IPv4 address of a name. Raises InvalidValueError."""
    try:
        return socket.gethostbyname(host)
    except (OSError, UnicodeError) as error:
        raise InvalidValueError(
            f"host is {host!r:.80}; it must be an IPv4 address of this machine"
        ) from error


def _tensor_folder(output: Output) -> str:
    folder = cache_folder("tensors")
    make_private_folder(folder)
    output.note(f"tensors are kept in {folder}, which nothing but you empties")
    return str(folder)


def _serve(address: Address, threads: int, folder: str | None, output: Output) -> None:
    """Serve until Ctrl-C; where llama.cpp ends the process, begin again at the same address."""
    version, gpus = version_text(own_version()), usual_gpus()
    while True:
        with RpcServer(address, threads=threads, cache_folder=folder, gpus=gpus) as process:
            address = process.address
            output.note(
                join_facts([f"worker at {address}", _devices(gpus, threads), f"protocol {version}"])
            )
            if not address.host.startswith(_LOOPBACK):
                output.note(
                    f"warning: whoever can reach {address} can use this machine and may take it "
                    "over, for llama.cpp's protocol has neither password nor encryption; listen in "
                    "a network that you trust, or at 127.0.0.1 behind an SSH tunnel"
                )
            name = socket.gethostname() if address.host == _EVERYWHERE else address.host
            where = "this" if address.host.startswith(_LOOPBACK) else "the other"
            output.note(
                f"on {where} machine: localspec chat --rpc {name}:{address.port}; Ctrl-C ends it"
            )
            while (ended := process.ended(1.0)) is None:
                pass
        output.note(f"the worker ended ({ended.reason}); it begins again")


def _devices(gpus: Sequence[str], threads: int) -> str:
    lent = [each for each in devices() if each.name in gpus]
    names = [f"{each.description}, {format_bytes(each.free)} free" for each in lent]
    return ", ".join(names) or f"processor, {threads} threads"
