"""Shard: read texts as a few arrays, small enough for memory, and as the bytes of a file.

Hidden rows are kept as 16-bit floats. Some models have single numbers that do not fit: such a row
is divided by a power of two, which is kept with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.distillation.reading import ReadText
from localspec.distillation.texts import Stopped, Text
from localspec.distillation.top_logits import TOP, TopLogits, joined

_LARGEST = 2.0**15


@dataclass(frozen=True, slots=True)
class HalfRows:
    """rows: (tokens, width) float16. scale: (tokens,) float32, what each row is multiplied with."""

    rows: NDArray[np.float16]
    scale: NDArray[np.float32]

    @classmethod
    def of(cls, rows: NDArray[np.float32]) -> "HalfRows":
        """Rounded rows."""
        highest = np.abs(rows).max(1, initial=0)
        scale = np.exp2(np.ceil(np.log2(np.maximum(highest / _LARGEST, 1)))).astype(np.float32)
        return cls((rows / scale[:, None]).astype(np.float16), scale)

    def floats(self) -> NDArray[np.float32]:
        """(tokens, width) float32."""
        return self.rows.astype(np.float32) * self.scale[:, None]


@dataclass(frozen=True, slots=True)
class Shard:
    """Some texts, in order. top, hidden: the rows of all of them, as in ReadText."""

    texts: Sequence[Text]
    top: TopLogits
    hidden: Mapping[int, HalfRows]

    @classmethod
    def of(cls, read: Sequence[ReadText]) -> "Shard":
        """The shard of these texts."""
        return cls(
            [each.text for each in read],
            joined([each.top for each in read]),
            {
                layer: HalfRows.of(np.concatenate([each.hidden[layer] for each in read]))
                for layer in read[0].hidden
            },
        )

    @classmethod
    def joined(cls, parts: Sequence["Shard"]) -> "Shard":
        """The texts of all parts, in order."""
        return cls(
            [text for each in parts for text in each.texts],
            joined([each.top for each in parts]),
            {
                layer: HalfRows(
                    np.concatenate([each.hidden[layer].rows for each in parts]),
                    np.concatenate([each.hidden[layer].scale for each in parts]),
                )
                for layer in parts[0].hidden
            },
        )

    def __len__(self) -> int:
        return sum(len(each.tokens) for each in self.texts)

    def places(self) -> Iterator[tuple[Text, int, int]]:
        """Each text, with the places of its first token and of its first row of `top`."""
        token = row = 0
        for text in self.texts:
            yield text, token, row
            token += len(text.tokens)
            row += text.answer + 1

    def to_bytes(self) -> memoryview:
        """The bytes of a file."""
        arrays: dict[str, Any] = {
            "tokens": np.concatenate([np.array(each.tokens, np.int32) for each in self.texts]),
            "lengths": np.array([len(each.tokens) for each in self.texts], np.int32),
            "prompts": np.array([each.prompt for each in self.texts], np.int32),
            "ended": np.array([each.ended for each in self.texts], np.bool_),
            "ids": self.top.ids,
            "log_probs": self.top.log_probs,
            "rest": self.top.rest,
        }
        for layer, half in self.hidden.items():
            arrays |= {f"rows.{layer}": half.rows, f"scale.{layer}": half.scale}
        file = BytesIO()
        np.savez(file, **arrays)
        return file.getbuffer()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Shard":
        """The shard in a file."""
        with np.load(BytesIO(content)) as arrays:
            ends = np.cumsum(arrays["lengths"])
            tokens = np.split(arrays["tokens"], ends[:-1])
            texts = [
                Text(tuple(own.tolist()), int(prompt), bool(ended))
                for own, prompt, ended in zip(
                    tokens, arrays["prompts"], arrays["ended"], strict=True
                )
            ]
            layers = [int(name[5:]) for name in arrays.files if name.startswith("rows.")]
            hidden = {
                layer: HalfRows(arrays[f"rows.{layer}"], arrays[f"scale.{layer}"])
                for layer in layers
            }
            top = TopLogits(arrays["ids"], arrays["log_probs"], arrays["rest"])
            return cls(texts, top, hidden)


class StoppedReading(Stopped):
    """The user asked to stop. shard: of the texts that were read before; None if none was."""

    def __init__(self, shard: Shard | None) -> None:
        super().__init__()
        self.shard = shard


def bytes_per_token(width: int, layers: int) -> int:
    """The most bytes that a token of a shard takes."""
    return 4 + TOP * 6 + 2 + layers * (2 * width + 4)
