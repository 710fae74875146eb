"""`localspec generate --system`."""

from pathlib import Path

import pytest
from fakes.command_line import Run
from fakes.generate_runs import Generated
from fakes.templates import MISTRAL
from fakes.tiny import TURNS, write_tiny

pytestmark = pytest.mark.usefixtures("bare_environment")

REFUSES = """{%- if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"""


def prompt_tokens(done: Generated) -> list[int]:
    tokens: list[int] = done.record["recipe"]["prompt_token_ids"]
    return tokens


def test_a_system_prompt_stands_before_the_question(generate: Run, tmp_path: Path) -> None:
    model = str(write_tiny(tmp_path / "turns.gguf", "llama", template=TURNS))
    options = ("-m", model, "-n", "1", "--json")
    asked = generate(*options, "abc", "--system", "Be brief.")
    raw = generate(*options, "--raw", "<s>s Be brief.</s><s>u abc</s><s>a ")
    # A raw text gets a further token that begins it.
    assert prompt_tokens(asked) == prompt_tokens(raw)[1:]
    assert "system" not in asked.err
    assert prompt_tokens(generate(*options, "abc", "--system", "")) == prompt_tokens(
        generate(*options, "abc")
    )


def test_a_template_that_refuses_it_gets_it_with_the_question(
    generate: Run, tmp_path: Path
) -> None:
    model = str(write_tiny(tmp_path / "refuses.gguf", "llama", template=REFUSES + TURNS))
    options = ("-m", model, "-n", "1", "--json")
    asked = generate(*options, "abc", "--system", "Be brief.")
    assert prompt_tokens(asked) == prompt_tokens(generate(*options, "Be brief.\n\nabc"))
    said = "localspec: the chat template takes no system prompt; the question begins with it"
    assert said in asked.lines
    own = str(write_tiny(tmp_path / "own.gguf", "llama", template=MISTRAL))
    done = generate("-m", own, "-n", "1", "abc", "--system", "Be brief.")
    assert done.code == 0 and said not in done.lines


def test_a_text_that_is_continued_has_none(generate: Run) -> None:
    refused = generate("-m", "nowhere.gguf", "abc", "--raw", "--system", "x")
    assert refused.code == 2
    assert "--system is for chats, and --raw continues a text; leave one out" in refused.err
    refused = generate("abc", "--system", "x")
    assert refused.code == 2
    said = (
        "--system is for chats, and pycode-7m-q8_0.gguf continues a text; put it before the prompt"
    )
    assert said in refused.err
