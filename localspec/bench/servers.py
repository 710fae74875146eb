"""Servers: the contenders of `localspec bench --peer`, ours and llama-server's, as commands."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from localspec.bench.configurations import PLAIN, Configuration, Sweep, at_depth
from localspec.bench.peer_drafts import (
    NO_REPACK,
    PeerDraft,
    as_words,
    drafter_options,
    flash_word,
    peer_draft,
    rope_options,
    target_options,
    usual_type,
)
from localspec.drafters.model_free import MODEL_FREE
from localspec.drafters.spec import AUTO, NONE, DraftOption, join_names
from localspec.loading.config import RuntimeConfig

PEER = "llama-server"


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

    name: in reports. is_optional: whether it may be left out where it does not start.
    """

    @property
    def name(self) -> str: ...
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
            "--flash-attn": flash_word(runtime),
            "--ubatch": runtime.ubatch,
            "--load-mode": runtime.load_mode,
            **rope_options(runtime),
            "--draft-rope-scale": runtime.draft_rope_scale,
            "--threads": runtime.threads,
            "--gpu-layers": runtime.placement.gpu_layers,
            "--host": "127.0.0.1",
            "--port": port,
        }
        loras = [word for each in runtime.loras for word in ("--lora", each.option)]
        return [sys.executable, "-P", "-m", "localspec", "serve", *as_words(options), *loras]

    def members(self) -> Mapping[str, Any]:
        depth = self.configuration.depth
        return {"localspec": {"rule": self.rule} | ({} if depth is None else {"depth": depth})}


@dataclass(frozen=True, slots=True)
class PeerServer:
    """llama-server. draft: how it drafts."""

    binary: Path
    draft: PeerDraft
    model: ServedModel
    is_optional: bool

    @property
    def name(self) -> str:
        return PEER if self.draft.type == NONE else f"{PEER} {self.draft.name}"

    def command(self, port: int, users: int) -> list[str]:
        runtime, threads = self.model.runtime, self.model.threads
        options: dict[str, object] = {
            "--model": self.model.target,
            "--spec-type": self.draft.type,
            "--parallel": users,
            "--ctx-size": self.model.context * users,
            "--threads": threads,
            "--threads-batch": threads,
            **target_options(runtime),
            "--host": "127.0.0.1",
            "--port": port,
            # Nothing is asked for twice: texts of ended requests need not be kept.
            "--cache-ram": 0,
            "--spec-draft-n-max": self.draft.depth,
        }
        options |= drafter_options(self.draft.drafter, runtime)
        return [str(self.binary), *as_words(options), *([] if self.model.repack else [NO_REPACK])]

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
    usual = usual_type(model.target, drafter)
    names = drafts or [NONE, *filter(None, [usual]), "ngram-simple"]
    return [
        PeerServer(binary, peer_draft(name, drafter), model, not drafts and name != NONE)
        for name in names
    ]
