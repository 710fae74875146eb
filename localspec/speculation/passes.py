"""Pass: the input of one computation that a text needs from a model. Scores: its result.

Decoders and drafters do not run models. They yield passes and are sent the scores of each, as
httpx' `Auth.auth_flow` does with requests; a driver computes them. So one text, several texts in
one decode, and the toy models of the tests run the same code.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from localspec.speculation.aside import Aside
from localspec.speculation.draft import NOTHING, Draft

_Result = TypeVar("_Result")
# Stands among the layers of `Pass.hidden` for the rows behind the output norm, from which logits
# are computed.
OUTPUT = -1
# From so many rows on, CPU kernels compute with other last digits than with fewer rows.
WIDE = 64


class Computer(Protocol):
    """A model with its KV cache, which computes passes."""

    def decode(self, passes: "Sequence[Pass]") -> "list[Scores]": ...


class Cached(Protocol):
    """A text in a KV cache."""

    @property
    def context(self) -> Computer:
        """The computer of the text's passes."""
        ...


@dataclass(slots=True, eq=False)
class Pass:
    """Tokens to evaluate at the end of one text.

    sequence: the text in its KV cache.
    tokens: the token ids. Tokens of the text that the cache lacks are evaluated in front of them.
    drafted: the number of last tokens that are drafted; the tokens become text by `commit`. None:
        all tokens become text as soon as they are evaluated.
    parents: the parent of each drafted token, as in Draft; None: a chain.
    wanted: the number of last tokens whose logits are needed.
    hidden: the layers whose input rows are needed (`Scores.hidden`). The number of layers stands
        for the rows that leave the last one, OUTPUT for those behind the output norm.
    embeddings: (n, width) float32 rows for a head: beside `tokens`, or instead of them.
    encode: whether the head's encoder computes the pass.
    layer_offset: the number of the head among several in one model.
    meanwhile: passes of another context that may be computed while this one is: any number of them,
        in their order, each with its scores sent, before this pass's own scores are. An error of
        one is thrown into them. Whoever asked for the pass closes them.
    """

    sequence: Cached
    tokens: Sequence[int]
    drafted: int | None = None
    parents: Sequence[int] | None = None
    wanted: int = 1
    hidden: tuple[int, ...] = ()
    embeddings: NDArray[np.float32] | None = None
    encode: bool = False
    layer_offset: int = 0
    meanwhile: "Passes[None] | None" = None
    aside: Aside | None = None

    @property
    def draft(self) -> Draft:
        """The drafted tokens."""
        if not self.drafted:
            return NOTHING
        return Draft(self.tokens[-self.drafted :], self.parents)

    def __len__(self) -> int:
        if self.embeddings is not None:
            return len(self.embeddings)
        return len(self.tokens)


@dataclass(slots=True, eq=False)
class Scores:
    """The result of one pass. Arrays are views, valid until the next decode of the context.

    logits: (wanted, n_vocab) float32.
    padding: the number of padding rows in the decode.
    again: the number of tokens of the text that were evaluated once more, after a rollback. Their
        rows are not in `logits` and not counted in `width`.
    hidden: by layer (again + tokens, n_embd) float32: the rows of the tokens evaluated once more
        are the first. OUTPUT may be missing: its rows come only with the logits of every row, not
        with parts of a prompt.
    others: the rows of each other text in the same decode.
    seconds: of the whole decode. share: the part of it that this pass pays for.
    """

    logits: NDArray[np.float32]
    padding: int = 0
    again: int = 0
    hidden: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    others: tuple[int, ...] = ()
    seconds: float = 0.0
    share: float = 0.0

    @property
    def width(self) -> int:
        """The rows of the pass, padding included."""
        return len(self.logits) + self.padding


def draft_pass(
    sequence: Cached,
    pending: int,
    draft: Draft,
    hidden: tuple[int, ...] = (),
    meanwhile: "Passes[None] | None" = None,
    *,
    aside: Aside | None = None,
) -> Pass:
    """The pass that scores the pending token and a draft. meanwhile, aside: see Pass."""
    tokens = (pending, *draft.tokens)
    count = len(tokens)
    return Pass(
        sequence,
        tokens,
        len(draft),
        draft.parents,
        count,
        hidden,
        meanwhile=meanwhile,
        aside=aside,
    )


# Computes one pass: `direct`, or a scheduler that puts passes of several texts into one decode.
Compute = Callable[[Pass], Scores]
# A computation that needs passes: it yields each, is sent its scores, and returns its result.
Passes = Generator[Pass, Scores, _Result]


def direct(requested: Pass) -> Scores:
    """Compute one pass in a decode of its own."""
    return requested.sequence.context.decode([requested])[0]


def run(passes: Passes[_Result], compute: Compute = direct) -> _Result:
    """Compute everything that `passes` asks for, and return its result."""
    try:
        requested = next(passes)
        while True:
            requested = passes.send(compute(requested))
    except StopIteration as end:
        result: _Result = end.value
        return result
