"""Drawing ahead: whether a draft model may draw tokens while its target computes."""

from localspec.llama.compute_thread import OwnThread
from localspec.llama.devices import usual_gpus
from localspec.llama.model import Model
from localspec.llama.rollback import Rollback
from localspec.llama.sequence import KVSequence

_PROCESSOR = "processor"


def prepare_to_draw_ahead(drafter: KVSequence, target: KVSequence) -> bool:
    """Return whether the drafter's text may be computed while the target's is.

    Then the drafter's model gets a thread. Two models of the same device would only take its time
    from each other. A cache that cannot be cut anywhere would lose more with each wrong guess.
    """
    model = drafter.model
    if drafter.rollback is not Rollback.PARTIAL or devices_of(model) & devices_of(target.model):
        return False
    model.thread = model.thread or OwnThread()
    return True


def devices_of(model: Model) -> set[str]:
    """Return the names of the devices that a model computes on."""
    if not model.is_offloaded:
        return {_PROCESSOR}
    place = model.placement
    named = usual_gpus() if place.gpus is None else place.gpus
    devices = {each.lower() for each in (*named, *map(str, place.workers))}
    is_whole = place.gpu_layers in (None, -1) and not place.cpu_moe
    return devices if is_whole else devices | {_PROCESSOR}
