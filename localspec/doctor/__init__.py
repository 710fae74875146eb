"""Doctor: what localspec finds on this machine, and what to do about it. Opens no socket."""

from localspec.doctor import cgroup
from localspec.doctor.child import Child
from localspec.doctor.engine import engine
from localspec.doctor.finding import Finding
from localspec.doctor.gpus import gpus
from localspec.doctor.hub import hub
from localspec.doctor.machine import memory, threads
from localspec.doctor.places import own_places
from localspec.doctor.processor import features
from localspec.doctor.versions import extras, versions


def findings() -> list[Finding]:
    """Everything, in the order people read it; takes a second or two."""
    hub_child = Child("localspec.doctor.hub_facts")
    engine_child = Child("localspec.doctor.engine_facts")
    of_hub, of_engine = hub_child.answer(), engine_child.answer()
    library = of_engine.facts.get("library", {})
    return [
        *versions(),
        *extras(),
        *engine(of_engine, features(), gpus()),
        threads(library.get("threads"), cgroup.processors()),
        memory(library.get("memory")),
        *own_places(),
        *hub(of_hub),
    ]
