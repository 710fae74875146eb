"""Examples: batches of read texts as tensors, for every kind of drafter."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from localspec.distillation.shard import Shard
from localspec.distillation.texts import Text

# Tokens of a window, of which a long text has several.
WINDOW = 1024
# Tokens of a batch, padding included: there is little text, so steps are many and small. But what
# Muon takes for a step grows with the width, and shall not outweigh the tokens.
_FEWEST_TOKENS, _MOST_TOKENS, _TOKENS_PER_WIDTH = 512, 4096, 2


@dataclass(frozen=True, slots=True)
class TopRows:
    """Distributions of the target, as in TopLogits: ids, log_probs (..., n), rest (...)."""

    ids: Tensor
    log_probs: Tensor
    rest: Tensor

    def at(self, places: Tensor | tuple[Tensor, ...]) -> "TopRows":
        """The rows at these places: a bool tensor of the shape of `rest`, or an index into it."""
        return TopRows(self.ids[places], self.log_probs[places], self.rest[places])

    def later(self, places: int) -> "TopRows":
        """At each place the row so many places further on; the last ones are those of the start."""
        return TopRows(
            self.ids.roll(-places, 1), self.log_probs.roll(-places, 1), self.rest.roll(-places, 1)
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows of texts, (texts, length), with padding behind their ends.

    tokens: ids; 0 is the padding. wanted: bool, where `top` is: behind this token comes one of an
    answer. top: what the target says of the next token. hidden: by layer (texts, length, width)
    float32, the rows of the target at each token.
    """

    tokens: Tensor
    wanted: Tensor
    top: TopRows
    hidden: Mapping[int, Tensor]

    def to(self, device: torch.device) -> "Batch":
        """The same on another device."""
        top = TopRows(
            *(each.to(device) for each in (self.top.ids, self.top.log_probs, self.top.rest))
        )
        hidden = {layer: rows.to(device) for layer, rows in self.hidden.items()}
        return Batch(self.tokens.to(device), self.wanted.to(device), top, hidden)


@dataclass(frozen=True, slots=True)
class _Window:
    """Tokens start to end of a text. token, row: the places in the shard where the text begins."""

    text: Text
    token: int
    row: int
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def batch_tokens(width: int) -> int:
    """The most tokens of a batch, for a target of this width; a long window has more."""
    return max(_FEWEST_TOKENS, min(_MOST_TOKENS, _TOKENS_PER_WIDTH * width))


def batches(
    shard: Shard, device: torch.device, order: np.random.Generator, width: int
) -> Iterator[Batch]:
    """The batches of a shard, in an order of its own; windows of about the same length together.

    width: of the target's rows.
    """
    groups = list(_groups(shard, batch_tokens(width)))
    for number in order.permutation(len(groups)):
        yield _batch(shard, groups[number], device)


def count_batches(texts: Sequence[Text], width: int) -> int:
    """How many batches a shard of these texts has. width: of the target's rows."""
    return len(list(_grouped(_windows_of_texts(texts), batch_tokens(width))))


def _groups(shard: Shard, most: int) -> Iterator[list[_Window]]:
    return _grouped([each for place in shard.places() for each in _windows(*place)], most)


def _windows_of_texts(texts: Sequence[Text]) -> list[_Window]:
    return [each for text in texts for each in _windows(text, 0, 0)]


def _windows(text: Text, token: int, row: int) -> Iterator[_Window]:
    """The windows of a text in which an answer is."""
    for start in range(0, len(text.tokens), WINDOW):
        end = min(len(text.tokens), start + WINDOW)
        alone = text.ended and start == len(text.tokens) - 1  # nothing comes behind this token
        if end >= text.prompt and not alone:
            yield _Window(text, token, row, start, end)


def _grouped(windows: Sequence[_Window], most: int) -> Iterator[list[_Window]]:
    group: list[_Window] = []
    for window in sorted(windows, key=lambda each: each.length, reverse=True):
        if group and (len(group) + 1) * group[0].length > most:
            yield group
            group = []
        group.append(window)
    if group:
        yield group


def _batch(shard: Shard, windows: Sequence[_Window], device: torch.device) -> Batch:
    shape = len(windows), max(each.length for each in windows)
    count = shard.top.ids.shape[1]
    tokens, wanted = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    ids, log_probs = np.zeros((*shape, count), np.int64), np.zeros((*shape, count), np.float32)
    rest = np.zeros(shape, np.float32)
    hidden = {
        layer: np.zeros((*shape, half.rows.shape[1]), np.float32)
        for layer, half in shard.hidden.items()
    }
    for number, each in enumerate(windows):
        tokens[number, : each.length] = each.text.tokens[each.start : each.end]
        first = max(each.start, each.text.prompt - 1)
        here = slice(first - each.start, each.length)
        behind = each.row - (each.text.prompt - 1)
        rows = slice(first + behind, each.end + behind)
        wanted[number, here] = True
        if each.text.ended and each.end == len(each.text.tokens):
            wanted[number, each.length - 1] = False
        ids[number, here] = shard.top.ids[rows]
        log_probs[number, here] = shard.top.log_probs[rows]
        rest[number, here] = shard.top.rest[rows]
        for layer, half in shard.hidden.items():
            places = slice(each.token + each.start, each.token + each.end)
            own = half.rows[places].astype(np.float32) * half.scale[places, None]
            hidden[layer][number, : each.length] = own
    return Batch(
        torch.from_numpy(tokens),
        torch.from_numpy(wanted),
        TopRows(*map(torch.from_numpy, (ids, log_probs, rest))),
        {layer: torch.from_numpy(rows) for layer, rows in hidden.items()},
    ).to(device)
