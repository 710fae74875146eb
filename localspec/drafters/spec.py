"""Drafter specs: the `draft` option, parsed."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.drafters.custom import checked
from localspec.drafters.model_free import MODEL_FREE
from localspec.errors import InvalidValueError
from localspec.gguf.mask_token import PARD as PARD
from localspec.speculation.drafter import MEMBERS, Drafter

AUTO, NONE = "auto", "none"
# The heads of multi-token prediction inside the target.
MTP = "mtp"
# The values of `draft` that are not models.
NAMES = (AUTO, NONE, *MODEL_FREE, MTP)

# A model that drafts at mask tokens: `pard:MODEL`, or `pard=MASK_TOKEN:MODEL`.
_PARD_NAME = re.compile(r"pard(?:=(\d{1,9}))?:(.+)", re.DOTALL)

# One drafter as the API takes it: a word, the name or path of a model, or a Drafter object.
DraftOption = str | Path | Drafter

# One name of a list and the comma after it.
_NAME = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([^,]*?))\s*,""")


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """One requested drafter.

    kind: `suffix`, `lookup`, `ngram`, `draft-model`, `pard`, `custom`, or a kind of head. model:
    the name or path of a draft model; its file tells whether it is a head. custom: a Drafter object
    of the caller. mask_token: of `pard`, if it is known.
    """

    kind: str
    model: str | Path | None = None
    custom: Drafter | None = None
    mask_token: int | None = None

    @property
    def name(self) -> str | None:
        """The name of its drafter, where that is known before a file is read."""
        if self.custom is not None:
            return self.custom.name
        return self.kind if self.kind in MODEL_FREE or self.is_inside else None

    @property
    def is_inside(self) -> bool:
        """Whether the heads inside the target are asked for."""
        return self.kind == MTP and self.model is None


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
    """Parse a word, a model, an object, names with commas (see `split_names`), or a list of these.

    A drafter that is named twice counts once. Raises InvalidValueError for an empty list, for
    `none` together with another drafter, and for an object that is no drafter.
    """
    options = list(_options(draft))
    if not options:
        raise InvalidValueError("draft is an empty list; use none for plain decoding")
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


def split_names(draft: str) -> list[str]:
    """The names in a text of names with commas.

    A text that is the path of an existing file is one name. A name with a comma may be in quotes.
    """
    if os.path.exists(os.path.expanduser(draft)):
        return [draft]
    return ["".join(groups) for groups in _NAME.findall(f"{draft},")]


def join_names(names: Iterable[str]) -> str:
    """The text of which `split_names` gives these names; a name with a comma is put in quotes."""
    return ",".join(_quoted(name) if "," in name else name for name in names)


def split_kind(name: str) -> tuple[str, str]:
    """What a name says about the kind of its model, such as `pard:`, or nothing; and the model."""
    pard = _PARD_NAME.fullmatch(name)
    return (name.removesuffix(pard[2]), pard[2]) if pard else ("", name)


def _quoted(name: str) -> str:
    return f"'{name}'" if '"' in name else f'"{name}"'


def _is_custom(option: DraftOption) -> bool:
    return not isinstance(option, (str, Path))


def _options(draft: DraftOption | Sequence[DraftOption]) -> Iterator[DraftOption]:
    """Yield each drafter that a string, an object or a nested list names."""
    if isinstance(draft, str):
        names = split_names(draft)
        if not all(names):
            raise InvalidValueError(f"draft is {draft!r}, with an empty name in it; use auto")
        yield from names
    elif isinstance(draft, (list, tuple)):
        for each in draft:
            yield from _options(each)
    else:
        yield draft  # type: ignore[misc]


def _spec(option: DraftOption) -> DrafterSpec:
    if isinstance(option, (str, Path)):
        if option in MODEL_FREE or option == MTP:
            return DrafterSpec(str(option))
        if isinstance(option, str) and (pard := _PARD_NAME.fullmatch(option)):
            number, model = pard.groups()
            return DrafterSpec(PARD, model=model, mask_token=int(number) if number else None)
        return DrafterSpec("draft-model", model=option)
    needed = [member for member in MEMBERS if member != "propose" or not _has(option, "passes")]
    if missing := [member for member in needed if not _has(option, member)]:
        raise InvalidValueError(
            f"draft is {option!r:.80}, which has no {missing[0]}; choose {', '.join(NAMES)}, a "
            f"model, or an object: it needs {', '.join(MEMBERS[:-1])} and {MEMBERS[-1]}"
        )
    return DrafterSpec("custom", custom=checked(option))


def _has(option: object, member: str) -> bool:
    try:
        return hasattr(option, member)
    except Exception:  # a property's own; `checked` says what it was
        return True
