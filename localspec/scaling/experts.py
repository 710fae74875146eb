"""Experts: a mixture of experts that computes the function of a plain llama model.

    python -m localspec.scaling.experts SOURCE.gguf TARGET.gguf --experts 16 --used 2

Every expert of a layer is a copy of the layer's feed-forward matrices, and the weights of the
experts that a token uses add up to 1. So the text is the source's whichever experts the router
takes, while memory and passes cost what they cost in a mixture of that size.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from localspec.errors import InvalidValueError, LocalspecError
from localspec.gguf.weights import Weights
from localspec.gguf.writer import TensorData, TensorType, write_gguf
from localspec.scaling.source_model import ARCHITECTURE, SourceModel
from localspec.utils.paths import written_whole

_MATRICES = ("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")


def write_experts(source: Path, target: Path, experts: int, used: int) -> None:
    """Write the mixture. used: how many experts a token takes.

    Raises InvalidValueError, ModelNotFoundError or ModelLoadError.
    """
    if not 0 < used <= experts:
        raise InvalidValueError(
            f"a token cannot use {used} of {experts} experts; use 1 to {experts}"
        )
    model = SourceModel(source)
    counts = {f"{ARCHITECTURE}.expert_count": experts, f"{ARCHITECTURE}.expert_used_count": used}
    with written_whole(target) as part:
        write_gguf(part, ARCHITECTURE, {**model.metadata, **counts}, list(_tensors(model, experts)))


def _tensors(model: SourceModel, experts: int) -> Iterator[TensorData]:
    """The tensors of the mixture: routers, copies of what is one expert now, and the others."""
    weights, random = Weights(model.path), np.random.default_rng(0)
    for layer in range(model.shape.layers):
        router = random.standard_normal((experts, model.shape.width), np.float32)
        yield TensorData.of(f"blk.{layer}.ffn_gate_inp.weight", router, TensorType.F32)
    for tensor in map(weights.stored, model.tensors.values()):
        if tensor.name.endswith(_MATRICES):
            name = tensor.name.replace(".weight", "_exps.weight")
            chunks = [*tensor.chunks] * experts
            yield TensorData(name, (experts, *tensor.shape), tensor.type, chunks)
        else:
            yield tensor


def main() -> None:
    """Write one model; print its file and its size."""
    parser = argparse.ArgumentParser(
        prog="python -m localspec.scaling.experts", description=__doc__.splitlines()[0]
    )
    parser.add_argument("source", type=Path, help="GGUF of a llama-architecture model")
    parser.add_argument("target", type=Path)
    parser.add_argument("--experts", type=int, default=16, metavar="N", help="of each layer")
    parser.add_argument("--used", type=int, default=2, metavar="N", help="by each token")
    options = parser.parse_args()
    try:
        write_experts(options.source, options.target, options.experts, options.used)
    except LocalspecError as error:
        parser.exit(error.exit_code, f"{parser.prog}: {error}\n")
    print(f"{options.target}  {options.target.stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
