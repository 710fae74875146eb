"""Outlook: what a drafter may gain, before anything has run.

A pass over a few tokens takes about as long as reading the weights it needs; of a mixture of
experts, those of the experts that any of the tokens is sent to. How many tokens a step then gives
is in Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", eq. 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from localspec.gguf.facts import Facts

DEPTHS = range(1, 9)
# The share of drafted tokens that are right, of most pairs of one family.
_ASSUMED = (0.6, 0.8)
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a pair. rate: the share of drafted tokens that are right. costs: what a
    step takes, in steps of plain decoding, by the depth of its draft.
    """

    rate: float | None = None
    costs: Mapping[int, float] | None = None


NOTHING = Measured()


@dataclass(frozen=True, slots=True)
class Outlook:
    """low, high: how many times as fast as plain decoding, each at its best depth. depth: that of
    high. rate: the share of right tokens where it was measured, else None. timed: whether costs
    were.
    """

    low: float
    high: float
    depth: int
    rate: float | None
    timed: bool

    @property
    def pays(self) -> bool:
        """Whether there is anything to gain, as far as one decimal shows it."""
        return self.high >= 1.05


def outlook(target: Facts, drafter: Facts, measured: Measured = NOTHING) -> Outlook:
    """What this drafter promises: by what was measured, else by sizes and a usual rate."""
    rate, costs = measured.rate, measured.costs or _costs(target, drafter)

    def best(right: float) -> tuple[float, int]:
        return max((expected_tokens(right, depth) / costs[depth], depth) for depth in costs)

    rates = _ASSUMED if rate is None else (rate, rate)
    (low, _), (high, depth) = best(rates[0]), best(rates[1])
    return Outlook(low, high, depth, rate, timed=measured.costs is not None)


def _costs(target: Facts, drafter: Facts) -> dict[int, float]:
    """As in Measured, from the bytes that are read."""
    plain, drafting = bytes_read(target, 1), bytes_read(drafter, 1)
    return {depth: (bytes_read(target, depth + 1) + depth * drafting) / plain for depth in DEPTHS}


def expected_tokens(rate: float, depth: int) -> float:
    """Tokens per step of a draft of so many, each of which is right at this rate."""
    return sum(rate**position for position in range(depth + 1))


def bytes_read(model: Facts, tokens: int) -> float:
    """Bytes of weights that one pass over so many tokens reads."""
    tied = all(tensor.name != _OUTPUT for tensor in model.tensors)
    share = _experts_read(model, tokens)
    return sum(
        tensor.size * (share if "_exps." in tensor.name else 1)
        for tensor in model.tensors
        # Of the embedding a few rows are read, but all of it where it is the output as well.
        if tied or tensor.name != _EMBEDDING
    )


def _experts_read(model: Facts, tokens: int) -> float:
    """The share of experts that tokens sent at random need."""
    count, used = model.number("expert_count") or 0, model.number("expert_used_count") or 0
    return 1 - (1 - used / count) ** tokens if 0 < used <= count else 1
