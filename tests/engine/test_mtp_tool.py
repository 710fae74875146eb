"""Drafts of a head of multi-token prediction, beside those of llama.cpp's own tool, step by step.

LLAMA_SPECULATIVE_SIMPLE names the tool, as `.ci/offline build` makes it out of the sources and the
libraries of llama-cpp-python; without it, this is skipped.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from fakes import assistant
from fakes.drafter_kinds import EXACT
from fakes.mtp import write_chain, write_sidecar, write_target
from fakes.pycode import load
from fakes.recorder import Recorder

from localspec.drafters.assistant import Assistant
from localspec.drafters.mtp import ChainedMtp, Mtp
from localspec.engine.generation import Result

TOOL = os.environ.get("LLAMA_SPECULATIVE_SIMPLE", "")
PROMPT, DEPTH, TOKENS = "anbtdnenbt", 4, 40
_DRAFTED = re.compile(r"draft candidate   0, pos +(\d+): +(\d+) ")

pytestmark = pytest.mark.skipif(
    not Path(TOOL).is_file(), reason="LLAMA_SPECULATIVE_SIMPLE names no tool"
)


@pytest.mark.parametrize("head", ["inside", "sidecar"])
def test_greedy_drafts_are_those_of_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    target = write_target(tmp_path / "target.gguf", heads=int(head == "inside"))
    sidecar = write_sidecar(tmp_path / "mtp-target.gguf")
    recorder = Recorder(Mtp, None, monkeypatch)
    assert compared(recorder, target, None if head == "inside" else sidecar).stats.accepted


def test_greedy_drafts_of_chained_heads_are_those_of_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = write_chain(tmp_path / "target.gguf", heads=DEPTH)
    compared(Recorder(ChainedMtp, None, monkeypatch), target, None)


@pytest.mark.parametrize("seed", [0, 3, 10])
@pytest.mark.parametrize("shared_layers", [0, 2], ids=["own keys", "shared keys"])
def test_greedy_drafts_of_an_assistant_are_those_of_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, shared_layers: int
) -> None:
    target = tmp_path / "target.gguf"
    assistant.write_target(target, shared_layers=shared_layers, seed=seed)
    head = assistant.write_assistant(tmp_path / "mtp-target.gguf", seed=seed)
    recorder = Recorder(Assistant, None, monkeypatch)
    assert compared(recorder, target, head).stats.accepted


def compared(recorder: Recorder, target: Path, head: Path | None) -> Result:
    """Compare the drafts of an engine with the tool's, and return what the engine wrote.

    head: its file; None if it is inside the target.
    """
    options = {"max_tokens": TOKENS, "temperature": 0, "depth": DEPTH, "ignore_eos": True}
    with load(target, draft=head or "mtp", **EXACT) as engine:
        recorder.drafts.clear()
        found = engine.generate(PROMPT, **options)
    mine = [each.tokens for each in recorder.drafts if len(each.tokens) == DEPTH]
    theirs = tool_drafts(target, ["-md", str(head)] if head else [])
    # Near the end, drafts are shorter.
    count = min(len(mine), len(theirs))
    assert count > 15
    assert mine[:count] == theirs[:count]
    return found


def tool_drafts(target: Path, head: list[str]) -> list[list[int]]:
    """The drafts of DEPTH tokens that the tool made, in order."""
    options = f"--spec-type draft-mtp --spec-draft-n-max {DEPTH} -n {TOKENS} --temp 0 -t 1 -c 256"
    exact = "-ctk f32 -ctv f32 -ctkd f32 -ctvd f32 -fa off --ignore-eos -lv 5"
    done = subprocess.run(
        [TOOL, "-m", str(target), *head, *options.split(), *exact.split(), "-p", PROMPT],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    drafts: list[list[int]] = []
    for place, token in _DRAFTED.findall(done.stderr + done.stdout):
        if place == "0":
            drafts.append([])
        drafts[-1].append(int(token))
    return [draft for draft in drafts if len(draft) == DEPTH]
