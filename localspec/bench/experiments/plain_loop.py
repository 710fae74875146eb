"""Plain decoding against the library's loop: `python -m localspec.bench.experiments.plain_loop`.

The same file and the same weights in memory, by turns; the library samples with its own samplers.
Both figures are tokens per second after the prompt is read.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from localspec.engine.engine import Engine, load
from localspec.llama.reference_loop import ReferenceLoop
from localspec.models import registry
from localspec.sampling.params import SamplingParams

_PROMPT = "def main():\n"


def pairs(
    engine: Engine, bare: ReferenceLoop, tokens: int, temperature: float, rounds: int
) -> Iterator[tuple[float, float]]:
    """Tokens per second of localspec and of the library's loop, round after round.

    The one that begins is the other each time; a first round does not count.
    """
    prompt = engine.model.tokenize(_PROMPT)
    sampling = SamplingParams(temperature=temperature)

    def of_localspec(seed: int) -> float:
        result = engine.generate(
            prompt, max_tokens=tokens, temperature=temperature, seed=seed, ignore_eos=True
        )
        return tokens / result.stats.seconds.generate

    def of_library(seed: int) -> float:
        return tokens / bare.generate(prompt, tokens, sampling, seed).seconds

    for seed in range(rounds + 1):
        ways = [of_localspec, of_library]
        speeds = {way: way(seed) for way in (ways if seed % 2 else ways[::-1])}
        if seed:
            yield speeds[of_localspec], speeds[of_library]


def main() -> None:
    """Print a line per round, and the median."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=registry.bundled().target, type=Path)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    context = 128 + options.tokens
    with load(options.model, "none", context=context, threads=options.threads) as engine:
        threads = engine.slot.loaded.runtime.threads_of(engine.model)
        ratios = []
        print(f"{'localspec':>9} {'library':>8} {'ratio':>6}")
        with ReferenceLoop(engine.model, n_ctx=context, threads=threads) as bare:
            found = pairs(engine, bare, options.tokens, options.temperature, options.rounds)
            for ours, theirs in found:
                ratios.append(ours / theirs)
                print(f"{ours:9.1f} {theirs:8.1f} {ratios[-1]:6.2f}", flush=True)
    print(f"localspec / library: median {median(ratios):.2f}")


if __name__ == "__main__":
    main()
