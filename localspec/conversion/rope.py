"""RoPE: what a published config.json says of it, as metadata and factors of a GGUF."""

from collections.abc import Mapping
from math import pi

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


class Rope:
    """RoPE of a head. name: of the checkpoint. width: of an attention head.

    metadata: by keys without the architecture. factors: what each frequency is divided by, (width
    / 2,); None without any. Raises ModelLoadError for a scaling that llama.cpp does not have.
    """

    def __init__(self, name: str, config: Mapping[str, object], width: int) -> None:
        found = {**_object(config, "rope_scaling"), **_object(config, "rope_parameters")}
        self._name = name
        self._width = width
        self._found = {
            **found,
            **({"rope_theta": config["rope_theta"]} if "rope_theta" in config else {}),
        }
        self._base = self._number("rope_theta", _BASE)
        self.metadata: dict[str, object] = {
            "rope.dimension_count": width,
            "rope.freq_base": self._base,
        }
        self.factors: Floats | None = None
        match found.get("rope_type", found.get("type")):
            case None | "default":
                pass
            case "llama3":
                self.factors = self._llama3()
            case ("linear" | "yarn") as kind:
                self.metadata |= {
                    "rope.scaling.type": kind,
                    "rope.scaling.factor": self._number("factor", 1.0),
                }
                if kind == "yarn":
                    original = self._number("original_max_position_embeddings", 0)
                    self.metadata["rope.scaling.original_context_length"] = int(original)
            case other:
                raise ModelLoadError(
                    f"{name} scales its positions as {other!r}, which cannot be converted; only "
                    "llama3, linear and yarn can"
                )

    def _number(self, key: str, default: float) -> float:
        value = self._found.get(key, default)
        if not isinstance(value, (int, float)):
            return default
        if not 0 <= value < _MOST:
            raise ModelLoadError(
                f"config.json of {self._name} says {key} = {value!r:.60}; download it again"
            )
        return float(value)

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


def _object(config: Mapping[str, object], key: str) -> dict[str, object]:
    found = config.get(key)
    return found if isinstance(found, dict) else {}
