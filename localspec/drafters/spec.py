"""Drafter specs: what the `draft` option asks for, parsed once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.drafters.model_free import MODEL_FREE
from localspec.errors import InvalidValueError
from localspec.speculation.drafter import MEMBERS, Drafter

AUTO, NONE = "auto", "none"
# The words that `draft` takes beside models.
NAMES = (AUTO, NONE, *MODEL_FREE)

# One drafter as the API takes it: a word, a model by name or path, or an object of the user's.
DraftOption = str | Path | Drafter


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """One drafter that was asked for.

    kind: `suffix`, `lookup`, `ngram`, `draft-model` or `custom`. model: the name or path of a draft
    model. custom: the user's object.
    """

    kind: str
    model: str | Path | None = None
    custom: Drafter | None = None


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """Everything that `draft` asks for.

    specs: the drafters that were named, in their order. auto: whether `auto` is to add suffix and
    the target's own drafter. Neither: drafting is turned off.
    """

    specs: tuple[DrafterSpec, ...] = ()
    auto: bool = False

    @property
    def is_off(self) -> bool:
        """Whether plain decoding was asked for."""
        return not self.specs and not self.auto

    @property
    def is_only_auto(self) -> bool:
        """Whether nobody named a drafter."""
        return self.auto and not self.specs


def parse_draft(draft: DraftOption | Sequence[DraftOption]) -> DraftRequest:
    """Parse a word, a model, an object, names with commas, or a list of these.

    A drafter that is named twice counts once. Raises InvalidValueError for an empty list, for
    `none` beside something else, and for what is no drafter.
    """
    options = list(_options(draft))
    if not options:
        raise InvalidValueError("draft is an empty list; name none, to decode plainly")
    if NONE in options:
        if any(option != NONE for option in options):
            raise InvalidValueError("draft names none and something else; choose one")
        return DraftRequest()
    specs = dict.fromkeys(_spec(option) for option in options if option != AUTO)
    return DraftRequest(tuple(specs), AUTO in options)


def _options(draft: DraftOption | Sequence[DraftOption]) -> Iterator[DraftOption]:
    """Yield each drafter that a string, an object or a nested list names."""
    if isinstance(draft, str):
        # A path may hold a comma: an existing file is taken whole.
        names = [draft] if Path(draft).exists() else [name.strip() for name in draft.split(",")]
        if not all(names):
            raise InvalidValueError(f"draft is {draft!r}, with an empty name in it; try auto")
        yield from names
    elif isinstance(draft, Iterable) and not isinstance(draft, Path):
        for each in draft:
            yield from _options(each)
    else:
        yield draft


def _spec(option: DraftOption) -> DrafterSpec:
    if isinstance(option, (str, Path)):
        if option in MODEL_FREE:
            return DrafterSpec(str(option))
        return DrafterSpec("draft-model", model=option)
    missing = [member for member in MEMBERS if not hasattr(option, member)]
    if missing:
        raise InvalidValueError(
            f"draft is {option!r}, which has no {missing[0]}; choose {', '.join(NAMES)}, a model, "
            f"or an object: it needs {', '.join(MEMBERS[:-1])} and {MEMBERS[-1]}"
        )
    return DrafterSpec("custom", custom=option)
