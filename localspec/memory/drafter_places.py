"""Drafter places: where a draft model may be that the user has put nowhere, the best one first."""

from localspec.llama.devices import usual_gpus
from localspec.llama.placement import DEFAULT, ON_PROCESSOR, Placement


def drafter_places(target: Placement) -> list[Placement]:
    """Return the places beside a target: one of this machine's GPUs, each other one, the processor.

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
