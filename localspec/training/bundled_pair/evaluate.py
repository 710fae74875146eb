"""Evaluate a trained pair on wordings that it was never trained on.

    python -m localspec.training.bundled_pair.evaluate CORPUS TARGET DRAFTER

Every fact was trained on, in other words: this measures whether a person's wording finds it. Prints
the share of command lines that are exactly right, by platform and by whether the question names the
command, and how many drafted tokens are accepted.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import click

import localspec
from localspec.training.bundled_pair.terminal_corpus import Example, how, read_pages
from localspec.training.bundled_pair.wordings import HELD_OUT

# Every page has these, so they would flatter the model.
_TRIVIAL = ("display help", "display version", "display h", "display v")


@click.command(help=__doc__)
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.argument("target", type=click.Path(exists=True, path_type=Path))
@click.argument("drafter", type=click.Path(exists=True, path_type=Path))
@click.option("--count", default=300, help="Questions of each kind.")
@click.option("--show", default=10, help="Answers to print.")
def main(corpus: Path, target: Path, drafter: Path, count: int, show: int) -> None:
    rng = random.Random(11)
    examples = [example for page in read_pages(corpus) for example in page.examples]
    examples = [each for each in examples if not each.what.lower().startswith(_TRIVIAL)]
    with localspec.load(target, draft=str(drafter), threads=1) as engine:
        for platform in ("common", "linux"):
            for named in (True, False):
                kind = [each for each in examples if each.platform == platform]
                kind = [each for each in kind if named or not each.named]
                chosen = rng.sample(kind, min(count, len(kind)))
                right, accepted, drafted = _asked(engine, chosen, named, rng, show)
                click.echo(
                    f"{platform}, command {'named' if named else 'not named'}: {right:.1%} of "
                    f"{len(chosen)} command lines right, {accepted / max(drafted, 1):.0%} accepted"
                )
                show = 0


def _asked(
    engine: localspec.Engine, chosen: Sequence[Example], named: bool, rng: random.Random, show: int
) -> tuple[float, int, int]:
    """The share of right command lines; tokens accepted, tokens drafted."""
    right = accepted = drafted = 0
    for example in chosen:
        question = how(example, HELD_OUT, rng, named=named)
        result = engine.generate(
            [{"role": "user", "content": question}], temperature=0, max_tokens=160, depth=4
        )
        right += result.text == example.answer
        accepted += result.stats.accepted
        drafted += result.stats.drafted
        if show > 0:
            show -= 1
            click.echo(f"{question}\n  wanted: {example.line}\n  given:  {result.text!r}")
    return right / len(chosen), accepted, drafted


if __name__ == "__main__":
    main()
