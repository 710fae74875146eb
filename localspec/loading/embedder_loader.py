"""Embedder loader: an embedding model, where there is room for it beside other models."""

from collections import Counter
from pathlib import Path

from localspec.errors import InvalidValueError, OutOfMemoryError
from localspec.gguf.check import check_embedder, part_paths, reads_in_pieces
from localspec.gguf.heads import vocabulary_size
from localspec.gguf.reader import Header
from localspec.llama import embedder_trial
from localspec.llama.compute_thread import OwnThread
from localspec.llama.context_params import CHUNK
from localspec.llama.devices import names_of
from localspec.llama.embedder import Embedder
from localspec.llama.placement import ON_PROCESSOR, Placement, is_address
from localspec.loading.config import RuntimeConfig
from localspec.loading.file_trial import require_tried
from localspec.loading.gpu_check import check_gpus
from localspec.loading.load_check import check_extra_buffers
from localspec.memory import estimate
from localspec.memory.available import HOST, free_memory
from localspec.utils.last_use import note_use
from localspec.utils.option_names import option
from localspec.utils.progress import report_progress

# The most tokens of a text where nobody says: the library keeps a row as wide as the vocabulary for
# each token of a pass, and most embedding models compute a text in one.
_USUAL_CONTEXT = 2048
_FLOAT = 4


def embedding_context(header: Header, asked: int | None) -> int:
    """The most tokens of a text: those asked for, if the model was made for so many.

    Raises InvalidValueError.
    """
    if asked is not None and asked < 2:
        raise InvalidValueError(f"{option('embed_ctx')} is {asked}; it must be 2 or more")
    usual = asked or _USUAL_CONTEXT
    return min(usual, header.context_length or usual)


def load_embedder(
    path: Path, n_ctx: int, runtime: RuntimeConfig, thread: OwnThread | None = None
) -> Embedder:
    """Load an embedding model: on the GPU of the runtime with the most free, if it fits there.

    thread: computes its passes. Raises ModelNotFoundError and ModelLoadError.
    """
    header = check_embedder(path)
    check_gpus(runtime)
    check_extra_buffers()
    require_tried(path, "embedder_checks", embedder_trial.__name__, "embed")
    size = sum(file.stat().st_size for file in part_paths(path, header))
    placement = _placement(path, header, n_ctx, size, runtime)
    report_progress(f"loading {path.name}")
    # The other half is the chat model's.
    threads = 1 if placement.devices else max(1, runtime.threads_for(size) // 2)
    embedder = Embedder(path, header, n_ctx, placement, threads=threads, thread=thread)
    note_use(path)
    return embedder


def _placement(
    path: Path, header: Header, n_ctx: int, size: int, runtime: RuntimeConfig
) -> Placement:
    """Where it has room. Raises OutOfMemoryError where it has none."""
    named = [] if runtime.placement.is_on_processor else names_of(runtime.placement)
    gpus = tuple(name for name in named if not is_address(name))
    free = free_memory(Placement(devices=gpus))
    gpu = free.freest_gpu(gpus)
    if gpu and not free.shortage(_bytes(header, n_ctx, size, gpu)):
        return Placement(devices=(gpu,))
    if shortage := free.shortage(_bytes(header, n_ctx, size, HOST)):
        raise OutOfMemoryError(
            f"{path.name} {shortage}; close what else uses memory, or lower {option('embed_ctx')}"
        )
    return ON_PROCESSOR


def _bytes(header: Header, n_ctx: int, size: int, device: str) -> Counter[str]:
    """The bytes that it takes by device: its weights, buffers and texts, and its output."""
    rows = max(CHUNK, 0 if reads_in_pieces(header) else n_ctx)
    buffers = estimate.compute_buffer_bytes(header, n_ctx, flash_attention=True, ubatch=rows)
    cells = max(n_ctx, CHUNK)
    cache = estimate.cache_bytes(header, cells) or 0 if reads_in_pieces(header) else 0
    # The library keeps logits of every token, also of models that compute none.
    output = _FLOAT * rows * vocabulary_size(header)
    taken = Counter({device: size + buffers + cache})
    taken[HOST] += output + estimate.vocabulary_bytes(header)
    return taken
