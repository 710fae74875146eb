"""Warm-up: a wide pass on a GPU, for which its driver may compile kernels for minutes.

Loading measures narrow passes; the first long prompt needs other kernels, which drivers of Vulkan
compile when they are first used, and keep. So this is done once for each model, device, type of
cache and build. Wide passes are computed on a GPU also where no layer is there (docs/placement.md).
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from localspec.errors import LOST
from localspec.llama import library
from localspec.llama.sequence import KVSequence
from localspec.loading.drafter_set import DrafterSet
from localspec.loading.fingerprints import gpus
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.progress import report_progress
from localspec.utils.stored_json import stored, try_to_store

# Rows of the pass: backends have no further kernels for more.
_ROWS = 160


def warm_up(target: KVSequence, drafter_set: DrafterSet, *, is_uniform: bool = False) -> None:
    """Compute a wide pass of each model that is on a GPU and was not warmed up before.

    is_uniform: whether the target reads prompts in narrow passes alone. No text may be written.
    What the caches hold is lost.
    """
    narrow = is_uniform and not target.model.projector  # images are read in wide passes
    for sequence in _readers([] if narrow else [target], drafter_set):
        model = sequence.model
        params = sequence.context.params
        attention = [str(params.flash_attention), str(params.kv_type)]
        places = [*gpus(model.placement), *model.placement.workers]
        key = [*library.build_signature(), *stat_signature(model.path), *places, *attention]
        file = cache_file("warm_ups", key)
        if stored(file, bool):
            continue
        report_progress(f"preparing the GPU for {model.path.name}")
        with suppress(*LOST):  # the first text finds the same, and says so
            sequence.truncate(0)
            sequence.extend([place % 50 for place in range(min(_ROWS, sequence.n_ctx))])
            sequence.truncate(0)
            try_to_store(file, True)


def _readers(targets: Sequence[KVSequence], drafter_set: DrafterSet) -> Iterator[KVSequence]:
    """The texts of models on GPUs that read prompts in wide passes."""
    for sequence in (*targets, *drafter_set.sequences.values()):
        if sequence.context.reads_again and (
            sequence.model.is_offloaded or gpus(sequence.model.placement)
        ):
            yield sequence
