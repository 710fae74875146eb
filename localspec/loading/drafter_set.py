"""Drafter set: the drafters of one text, with the caches of draft models."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from localspec.control.acceptance import from_end_name
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix import Suffix
from localspec.drafters.text_drafter import TextDrafter
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.llama.shared_context import SharedSequence
from localspec.loading.calibration import IN_ONE_PASS, Measured
from localspec.loading.cost_measurement import (
    seconds_beside_text,
    seconds_in_one_pass,
    seconds_of_block,
    seconds_one_by_one,
)
from localspec.loading.matrix_heads import LoadedMatrixHead
from localspec.speculation.drafter import Drafter
from localspec.utils.media import has_media


@dataclass(frozen=True, slots=True)
class SequenceDrafter:
    """A drafter of one text.

    sequence: the text in the KV cache of its model, if it has one. kv_type: of that cache.
    matrices: a head that needs no cache. kind: as in DrafterSpec. not_ahead: why it draws nothing
    ahead although it has a device of its own; None if it does, or has none.
    """

    drafter: Drafter
    sequence: KVSequence | None = None
    kv_type: str = "f16"
    matrices: LoadedMatrixHead | None = None
    kind: str = ""
    not_ahead: str | None = None

    @property
    def measured(self) -> Measured | None:
        """How to measure its cost; None for a drafter without a model."""
        if self.matrices:
            return Measured(self.matrices.path, self.matrices.seconds)
        if self.sequence is None:
            return None
        path = self.sequence.model.path
        if self.drafter.traits.parallel:
            return Measured(path, partial(seconds_in_one_pass, self.sequence), IN_ONE_PASS)
        if isinstance(self.sequence, SharedSequence):
            return Measured(path, partial(seconds_beside_text, self.sequence))
        seconds = seconds_of_block if self.sequence.context.block_size else seconds_one_by_one
        return Measured(path, partial(seconds, self.sequence))

    def close(self) -> None:
        """Remove the text from the cache, but keep the model."""
        if self.sequence:
            self.sequence.close()


@dataclass(frozen=True, slots=True)
class DrafterSet:
    """The drafters of one text, the cheap ones first; empty for plain decoding.

    reason: why there are no drafters, or why a drafter that `auto` looked for is missing.
    earlier: what they copy from, to which texts are added as they end; None: nothing is copied.
    """

    members: tuple[SequenceDrafter, ...] = ()
    reason: str | None = None
    earlier: EarlierTexts | None = None

    @property
    def drafters(self) -> tuple[Drafter, ...]:
        """The drafters, without their caches."""
        return tuple(member.drafter for member in self.members)

    @property
    def names(self) -> list[str]:
        """The drafters' names, which are the origins of accepted tokens."""
        return [drafter.name for drafter in self.drafters]

    @property
    def one_hot(self) -> list[str]:
        """The names of drafters without probabilities, whose proposals are one-hot."""
        return [each.name for each in self.drafters if not each.traits.gives_probs]

    @property
    def sequences(self) -> dict[str, KVSequence]:
        """The text in the caches of draft models, by the drafter's name."""
        return {each.drafter.name: each.sequence for each in self.members if each.sequence}

    @property
    def measured(self) -> dict[str, Measured]:
        """How to measure the cost of drafters with a model, by the drafter's name."""
        return {each.drafter.name: each.measured for each in self.members if each.measured}

    @property
    def learnt(self) -> dict[str, tuple[Path, str]]:
        """What is learnt of drafters with a model: by its name, the file and the way of drafting.

        Drafts from the end of a prompt alone are learnt by themselves (`from_end_name`).
        """
        found = {name: (each.path, each.way) for name, each in self.measured.items()}
        for drafter in self.drafters:
            if drafter.name in found and drafter.traits.end:
                path, way = found[drafter.name]
                found[from_end_name(drafter.name)] = path, f"{way}, from the end"
        return found

    @property
    def foreign_models(self) -> list[Model]:
        """The draft models with vocabularies of their own."""
        return [
            each.sequence.model
            for each in self.members
            if each.sequence and isinstance(each.drafter, TextDrafter)
        ]

    def of_model(self, model: Model) -> KVSequence | None:
        """The text in the cache of this draft model, if it is one of the set."""
        return next((each for each in self.sequences.values() if each.model is model), None)

    @property
    def model_paths(self) -> list[Path]:
        """The files of the draft models."""
        return [each.path for each in self.measured.values()]

    def keep(self, prompt: Sequence[int], tokens: Iterable[int]) -> None:
        """Let other texts copy from one that has ended, unless it has images."""
        if self.earlier and self.members and self.earlier.are_added and not has_media(prompt):
            text = [*prompt, *tokens]
            own = next((each for each in self.drafters if isinstance(each, Suffix)), None)
            self.earlier.add(text, own.drawn_from(text) if own else None)

    def close(self) -> None:
        """Free the caches, but not the models."""
        for member in self.members:
            member.close()
