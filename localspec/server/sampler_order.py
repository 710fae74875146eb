"""Sampler order: llama-server's `samplers`, which names the samplers that are on, and their order.

Here there is one order, that of llama.cpp's default chain. A list is honoured where what is on
stands in that order; a sampler that the list leaves out is switched off.
"""

import logging
from collections.abc import Mapping
from typing import Any

from localspec.server.fields import Fields

log = logging.getLogger("localspec.server")

# The samplers in their order, with their settings where these are off.
_CHAIN: dict[str, dict[str, float]] = {
    "penalties": {"repeat_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0},
    "dry": {"dry_multiplier": 0},
    "top_n_sigma": {"top_n_sigma": 0},
    "top_k": {"top_k": 0},
    "typ_p": {"typical_p": 1},
    "top_p": {"top_p": 1},
    "min_p": {"min_p": 0},
    "xtc": {"xtc_probability": 0},
    "temperature": {"temperature": 1, "dynatemp_range": 0},
}
# It is the last one wherever it is named.
_LAST = {"adaptive_p": {"adaptive_target": -1}}
# It changes what follows a gap in a file, and has no setting that switches it off.
_INFILL = "infill"
_KNOWN = (*_CHAIN, *_LAST, _INFILL)
# llama-server's letters for a list in one string, and its other spellings.
_LETTERS = dict(zip("edskypmxtai", _KNOWN, strict=True))
_SPELLINGS = {
    **{name.replace("_", mark): name for name in _KNOWN for mark in ("-", "")},
    "nucleus": "top_p",
    "temp": "temperature",
    "typ": "typ_p",
}
# Above this threshold of XTC no two tokens are likely enough, so none is left out.
_LEAVES_ALL = 0.5
# Settings that are off where neither the request nor a GGUF can have set them.
_OFF_UNSET = (
    "typical_p",
    "top_n_sigma",
    "dynatemp_range",
    "frequency_penalty",
    "presence_penalty",
    "dry_multiplier",
)


def settings_of_order(body: Fields, chosen: Mapping[str, Any]) -> dict[str, float]:
    """The settings of the samplers that `samplers` leaves out. Raises ApiError for another order.

    chosen: the settings that the request has otherwise.
    """
    names = _names(body)
    if names is None or chosen.get("mirostat"):  # beside which the list has no effect
        return {}
    active = [name for name in names if name in _CHAIN and not _is_off(name, chosen)]
    places = [[*_CHAIN].index(name) for name in active]
    if _INFILL in names or places != sorted(set(places)):
        raise body.wrong("samplers", f"in the order {', '.join(_CHAIN)}, those that are on")
    return {
        setting: off
        for name, settings in (_CHAIN | _LAST).items()
        if name not in names
        for setting, off in settings.items()
    }


def _names(body: Fields) -> list[str] | None:
    """The samplers by llama-server's names; None: the request does not say."""
    given = body.values.get("samplers")
    if isinstance(given, str):
        return [_LETTERS.get(letter, letter) for letter in given]
    if given is None:
        return None
    names = [_SPELLINGS.get(name.lower(), name.lower()) for name in body.texts("samplers")]
    if unknown := [name for name in names if name not in _KNOWN]:
        # As on llama-server: clients send the names of many servers' samplers.
        log.warning("left out the sampler %.40s, which is not known here", unknown[0])
    return names


def _is_off(name: str, chosen: Mapping[str, Any]) -> bool:
    if name == "xtc" and (chosen.get("xtc_threshold") or 0) > _LEAVES_ALL:
        return True
    return all(
        chosen.get(setting) == off or (chosen.get(setting) is None and setting in _OFF_UNSET)
        for setting, off in _CHAIN[name].items()
    )
