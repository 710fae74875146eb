"""Unfit GPUs: those on which this build of llama.cpp ends the process, or computes other numbers.

They are found by a trial (`loading.gpu_check`) and used no more by this process, unless the user
names one: then loading fails, with the reason.
"""

_reasons: dict[str, str] = {}


def add(name: str, reason: str) -> None:
    """Use this GPU no more. name: llama.cpp's, as in Device. reason: follows its name in a line."""
    _reasons[name] = reason


def reason(name: str) -> str | None:
    """Return why this GPU is not used; None if it is."""
    return _reasons.get(name)


def reasons() -> dict[str, str]:
    """Return why GPUs are not used, by their names."""
    return dict(_reasons)


def notes() -> tuple[str, ...]:
    """Return a line for each of them, with the remedy."""
    return tuple(
        f"{name} is not used: {reason}; localspec doctor says more"
        for name, reason in _reasons.items()
    )
