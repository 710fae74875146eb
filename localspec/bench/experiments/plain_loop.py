"""Plain decoding against the library's own loop.

    python -m localspec.bench.experiments.plain_loop [--model FILE]

Both decode with the same weights in memory, by turns; the library samples with its own samplers.
Both speeds are tokens per second after the prompt is read.
"""

from collections.abc import Iterator
from statistics import median

from localspec.bench.experiments.command_line import Table, add_model_options, argument_parser
from localspec.engine.engine import Engine, load
from localspec.llama.reference_loop import ReferenceLoop
from localspec.sampling.params import SamplingParams

_PROMPT = "def main():\n"


def _speeds(
    engine: Engine, library: ReferenceLoop, tokens: int, temperature: float, rounds: int
) -> Iterator[tuple[float, float]]:
    """Yield the tokens per second of localspec and of the library's loop, round by round.

    Each round begins with the other of the two. The first round is not yielded: it warms up.
    """
    prompt = engine.model.tokenize(_PROMPT)
    sampling = SamplingParams(temperature=temperature)

    def of_localspec(seed: int) -> float:
        result = engine.generate(
            prompt, max_tokens=tokens, temperature=temperature, seed=seed, ignore_eos=True
        )
        return tokens / result.stats.seconds.generate

    def of_library(seed: int) -> float:
        return tokens / library.generate(prompt, tokens, sampling, seed).seconds

    for seed in range(rounds + 1):
        ways = [of_localspec, of_library]
        speeds = {way: way(seed) for way in (ways if seed % 2 else ways[::-1])}
        if seed:
            yield speeds[of_localspec], speeds[of_library]


def main() -> None:
    """Print a line per round, and the median of the ratios."""
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    context = 128 + options.tokens
    with load(options.model, "none", context=context, threads=options.threads) as engine:
        engine.slots.threads_are_fixed = True
        table, ratios = Table(("localspec", "9.1f"), ("library", "8.1f"), ("ratio", "6.2f")), []
        with ReferenceLoop(engine.model, n_ctx=context, threads=engine.threads) as library:
            for ours, theirs in _speeds(
                engine, library, options.tokens, options.temperature, options.rounds
            ):
                ratios.append(ours / theirs)
                table.print_row(ours, theirs, ratios[-1])
    print(f"localspec / library: median {median(ratios):.2f}")


if __name__ == "__main__":
    main()
