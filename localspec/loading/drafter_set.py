"""Drafter set: the drafters that follow one text, with the caches of those that run a model."""

from dataclasses import dataclass
from pathlib import Path

from localspec.drafters.suffix_store import PastTexts
from localspec.llama.context import Context
from localspec.speculation.drafter import Drafter


@dataclass(frozen=True, slots=True)
class SequenceDrafter:
    """A drafter of one text. context: its cache, if it runs a model; kv_type: of that cache."""

    drafter: Drafter
    context: Context | None = None
    kv_type: str = "f16"

    def close(self) -> None:
        """Free the cache; its model stays."""
        if self.context:
            self.context.close()


@dataclass(frozen=True, slots=True)
class DrafterSet:
    """The drafters of one text, the cheap ones first; none where nothing drafts.

    reason: why nothing drafts, or why a drafter that `auto` looked for is missing. past: the store
    of earlier texts, if they are kept.
    """

    members: tuple[SequenceDrafter, ...] = ()
    reason: str | None = None
    past: PastTexts | None = None

    @property
    def drafters(self) -> tuple[Drafter, ...]:
        """The drafters themselves."""
        return tuple(member.drafter for member in self.members)

    @property
    def names(self) -> list[str]:
        """Their names, which are the origins of the tokens they get right."""
        return [drafter.name for drafter in self.drafters]

    @property
    def one_hot(self) -> list[str]:
        """Names of those without probabilities: the rules take their tokens as certain."""
        return [each.name for each in self.drafters if not each.traits.gives_probs]

    @property
    def contexts(self) -> dict[str, Context]:
        """The caches of those that run a model, by the drafter's name."""
        return {each.drafter.name: each.context for each in self.members if each.context}

    @property
    def model_paths(self) -> list[Path]:
        """The files of those that run a model."""
        return [context.model.path for context in self.contexts.values()]

    def close(self) -> None:
        """Free the caches; their models stay."""
        for member in self.members:
            member.close()
