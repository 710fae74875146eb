"""localspec: speculative decoding for local GGUF models, faster and with the same text.

import localspec

with localspec.load() as engine:
    print(engine.generate([{"role": "user", "content": "What does ls do?"}]).text)
"""

__version__ = "0.1.0"

# Nothing is imported here: a Ctrl-C during `localspec`'s first imports has no answer yet.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from localspec.conversation.answer import Answer, AsyncAnswer
    from localspec.conversation.events import Dropped, Ended, Gauge, Notice, Piece, Reading
    from localspec.conversation.session import Session
    from localspec.conversation.turns import Conversation, Turn
    from localspec.engine.engine import Engine, load
    from localspec.engine.generation import Generation, Result, Token
    from localspec.engine.interruption import InterruptedTextError
    from localspec.engine.texts import AsyncGeneration
    from localspec.errors import (
        ContextFullError,
        DeviceError,
        DrafterMismatchError,
        InvalidValueError,
        LocalspecError,
        ModelLoadError,
        ModelNotFoundError,
        OutOfMemoryError,
        WorkerError,
    )
    from localspec.generation_config import GenerationConfig
    from localspec.llama.placement import Placement
    from localspec.sampling.params import SamplingParams
    from localspec.speculation.draft import Draft
    from localspec.speculation.drafter import Drafter, Limit, Outcome, Traits
    from localspec.stats import Stats
    from localspec.utils.progress import watched

# Imported when first used: `import localspec` itself must cost nothing.
_HOMES = {
    "load": "engine.engine",
    "watched": "utils.progress",
    "Engine": "engine.engine",
    "Generation": "engine.generation",
    "AsyncGeneration": "engine.texts",
    "Result": "engine.generation",
    "Token": "engine.generation",
    "Session": "conversation.session",
    "Answer": "conversation.answer",
    "AsyncAnswer": "conversation.answer",
    "Conversation": "conversation.turns",
    "Turn": "conversation.turns",
    "Reading": "conversation.events",
    "Piece": "conversation.events",
    "Notice": "conversation.events",
    "Dropped": "conversation.events",
    "Ended": "conversation.events",
    "Gauge": "conversation.events",
    "Stats": "stats",
    "GenerationConfig": "generation_config",
    "Placement": "llama.placement",
    "SamplingParams": "sampling.params",
    "Draft": "speculation.draft",
    "Drafter": "speculation.drafter",
    "Limit": "speculation.drafter",
    "Outcome": "speculation.drafter",
    "Traits": "speculation.drafter",
    "LocalspecError": "errors",
    "InvalidValueError": "errors",
    "ContextFullError": "errors",
    "ModelNotFoundError": "errors",
    "ModelLoadError": "errors",
    "DrafterMismatchError": "errors",
    "OutOfMemoryError": "errors",
    "WorkerError": "errors",
    "DeviceError": "errors",
    "InterruptedTextError": "engine.interruption",
}

__all__ = [
    "Answer",
    "AsyncAnswer",
    "AsyncGeneration",
    "ContextFullError",
    "Conversation",
    "DeviceError",
    "Draft",
    "Drafter",
    "DrafterMismatchError",
    "Dropped",
    "Ended",
    "Engine",
    "Gauge",
    "Generation",
    "GenerationConfig",
    "InterruptedTextError",
    "InvalidValueError",
    "Limit",
    "LocalspecError",
    "ModelLoadError",
    "ModelNotFoundError",
    "Notice",
    "OutOfMemoryError",
    "Outcome",
    "Piece",
    "Placement",
    "Reading",
    "Result",
    "SamplingParams",
    "Session",
    "Stats",
    "Token",
    "Traits",
    "Turn",
    "WorkerError",
    "load",
    "watched",
]


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'localspec' has no attribute {name!r}")
    return getattr(import_module(f"localspec.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
