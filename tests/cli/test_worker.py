"""`localspec worker`, and `--rpc` on the other side."""

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes.command_line import Run, lines_of, localspec
from fakes.workers import require_rpc

from localspec.errors import WorkerError
from localspec.llama import unfit_gpus
from localspec.llama.devices import Device
from localspec.loading.config import RuntimeConfig
from localspec.utils.format import format_bytes
from localspec.utils.paths import cache_folder
from localspec.workers.address import Address

ASK = ("generate", "How do I list files by size?", "-n", "30", "--seed", "3", "--no-stream")


@contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """`localspec worker --port 0`, and what it says until it serves."""
    require_rpc()
    command = [sys.executable, "-m", "localspec", "worker", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        lines = []
        while not lines or "Ctrl-C ends it" not in lines[-1]:
            line = process.stderr.readline()
            assert line, lines
            lines.append(line.rstrip())
        try:
            yield process, lines_of("\n".join(lines))
        finally:
            process.kill()


def address_in(lines: list[str]) -> str:
    """The address that the worker told."""
    return lines[-1].partition("--rpc ")[2].partition(";")[0]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_it_serves_until_ctrl_c() -> None:
    with started("--threads", "1") as (process, lines):
        assert lines[0].startswith(f"localspec: worker at {address_in(lines)} · ")
        assert address_in(lines).startswith("127.0.0.1:")
        assert len(lines) == 2
        found = localspec(*ASK, "--rpc", address_in(lines))
        again = localspec(*ASK, LOCALSPEC_RPC=address_in(lines))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr and not process.stderr.read().strip()
    assert found.out == again.out == localspec(*ASK).out
    gone = localspec(*ASK, "--rpc", address_in(lines))
    assert gone.code == 8
    assert gone.err.startswith(f"localspec: error: the worker {address_in(lines)} cannot be")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_it_begins_again_where_its_process_ends() -> None:
    with started() as (process, lines):
        (child,) = psutil.Process(process.pid).children()
        child.kill()
        assert process.stderr
        assert process.stderr.readline() == (
            "localspec: the worker ended (SIGKILL); it begins again\n"
        )
        assert address_in(lines) in process.stderr.readline()
        assert address_in(lines) in process.stderr.readline()
        assert localspec(*ASK, "--rpc", address_in(lines)).code == 0


def test_at_all_addresses_it_warns() -> None:
    with started("--host", "0.0.0.0") as (_, lines):
        assert "warning: whoever can reach 0.0.0.0:" in lines[1]
        assert "neither password nor encryption" in lines[1]
        assert f"--rpc {socket.gethostname()}:" in lines[2]


def test_tensors_are_kept_where_it_says() -> None:
    with started("--cache") as (_, lines):
        folder = cache_folder("tensors")
        assert str(folder) in lines[0]
        assert folder.is_dir()


def test_a_port_that_is_taken(cli: Run) -> None:
    require_rpc()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = localspec("worker", "--port", str(port))
    assert done.code == 8
    said = f"no worker can listen at 127.0.0.1:{port} ({os.strerror(errno.EADDRINUSE)})"
    assert done.lines[-1] == f"localspec: error: {said}; try another --port"


def test_an_address_of_another_machine(cli: Run) -> None:
    require_rpc()
    done = localspec("worker", "--host", "192.0.2.1", "--port", "0")
    assert done.code == 8
    said = f"no worker can listen at 192.0.2.1:0 ({os.strerror(errno.EADDRNOTAVAIL)})"
    assert done.lines[-1] == f"localspec: error: {said}; try another --host"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--port", "65536"), "--port is 65536; "),
        (("--threads", "0"), "--threads is 0; "),
        (("--host", "nowhere.invalid"), "--host is 'nowhere.invalid'; "),
    ],
)
def test_what_makes_no_sense(cli: Run, options: tuple[str, ...], message: str) -> None:
    done = cli("worker", *options)
    assert done.code == 2
    assert message in done.err


def test_a_build_without_rpc_says_which_command_helps(
    cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.llama.rpc.is_available", lambda: False)
    done = cli("worker")
    assert done.code == 5
    assert "localspec worker --build" in done.err


def test_build_names_the_file(cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("localspec.llama.rpc_build.build", lambda: tmp_path / "rpc.so")
    assert cli("worker", "--build").out == f"{tmp_path / 'rpc.so'}\n"


def test_addresses_are_checked_before_anything_is_loaded(cli: Run) -> None:
    assert "--rpc is 'desk:x'; a worker is named HOST:PORT" in cli(*ASK, "--rpc", "desk:x").err


@pytest.mark.parametrize("works", [True, False])
def test_gpus_that_do_not_work_are_not_lent(
    cli: Run, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """Whoever computes there would lose the worker, or get wrong numbers."""
    gpu, lent = Device("Vulkan0", "a GPU", "gpu", 2**30, 2**30), list[Any]()

    class Server:
        def __init__(self, address: Address, **options: Any) -> None:
            self.address = address
            lent.extend(options["gpus"])

        def __enter__(self) -> "Server":
            return self

        def __exit__(self, *_exc: object) -> None: ...

        def ended(self, _seconds: float) -> None:
            raise WorkerError("the test ends it")

    def tried_out(_runtime: RuntimeConfig) -> None:
        if not works:
            unfit_gpus.add(gpu.name, "llama.cpp failed there (no kernel image)")

    monkeypatch.setattr(unfit_gpus, "_reasons", {})
    monkeypatch.setattr("localspec.llama.devices.devices", lambda: [gpu])
    monkeypatch.setattr("localspec.cli.worker.devices", lambda: [gpu])
    monkeypatch.setattr("localspec.cli.worker.require_known_version", lambda: None)
    monkeypatch.setattr("localspec.cli.worker.own_version", lambda: (4, 0, 0))
    monkeypatch.setattr("localspec.cli.worker.check_gpus", tried_out)
    monkeypatch.setattr("localspec.cli.worker.RpcServer", Server)
    done = cli("worker", "--threads", "3")
    assert lent == ([gpu.name] if works else [])
    if works:
        assert f" · a GPU, {format_bytes(gpu.free)} free · " in done.lines[0]
    else:
        assert done.lines[0].startswith("localspec: Vulkan0 is not used: llama.cpp failed there")
        assert " · processor, 3 threads · " in done.lines[1]
