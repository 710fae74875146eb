"""Drafter set: the drafters of one text, with the caches of draft models."""

from dataclasses import dataclass
from pathlib import Path

from localspec.drafters.suffix_store import PastTexts
from localspec.llama.context import Context
from localspec.speculation.drafter import Drafter


@dataclass(frozen=True, slots=True)
class SequenceDrafter:
    """A drafter of one text. context: the cache of its model, if any. kv_type: of that cache."""

    drafter: Drafter
    context: Context | None = None
    kv_type: str = "f16"

    def close(self) -> None:
        """Free the cache, but not the model."""
        if self.context:
            self.context.close()


@dataclass(frozen=True, slots=True)
class DrafterSet:
    """The drafters of one text, the cheap ones first; empty for plain decoding.

    reason: why there are no drafters, or why a drafter that `auto` looked for is missing. past: the
    store of earlier texts, if they are kept.
    """

    members: tuple[SequenceDrafter, ...] = ()
    reason: str | None = None
    past: PastTexts | None = None

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
    def contexts(self) -> dict[str, Context]:
        """The caches of draft models, by the drafter's name."""
        return {each.drafter.name: each.context for each in self.members if each.context}

    @property
    def model_paths(self) -> list[Path]:
        """The files of the draft models."""
        return [context.model.path for context in self.contexts.values()]

    def close(self) -> None:
        """Free the caches, but not the models."""
        for member in self.members:
            member.close()
