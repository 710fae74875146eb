"""Shape: the sizes of a llama-architecture model, and the shape for a number of parameters."""

from dataclasses import dataclass

from localspec.errors import InvalidValueError

# (most parameters, width, feed-forward length), as Qwen and Llama models of that size have them.
# The number of layers follows from the parameters.
_FAMILIES = (
    (80e6, 768, 2048),
    (250e6, 768, 3072),
    (700e6, 1024, 4864),
    (1.2e9, 2048, 5632),
    (2e9, 1536, 8960),
    (5e9, 2048, 11008),
    (float("inf"), 4096, 14336),
)
_UNITS = {"M": 1e6, "B": 1e9}
# Query heads that share one key-value head in models of today.
_USUAL_GROUP = 8


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes a caller may ask for; the numbers of heads follow from the width."""

    width: int
    layers: int
    ffn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a model. group: query heads per key-value head."""

    width: int
    layers: int
    ffn: int
    group: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @property
    def heads(self) -> int:
        """The number of query heads."""
        return self.group * self.kv_heads

    @property
    def layer_parameters(self) -> int:
        """The number of weights in the matrices of one layer."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_dim
        return self.width * (attention + 3 * self.ffn)

    @property
    def parameters(self) -> int:
        """The number of weights in all matrices that a token passes through."""
        return self.layers * self.layer_parameters + self.vocabulary * self.width

    @property
    def label(self) -> str:
        """The number of parameters as people write it, such as 60M or 0.9B."""
        if self.parameters >= 0.5e9:
            return f"{self.parameters / 1e9:.1f}B"
        return f"{self.parameters / 1e6:.0f}M"


def parse_parameters(text: str) -> float:
    """Parse a number of parameters such as 60M or 0.9B.

    Raises InvalidValueError for any other text.
    """
    try:
        count = float(text[:-1]) * _UNITS[text[-1:].upper()]
        if not 0 < count < 1e12:
            raise ValueError
    except (ValueError, KeyError) as error:
        raise InvalidValueError(
            f"{text!r} is no number of parameters below 1000B; write it as 60M or 0.9B"
        ) from error
    return count


def scaled_shape(source: Shape, size: str | Size, vocabulary: int | None = None) -> Shape:
    """The shape of the scaled model.

    size: a number of parameters such as "0.9B", or its width, layers and feed-forward length.
    vocabulary: tokens; None is as many as the source has.

    Raises InvalidValueError for a shape that is smaller than the source in any size.
    """
    if isinstance(size, Size):
        shape = _with_heads(source, size, vocabulary)
    else:
        shape = _of_parameters(source, parse_parameters(size), vocabulary)
        if shape.layers < source.layers:
            least = least_parameters(source, vocabulary)
            raise InvalidValueError(
                f"{size} are too few parameters, and a model can only be scaled up; the least for "
                f"this model is {least / 1e6:.0f}M"
            )
    figures = {
        "width": (shape.width, source.width),
        "layers": (shape.layers, source.layers),
        "ffn": (shape.ffn, source.ffn),
        "vocab": (shape.vocabulary, source.vocabulary),
    }
    for name, (asked, least) in figures.items():
        if asked < least:
            raise InvalidValueError(
                f"{name} {asked} is smaller than the source's {least}, and a model can only be "
                "scaled up; ask for more"
            )
    return shape


def least_parameters(source: Shape, vocabulary: int | None = None) -> float:
    """The fewest parameters that a model scaled from this source can have, in whole millions."""
    count = 1e6
    while _of_parameters(source, count, vocabulary).layers < source.layers:
        count += 1e6
    return count


def _of_parameters(source: Shape, count: float, vocabulary: int | None) -> Shape:
    width, ffn = next(family for most, *family in _FAMILIES if count <= most)
    one = _with_heads(source, Size(width, 1, ffn), vocabulary)
    layers = round((count - one.parameters) / one.layer_parameters) + 1
    return _with_heads(source, Size(width, layers, ffn), vocabulary)


def _with_heads(source: Shape, size: Size, vocabulary: int | None) -> Shape:
    heads = size.width // source.head_dim
    kv_heads = max(source.kv_heads, heads // _USUAL_GROUP)
    return Shape(
        width=size.width,
        layers=size.layers,
        ffn=size.ffn,
        group=max(source.group, heads // kv_heads),
        kv_heads=kv_heads,
        head_dim=source.head_dim,
        vocabulary=source.vocabulary if vocabulary is None else vocabulary,
    )
