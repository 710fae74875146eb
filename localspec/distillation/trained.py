"""Trained: what `localspec train` made, and all that its report shows of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.distillation.last_trial import Sample, Trial


@dataclass(frozen=True, slots=True)
class TrainingFacts:
    """What a training was made of.

    target, target_hash: the name of the target's file, and the hash of its content. texts: where
    the prompts were from. prompts, held_out: how many were trained on, and held out. answers,
    tokens: tokens of the answers that were trained on, and of those with their prompts. rounds: as
    many as were planned. settings: what the user chose. device: where it was trained. size: bytes
    of the drafter's file. foreseen: seconds that the forecast said, None where a training was
    resumed; taken: those that passed since. phases: seconds of each phase, since it was resumed.
    """

    target: str
    target_hash: str
    texts: str
    prompts: int
    held_out: int
    answers: int
    tokens: int
    rounds: int
    settings: Mapping[str, str]
    device: str
    size: int
    foreseen: float | None
    taken: float
    phases: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Trained:
    """A drafter that was trained. finished: False if it was stopped.

    history: the acceptance on held-out texts by place of a draft, untrained and after each round.
    trials: what the target really accepted, of this drafter first, and of others; empty if it was
    stopped. preferred: whether `auto` takes it before others. note: what was decided about it.
    pays: whether it is expected to be faster than plain decoding.
    """

    path: Path
    kind: str
    finished: bool
    history: Sequence[Sequence[float]]
    facts: TrainingFacts
    trials: Sequence[Trial] = ()
    preferred: bool = True
    note: str = ""
    pays: bool = True

    def to_json(self) -> dict[str, Any]:
        """All of it, with the texts of the samples, as `of_json` reads it."""
        return {**asdict(self), "path": str(self.path.absolute())}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> "Trained":
        """What `to_json` gave."""
        facts, trials = TrainingFacts(**value["facts"]), [_trial(each) for each in value["trials"]]
        read = {"path": Path(value["path"]), "facts": facts, "trials": trials}
        return cls(**{**value, **read})


def _trial(value: Mapping[str, Any]) -> Trial:
    samples = [
        Sample(each["prompt"], [(text, origin) for text, origin in each["pieces"]])
        for each in value["samples"]
    ]
    return Trial(**{**value, "samples": samples})
