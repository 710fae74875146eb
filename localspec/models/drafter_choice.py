"""Drafter choice: which of a target's drafters is fetched with it."""

from collections.abc import Sequence

from localspec.errors import ModelNotFoundError
from localspec.models.kinds import is_kind
from localspec.models.own_drafters import OwnDrafter


def promising(known: Sequence[OwnDrafter]) -> tuple[list[OwnDrafter], list[str]]:
    """Return the drafters that nothing speaks against, in order, and what speaks against others."""
    usable = [each for each in known if each.objection is None]
    return usable, [each.objection for each in known if each.objection]


def of_kind(known: Sequence[OwnDrafter], kind: str, name: str) -> OwnDrafter:
    """Return the first drafter of a kind. name: what the user called the target.

    Raises ModelNotFoundError where there is none.
    """
    found = next((each for each in known if is_kind(each.kind, kind)), None)
    if found is None:
        kinds = ", ".join(dict.fromkeys(each.kind for each in known))
        has = f"it has {kinds}" if kinds else "none is known for it"
        raise ModelNotFoundError(
            f"no {kind} drafter is known for {name}; {has}; name one as user/repo:FILE"
        )
    return found
