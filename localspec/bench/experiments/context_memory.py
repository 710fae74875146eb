"""Memory beyond two models and their caches, at the end of a long context.

    python -m localspec.bench.experiments.context_memory [--ctx 32768] [--vocabulary 131072]

A model with random weights, tiny but for its vocabulary, is loaded twice, as target and as drafter.
In a process of its own it reads and generates by turns until the context is full. The logits of all
positions would take 160 times the budget.
"""

import json
from argparse import SUPPRESS
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil

from localspec.bench.experiments.command_line import Table, argument_parser, run_in_new_process
from localspec.engine.engine import Engine, load
from localspec.gguf.reader import read_header
from localspec.gguf.writer import TensorData, TensorType, write_gguf
from localspec.llama.dry_run import DryModel, parse_context_memory
from localspec.llama.library import captured_log
from localspec.llama.placement import ON_PROCESSOR
from localspec.memory.estimate import cache_bytes
from localspec.models import registry
from localspec.scaling.source_model import ARCHITECTURE, SourceModel

_MIB = 2**20
BUDGET = 100 * _MIB
# One layer with one head is quick to read even where the context is long.
_WIDTH = 64
_SIZES = {
    "embedding_length": _WIDTH,
    "feed_forward_length": _WIDTH,
    "block_count": 1,
    "attention.head_count": 1,
    "attention.head_count_kv": 1,
}
_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_NORMS = ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")
_NORMAL_TOKEN = 1
# Tokens read and then generated in a turn, and drafted in each of its steps.
_READ, _GENERATED, _DEPTH = 2032, 16, 8


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of memory of a process that loaded two models, which then read a text.

    loaded, read: resident memory before and after the text, less that before loading. weights,
    caches: of both models; all of it is resident. vocabularies: the library's tables of them.
    buffers: allocated for the passes of both models. tokens: of the text; drafted, accepted: how
    many of them.
    """

    loaded: int
    read: int
    weights: int
    caches: int
    vocabularies: int
    buffers: int
    tokens: int
    drafted: int
    accepted: int

    @property
    def beyond(self) -> int:
        """Resident memory that is neither weights nor caches."""
        return self.read - self.weights - self.caches


def measure(n_ctx: int, vocabulary: int, tokens: int) -> MemoryUse:
    """Measure a random model with such a context and vocabulary, in a new process.

    tokens: the length of the text.
    """
    with TemporaryDirectory() as folder:
        model = Path(folder) / "random.gguf"
        _write_random_model(model, vocabulary, n_ctx)
        arguments = ["--measure", str(model), str(n_ctx), str(tokens)]
        # What localspec stores about this model is deleted with the folder.
        output = run_in_new_process(__file__, arguments, {"LOCALSPEC_HOME": folder})
    return MemoryUse(**json.loads(output))


def _measure_here(model: Path, n_ctx: int, tokens: int) -> MemoryUse:
    """Measure this process, which must not have loaded a model before."""
    # Not counted: what the library allocates once, whatever the model.
    DryModel(registry.bundled().target, ON_PROCESSOR).close()
    before = _resident()
    with captured_log() as lines, load(model, model, context=n_ctx, gpu_layers=0) as engine:
        loaded = _resident() - before
        counts = _fill(engine, tokens)
        read = _resident() - before
        vocabulary = _vocabulary_bytes(model)
    header = read_header(model)
    return MemoryUse(
        loaded=loaded,
        read=read,
        weights=2 * sum(tensor.size for tensor in header.tensors),
        caches=2 * (cache_bytes(header, n_ctx) or 0),
        vocabularies=2 * vocabulary,
        buffers=sum(parse_context_memory(lines).compute_buffers.values()),
        **counts,
    )


def _fill(engine: Engine, tokens: int) -> Mapping[str, int]:
    """Read and generate, by turns, up to so many tokens; return the counts of MemoryUse."""
    random, text, drafted, accepted = np.random.default_rng(0), list[int](), 0, 0
    while (room := tokens - len(text) - _GENERATED) > 0:
        text += random.integers(engine.model.n_vocab, size=min(_READ, room)).tolist()
        result = engine.generate(
            text, max_tokens=_GENERATED, ignore_eos=True, depth=_DEPTH, seed=len(text)
        )
        text += result.token_ids
        drafted += result.stats.drafted
        accepted += result.stats.accepted
    return {"tokens": len(text), "drafted": drafted, "accepted": accepted}


def _vocabulary_bytes(model: Path) -> int:
    """Bytes of the library's tables of the vocabulary: what a model without weights takes."""
    before = _resident()
    with DryModel(model, ON_PROCESSOR):
        return _resident() - before


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _write_random_model(path: Path, vocabulary: int, n_ctx: int) -> None:
    source = SourceModel(registry.bundled().drafter)
    sizes = {**_SIZES, "context_length": n_ctx, "vocab_size": vocabulary}
    tokens = source.extended_vocabulary(_extra_tokens(source.shape.vocabulary, vocabulary))
    own = {f"{ARCHITECTURE}.{key}": value for key, value in sizes.items()}
    metadata = {**source.metadata, **own, **tokens}
    write_gguf(path, ARCHITECTURE, metadata, list(_random_tensors(vocabulary)))


def _extra_tokens(first: int, end: int) -> dict[str, list[object]]:
    """Entries of a vocabulary; each token is merged of two parts."""
    extra = range(first, end)
    return {
        "tokens": [f"extra{number}" for number in extra],
        "token_type": [_NORMAL_TOKEN] * len(extra),
        "merges": [f"extra {number}" for number in extra],
    }


def _random_tensors(vocabulary: int) -> Iterator[TensorData]:
    random = np.random.default_rng(0)
    yield _random_matrix("token_embd", vocabulary, random)
    for name in _MATRICES:
        yield _random_matrix(f"blk.0.{name}", _WIDTH, random)
    for name in _NORMS:
        yield TensorData.of(f"{name}.weight", np.ones(_WIDTH, np.float32), TensorType.F32)


def _random_matrix(name: str, rows: int, random: np.random.Generator) -> TensorData:
    values = random.standard_normal((rows, _WIDTH), np.float32) / np.float32(_WIDTH**0.5)
    # Of 16-bit floats the library makes no copy, rearranged for speed.
    return TensorData.of(f"{name}.weight", values, TensorType.F16)


def _print(found: MemoryUse) -> None:
    print(f"{found.tokens:,} tokens; {found.accepted:,} of {found.drafted:,} drafted stood")
    table = Table(("memory", "<24"), ("MiB", "8.1f"))
    for what, size in (
        ("resident, loaded", found.loaded),
        ("resident, text read", found.read),
        ("of it weights", found.weights),
        ("of it keys and values", found.caches),
        ("beyond them", found.beyond),
        ("of it vocabularies", found.vocabularies),
        ("of it, at most, buffers", found.buffers),
        ("budget", BUDGET),
    ):
        table.print_row(what, size / _MIB)


def main() -> None:
    """Print the memory, part by part."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("--ctx", type=int, default=32_768)
    parser.add_argument("--vocabulary", type=int, default=131_072)
    parser.add_argument("--measure", nargs=3, help=SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        model, n_ctx, tokens = options.measure
        print(json.dumps(asdict(_measure_here(Path(model), int(n_ctx), int(tokens)))))
    else:
        _print(measure(options.ctx, options.vocabulary, options.ctx))


if __name__ == "__main__":
    main()
