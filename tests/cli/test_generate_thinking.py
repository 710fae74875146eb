"""`localspec generate` with a model that reasons: cut off, hidden, ended, told not to."""

from pathlib import Path

import pytest
from fakes.command_line import Run
from fakes.templates import R1
from fakes.tiny import TURNS, write_tiny

pytestmark = pytest.mark.usefixtures("bare_environment")


@pytest.fixture
def thinker(tmp_path: Path) -> str:
    """A model whose prompts open its reasoning, which it never ends by itself."""
    return str(write_tiny(tmp_path / "thinker.gguf", "llama", template=R1))


@pytest.fixture
def talker(tmp_path: Path) -> str:
    """A model that chats and does not reason."""
    return str(write_tiny(tmp_path / "talker.gguf", "llama", template=TURNS))


def test_a_chat_turn_may_fill_the_context(generate: Run, talker: str) -> None:
    done = generate("-m", talker, "abc", "--ignore-eos", "--json")
    assert done.record["stop_reason"] == "context"
    assert "localspec: the context of 256 tokens is full; --ctx makes it larger" in done.err
    longest = generate("-m", talker, "abc", "--ignore-eos", "--min-tokens", "100", "-n", "120")
    assert "localspec: cut off after 120 tokens; -n allows more" in longest.err


def test_a_text_that_is_continued_has_256_tokens(generate: Run, tmp_path: Path) -> None:
    model = str(write_tiny(tmp_path / "long.gguf", "llama", template=TURNS, context=512))
    done = generate("-m", model, "--raw", "abc", "--ignore-eos", "--json")
    assert len(done.record["token_ids"]) == 256
    assert "localspec: cut off after 256 tokens; -n allows more" in done.err


def test_a_cut_within_the_reasoning_is_called_that(generate: Run, thinker: str) -> None:
    done = generate("-m", thinker, "abc", "--ignore-eos", "-n", "9")
    said = "localspec: cut off after 9 tokens, while it was still thinking; -n allows more"
    assert done.code == 0 and said in done.err
    raw = generate("-m", thinker, "--raw", "abc <think>", "--ignore-eos", "-n", "9")
    assert "localspec: cut off after 9 tokens; -n allows more" in raw.err
    full = generate("-m", thinker, "abc", "--ignore-eos")
    said = "the context of 256 tokens is full, while it was still thinking; --ctx makes it larger"
    assert f"localspec: {said}" in full.err
