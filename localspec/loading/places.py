"""Places: room for another text beside those of a cache, planned before anything is allocated.

A full cache grows: the new one is made beside the old one, and then the texts are copied. Where
memory is too small for twice as many texts, the cache grows by one; where it is too small for that,
the text gets a cache of its own.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from localspec.errors import DeviceError, ModelLoadError, WorkerError
from localspec.gguf import long_rope
from localspec.gguf.mixed_texts import mixes_texts
from localspec.gguf.reader import Header, read_header
from localspec.llama.head_context import HeadContext
from localspec.llama.kv_cache import MAX_IDS, KVCache
from localspec.llama.sequence import KVSequence
from localspec.loading.config import context_with
from localspec.memory.available import HOPELESS, HOST, FreeMemory, Shortage, free_memory
from localspec.memory.context_sizes import ContextSizes
from localspec.utils.format import counted
from localspec.utils.option_names import option

# The most texts of one cache.
MAX_TEXTS = 64
_LOST_HEAD = "cannot grow, as a head beside it is on a machine that is gone"


@dataclass(frozen=True, slots=True)
class Place:
    """Room for a text. shortage: why it is not in the cache of the others, None if it is."""

    sequence: KVSequence
    shortage: str | None = None


def sequence_beside(other: KVSequence, header: Header) -> Place:
    """Make room for another text of the same model, in the cache of `other` if possible.

    The cache grows if it is full: then no scores may be in use. header: of the model. Raises
    ModelLoadError, and leaves all caches as they are, if memory is too small for another text.
    """
    with closing(_Memory(other, header)) as memory:
        return _place_beside(other, memory) or Place(
            _own_cache(other, memory), memory.first_shortage
        )


def place_beside(other: KVSequence, header: Header) -> KVSequence | None:
    """Make room in the cache of `other`; None where the text must have a cache of its own."""
    with closing(_Memory(other, header)) as memory:
        place = _place_beside(other, memory)
    return place.sequence if place else None


class _Memory:
    """Tells whether a cache like that of `other` fits beside all that is loaded.

    first_shortage: the figures of the first request that did not fit.
    """

    def __init__(self, other: KVSequence, header: Header) -> None:
        self.header = header
        self.first_shortage: str | None = None
        self._other = other
        self._sizes = _sizes(other.context, header)

    def shortage(self, texts: int, beside: Mapping[str, int] | None = None) -> str | None:
        """Why a cache for so many texts does not fit; None if it does.

        beside: bytes by device that are needed at the same time.
        """
        free = self._free()
        needed = self._needed(texts, free) + Counter(beside)
        found = free.shortage(needed)
        return self.note(str(found)) if found else None

    def note(self, shortage: str) -> str:
        """Keep the first reason."""
        self.first_shortage = self.first_shortage or shortage
        return shortage

    def figures(self, texts: int) -> str:
        """How much a cache needs and how much is free, whether it fits or not."""
        free = self._free()
        needed = self._needed(texts, free)
        device = max(needed, key=lambda each: needed[each])
        return str(Shortage(device, needed[device], free.by_device.get(device, 0)))

    def close(self) -> None:
        self._sizes.close()

    def _free(self) -> FreeMemory:
        return free_memory(self._other.model.placement)

    def _needed(self, texts: int, free: FreeMemory) -> Counter[str]:
        """Bytes by device, with those that images will take."""
        params = replace(self._other.context.params, texts=texts)
        least = self._sizes.least_bytes(params)
        if least > HOPELESS * free.total:
            return Counter({HOST: least})
        found = self._sizes.bytes_by_device(params)
        if found is not None:
            projector = self._other.model.projector
            return found + Counter(projector.reserved if projector else {})
        estimated = self._sizes.estimated_bytes(params)
        return Counter({self._sizes.last_device: estimated or least})


def _place_beside(other: KVSequence, memory: _Memory) -> Place | None:
    context = other.context
    # Without flash attention, each row is computed with the tokens of all texts.
    if context.params.flash_attention is False:
        return None
    if len(context.sequences) < context.params.texts:
        return Place(context.new_sequence())
    if any(head.model.is_lost for head in context.head_contexts):
        memory.note(_LOST_HEAD)
        return None
    # Texts are copied one after the other.
    copied = max(each.memory.copy_bytes for each in context.sequences)
    beside = Counter({HOST: copied}) + _head_contexts_bytes(context)
    most = most_texts(memory.header, context.n_cells, context.params.branches)
    for texts in _larger(context.params.texts, most):
        if memory.shortage(texts, beside):
            continue
        try:
            context.resize(texts)
        except (ModelLoadError, MemoryError, DeviceError) as error:
            memory.note(f"could not be made ({error})")
            continue
        except WorkerError:
            if context.model.is_lost:
                raise
            memory.note(_LOST_HEAD)
            return None
        return Place(context.new_sequence())
    memory.note(f"has no place left: {counted(context.params.texts, 'text')} at most share one")
    return None


def _head_contexts_bytes(context: KVCache[KVSequence]) -> Counter[str]:
    """Estimate the bytes of the caches of heads, which are made anew with that of their target.

    By device.
    """
    needed = Counter[str]()
    for head in context.head_contexts:
        sizes = _sizes(head, read_header(head.model.path))
        with closing(sizes), suppress(WorkerError):  # making its cache tells of that
            device = sizes.last_device if head.model.is_offloaded else HOST
            needed[device] += sizes.estimated_bytes(head.params) or 0
    return needed


def _sizes(context: KVCache[KVSequence], header: Header) -> ContextSizes:
    """The sizes of contexts of the same model. header: of its file."""
    mtp = isinstance(context, HeadContext) and context.is_mtp
    return ContextSizes(context.model.path, header, context.model.placement, mtp=mtp)


def most_texts(header: Header, n_ctx: int, branches: int) -> int:
    """How many texts of `n_ctx` tokens one cache holds at most, however much memory there is."""
    if mixes_texts(header):
        return 1
    rotated_alike = long_rope.most_texts(header, n_ctx) or MAX_TEXTS
    return min(MAX_TEXTS, MAX_IDS - branches, rotated_alike)


def _larger(texts: int, most: int) -> Iterator[int]:
    """The numbers of texts, `most` at most, that a full cache may grow to, the best first."""
    if texts < most:
        yield min(2 * texts, most)
    if texts + 1 < min(2 * texts, most):
        yield texts + 1


def _own_cache(other: KVSequence, memory: _Memory) -> KVSequence:
    """Make a cache for one text. Raises ModelLoadError, with the figures, if it does not fit."""
    shortage = memory.shortage(1)
    if shortage:
        raise _no_room(other, shortage)
    try:
        return context_with(other.model, memory.header, replace(other.context.params, texts=1))
    except ModelLoadError as error:
        raise _no_room(other, f"{memory.figures(1)}: {error}") from error


def _no_room(other: KVSequence, shortage: str) -> ModelLoadError:
    return ModelLoadError(
        f"{other.model.path.name}: there is no room for another text of {other.n_cells} tokens, "
        f"which {shortage}; close another session or stream, or load with a smaller "
        f"{option('context')}"
    )
