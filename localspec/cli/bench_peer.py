"""`localspec bench --peer`: which of llama.cpp's own programs to compare with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from localspec.bench.peer_program import PeerProgram, peer_program
from localspec.bench.tool import TOOL
from localspec.cli.options import comma_separated, stacked
from localspec.errors import InvalidValueError
from localspec.llama.placement import Placement
from localspec.loading.config import RuntimeConfig
from localspec.utils.paths import real_path

peer_options = stacked(
    click.option(
        "--peer",
        metavar="FILE",
        help=f"Compare with one of llama.cpp's own programs: with {TOOL} text by text, with "
        "llama-server beside our own server, under the same load of --users. [default: of one]",
    ),
    click.option(
        "--peer-drafts",
        metavar="LIST",
        help="The peer's draft types, separated by commas, such as draft-simple:8,ngram-simple. "
        f"[default: of {TOOL} all that can work, of llama-server none, that of the drafter, and "
        "ngram-simple]",
    ),
)


@dataclass(frozen=True, slots=True)
class Peer:
    """What to compare with.

    drafts: its draft types; none named: the usual ones. users: of a server.
    """

    program: PeerProgram
    drafts: Sequence[str]
    users: list[int]


def peer_of(
    peer: str | None, drafts: str | None, users: list[int], *, one_text: bool, compare: bool
) -> Peer | None:
    """The peer that the options name, if any.

    one_text: whether options ask for texts that are equal bit for bit. compare: whether an earlier
    benchmark is to be compared with. Raises InvalidValueError.
    """
    if peer is None:
        if drafts:
            raise InvalidValueError(f"--peer-drafts {drafts}: name the program with --peer")
        return None
    if one_text:
        raise InvalidValueError(
            "--peer measures speed only; leave out --verify and --reproducible, or --peer"
        )
    program = peer_program(real_path(Path(peer).expanduser()), peer)
    if not program.is_server and users:
        raise InvalidValueError(
            f"--peer {peer}: {TOOL} writes one text at a time; leave out --users, or name a "
            "llama-server"
        )
    if not program.is_server and compare:
        raise InvalidValueError(
            f"--peer {peer}: what is measured beside {TOOL} cannot be compared with an earlier "
            "benchmark; leave out --compare, or --peer"
        )
    return Peer(program, comma_separated(drafts or ""), users or [1])


def require_same_places(runtime: RuntimeConfig) -> None:
    """Raise InvalidValueError where the peer would run elsewhere than localspec."""
    if runtime.placement != Placement(runtime.placement.gpu_layers) or runtime.drafter_placement:
        raise InvalidValueError(
            f"--peer cannot be measured with models {runtime.placement_in_words}: of the options "
            "that say where they are, name --gpu-layers alone"
        )
