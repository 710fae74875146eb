"""Speed-up: how much faster than plain decoding a drafter may be, estimated without running it.

A pass over a few tokens takes about as long as reading the weights that it needs; in a mixture of
experts these are the weights of all experts that any of the tokens is routed to. The tokens per
step follow from the acceptance rate: Leviathan et al. 2023, "Fast Inference from Transformers via
Speculative Decoding", eq. 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from localspec.gguf.facts import Facts

DEPTHS = range(1, 9)
# Acceptance rates that most pairs of one family lie between.
_USUAL_RATES = (0.6, 0.8)
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"


@dataclass(frozen=True, slots=True)
class PairMeasurement:
    """What was measured of a target and a drafter; None where nothing was.

    rate: the acceptance rate, 0 to 1. costs: the time of a step by the depth of its draft, in
    steps of plain decoding.
    """

    rate: float | None = None
    costs: Mapping[int, float] | None = None


UNMEASURED = PairMeasurement()


@dataclass(frozen=True, slots=True)
class SpeedUpEstimate:
    """The expected speed, as a multiple of plain decoding's.

    low, high: at the lowest and the highest likely acceptance rate, each at its best depth.
    depth: the best depth at the highest. rate: the measured acceptance rate, None where it is
    assumed. timed: whether the times of steps were measured.
    """

    low: float
    high: float
    depth: int
    rate: float | None
    timed: bool

    @property
    def pays(self) -> bool:
        """Whether drafting is faster than plain decoding, rounded to one decimal."""
        return self.high >= 1.05


def estimate_speed_up(
    target: Facts, drafter: Facts, measured: PairMeasurement = UNMEASURED
) -> SpeedUpEstimate:
    """Estimate from what was measured, else from file sizes and the usual acceptance rates."""
    rate, costs = measured.rate, measured.costs or _costs(target, drafter)

    def best(assumed: float) -> tuple[float, int]:
        return max((expected_tokens(assumed, depth) / costs[depth], depth) for depth in costs)

    rates = _USUAL_RATES if rate is None else (rate, rate)
    (low, _), (high, depth) = best(rates[0]), best(rates[1])
    return SpeedUpEstimate(low, high, depth, rate, timed=measured.costs is not None)


def _costs(target: Facts, drafter: Facts) -> dict[int, float]:
    """Return the costs of PairMeasurement, from the bytes that each pass reads."""
    plain, drafting = bytes_read(target, 1), bytes_read(drafter, 1)
    return {depth: (bytes_read(target, depth + 1) + depth * drafting) / plain for depth in DEPTHS}


def expected_tokens(rate: float, depth: int) -> float:
    """Return the expected tokens per step, for drafts of this depth and this acceptance rate."""
    return sum(rate**position for position in range(depth + 1))


def bytes_read(model: Facts, tokens: int) -> float:
    """Return the bytes of weights that one pass over so many tokens reads."""
    tied = all(tensor.name != _OUTPUT for tensor in model.tensors)
    share = _experts_read(model, tokens)
    return sum(
        tensor.size * (share if "_exps." in tensor.name else 1)
        for tensor in model.tensors
        # A pass reads a few rows of the embedding, but all of it where it is the output matrix too.
        if tied or tensor.name != _EMBEDDING
    )


def _experts_read(model: Facts, tokens: int) -> float:
    """Return the share of experts that so many tokens use, each routed at random."""
    count, used = model.number("expert_count") or 0, model.number("expert_used_count") or 0
    return 1 - (1 - used / count) ** tokens if 0 < used <= count else 1
