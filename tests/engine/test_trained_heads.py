"""Heads that were trained for the bundled target draft what it writes, and no text changes.

`python -m localspec.training.bundled_pair.heads` made them (tests/trained).
"""

import os
from pathlib import Path
from typing import Any

import pytest
from fakes.tool_drafts import own_drafts, tools_drafts

import localspec
from localspec.bench.experiments.block_drafts import Run, compared, own_steps, peers_steps
from localspec.models import registry

FOLDER = Path(__file__).parents[1] / "trained"
TARGET = registry.bundled().target
TOOL = os.environ.get("LLAMA_SPECULATIVE_SIMPLE", "")
DEPTH = 4
QUESTIONS = ["How do I list files by size?", "Make an archive of a folder", "find large files"]
# The least shares of first, second, ... drafted tokens that become text, of those that could; each
# was a tenth more when the heads were trained.
ACCEPTED = {"dflash": (0.6, 0.5), "eagle3": (0.45, 0.4), "medusa": (0.25, 0.2)}


def head(kind: str) -> Path:
    return FOLDER / f"{kind}-terminal-9m-q8_0.gguf"


@pytest.mark.parametrize("kind", ACCEPTED)
def test_most_drafts_are_right_and_the_text_stays(kind: str) -> None:
    options: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0.7, "seed": 3},
        {"temperature": 1.0, "seed": 4},
    ]
    reached, stands = [0] * DEPTH, [0] * DEPTH
    runs: dict[str, Any] = {"threads": 1, "context": 512, "reproducible": True}
    with localspec.load(TARGET, draft=str(head(kind)), **runs) as engine:
        # The check at load found that it was made for this target.
        assert engine.drafter_set.names == [head(kind).stem]
        assert not engine.notes or not any("made for" in note for note in engine.notes)
        for question in QUESTIONS:
            for each in options:
                asked = [{"role": "user", "content": question}]
                drafted = engine.generate(asked, max_tokens=60, depth=DEPTH, **each)
                plain = engine.generate(asked, max_tokens=60, depth=0, **each)
                assert drafted.token_ids == plain.token_ids
                stats = drafted.stats
                before = [stats.drafting_steps, *stats.accepted_per_position]
                for place, count in enumerate(stats.accepted_per_position):
                    reached[place] += before[place]
                    stands[place] += count
    for place, least in enumerate(ACCEPTED[kind]):
        assert reached[place] > 20
        assert stands[place] > least * reached[place], (reached, stands)


@pytest.mark.skipif(not TOOL, reason="LLAMA_SPECULATIVE_SIMPLE names no tool to compare with")
def test_dflash_drafts_as_the_tool_does() -> None:
    run = Run(TARGET, head("dflash"), "<|im_start|>user\nlist files<|im_end|>\n", 60)
    own, depth, name = own_steps(run)
    peer = peers_steps(Path(TOOL), run, depth, name)
    steps, equal, accepted = compared(own, peer)
    assert steps == equal == accepted > 10


@pytest.mark.skipif(not TOOL, reason="LLAMA_SPECULATIVE_SIMPLE names no tool to compare with")
def test_eagle3_drafts_as_the_tool_does(monkeypatch: pytest.MonkeyPatch) -> None:
    run: dict[str, Any] = {"prompt": "user list files", "tokens": 60, "depth": DEPTH}
    mine = own_drafts(TARGET, head("eagle3"), **run, patch=monkeypatch, threads=1)
    theirs = tools_drafts(TOOL, TARGET, head("eagle3"), **run)
    count = min(len(mine), len(theirs))
    assert count > 10
    assert mine[:count] == theirs[:count]
