"""Training request: what `localspec train` is asked to do, and what it tells while it does it."""

from dataclasses import dataclass, field
from pathlib import Path

from localspec.distillation.material import TextSource
from localspec.errors import InvalidValueError
from localspec.generation_config import require
from localspec.training.drafter_kind import CUTS, KindOptions
from localspec.utils.option_names import typed_name

_MINUTES = 30.0


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """A training.

    source: of the texts. texts: what the file says of them. out: where the drafter is written;
    None: among localspec's own files. minutes: how long all of it may take; tokens: of answers,
    instead. Without either: 30 minutes. resume: go on with an unfinished training. anew: begin
    again where there is one. cache: the most bytes of read rows on the disk.
    """

    source: TextSource
    kind: str
    texts: str
    options: KindOptions = field(default_factory=KindOptions)
    out: Path | None = None
    minutes: float | None = None
    tokens: int | None = None
    resume: bool = False
    anew: bool = False
    device: str = "auto"
    cache: int = 8 << 30

    def __post_init__(self) -> None:
        if self.minutes is not None and self.tokens is not None:
            raise InvalidValueError("minutes and tokens exclude each other; name one of them")
        if self.minutes is not None and not 0 < self.minutes < 1e6:
            raise InvalidValueError(f"minutes is {self.minutes}; it is more than 0")
        if self.resume and self.anew:
            raise InvalidValueError("resume is set, and so is anew; name one of them")
        if self.source.seed is not None:
            require("seed", self.source.seed, 0, 2**64 - 1)
        if self.tokens is not None and self.tokens < 1:
            raise InvalidValueError(f"tokens is {self.tokens}; it is 1 or more")

    @property
    def seconds(self) -> float:
        """How long all of it may take, where no tokens are given."""
        return 60 * (_MINUTES if self.minutes is None else self.minutes)

    @property
    def settings(self) -> dict[str, str]:
        """What the user chose, by the names of the command line."""
        options, runtime = self.options, self.source.runtime
        length = {"tokens": self.tokens} if self.tokens else {"minutes": self.seconds / 60}
        chosen = {
            **length,
            "layers": options.layers,
            "cut": options.cut if options.cut != CUTS[0] else None,
            "type": options.type_name,
            "from-head": options.head and options.head.name,
            "seed": self.source.seed,
            "device": self.device,
            "cache-gb": self.cache / 1e9,
            **{typed_name(name).removeprefix("--"): value for name, value in runtime.items()},
        }
        return {
            name: f"{value:g}" if isinstance(value, float) else str(value)
            for name, value in chosen.items()
            if value is not None
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """phase: what is done now. share: of it. left: seconds until the end of all, as far as known.

    tokens_per_second: of the phase. acceptance: on held-out texts so far, speed_up: what it makes
    of plain decoding, by the bytes that passes read; None before the first is known.
    """

    phase: str
    share: float
    left: float | None = None
    tokens_per_second: float | None = None
    acceptance: float | None = None
    speed_up: float | None = None
