"""Drafter specs: the `draft` option, parsed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.drafters.model_free import MODEL_FREE
from localspec.errors import InvalidValueError
from localspec.speculation.drafter import MEMBERS, Drafter, ModelDrafter

AUTO, NONE = "auto", "none"
# The values of `draft` that are not models.
NAMES = (AUTO, NONE, *MODEL_FREE)

# One drafter as the API takes it: a word, the name or path of a model, or a Drafter object.
DraftOption = str | Path | Drafter


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """One requested drafter.

    kind: `suffix`, `lookup`, `ngram`, `draft-model`, `eagle3` or `custom`. model: the name or path
    of a draft model; its file tells whether it is a head. custom: a Drafter object of the caller.
    """

    kind: str
    model: str | Path | None = None
    custom: Drafter | None = None

    @property
    def name(self) -> str | None:
        """The name of its drafter, where that is known before a file is read."""
        if self.custom is not None:
            return self.custom.name
        return self.kind if self.kind in MODEL_FREE else None


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """All requested drafters.

    specs: the named drafters, in their order. auto: whether `auto` adds suffix and the target's own
    drafter. Without specs and auto, drafting is turned off.
    """

    specs: tuple[DrafterSpec, ...] = ()
    auto: bool = False

    @property
    def is_off(self) -> bool:
        """Whether plain decoding is requested."""
        return not self.specs and not self.auto

    @property
    def is_only_auto(self) -> bool:
        """Whether no drafter is named, only `auto`."""
        return self.auto and not self.specs


def parse_draft(draft: DraftOption | Sequence[DraftOption]) -> DraftRequest:
    """Parse a word, a model, an object, names with commas, or a list of these.

    A drafter that is named twice counts once. Raises InvalidValueError for an empty list, for
    `none` together with another drafter, and for an object that is no drafter.
    """
    options = list(_options(draft))
    if not options:
        raise InvalidValueError("draft is an empty list; name none, to decode plainly")
    words = [option for option in options if isinstance(option, str)]
    if NONE in words:
        if any(_is_custom(option) or option != NONE for option in options):
            raise InvalidValueError("draft names none and something else; choose one")
        return DraftRequest()
    specs: list[DrafterSpec] = []
    for option in options:
        # Objects are not compared: theirs may say that any two are equal.
        if _is_custom(option) or (option != AUTO and _spec(option) not in specs):
            specs.append(_spec(option))
    return DraftRequest(tuple(specs), AUTO in words)


def _is_custom(option: DraftOption) -> bool:
    return not isinstance(option, (str, Path))


def _options(draft: DraftOption | Sequence[DraftOption]) -> Iterator[DraftOption]:
    """Yield each drafter that a string, an object or a nested list names."""
    if isinstance(draft, str):
        # A path may hold a comma: an existing file is taken whole.
        names = [draft] if Path(draft).exists() else [name.strip() for name in draft.split(",")]
        if not all(names):
            raise InvalidValueError(f"draft is {draft!r}, with an empty name in it; try auto")
        yield from names
    elif isinstance(draft, (list, tuple)):
        for each in draft:
            yield from _options(each)
    else:
        yield draft  # type: ignore[misc]


def _spec(option: DraftOption) -> DrafterSpec:
    if isinstance(option, (str, Path)):
        if option in MODEL_FREE:
            return DrafterSpec(str(option))
        return DrafterSpec("draft-model", model=option)
    missing = [member for member in MEMBERS if not hasattr(option, member)]
    if missing and not isinstance(option, ModelDrafter):
        raise InvalidValueError(
            f"draft is {option!r}, which has no {missing[0]}; choose {', '.join(NAMES)}, a model, "
            f"or an object: it needs {', '.join(MEMBERS[:-1])} and {MEMBERS[-1]}"
        )
    return DrafterSpec("custom", custom=option)
