"""RoPE scaling: how far apart a model takes positions to be, where that is not as in its file.

A model that was trained for few tokens reads more where its positions are moved closer together
(linear: Chen et al. 2023, arXiv 2306.15595), or only those of the slow rotations (YaRN: Peng et al.
2023, arXiv 2309.00071).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from localspec.errors import InvalidValueError
from localspec.generation_config import require
from localspec.gguf.reader import Header
from localspec.llama.bounds import LEAST_BASE, MOST_BASE, MOST_CONTEXT, MOST_SCALE

NONE, LINEAR, YARN = "none", "linear", "yarn"
SCALINGS = (NONE, LINEAR, YARN)
_LONG_ROPE = "longrope"
_USUAL_BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """What takes the place of the values in a model's file; None: that of the file counts.

    scaling: one of SCALINGS. scale: how many times the original context positions are scaled to.
    freq_base: of the angles. yarn_orig_ctx: the tokens of the original context, for YaRN.

    Layers with a sliding window keep the values of the file. Raises InvalidValueError.
    """

    scaling: str | None = None
    scale: float | None = None
    freq_base: float | None = None
    yarn_orig_ctx: int | None = None

    def __post_init__(self) -> None:
        if self.scaling == _LONG_ROPE:
            raise InvalidValueError(
                f"rope_scaling is {_LONG_ROPE}, whose factors are in a model's file, which uses "
                "them by itself; leave it out"
            )
        if self.scaling not in (None, *SCALINGS):
            raise InvalidValueError(
                f"rope_scaling is {self.scaling!r:.80}; it must be one of {', '.join(SCALINGS)}"
            )
        require_scale("rope_scale", self.scale)
        base = self.freq_base
        if base is not None and not LEAST_BASE < base <= MOST_BASE:
            raise InvalidValueError(
                f"rope_freq_base is {base}; it must be above {LEAST_BASE}, as 10000 or 1000000 in "
                "most files"
            )
        if self.yarn_orig_ctx is not None:
            require("yarn_orig_ctx", self.yarn_orig_ctx, 2, MOST_CONTEXT)

    def __bool__(self) -> bool:
        """Whether anything is other than in the file."""
        return self != UNSCALED

    @property
    def options(self) -> dict[str, Any]:
        """The options of `engine.load` that are not None."""
        found = {
            "rope_scaling": self.scaling,
            "rope_scale": self.scale,
            "rope_freq_base": self.freq_base,
            "yarn_orig_ctx": self.yarn_orig_ctx,
        }
        return {name: value for name, value in found.items() if value is not None}

    @property
    def in_words(self) -> str:
        """What the user asked for, in words; "" for nothing."""
        return ", ".join(
            f"{name} {value if isinstance(value, str) else f'{value:.10g}'}"
            for name, value in self.options.items()
        )

    def method(self, header: Header) -> str:
        """The method that counts for a model."""
        found = self.scaling or header.own("rope.scaling.type")
        return found if isinstance(found, str) else LINEAR

    def factor(self, header: Header) -> float:
        """How many times the original context the positions of a model are scaled to."""
        if self.method(header) == NONE:
            return 1.0
        return self.scale or file_factor(header)

    def original(self, header: Header) -> int | None:
        """The tokens that a model reads without any scaling; None where its file does not tell.

        Of files that are scaled already, some say the scaled context, and some the original one.
        """
        if self.yarn_orig_ctx and self.method(header) == YARN:
            return self.yarn_orig_ctx
        if file_factor(header) == 1 or UNSCALED.method(header) == _LONG_ROPE:
            return header.context_length
        return header.number("rope.scaling.original_context_length")

    def context(self, header: Header) -> int | None:
        """The most tokens of text that a model makes sense of; None where that is not known."""
        if self._is_as_in_file(header) or position_table(header):
            return header.context_length
        original = self.original(header)
        return original and min(int(original * self.factor(header)), MOST_CONTEXT)

    def _is_as_in_file(self, header: Header) -> bool:
        method = self.method(header)
        named = method == YARN and self.yarn_orig_ctx
        scaled = method, self.factor(header)
        return not named and scaled == (UNSCALED.method(header), UNSCALED.factor(header))

    def for_drafter(
        self, target: Header, drafter: Header, scale: float | None = None
    ) -> "RopeScaling":
        """That of a drafter whose target has this one. scale: which the user named for it.

        A drafter of the target's family, which was trained for contexts as long and with the same
        angles, gets the same; others keep what is in their files.
        """
        lengths = self.original(target), _own_length(target)
        is_kin = _own_length(drafter) in lengths and _base(target) == _base(drafter)
        if scale is None:
            return self if is_kin else UNSCALED
        if self and is_kin:
            return replace(self, scale=scale)
        return RopeScaling(self.scaling if self.scaling == LINEAR else YARN, scale)


def require_scale(name: str, scale: float | None) -> None:
    """Raise InvalidValueError unless a context can be scaled by so much."""
    if scale is not None and not 1 <= scale <= MOST_SCALE:
        raise InvalidValueError(
            f"{name} is {scale}; it must be from 1 to {MOST_SCALE:g}: how many times the "
            "original context"
        )


def file_factor(header: Header) -> float:
    """By how much the file of a model scales its positions."""
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        if isinstance(found := header.own(key), int | float):
            return float(found) if math.isfinite(found) and found > 0 else 1.0
    return 1.0


def has_rope(header: Header) -> bool:
    """Whether the file of a model speaks of rotations."""
    return any(".rope." in key for key in header.metadata)


def position_table(header: Header) -> int | None:
    """For how many tokens a model without rotations has positions; None: it has no such table.

    Behind its end the library ends the process.
    """
    table = header.tensor("position_embd.weight")
    return table.shape[-1] if table else None


def _own_length(header: Header) -> int | None:
    return UNSCALED.original(header) or header.context_length


def _base(header: Header) -> float:
    found = header.own("rope.freq_base")
    return float(found) if isinstance(found, int | float) else _USUAL_BASE


# Nothing is other than in a model's file.
UNSCALED = RopeScaling()
