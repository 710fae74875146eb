"""Prompt progress: how far a prompt is read, as llama-server's `return_progress` asks for it."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from time import perf_counter

from localspec.engine.generation import Generation
from localspec.server.errors import JSON


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """The tokens of a prompt: all, those that were in a cache, and those that are read by now.

    processed: it counts those of the cache. time_ms: the milliseconds since reading began.
    """

    total: int
    cache: int
    processed: int
    time_ms: int

    def members(self) -> JSON:
        """The members of a part of a stream that say so."""
        return {"prompt_progress": asdict(self)}


def prompt_progress(generation: Generation, cached: int) -> Iterator[PromptProgress]:
    """Read the prompt of a generation; yield how far that is at first, and after each piece.

    The last token is read with the first draft. It counts with the piece before it.
    """
    began, total, processed = perf_counter(), len(generation.prompt), cached

    def at(count: int) -> PromptProgress:
        return PromptProgress(total, cached, count, round(1e3 * (perf_counter() - began)))

    yield at(cached)
    for processed, _ in generation.reading():
        if processed < total - 1:
            yield at(processed)
    if processed == total - 1:
        yield at(total)
