"""Servers: the contenders of `localspec bench --peer`, ours and llama-server's, as commands."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from localspec.bench.configurations import PLAIN, Configuration, Sweep, at_depth
from localspec.drafters.model_free import MODEL_FREE
from localspec.drafters.spec import AUTO, NONE, DraftOption, join_names
from localspec.errors import InvalidValueError
from localspec.gguf.block_heads import DFLASH, DSPARK
from localspec.gguf.facts import facts_of
from localspec.gguf.heads import EAGLE3, MTP
from localspec.loading.config import RuntimeConfig
from localspec.models.kinds import DRAFT_MODEL
from localspec.models.suggestions import drafter_kind

PEER = "llama-server"
NO_REPACK = "--no-repack"
# What llama-server calls the kinds of drafters.
_TYPES = {
    DRAFT_MODEL: "draft-simple",
    EAGLE3: "draft-eagle3",
    MTP: "draft-mtp",
    DFLASH: "draft-dflash",
    DSPARK: "draft-dspark",
}
_ALL_LAYERS = 999
_TYPE = re.compile(r"([a-z0-9-]{1,40})(?::([1-9][0-9]?))?")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What all servers serve.

    context: the most tokens of a text. threads: of a llama-server. runtime: as the user asked for;
    where it names no threads, ours takes as many as it does without being measured. repack: whether
    weights may be rearranged for faster kernels; not where this build crashes with that.
    """

    target: Path
    context: int
    threads: int
    runtime: RuntimeConfig
    repack: bool = True


class Server(Protocol):
    """A contender.

    name: in reports. is_peer: whether it is not ours. is_optional: whether it may be left out where
    it does not start.
    """

    @property
    def name(self) -> str: ...
    @property
    def is_peer(self) -> bool: ...
    @property
    def is_optional(self) -> bool: ...

    def command(self, port: int, users: int) -> list[str]:
        """The command that serves so many users at once on a port of 127.0.0.1."""

    def members(self) -> Mapping[str, Any]:
        """What its requests say besides what all say."""


@dataclass(frozen=True, slots=True)
class OwnServer:
    """`localspec serve` in one configuration. draft: what it drafts with."""

    configuration: Configuration
    draft: Sequence[DraftOption]
    model: ServedModel
    rule: str

    is_peer = False
    is_optional = False

    @property
    def name(self) -> str:
        return self.configuration.name

    def command(self, port: int, users: int) -> list[str]:
        runtime = self.model.runtime
        # Named although they are the defaults: settings of the user count for the peer neither.
        options = {
            "--model": self.model.target,
            "--draft": join_names(str(each) for each in self.draft),
            "--depth": "auto",
            "--ctx": self.model.context,
            "--parallel": users,
            "--kv-type": runtime.kv_type,
            "--draft-kv-type": runtime.drafter_kv_type,
            "--threads": runtime.threads,
            "--gpu-layers": runtime.gpu_layers,
            "--host": "127.0.0.1",
            "--port": port,
        }
        return [sys.executable, "-P", "-m", "localspec", "serve", *_flat(options)]

    def members(self) -> Mapping[str, Any]:
        depth = self.configuration.depth
        return {"localspec": {"rule": self.rule} | ({} if depth is None else {"depth": depth})}


@dataclass(frozen=True, slots=True)
class PeerServer:
    """llama-server with one type of drafts.

    type: of `--spec-type`. depth: the most tokens of a draft; None is its default. drafter: None
    for types without one, and for heads inside the target.
    """

    binary: Path
    type: str
    depth: int | None
    drafter: Path | None
    model: ServedModel
    is_optional: bool

    is_peer = True

    @property
    def name(self) -> str:
        depth = "" if self.depth is None else f":{self.depth}"
        return PEER if self.type == NONE else f"{PEER} {self.type}{depth}"

    def command(self, port: int, users: int) -> list[str]:
        runtime, threads = self.model.runtime, self.model.threads
        asked = runtime.gpu_layers
        layers = _ALL_LAYERS if asked in (None, -1) else asked
        options = {
            "--model": self.model.target,
            "--spec-type": self.type,
            "--parallel": users,
            "--ctx-size": self.model.context * users,
            "--threads": threads,
            "--threads-batch": threads,
            "--n-gpu-layers": layers,
            "--host": "127.0.0.1",
            "--port": port,
            # Nothing is asked for twice: texts of ended requests need not be kept.
            "--cache-ram": 0,
            "--spec-draft-n-max": self.depth,
        }
        if self.drafter:
            own = runtime.threads_for(facts_of(self.drafter).size)
            options |= {
                "--spec-draft-model": self.drafter,
                "--spec-draft-ngl": layers,
                "--spec-draft-threads": own,
                "--spec-draft-threads-batch": own,
            }
        return [str(self.binary), *_flat(options), *([] if self.model.repack else [NO_REPACK])]

    def members(self) -> Mapping[str, Any]:
        return {}


def own_servers(sweep: Sweep, model: ServedModel, rule: str) -> list[OwnServer]:
    """Ours: plain decoding, then the drafts of a sweep at each depth; `auto` if it names none.

    Raises what `Sweep.choices` raises.
    """
    servers = [OwnServer(Configuration(PLAIN, NONE, None), [NONE], model, rule)]
    for draft in dict.fromkeys(sweep.drafts or [AUTO]):
        if draft == NONE:
            continue
        choices = sweep.choices(draft)
        named = draft if draft in (*MODEL_FREE, AUTO) else Path(str(choices[0])).stem
        servers += [
            OwnServer(Configuration(at_depth(named, depth), draft, depth), choices, model, rule)
            for depth in sweep.depths
        ]
    return servers


def peer_servers(
    binary: Path, drafts: Sequence[str], drafter: DraftOption | None, model: ServedModel
) -> list[PeerServer]:
    """llama-server with these drafts, else without any, with the drafter, and with n-grams.

    drafts: types of its `--spec-type`, each with `:N` behind it for drafts of N tokens. drafter:
    ours, if it is a model. Raises InvalidValueError for what is no type.
    """
    usual = _usual_type(model.target, drafter)
    names = drafts or [NONE, *filter(None, [usual]), "ngram-simple"]
    return [_peer(binary, name, drafter, model, not drafts and name != NONE) for name in names]


def _peer(
    binary: Path, name: str, drafter: DraftOption | None, model: ServedModel, optional: bool
) -> PeerServer:
    found = _TYPE.fullmatch(name)
    if not found or (found[2] and not found[1].startswith("draft-")):
        raise InvalidValueError(
            f"--peer-drafts {name!r:.60}: it must be none, ngram-simple, draft-simple, "
            "draft-simple:8 or another --spec-type of llama-server"
        )
    needs_file = found[1].startswith("draft-") and drafter != MTP
    if needs_file and drafter is None:
        raise InvalidValueError(f"--peer-drafts {name}: there is no drafter; name one with --draft")
    file = Path(str(drafter)) if needs_file else None
    depth = int(found[2]) if found[2] else None
    return PeerServer(binary, found[1], depth, file, model, optional)


def _usual_type(target: Path, drafter: DraftOption | None) -> str | None:
    """llama-server's type for this drafter of ours; None if there is none."""
    if drafter is None:
        return None
    if drafter == MTP:
        return _TYPES[MTP]
    return _TYPES.get(drafter_kind(facts_of(target), facts_of(Path(str(drafter)))))


def _flat(options: Mapping[str, object]) -> list[str]:
    """The options with a value, as words."""
    return [
        word for name, value in options.items() if value is not None for word in (name, str(value))
    ]
