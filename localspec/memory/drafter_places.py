"""Drafter places: where a drafter is, and where one may be that the user has put nowhere."""

from localspec.llama.devices import usual_gpus
from localspec.llama.placement import DEFAULT, ON_PROCESSOR, Placement, for_head


def place_of_drafter(target: Placement, named: Placement | None, *, is_head: bool) -> Placement:
    """Return where a drafter is whose target has a placement. named: where the user wants it."""
    if is_head:
        return for_head(target, named, usual_gpus())
    return named or drafter_places(target)[0]


def drafter_places(target: Placement) -> list[Placement]:
    """Return the places of a draft model that the user has put nowhere, the best one first.

    They are one of this machine's GPUs beside the target, each other one, the processor.

    A drafter is too small to be split: each device more is a stop on its way. Workers are never
    chosen for it, as each of its tokens would go there and back.
    """
    if target.gpu_layers == 0:
        return [Placement(gpu_layers=0)]
    if target.devices == ():
        return [ON_PROCESSOR]
    gpus = target.gpus or usual_gpus()
    if not gpus:
        return [DEFAULT]
    if len(gpus) == 1 and target.gpus is None:
        return [DEFAULT, ON_PROCESSOR]
    return [*(Placement(devices=(gpu,)) for gpu in gpus), ON_PROCESSOR]
