"""How much of a prompt a draft model must have read: how often it is right behind the last tokens.

    python -m localspec.bench.experiments.prompt_ends --model TARGET --draft DRAFTER FILE ...
        [--prompt 440] [--tokens 50] [--ends 32 64 128] [--temperatures 0 0.8]

The beginning of each text file is a prompt. The target goes on with it, and the draft model drafts
one token at each place, of which nothing is verified: once it has read the last tokens of the
prompt alone, and once all of it. Models that were trained on short texts write badly behind longer
ones, so a prompt should be one that they can read.
"""

from collections.abc import Sequence
from pathlib import Path

from localspec.bench.experiments.command_line import Table, add_model_options, argument_parser
from localspec.drafters import text_part
from localspec.engine.engine import Engine, load
from localspec.forecast.recorded_drafts import record_drafts
from localspec.speculation.drafter import can_leave_out

# Stands for all of the prompt.
ALL = 0


def rate_behind(
    engine: Engine, prompts: Sequence[Sequence[int]], end: int, tokens: int, temperature: float
) -> float:
    """The share of drafted tokens that are right, of the engine's only drafter.

    end: how many tokens of each prompt it reads; ALL. tokens: of each answer.
    """
    [drafter], [cache] = engine.drafter_set.drafters, engine.drafter_set.sequences.values()
    text_part.END_TOKENS = end or text_part.END_TOKENS
    right = tried = 0
    for seed, prompt in enumerate(prompts):
        cache.truncate(0)
        written, drafts = record_drafts(
            engine,
            drafter,
            [*prompt],
            tokens=1,
            from_end=end != ALL,
            max_tokens=tokens,
            temperature=temperature,
            seed=seed,
            ignore_eos=True,
        )
        pairs = [
            (draft.tokens[0], token)
            for draft, token in zip(drafts, written, strict=False)
            if draft.tokens
        ]
        right, tried = right + sum(a == b for a, b in pairs), tried + len(pairs)
    return right / tried


def leaves_out(engine: Engine, prompt: Sequence[int], end: int) -> bool:
    """Whether its only drafter can read so many of the last tokens alone."""
    [drafter], [cache] = engine.drafter_set.drafters, engine.drafter_set.sequences.values()
    text_part.END_TOKENS = end
    cache.truncate(0)
    drafter.begin(prompt)
    return can_leave_out(drafter)


def main() -> None:
    """Print a row for each temperature and number of tokens read."""
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--draft", required=True, type=Path)
    parser.add_argument("--prompt", type=int, default=440, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=50, help="of each answer")
    parser.add_argument("--ends", nargs="+", type=int, default=[32, 64, 128])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 0.8])
    options = parser.parse_args()
    most = max(options.ends)
    if 2 * most > options.prompt:
        parser.error(f"--ends {most}: more than half of the prompt is all of it")
    table = Table(("temperature", "11.1f"), ("read", "<5"), ("right", "6.3f"))
    context = 2 * (options.prompt + options.tokens)
    with load(options.model, options.draft, context=context, threads=options.threads) as engine:
        prompts = [
            engine.tokenize(file.read_text(encoding="utf-8"))[: options.prompt]
            for file in options.files
        ]
        for file, prompt in zip(options.files, prompts, strict=True):
            if not leaves_out(engine, prompt, most):
                parser.error(f"{file}: it has less than twice --ends {most} tokens to read")
        for temperature in options.temperatures:
            for end in (*options.ends, ALL):
                rate = rate_behind(engine, prompts, end, options.tokens, temperature)
                table.print_row(temperature, end or "all", rate)


if __name__ == "__main__":
    main()
