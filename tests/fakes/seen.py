"""Texts with images for drafters of every kind: projectors for their targets, and oracles' rows."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
from fakes.library_rows import LibraryRows
from fakes.numpy_llama import Floats
from fakes.projectors import write_projector

from localspec.speculation.draft import NOTHING
from localspec.speculation.passes import OUTPUT, Pass, Scores, draft_pass
from localspec.utils.media import MediaToken, words_of


def projector_for(target: Path, path: Path) -> Path:
    """A projector for a target of any family, written to `path`."""
    header = gguf.GGUFReader(target)
    family = str(header.fields["general.architecture"].contents())
    width = int(header.fields[f"{family}.embedding_length"].contents())
    kind = "qwen3vl_merger" if family == "qwen35" else "mlp"
    return write_projector(path, kind, width=width)


class SeeingRows(LibraryRows):
    """The rows of a target for texts with images, for the oracles of heads.

    prompts: those of the texts whose rows are asked for, with their images; the words of none begin
    with those of another.
    """

    prompts: Sequence[Sequence[int]] = ()

    def hidden(self, tokens: list[int]) -> list[Floats]:
        """As LibraryRows; of words alone, the row of each is that in front of the next word."""
        if not tokens:
            return super().hidden(tokens)
        whole = tokens if any(isinstance(each, MediaToken) for each in tokens) else None
        text = whole or self._seen(tokens)
        width = int(self.weights.own("embedding_length"))
        found: list[Floats] = [np.empty((0, width))] * (1 + max(self._reads))
        self._text.truncate(0)
        for scores in self._computed(text, self._reads):
            for layer, rows in scores.hidden.items():
                found[layer] = np.vstack([found[layer], rows.astype(np.float64)])
        last = [i for i in range(len(text)) if i + 1 == len(text) or text[i + 1] >= 0]
        last = last[len(last) - len(tokens) :]  # without an image in front of all words
        return found if whole else [rows[last] if len(rows) else rows for rows in found]

    def normed(self, tokens: list[int]) -> Floats:
        """As LibraryRows."""
        self._text.truncate(0)
        for _ in self._computed(tokens[:-1], ()):
            pass
        requested = draft_pass(self._text, tokens[-1], NOTHING, (OUTPUT,))
        (scores,) = self._text.context.decode([requested])
        rows: Floats = scores.hidden[OUTPUT][-1:].astype(np.float64)
        self._text.commit([])
        return rows

    def _computed(self, text: Sequence[int], layers: Sequence[int]) -> Iterator[Scores]:
        at = 0
        while at < len(text):
            count = self._text.part(text, at, len(text), self._text.chunk)
            (scores,) = self._text.context.decode(
                [Pass(self._text, text[at : at + count], hidden=tuple(layers))]
            )
            yield scores
            at += count

    def _seen(self, words: Sequence[int]) -> list[int]:
        """The text that these words are the words of, up to the word behind them."""
        for prompt in self.prompts:
            known = words_of(prompt)[:-1]  # the last may be pending
            if [int(word) for word in words[: len(known)]] == list(known):
                break
        rest, text = iter(words), []
        with suppress(StopIteration):
            for token in prompt:
                text.append(token if token < 0 else next(rest))
        return [*text, *rest]
