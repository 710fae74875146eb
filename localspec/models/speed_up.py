"""Speed-up: how much faster than plain decoding a drafter may be, estimated without running it.

A pass over a few tokens takes about as long as reading the weights that it needs; in a mixture of
experts these are the weights of all experts that any of the tokens is routed to. The tokens per
step follow from the acceptance rate: Leviathan et al. 2023, "Fast Inference from Transformers via
Speculative Decoding", eq. 1.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

from localspec.gguf.facts import Facts
from localspec.gguf.reader import TensorInfo
from localspec.models.kinds import DRAFT_MODEL, HEADS, MTP, ONE_PASS, usual_rates

DEPTHS = range(1, 9)
# A target that reads fewer bytes per token is too quick: deciding and drafting take as long as it.
_QUICK_BYTES = 32e6
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"


@dataclass(frozen=True, slots=True)
class PairMeasurement:
    """What was measured of a target and a drafter; None where nothing was.

    rate: the acceptance rate, 0 to 1. costs: the time of a step by the depth of its draft, in
    steps of plain decoding. rate_from: what measured the rate.
    """

    rate: float | None = None
    costs: Mapping[int, float] | None = None
    rate_from: str = "localspec plan"


UNMEASURED = PairMeasurement()


@dataclass(frozen=True, slots=True)
class SpeedUpEstimate:
    """The expected speed, as a multiple of plain decoding's.

    low, high: at the lowest and the highest likely acceptance rate, each at its best depth.
    depth: the best depth at the highest. rate: the measured acceptance rate, None where it is
    assumed. timed: whether the times of steps were measured. too_quick: whether a token of the
    target takes so little that no draft can save much of it. rate_from: what measured the rate.
    """

    low: float
    high: float
    depth: int
    rate: float | None
    timed: bool
    too_quick: bool = False
    rate_from: str = "localspec plan"

    @property
    def pays(self) -> bool:
        """Whether drafting is faster than plain decoding, rounded to one decimal."""
        return self.high >= 1.05 and not self.too_quick


# Of a drafter that cannot be read.
NO_GAIN = SpeedUpEstimate(0, 0, 1, None, timed=False)


def estimate_speed_up(
    target: Facts,
    drafter: Facts,
    measured: PairMeasurement = UNMEASURED,
    kind: str = DRAFT_MODEL,
) -> SpeedUpEstimate:
    """Estimate from what was measured, else from file sizes and the usual rates of the kind.

    drafter: the target for heads inside it.
    """
    rate, costs = measured.rate, measured.costs or step_costs(target, drafter, kind)

    def best(assumed: float) -> tuple[float, int]:
        return max((expected_tokens(assumed, depth) / costs[depth], depth) for depth in costs)

    rates = usual_rates(kind) if rate is None else (rate, rate)
    (low, _), (high, depth) = best(rates[0]), best(rates[1])
    timed, too_quick = measured.costs is not None, bytes_read(target, 1) < _QUICK_BYTES
    return SpeedUpEstimate(low, high, depth, rate, timed, too_quick, measured.rate_from)


def step_costs(target: Facts, drafter: Facts, kind: str) -> dict[int, float]:
    """Return the costs of PairMeasurement, from the bytes that each pass reads.

    drafter: the target for heads inside it.
    """
    plain, drafting = bytes_read(target, 1), drafting_bytes(target, drafter, kind)
    return {
        depth: (bytes_read(target, depth + 1) + (1 if kind in ONE_PASS else depth) * drafting)
        / plain
        for depth in DEPTHS
    }


def drafting_bytes(target: Facts, drafter: Facts, kind: str = DRAFT_MODEL) -> float:
    """Return the bytes of weights that a pass of the drafter reads.

    A head without an output matrix reads its target's.
    """
    inside = kind == MTP and drafter.files == target.files
    tensors = [each for each in drafter.tensors if not inside or _is_of_head(each, drafter)]
    own = bytes_read(replace(drafter, tensors=tensors), 1)
    if kind not in HEADS or any(each.name in (_OUTPUT, _EMBEDDING) for each in tensors):
        return own
    outputs = {
        each.name: each.size for each in target.tensors if each.name in (_OUTPUT, _EMBEDDING)
    }
    return own + outputs.get(_OUTPUT, outputs.get(_EMBEDDING, 0))


def _is_of_head(tensor: TensorInfo, model: Facts) -> bool:
    """Whether a tensor of a model belongs to the heads inside, which are its last layers."""
    layers = model.number("block_count") or 0
    first = layers - (model.number("nextn_predict_layers") or 0)
    return any(tensor.name.startswith(f"blk.{layer}.") for layer in range(first, layers))


def expected_tokens(rate: float, depth: int) -> float:
    """Return the expected tokens per step, for drafts of this depth and this acceptance rate."""
    return sum(rate**position for position in range(depth + 1))


def best_speed(chances: Iterable[float], costs: Iterable[float]) -> float:
    """Return the speed at the depth that pays most, as a multiple of plain decoding's.

    chances: that the 1st, 2nd, ... token of a draft becomes text. costs: of steps with drafts of 1,
    2, ... tokens, in steps of plain decoding. Without any it is plain decoding's own, 1.
    """
    pairs = zip(accumulate(chances), costs, strict=False)
    return max(((1 + accepted) / cost for accepted, cost in pairs), default=1.0)


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
