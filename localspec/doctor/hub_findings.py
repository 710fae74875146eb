"""Hub findings: from what the probe of huggingface_hub reported, and from the environment."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from localspec.doctor.finding import Finding, error, note, ok
from localspec.doctor.folders import folder_finding
from localspec.doctor.probe import ProbeResult
from localspec.utils.format import format_bytes
from localspec.utils.installer import installer

_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def hub_findings(probed: ProbeResult) -> list[Finding]:
    """Return all of them. A token is never read, only where it comes from."""
    settings = probed.facts.get("hub")
    if settings is None:
        return [
            error(
                "hub",
                f"huggingface_hub cannot be used: {probed.failure or 'nothing was told'}",
                f"{installer()} --force-reinstall huggingface_hub",
            )
        ]
    return [
        ok("hub", f"huggingface_hub {settings['version']}"),
        *_endpoint(),
        *_offline(settings["offline"]),
        _token(settings["token_file"]),
        folder_finding("hub cache", Path(settings["cache"]), "HF_HUB_CACHE"),
        *_interrupted(probed.facts.get("interrupted", ())),
    ]


def _endpoint() -> list[Finding]:
    address = os.environ.get("HF_ENDPOINT")
    if not address:
        return []
    # What is before the host, or after a question mark, can be a secret.
    shown = address.partition("?")[0].rpartition("@")[2]
    return [note("hub", f"HF_ENDPOINT is set: models come from {shown}")]


def _offline(variable: str | None) -> list[Finding]:
    if not variable:
        return []
    return [note("hub", f"{variable} is set: nothing is fetched", f"unset {variable}")]


def _token(file: str | None) -> Finding:
    named = next((name for name in _TOKENS if os.environ.get(name)), None)
    if named or file:
        return ok("hub token", f"there is one, from {named or file}")
    return ok("hub token", "none; only gated and private models need one (hf auth login)")


def _interrupted(parts: Sequence[Mapping[str, Any]]) -> list[Finding]:
    return [
        note(
            "downloads",
            f"an interrupted download of {part['model']} keeps {format_bytes(part['bytes'])}",
            f"localspec {'pull' if part['resumable'] else 'rm'} {part['model']}",
        )
        for part in parts
    ]
