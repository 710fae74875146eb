"""What a file to copy from (`--copy-from`) gains where the prompt lacks it, in virtual time.

    python -m localspec.bench.experiments.file_copies [--model TARGET] [--set NAME ...]

The answers are the edited texts of `copies`, but the prompt only asks for the edit. `suffix` plays
each answer without a file and with one: the text that was edited; the text that another answer was
edited from; and a text of another kind, JSON records beside code and code beside records. For
comparison, the edited text as a prediction of the answer, and in the prompt. Each answer is a run
of its own: nothing is learnt before it. The gain is over `suffix` without a file; the interval is
over texts.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from localspec.bench.experiments.command_line import add_model_options, argument_parser
from localspec.bench.experiments.copies import MACHINES, Gains, known_answer, played
from localspec.bench.experiments.edited_texts import (
    EDITS,
    RECORDS,
    EditedText,
    edited_files,
    edited_folders,
    edited_records,
)
from localspec.bench.experiments.simulated_drafter import COSTS
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine, load
from localspec.forecast.answers import RecordedAnswer

_Files = Sequence[Sequence[str]]


def _texts(options: argparse.Namespace) -> Iterator[tuple[str, list[EditedText]]]:
    """Yield the name of each kind of text, and the texts."""
    for name in options.set:
        texts = edited_records() if name == RECORDS else edited_files(name)
        yield name, list(islice(texts, options.texts))
    if options.versions:
        yield "versions", list(islice(edited_folders(*options.versions), options.texts))


def _ways(texts: Sequence[EditedText], unlike: str) -> dict[str, _Files]:
    """What is copied from for each text. unlike: a text of another kind."""
    half = len(texts) // 2
    others = [*texts[half:], *texts[:half]]
    return {
        "edited file": [[each.before] for each in texts],
        "another file": [[each.before] for each in others],
        "another kind": [[unlike] for _ in texts],
    }


def _seconds(
    engine: Engine, machine: str, answers: Sequence[RecordedAnswer], files: _Files
) -> list[float]:
    """The seconds of each answer, each as the first of a run."""
    seconds = []
    for answer, each in zip(answers, files, strict=True):
        past = [engine.model.tokenize(text, add_special=False) for text in each]
        seconds += played(machine, Suffix(earlier=EarlierTexts(past)), [answer])
    return seconds


def _predicting(engine: Engine, text: str) -> Suffix:
    """A drafter that is told what its next text is expected to be."""
    suffix = Suffix()
    suffix.predict(engine.model.tokenize(text, add_special=False))
    return suffix


def _print_kind(
    gains: Gains, engine: Engine, machine: str, name: str, texts: Sequence[EditedText]
) -> None:
    unlike = next(edited_files("rename") if name == RECORDS else edited_records()).before
    answers = [known_answer(engine, each.short_prompt, each.after) for each in texts]
    nothing: _Files = [[] for _ in texts]
    before = _seconds(engine, machine, answers, nothing)
    for way, files in _ways(texts, unlike).items():
        after = _seconds(engine, machine, answers, files)
        gains.print_row(f"{name}, {way}", answers, machine, before, after)
    after = [
        second
        for answer, each in zip(answers, texts, strict=True)
        for second in played(machine, _predicting(engine, each.before), [answer])
    ]
    gains.print_row(f"{name}, predicted", answers, machine, before, after)
    prompted = [known_answer(engine, each.prompt, each.after) for each in texts]
    after = _seconds(engine, machine, prompted, nothing)
    gains.print_row(f"{name}, in the prompt", answers, machine, before, after)


def _options() -> argparse.Namespace:
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    kinds = [*EDITS, RECORDS]
    parser.add_argument("--set", nargs="*", choices=kinds, default=kinds, metavar="NAME")
    parser.add_argument("--versions", nargs=2, type=Path, metavar="FOLDER",
                        help="Python files before and after, of the same names")  # fmt: skip
    parser.add_argument("--texts", type=int, default=40, help="the most texts of a kind")
    parser.add_argument("--costs", nargs="+", choices=COSTS, default=MACHINES, metavar="NAME")
    options = parser.parse_args()
    if options.texts < 2:
        parser.error("--texts must be 2 or more")
    return options


def main() -> None:
    """Print a row per kind of text, machine, and what is copied from."""
    options = _options()
    gains = Gains()
    with load(options.model, "none", threads=options.threads) as engine:
        for name, texts in _texts(options):
            for machine in options.costs:
                _print_kind(gains, engine, machine, name, texts)


if __name__ == "__main__":
    main()
