"""Suggestions: the models on this disk that could draft for a target, the best first."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.gguf.check import check_generative
from localspec.gguf.facts import Facts, facts_of
from localspec.models.compatibility import checks
from localspec.models.inventory import all_models
from localspec.models.speed_up import (
    PairMeasurement,
    SpeedUpEstimate,
    bytes_read,
    estimate_speed_up,
)
from localspec.models.vocabulary_match import Check, failed_check

# Returns what was measured on this machine of a target and a drafter.
MeasurementLookup = Callable[[Facts, Facts], PairMeasurement]


@dataclass(frozen=True, slots=True)
class DrafterSuggestion:
    """A model on this disk that is smaller than the target.

    name: what to call it. failed: the first check it fails, None if it can draft.
    """

    name: str
    model: Facts
    failed: Check | None
    speed_up: SpeedUpEstimate

    @property
    def useful(self) -> bool:
        """Whether the model can draft, and drafting is then faster than plain decoding."""
        return self.failed is None and self.speed_up.pays


def text_model(path: Path) -> Facts:
    """Read a model that generates text. Raises ModelNotFoundError or ModelLoadError."""
    check_generative(path)
    return facts_of(path)


def suggest_drafters(
    target: Facts, measured: MeasurementLookup, context: int | None = None
) -> list[DrafterSuggestion]:
    """Return every smaller model on this disk: the useful ones first, the fastest of them first.

    context: tokens of text, as in compatibility.checks.
    """
    found = []
    for stored in all_models():
        try:
            model = text_model(stored.files[0])
        except LocalspecError:
            continue  # such as an image encoder or an embedding model, which cannot draft
        if bytes_read(model, 1) < bytes_read(target, 1):
            failed = failed_check(checks(target, model, context))
            speed_up = estimate_speed_up(target, model, measured(target, model))
            found.append(DrafterSuggestion(stored.name, model, failed, speed_up))
    found.sort(key=lambda each: (each.useful, each.speed_up.low + each.speed_up.high), reverse=True)
    return found
