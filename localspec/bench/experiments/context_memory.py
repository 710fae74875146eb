"""What is taken beyond two models and their caches, at the end of a long context.

    python -m localspec.bench.experiments.context_memory [--ctx 32768] [--vocabulary 131072]

A model with random weights, tiny but for its vocabulary, is loaded twice, to draft for itself. It
reads and generates by turns until the context is full, in a process of its own. Logits of every
position would take 160 times the budget.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil

from localspec.engine.engine import Engine, load
from localspec.gguf.reader import read_header
from localspec.gguf.writer import TensorData, TensorType, write_gguf
from localspec.llama.dry_run import DryModel, logged, use_of
from localspec.memory.estimate import cache_bytes
from localspec.models import registry
from localspec.scaling.source_model import ARCHITECTURE, SourceModel

_MIB = 2**20
BUDGET = 100 * _MIB
# One layer with one head is quick to read even where the context is long.
_WIDTH = 64
_OWN = {
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
class Taken:
    """Bytes that a process grew by while it loaded two models and they read a text.

    loaded, read: what was resident more, before and after the text. weights, caches: of both
    models, all of which is resident. vocabularies: the library's tables of them. buffers: of the
    passes of both, as allocated. tokens: of the text; drafted, accepted: of them.
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
        """What is neither weights nor caches."""
        return self.read - self.weights - self.caches


def taken(model: Path, n_ctx: int, tokens: int) -> Taken:
    """What this process, which has loaded nothing yet, takes for a text of so many tokens.

    The model drafts for itself.
    """
    # What the library takes once for itself is no model's.
    DryModel(registry.bundled().target, gpu_layers=0).close()
    before = _resident()
    with logged() as lines, load(model, model, context=n_ctx, gpu_layers=0) as engine:
        loaded = _resident() - before
        counts = _fill(engine, tokens)
        read = _resident() - before
        vocabulary = _vocabulary(model)
    header = read_header(model)
    return Taken(
        loaded=loaded,
        read=read,
        weights=2 * sum(tensor.size for tensor in header.tensors),
        caches=2 * (cache_bytes(header, n_ctx) or 0),
        vocabularies=2 * vocabulary,
        buffers=sum(use_of(lines).passes.values()),
        **counts,
    )


def measured(n_ctx: int, vocabulary: int, tokens: int) -> Taken:
    """`taken` by such a model in a new process."""
    with TemporaryDirectory() as folder:
        model = Path(folder) / "random.gguf"
        _write_random(model, vocabulary, n_ctx)
        arguments = [str(model), str(n_ctx), str(tokens)]
        command = [
            sys.executable,
            "-m",
            "localspec.bench.experiments.context_memory",
            "--measure",
            *arguments,
        ]
        # What is remembered of this model goes with it.
        environment = {**os.environ, "LOCALSPEC_HOME": folder}
        run = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env=environment
        )
    return Taken(**json.loads(run.stdout))


def _fill(engine: Engine, tokens: int) -> Mapping[str, int]:
    """Read and generate, by turns, to a text of so many tokens; what became of them."""
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


def _vocabulary(model: Path) -> int:
    """Bytes of the library's tables of it: what a model takes that has no weights."""
    before = _resident()
    with DryModel(model, gpu_layers=0):
        return _resident() - before


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _write_random(path: Path, vocabulary: int, n_ctx: int) -> None:
    """A model of so many tokens, made for so long a context."""
    source = SourceModel(registry.bundled().drafter)
    own = {**_OWN, "context_length": n_ctx, "vocab_size": vocabulary}
    changed = {f"{ARCHITECTURE}.{key}": value for key, value in own.items()}
    tokens = source.extended_vocabulary(_extra_tokens(source.shape.vocabulary, vocabulary))
    metadata = {**source.metadata, **changed, **tokens}
    write_gguf(path, ARCHITECTURE, metadata, list(_tensors(vocabulary)))


def _extra_tokens(first: int, end: int) -> dict[str, list[object]]:
    """Entries of a vocabulary; each token is merged of two parts."""
    extra = range(first, end)
    return {
        "tokens": [f"extra{number}" for number in extra],
        "token_type": [_NORMAL_TOKEN] * len(extra),
        "merges": [f"extra {number}" for number in extra],
    }


def _tensors(vocabulary: int) -> Iterator[TensorData]:
    random = np.random.default_rng(0)
    yield _random("token_embd", vocabulary, random)
    for name in _MATRICES:
        yield _random(f"blk.0.{name}", _WIDTH, random)
    for name in _NORMS:
        yield TensorData.of(f"{name}.weight", np.ones(_WIDTH, np.float32), TensorType.F32)


def _random(name: str, rows: int, random: np.random.Generator) -> TensorData:
    values = random.standard_normal((rows, _WIDTH), np.float32) / np.float32(_WIDTH**0.5)
    # Of 16-bit floats the library makes no copy, rearranged for speed.
    return TensorData.of(f"{name}.weight", values, TensorType.F16)


def _print(found: Taken) -> None:
    print(f"{found.tokens:,} tokens; {found.accepted:,} of {found.drafted:,} drafted stood")
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
        print(f"{what:24} {size / _MIB:8.1f} MiB")


def main() -> None:
    """Print what is taken, part by part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ctx", type=int, default=32_768)
    parser.add_argument("--vocabulary", type=int, default=131_072)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        model, n_ctx, tokens = options.measure
        found = taken(Path(model), int(n_ctx), int(tokens))
        print(json.dumps(asdict(found)))
    else:
        _print(measured(options.ctx, options.vocabulary, options.ctx))


if __name__ == "__main__":
    main()
