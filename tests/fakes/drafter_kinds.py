"""Drafters of every kind, each beside targets of every family that it can draft for."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fakes import assistant, mtp
from fakes.dflash import KINDS as BLOCKS
from fakes.dflash import BlockOracle, write_block_head
from fakes.eagle3 import Eagle3Oracle, write_head
from fakes.families import TARGETS, target
from fakes.library_rows import LibraryRows
from fakes.matrix_heads import MedusaOracle, MlpOracle, write_medusa, write_mlp
from fakes.mtp import TRUNK, ChainOracle, MtpOracle, OfRows
from fakes.numpy_gemma4 import AssistantOracle
from fakes.pard import MASK, PardOracle, write_pard
from fakes.recorder import Oracle

from localspec.drafters.assistant import Assistant
from localspec.drafters.eagle3 import Eagle3
from localspec.drafters.medusa import Medusa
from localspec.drafters.mlp_speculator import MlpSpeculator
from localspec.drafters.mtp import ChainedMtp, Mtp
from localspec.drafters.pard import Pard
from localspec.speculation.passes import OUTPUT

# How engines compute as exactly as they can.
EXACT: dict[str, Any] = {
    "threads": 1,
    "context": 256,
    "gpu_layers": 0,
    "flash_attention": False,
    "kv_type": "f32",
    "drafter_kv_type": "f32",
}
PROMPT = [1, 259, 30, 266, 271, 90, 275, 40, 262]


@dataclass(frozen=True)
class Pair:
    """A drafter and its target.

    draft: the option. drafter: the class. reads: the layers whose rows it reads. oracle_of: its
    drafts from the target's rows.
    """

    target: Path
    draft: str
    drafter: type[Any]
    reads: tuple[int, ...]
    oracle_of: Callable[[LibraryRows], Oracle]

    def oracle(self, undo: ExitStack) -> Oracle:
        """The drafts of an independent forward; `undo` closes what computes the target's rows."""
        return self.oracle_of(undo.enter_context(LibraryRows(self.target, self.reads)))


def write_pair(kind: str, family: str, folder: Path) -> Pair:
    """Write the files of a pair of PAIRS."""
    return KINDS[kind](family, folder)


Write = Callable[[str, Path], Pair]


def _eagle3(family: str, folder: Path) -> Pair:
    reads = TARGETS[family].reads
    head = write_head(folder / "head.gguf", reads=reads, family=family)
    return Pair(target(family), str(head), Eagle3, reads, lambda rows: Eagle3Oracle(rows, head))


def _block(kind: str) -> Write:
    def written(family: str, folder: Path) -> Pair:
        shape, drafter = BLOCKS[kind]
        shape = replace(shape, sections=family == "qwen35")
        reads = TARGETS[family].reads
        head = write_block_head(folder / "head.gguf", shape, reads=reads, family=family)
        return Pair(target(family), str(head), drafter, reads, lambda rows: BlockOracle(rows, head))

    return written


def _matrices(drafter: type[Any], oracle: Any, write: Callable[..., Path], **options: Any) -> Write:
    def written(family: str, folder: Path) -> Pair:
        head = write(folder / "head.gguf", **options)
        return Pair(target(family), str(head), drafter, (OUTPUT,), lambda rows: oracle(rows, head))

    return written


def _pard(family: str, folder: Path) -> Pair:
    model = write_pard(folder / "pard.gguf", family=family)
    draft = f"pard={MASK}:{model}"
    return Pair(target(family), draft, Pard, (OUTPUT,), lambda _: PardOracle(model))


def _mtp(draft: str) -> Write:
    def written(_family: str, folder: Path) -> Pair:
        whole = mtp.write_target(folder / "target.gguf", heads=int(draft == "mtp"))
        head = mtp.write_sidecar(folder / "mtp-head.gguf")
        return Pair(
            whole, draft or str(head), Mtp, (TRUNK,), lambda rows: OfRows(MtpOracle(head), rows)
        )

    return written


def _chain(_family: str, folder: Path) -> Pair:
    whole = mtp.write_chain(folder / "target.gguf")
    return Pair(whole, "mtp", ChainedMtp, (TRUNK,), lambda rows: OfRows(ChainOracle(whole), rows))


def _assistant(shared_layers: int, seed: int) -> Write:
    def written(_family: str, folder: Path) -> Pair:
        path = folder / "target.gguf"
        whole = assistant.write_target(path, shared_layers=shared_layers, seed=seed)
        head = assistant.write_assistant(folder / "assistant.gguf", seed=seed)
        reads = (len(assistant.LAYERS),)
        return Pair(whole, str(head), Assistant, reads, lambda _: AssistantOracle(whole, head))

    return written


KINDS: dict[str, Write] = {
    "eagle3": _eagle3,
    "dflash": _block("dflash"),
    "dspark": _block("dspark"),
    "dspark without anchor": _block("dspark without anchor"),
    "dflash2": _block("dflash2"),
    "pard": _pard,
    "medusa": _matrices(Medusa, MedusaOracle, write_medusa),
    "medusa with the target's output": _matrices(
        Medusa, MedusaOracle, write_medusa, output="target"
    ),
    "mlp": _matrices(MlpSpeculator, MlpOracle, write_mlp, heads=8),
    "mlp, tied": _matrices(
        MlpSpeculator, MlpOracle, write_mlp, heads=8, inner=48, tied=True, scale_input=False
    ),
    "mtp inside": _mtp("mtp"),
    "mtp sidecar": _mtp(""),
    "mtp chained": _chain,
    "assistant": _assistant(0, seed=10),
    "assistant, keys shared": _assistant(2, seed=7),
}
# The families that have heads of multi-token prediction, or assistants, of their own.
OF_FAMILY = {
    "mtp inside": "qwen35",
    "mtp sidecar": "qwen35",
    "mtp chained": "step35",
    "assistant": "gemma4",
    "assistant, keys shared": "gemma4",
}
# Each kind, beside a target of its first family.
FIRST = [(kind, OF_FAMILY.get(kind, "llama")) for kind in KINDS]
_VARIANTS = ("dspark without anchor", "medusa with the target's output", "mlp, tied")
PAIRS = FIRST + [
    (kind, family)
    for kind in KINDS
    for family in TARGETS
    if kind not in (*OF_FAMILY, *_VARIANTS) and family != "llama"
]
