"""Peer drafts: what llama.cpp's own programs call drafters, and the options that name them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.drafters.spec import DraftOption
from localspec.errors import InvalidValueError
from localspec.gguf.block_heads import DFLASH, DSPARK
from localspec.gguf.facts import facts_of
from localspec.gguf.heads import EAGLE3, MTP
from localspec.gguf.kv_types import names_of
from localspec.loading.config import RuntimeConfig
from localspec.models.kinds import DRAFT_MODEL
from localspec.models.suggestions import drafter_kind

NO_REPACK = "--no-repack"
# What llama.cpp calls the kinds of drafters.
_TYPES = {
    DRAFT_MODEL: "draft-simple",
    EAGLE3: "draft-eagle3",
    MTP: "draft-mtp",
    DFLASH: "draft-dflash",
    DSPARK: "draft-dspark",
}
_WITH_DRAFTER, _ALL_LAYERS = "draft-", 999
_TYPE = re.compile(r"([a-z0-9-]{1,40})(?::([1-9][0-9]?))?")


@dataclass(frozen=True, slots=True)
class PeerDraft:
    """How llama.cpp drafts.

    type: of `--spec-type`. depth: the most tokens of a draft; None is its default. drafter: None
    for types without one, and for heads inside the target.
    """

    type: str
    depth: int | None
    drafter: Path | None

    @property
    def name(self) -> str:
        """As in a list of drafts: `draft-simple:5`."""
        return self.type if self.depth is None else f"{self.type}:{self.depth}"


def peer_draft(name: str, drafter: DraftOption | None) -> PeerDraft:
    """What a name such as `draft-simple:5` means with this drafter of ours.

    Raises InvalidValueError for what is no type, and for one that needs a drafter where none is.
    """
    found = _TYPE.fullmatch(name)
    if not found or (found[2] and not found[1].startswith(_WITH_DRAFTER)):
        raise InvalidValueError(
            f"--peer-drafts {name!r:.60}: it must be none, ngram-simple, draft-simple, "
            "draft-simple:8 or another --spec-type of llama.cpp"
        )
    needs_file = found[1].startswith(_WITH_DRAFTER) and drafter != MTP
    if needs_file and drafter is None:
        raise InvalidValueError(f"--peer-drafts {name}: there is no drafter; name one with --draft")
    file = Path(str(drafter)) if needs_file else None
    return PeerDraft(found[1], int(found[2]) if found[2] else None, file)


def usual_type(target: Path, drafter: DraftOption | None) -> str | None:
    """llama.cpp's type for this drafter of ours; None if there is none."""
    if drafter is None:
        return None
    if drafter == MTP:
        return _TYPES[MTP]
    return _TYPES.get(drafter_kind(facts_of(target), facts_of(Path(str(drafter)))))


def target_options(runtime: RuntimeConfig) -> dict[str, object]:
    """The options that say how the target runs, as in ours.

    What is llama.cpp's default is None: earlier versions have not all of these options.
    """
    keys, values = _cache_types(runtime.kv_type)
    return {
        "--n-gpu-layers": _gpu_layers(runtime),
        "--cache-type-k": keys,
        "--cache-type-v": values,
        "--flash-attn": flash_word(runtime),
        "--ubatch-size": runtime.ubatch,
        "--load-mode": None if runtime.load_mode == "auto" else runtime.load_mode,
        "--lora-scaled": ",".join(each.option for each in runtime.loras) or None,
        **rope_options(runtime),
    }


def rope_options(runtime: RuntimeConfig) -> dict[str, object]:
    """The options that scale rotations, of llama.cpp's programs as of ours."""
    return {f"--{name.replace('_', '-')}": value for name, value in runtime.rope.options.items()}


def flash_word(runtime: RuntimeConfig) -> str | None:
    """What `--flash-attn` is, of llama.cpp's programs as of ours; None: auto, the default."""
    return None if runtime.flash is None else "on" if runtime.flash else "off"


def drafter_options(drafter: Path | None, runtime: RuntimeConfig) -> dict[str, object]:
    """The options that name the drafter and say how it runs, as in ours."""
    if drafter is None:
        return {}
    keys, values = _cache_types(runtime.drafter_kv_type)
    threads = runtime.threads_for(facts_of(drafter).size)
    return {
        "--spec-draft-model": drafter,
        "--spec-draft-ngl": _gpu_layers(runtime),
        "--spec-draft-type-k": keys,
        "--spec-draft-type-v": values,
        "--spec-draft-threads": threads,
        "--spec-draft-threads-batch": threads,
    }


def _gpu_layers(runtime: RuntimeConfig) -> int:
    """How many layers go to a GPU, if there is one."""
    asked = runtime.placement.gpu_layers
    return _ALL_LAYERS if asked is None or asked == -1 else asked


def _cache_types(kv_type: str) -> tuple[str | None, str | None]:
    """The types of keys and values; None: f16, the default."""
    keys, values = (None if name == "f16" else name for name in names_of(kv_type))
    return keys, values


def as_words(options: Mapping[str, object]) -> list[str]:
    """The options with a value, as words of a command."""
    return [
        word for name, value in options.items() if value is not None for word in (name, str(value))
    ]
