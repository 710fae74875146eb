"""Drawing ahead: whether a draft model may draw tokens while its target computes, and why not."""

from localspec.gguf.mask_token import PARD
from localspec.llama.compute_thread import OwnThread
from localspec.llama.devices import names_of
from localspec.llama.model import Model
from localspec.llama.placement import Placement, is_address
from localspec.llama.rollback import Rollback
from localspec.llama.sequence import KVSequence
from localspec.loading.drafter_set import DrafterSet
from localspec.models.kinds import HEADS, THROUGH_TEXT
from localspec.speculation.rules import Rule
from localspec.stats import Stats
from localspec.utils.option_names import options
from localspec.workers.address import parse_address

# Why a drafter on a device of its target draws nothing ahead. Nobody expects that it does.
SHARED_DEVICE = "it shares a device with the target"
# Why drafters of these kinds draw nothing ahead on any device.
_KINDS = {
    **dict.fromkeys(HEADS, "a head drafts from hidden states of the target's last pass"),
    PARD: "a PARD model drafts all its tokens in one pass",
    THROUGH_TEXT: "its vocabulary is not the target's",
}
_PROCESSOR = "processor"


def obstacle(kind: str, drafter: KVSequence, target: KVSequence) -> str | None:
    """Return why a drafter draws nothing ahead in any text; None if it can.

    kind: of the drafter, see `models.kinds`. Two models of the same device would only take its time
    from each other. A cache that cannot be cut anywhere would lose more with each wrong guess.
    """
    if devices_of(drafter.model) & devices_of(target.model):
        return SHARED_DEVICE
    if kind in _KINDS:
        return _KINDS[kind]
    if drafter.rollback is not Rollback.PARTIAL:
        return "its cache cannot be cut at any token"
    return None


def note(name: str, why: str) -> str:
    """Say that a drafter on a device of its own draws nothing ahead."""
    return (
        f"{name} has a device of its own, but draws nothing ahead while the target computes: {why}"
    )


def crowded_note(drafter_set: DrafterSet, texts: int) -> str | None:
    """Say that nothing is drawn ahead beside other texts; None where no drafter could.

    texts: for how many there is room.
    """
    able = [each.name for each in drafter_set.drafters if each.traits.ready]
    if texts < 2 or not able:
        return None
    why = f"it does so only where there is room for one text, not for {texts} ({options(texts=1)})"
    return note(" and ".join(able), why)


def give_thread(model: Model) -> None:
    """Give a draft model a thread, in which all its passes are computed from then on."""
    model.thread = model.thread or OwnThread()


def nothing_ahead(drafter_set: DrafterSet, rule: Rule, stats: Stats) -> str | None:
    """Return why nothing was drawn ahead in a text that is written alone.

    None if something was, or if no drafter that can draw ahead has drafted.
    """
    asked = {record.drafter for record in stats.records}
    able = any(each.traits.ready and each.name in asked for each in drafter_set.drafters)
    if stats.drafted_ahead or not able:
        return None
    if not rule.same_text:
        return f"under rule {rule.name} the target draws the token after a draft by itself"
    return "the text or the target's passes were too short for it, or it would not have paid"


def devices_of(model: Model) -> set[str]:
    """Return the names of the devices that a model computes on."""
    if not model.is_offloaded:
        return {_PROCESSOR}
    place = model.placement
    return _with_layers(place) | (set() if place.is_on_devices else {_PROCESSOR})


def _with_layers(place: Placement) -> set[str]:
    """Return the names of the devices that get layers: not those with a share of 0."""
    names = [
        str(parse_address(name) if name in place.rpc or is_address(name) else name).lower()
        for name in names_of(place)
    ]
    if len(names) == 1 or len(names) != len(place.tensor_split):
        return set(names)
    shares = zip(names, place.tensor_split, strict=True)
    return {name for name, share in shares if share}
