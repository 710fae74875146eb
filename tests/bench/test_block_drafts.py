"""The greedy drafts of heads that draft blocks are those of llama.cpp's own tool, step by step.

The tool is compared with where LLAMA_SPECULATIVE_SIMPLE names it, built from the sources that
llama-cpp-python carries, as `.ci/offline build` does.
"""

import os
import sys
from pathlib import Path

import pytest
from fakes.dflash import KINDS, write_block_head
from fakes.eagle3 import write_target

from localspec.bench.experiments.block_drafts import Run, Step, compared, own_steps, peers_steps
from localspec.errors import LocalspecError

TOOL = os.environ.get("LLAMA_SPECULATIVE_SIMPLE")
RUN = Run(Path("target"), Path("head"))
PROMPTS = ("hello an en", " ".join("abcdefghijklmnopqrstuvwxyz"))


@pytest.mark.skipif(not TOOL, reason="LLAMA_SPECULATIVE_SIMPLE names no tool to compare with")
@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_those_of_the_tool(tmp_path: Path, kind: str) -> None:
    target = write_target(tmp_path / "target.gguf")
    head = write_block_head(tmp_path / "head.gguf", KINDS[kind][0])
    for prompt in PROMPTS:
        run = Run(target, head, prompt, 100)
        own, depth, name = own_steps(run)
        peer = peers_steps(Path(TOOL or ""), run, depth, name)
        steps, equal, accepted = compared(own, peer)
        assert steps == equal == accepted > 30
        assert all(step.tokens for step in peer) or name == "dflash2"


def fake_tool(path: Path, *lines: str) -> Path:
    path.write_text(f"#!{sys.executable}\nprint({chr(10).join(lines)!r})\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_tools_log_is_read(tmp_path: Path) -> None:
    tool = fake_tool(
        tmp_path / "tool",
        "0.118 D  - seq_id 0, draft candidate   0, pos   0:    266 (   0.754) ' bt'",
        "0.118 D  - seq_id 0, draft candidate   1, pos   0:      7 (   0.054) ' bt'",
        "0.118 D  - seq_id 0, draft candidate   0, pos   1:     12 (   0.628) ' bt'",
        " en0.119 D accepted 1/2 draft tokens, the last target token is: (275)",
        "0.118 D  - seq_id 0, draft candidate   0, pos   0:     13 (   0.754) ' bt'",
        "0.119 D accepted 1/1 draft tokens, the last target token is: (275)",
    )
    found = peers_steps(tool, RUN, 2, "dflash")
    assert found == [Step((266, 12), 2, 1)]


def test_a_tool_that_logs_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(LocalspecError, match="tool logged no drafts"):
        peers_steps(fake_tool(tmp_path / "tool", "-"), RUN, 2, "dspark")


def test_differences_are_counted() -> None:
    own = [Step((1, 2), 2, 0), Step((3, 4), 2, 1), Step((5, 6), 2, 2)]
    peer = [Step((1, 2), 2, 1), Step((3, 5), 2, 1), Step((), 2, 2)]
    assert compared(own, peer) == (3, 2, 2)
