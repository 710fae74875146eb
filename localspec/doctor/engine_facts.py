"""Engine facts, asked for in a child process: what llama.cpp is here, and whether it works."""

import sys
from dataclasses import asdict
from typing import Any

from localspec.doctor.child import tell
from localspec.engine.engine import load
from localspec.errors import LocalspecError
from localspec.generation_config import GenerationOptions
from localspec.llama import library
from localspec.loading.config import threads_for
from localspec.memory.available import host_memory

_PROMPT = "def fibonacci(n):"
_TRIAL: GenerationOptions = {"max_tokens": 16, "seed": 6, "ignore_eos": True, "depth": 4}
_ROOM = 256
_ENDLESS = 2**60


def library_facts() -> dict[str, Any]:
    """What this build can do."""
    return {
        "version": library.version(),
        "cpu_features": sorted(library.cpu_features()),
        "can_offload": library.can_offload(),
        "devices": [asdict(device) for device in library.devices()],
        "missing": library.missing(),
        "threads": threads_for(_ENDLESS),
        "memory": host_memory(),
    }


def trial() -> dict[str, Any]:
    """The bundled pair, with and without drafts, in passes whose digits do not depend on them."""
    with load(context=_ROOM, reproducible=True) as engine:
        drafted = engine.generate(_PROMPT, **_TRIAL)
        drafting = engine.drafting.names
    with load(draft="none", context=_ROOM, reproducible=True) as engine:
        plain = engine.generate(_PROMPT, **_TRIAL)
    return {
        "tokens": len(plain.token_ids),
        "same": plain.token_ids == drafted.token_ids,
        "accepted": drafted.stats.accepted,
        "drafters": drafting,
        "tokens_per_second": plain.stats.tokens_per_second,
    }


def main() -> None:
    """Tell it."""
    tell("library", library_facts())
    tell("trial", trial())


if __name__ == "__main__":
    try:
        main()
    except LocalspecError as error:
        sys.exit(str(error))
