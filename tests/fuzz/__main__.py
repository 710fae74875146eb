"""`python -m tests.fuzz NAME --count 100000`: as many cases of one kind as there is time for.

Each case is a pure function of its number, so that `--first NUMBER --count 1` repeats it.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does, for `fakes` and `fuzz`

from fakes.hostile_templates import composed, outcome
from fuzz.archives import archives
from fuzz.caches import caches
from fuzz.campaign import Campaign
from fuzz.checkpoints import checkpoints
from fuzz.command import FreshCommand, WarmCommand
from fuzz.drafters import drafter_case
from fuzz.escapes import escape_case
from fuzz.headers import mutants
from fuzz.names import name_case
from fuzz.numbers import numbers
from fuzz.patterns import patterns
from fuzz.schemas import random_case, suite_cases, write_and_validate

Case = Callable[[int], str]


@contextmanager
def _headers(options: argparse.Namespace) -> Iterator[Case]:
    with (
        mutants(options.model) as headers,
        TemporaryDirectory(prefix="localspec-fuzz-") as folder,
        WarmCommand(Path(folder) / "warm") as warm,
    ):
        fresh = FreshCommand(Path(folder) / "fresh")
        cases: dict[str, Case] = {
            "check": headers.check,
            "load": headers.load,
            "command": lambda number: headers.generate(number, warm),
            "process": lambda number: headers.generate(number, fresh),
            "both": lambda number: headers.generate_twice(number, warm, fresh),
        }
        yield cases[options.through]


@contextmanager
def _schemas(options: argparse.Namespace) -> Iterator[Case]:
    if options.suite is None:
        yield random_case
        return
    cases = list(suite_cases(options.suite))
    yield lambda number: write_and_validate(cases[number % len(cases)][1], number)


@contextmanager
def _names(options: argparse.Namespace) -> Iterator[Case]:
    folder = TemporaryDirectory(prefix="localspec-fuzz-")
    with folder as home, WarmCommand(Path(home)) as command:
        yield name_case(command)


def _simply(case: Case) -> Callable[[argparse.Namespace], AbstractContextManager[Case]]:
    return lambda _: nullcontext(case)


_KINDS = {
    "archives": lambda _: archives(),
    "caches": lambda _: caches(),
    "checkpoints": lambda _: checkpoints(),
    "drafters": _simply(drafter_case),
    "escapes": _simply(escape_case),
    "headers": _headers,
    "names": _names,
    "numbers": lambda _: numbers(),
    "patterns": lambda _: patterns(),
    "schemas": _schemas,
    "templates": _simply(lambda number: outcome(composed(Random(number)))),
}


def main() -> int:
    """Run a campaign; exit 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=_KINDS)
    parser.add_argument("--count", type=int, default=1000, help="how many cases")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--model", type=Path, action="append", default=[], help="GGUF to damage")
    parser.add_argument(
        "--through",
        choices=["check", "load", "command", "process", "both"],
        default="check",
        help="headers: the checks alone; a child that loads what passes; `localspec generate` in "
        "forks of a process that has imported it, in processes of its own, or in both alike",
    )
    parser.add_argument("--suite", type=Path, help="schemas: a copy of the JSON Schema test suite")
    options = parser.parse_args()
    with _KINDS[options.kind](options) as case:
        campaign = Campaign().run(case, range(options.first, options.first + options.count))
    sys.stdout.write(f"{campaign.report()}\n")
    return 1 if campaign.faults else 0


if __name__ == "__main__":
    sys.exit(main())
