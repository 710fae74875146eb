"""The greedy drafts of a DFlash or DSpark head, against those of llama.cpp's own tool.

    python -m localspec.bench.experiments.block_drafts BINARY --model TARGET.gguf --draft HEAD.gguf

BINARY is `llama-speculative-simple`, which `.ci/peers` compiles. Both draft whole blocks after one
prompt, on a CPU without flash attention and with caches of 32-bit floats. The tool logs its
candidates, and how many tokens of each draft were accepted; of DFlash2, only the latter. A draft
that is cut short by the end of the text is left out.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.drafters.dflash import Dflash
from localspec.engine.engine import Engine, load
from localspec.errors import InvalidValueError, LocalspecError
from localspec.llama import extra_buffers
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Passes

_CANDIDATE = re.compile(r"draft candidate +0, pos +\d+: +(\d+) ")
_ACCEPTED = re.compile(r"accepted (\d+)/(\d+) draft tokens")
_TIMEOUT = 600  # seconds
_CONTEXT, _FLOATS = 512, "f32"
_PROMPT, _TOKENS = "Here is a short story", 64
_KINDS = {"dflash": "draft-dflash", "dflash2": "draft-dflash", "dspark": "draft-dspark"}


@dataclass(frozen=True, slots=True)
class Run:
    """What both do: the files, the prompt, and how many tokens follow it."""

    target: Path
    head: Path
    prompt: str = _PROMPT
    tokens: int = _TOKENS


@dataclass(frozen=True, slots=True)
class Step:
    """A draft, and how many of its tokens the target accepted. tokens: empty where not known."""

    tokens: tuple[int, ...]
    drafted: int
    accepted: int


def own_steps(run: Run) -> tuple[list[Step], int, str]:
    """The steps of localspec; the most tokens of a draft; and the kind of the head."""
    options: dict[str, Any] = {
        "kv_type": _FLOATS,
        "drafter_kv_type": _FLOATS,
        "flash_attention": False,
    }
    options |= {"context": _CONTEXT, "gpu_layers": 0, "threads": 1}
    with load(run.target, draft=run.head, **options) as engine:
        [drafter] = engine.drafter_set.drafters
        if not isinstance(drafter, Dflash):
            raise InvalidValueError(f"{run.head.name} is no head that drafts blocks; pass one")
        deepest = drafter.traits.deepest or 0
        kind = type(drafter).__name__.lower()
        return list(_steps(engine, drafter, run, deepest)), deepest, kind


def _steps(engine: Engine, drafter: Dflash, run: Run, depth: int) -> Iterator[Step]:
    made: list[tuple[int, tuple[int, ...]]] = []
    usual = drafter.passes

    def recorded(limit: Limit) -> Passes[Draft]:
        draft = yield from usual(limit)
        made.append((len(engine.slots.own.target.tokens), tuple(map(int, draft.tokens))))
        return draft

    drafter.passes = recorded  # type: ignore[method-assign]
    engine.generate(run.prompt, max_tokens=run.tokens, temperature=0, depth=depth, ignore_eos=True)
    for (start, draft), (end, _) in zip(made, islice(made, 1, None), strict=False):
        if len(draft) == depth:
            yield Step(draft, depth, end - start - 1)


def peers_steps(binary: Path, run: Run, depth: int, kind: str) -> list[Step]:
    """The steps of llama.cpp's tool. Raises LocalspecError if it logs none."""
    options = {
        "-m": run.target, "-md": run.head, "-p": run.prompt, "-n": run.tokens,
        "-c": _CONTEXT, "-b": _CONTEXT,
        "--spec-type": _KINDS[kind], "--spec-draft-n-max": depth, "--temp": 0, "-t": 1,
        "-ngl": 0, "-ngld": 0, "-fa": "off", "-lv": 10, "-ctk": _FLOATS, "-ctv": _FLOATS,
        "-ctkd": _FLOATS, "-ctvd": _FLOATS,
    }  # fmt: skip
    command = [str(binary), *(str(part) for option in options.items() for part in option)]
    # Sampling in the graph logs no candidates.
    command += ["--no-spec-draft-backend-sampling", "--ignore-eos"]
    # Both load weights in the same way; where rearranged ones crash, the tool would, too.
    command += [] if extra_buffers.usable() else ["--no-repack"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TIMEOUT,
        check=False,
        env=os.environ | {"GGML_NO_BACKTRACE": "1"},
    )
    found, draft = list[Step](), list[int]()
    for line in (done.stderr + done.stdout).splitlines():
        if candidate := _CANDIDATE.search(line):
            draft.append(int(candidate[1]))
        elif accepted := _ACCEPTED.search(line):
            found.append(Step(tuple(draft), int(accepted[2]), int(accepted[1])))
            draft.clear()
    if not found:
        raise LocalspecError(f"{binary.name} logged no drafts: {done.stderr[-300:]!r}")
    return [step for step in found if step.drafted == depth]


def compared(own: list[Step], peer: list[Step]) -> tuple[int, int, int]:
    """Return the steps of both, how many of these drafts are equal, and how many are accepted so.

    A draft that the tool did not log counts as equal.
    """
    pairs = list(zip(own, peer, strict=False))
    same = sum(not theirs.tokens or mine.tokens == theirs.tokens for mine, theirs in pairs)
    return len(pairs), same, sum(mine.accepted == theirs.accepted for mine, theirs in pairs)


def main() -> None:
    """Compare, and print a line."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--prompt", default=_PROMPT)
    parser.add_argument("--tokens", type=int, default=_TOKENS)
    asked = parser.parse_args()
    run = Run(asked.model, asked.draft, asked.prompt, asked.tokens)
    own, depth, kind = own_steps(run)
    peer = peers_steps(asked.binary, run, depth, kind)
    columns = [("kind", "<8"), ("steps", "5"), ("equal drafts", "12"), ("equal accepted", "14")]
    Table(*columns).print_row(kind, *compared(own, peer))


if __name__ == "__main__":
    main()
