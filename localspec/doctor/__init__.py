"""Doctor: checks this installation and this machine, and says what to do. Opens no socket."""

from localspec.doctor.finding import Finding
from localspec.doctor.folders import localspec_folders
from localspec.doctor.gpus import gpus
from localspec.doctor.hub_findings import hub_findings
from localspec.doctor.library_findings import library_findings
from localspec.doctor.machine import memory, threads
from localspec.doctor.probe import Probe
from localspec.doctor.versions import extras, versions
from localspec.utils.cgroups import processor_limit
from localspec.utils.processor import processor_features


def findings() -> list[Finding]:
    """Return everything, in the order people read it; takes a second or two."""
    with (
        Probe("localspec.doctor.hub_probe") as hub_probe,
        Probe("localspec.doctor.library_probe") as library_probe,
    ):
        hub, library = hub_probe.result(), library_probe.result()
    facts = library.facts.get("library", {})
    return [
        *versions(),
        *extras(),
        *localspec_folders(),
        *hub_findings(hub),
        *library_findings(library, processor_features(), gpus()),
        threads(facts.get("threads"), processor_limit()),
        memory(facts.get("memory")),
    ]
