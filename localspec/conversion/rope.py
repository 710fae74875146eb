"""RoPE: what a published config.json says of it, as metadata and factors of a GGUF."""

from collections.abc import Mapping
from math import log, pi

import numpy as np

from localspec.errors import ModelLoadError
from localspec.gguf.writer import Floats

_BASE = 10_000.0
# Far above every number that a config.json says.
_MOST = 1 << 32
# As in the transformers library, where config.json does not say them.
_LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
# YaRN as llama.cpp's EAGLE-3 computes it: its loader reads none of these.
_YARN = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": 1.0}
_EQUAL = 1e-6


class Rope:
    """RoPE of a head. name: of the checkpoint. width: of an attention head.

    metadata: by keys without the architecture, of those that llama.cpp's EAGLE-3 reads. factors:
    what each frequency is divided by, (width / 2,); None without any. notes: what llama.cpp
    computes otherwise. Raises ModelLoadError for positions that llama.cpp does not have.
    """

    def __init__(self, name: str, config: Mapping[str, object], width: int) -> None:
        found = {**_object(config, "rope_scaling"), **_object(config, "rope_parameters")}
        if config.get("rope_theta") is not None:
            found["rope_theta"] = config["rope_theta"]
        if any(isinstance(each, dict) for each in found.values()):
            raise self._refused(name, "has other positions for each type of its layers")
        self._name, self._width, self._found = name, width, found
        self._base = self._number("rope_theta", _BASE)
        self.metadata: dict[str, object] = {
            "rope.dimension_count": width,
            "rope.freq_base": self._base,
        }
        self.factors: Floats | None = None
        self.notes: list[str] = []
        for where in (config, found):
            if where.get("partial_rotary_factor") not in (None, 1, 1.0):
                raise self._refused(name, "turns a part of each head (partial_rotary_factor)")
        match found.get("rope_type", found.get("type")):
            case None | "default":
                pass
            case "llama3":
                self.factors = self._llama3()
            case "linear":
                self._scale("linear", self._number("factor", 1.0))
            case "yarn":
                self._yarn(config.get("max_position_embeddings"))
            case other:
                raise self._refused(name, f"scales its positions as {other!r:.60}")

    @staticmethod
    def _refused(name: str, how: str) -> ModelLoadError:
        return ModelLoadError(
            f"{name} {how}, which cannot be converted; positions are plain, or scaled as llama3, "
            "linear or yarn"
        )

    def _scale(self, kind: str, factor: float) -> None:
        self.metadata |= {"rope.scaling.type": kind, "rope.scaling.factor": factor}

    def _yarn(self, longest: object) -> None:
        """YaRN (https://arxiv.org/abs/2309.00071), with the defaults of the transformers library.

        llama.cpp has its own factor of attention, which `attn_factor` multiplies. longest: the
        longest text that config.json says.
        """
        original = self._number("original_max_position_embeddings", 0)
        default = 1.0
        if original and isinstance(longest, int) and longest < _MOST:
            default = longest / original
        factor = self._number("factor", default)
        if factor <= 0:
            raise self._odd("factor", factor)
        self._scale("yarn", factor)
        if original:  # else llama.cpp takes the longest text, as the transformers library does
            self.metadata["rope.scaling.original_context_length"] = int(original)
        ours, theirs = _attention(factor, 1.0), self._number("attention_factor", 0)
        if not theirs:
            parts = [self._number(key, 0) for key in ("mscale", "mscale_all_dim")]
            both = _attention(factor, parts[0]) / _attention(factor, parts[1])
            theirs = both if all(parts) else ours
        if abs(theirs / ours - 1) > _EQUAL:
            self.metadata["rope.scaling.attn_factor"] = theirs / ours
        other = [
            f"{key} = {self._found[key]}"
            for key, usual in _YARN.items()
            if self._found.get(key) is not None and self._number(key, usual) != usual
        ]
        if other:
            self.notes.append(
                f"its config.json says {', '.join(other)}, and llama.cpp's EAGLE-3 computes with "
                f"{', '.join(f'{key} = {usual:g}' for key, usual in _YARN.items())}: "
                "fewer drafts may be accepted"
            )

    def _number(self, key: str, default: float) -> float:
        value = self._found.get(key)
        try:
            found = default if value is None else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            raise self._odd(key, value) from None
        if not 0 <= found < _MOST:  # nor is NaN
            raise self._odd(key, value)
        return found

    def _odd(self, key: str, value: object) -> ModelLoadError:
        return ModelLoadError(
            f"config.json of {self._name} says {key} = {value!r:.60}; download it again"
        )

    def _llama3(self) -> Floats:
        """As in Llama 3.1: long waves are slowed by a factor, short ones are not."""
        values = {key: self._number(key, default) for key, default in _LLAMA3.items()}
        factor, low, high, length = values.values()
        if not (factor > 0 and high > low):
            raise ModelLoadError(
                f"{self._name} scales its positions by {factor:g} from {low:g} to {high:g}, which "
                "makes no sense; download it again"
            )
        waves = 2 * pi * self._base ** (np.arange(0, self._width, 2) / self._width)
        # From 0 for the longest waves that are slowed in part to 1 for the shortest.
        share = np.clip((length / waves - low) / (high - low), 0.0, 1.0)
        return (1 / ((1 - share) / factor + share)).astype(np.float32)


def _attention(factor: float, scale: float) -> float:
    """What YaRN multiplies queries and keys by."""
    return 1 + 0.1 * scale * log(factor) if factor > 1 else 1.0


def _object(config: Mapping[str, object], key: str) -> dict[str, object]:
    found = config.get(key)
    return found if isinstance(found, dict) else {}
