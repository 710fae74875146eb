"""Greedy drafts, a token per pass: those of localspec, and those of llama.cpp's own tool."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fakes.recorder import Recorder

import localspec
from localspec.drafters.eagle3 import Eagle3
from localspec.llama import extra_buffers

# As exact as both can be.
EXACT_FLAGS = "-fa off -ctk f32 -ctv f32 -ctkd f32 -ctvd f32 -ngl 0 -ngld 0"
_LINE = r"draft candidate   0, pos +(\d+): +(\d+) "


def own_drafts(
    target: Path,
    head: Path,
    prompt: str,
    *,
    tokens: int,
    depth: int,
    patch: pytest.MonkeyPatch,
    drafter: type[Any] = Eagle3,
    **runtime: Any,
) -> list[list[int]]:
    """The drafts of full depth that localspec makes.

    drafter: the class that drafts. runtime: options of `localspec.load`.
    """
    recorder = Recorder(drafter, None, patch)
    with localspec.load(target, draft=str(head), context=512, **runtime) as engine:
        recorder.drafts.clear()
        engine.generate(prompt, max_tokens=tokens, temperature=0, depth=depth, ignore_eos=True)
    return [each.tokens for each in recorder.drafts if len(each.tokens) == depth]


def tools_drafts(
    tool: str,
    target: Path,
    head: Path,
    prompt: str,
    *,
    tokens: int,
    depth: int,
    kind: str = "draft-eagle3",
    flags: str = "",
) -> list[list[int]]:
    """The drafts of full depth that the tool logs. Raises AssertionError if there are few.

    kind: what the tool calls the drafter.
    """
    command = [tool, "-m", str(target), "-md", str(head), "-p", prompt, "-v"]
    command += f"--spec-type {kind} --spec-draft-n-max {depth} -n {tokens}".split()
    command += ["--spec-draft-p-min", "0", "--temp", "0", "-t", "1", "-c", "512", "--ignore-eos"]
    command += flags.split()
    # Both load weights in the same way; where rearranged ones crash, the tool would, too.
    command += [] if extra_buffers.usable() else ["--no-repack"]
    options: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace"}
    done = subprocess.run(command, timeout=120, check=False, **options)
    found: list[list[int]] = []
    for place, token in re.findall(_LINE, done.stderr + done.stdout):
        if place == "0":
            found.append([])
        found[-1].append(int(token))
    found = [each for each in found if len(each) == depth]
    assert len(found) > 10, (done.stderr + done.stdout)[-500:]
    return found


def same_drafts(mine: list[list[int]], theirs: list[list[int]], *, end: int) -> None:
    """Raise AssertionError where drafts differ. end: the token that ends a text.

    Where texts do not end, localspec does not draft their end; the tool does, in vain.
    """
    pairs = [each for each in zip(mine, theirs, strict=False) if end not in each[1]]
    assert len(pairs) > 10
    assert all(own == tools for own, tools in pairs)
