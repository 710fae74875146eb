"""A chat template that stands for the model's own."""

from pathlib import Path

import pytest
from fakes.command_line import Run
from fakes.pycode import PYCODE, load
from fakes.tiny import TURNS, write_tiny

from localspec import Session
from localspec.errors import InvalidValueError

pytestmark = pytest.mark.usefixtures("bare_environment")

OWN = """{% for message in messages %}[{{ message.role }}] {{ message.content }}{% endfor %} >"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    file = tmp_path / "own.jinja"
    file.write_text(OWN)
    return file


def tokens(done: object) -> list[int]:
    found: list[int] = done.record["recipe"]["prompt_token_ids"]  # type: ignore[attr-defined]
    return found


def test_it_stands_for_the_models_own(generate: Run, template: Path, tmp_path: Path) -> None:
    model = str(write_tiny(tmp_path / "turns.gguf", "llama", template=TURNS))
    options = ("-m", model, "-n", "1", "--json")
    asked = generate(*options, "abc", "--chat-template", str(template))
    raw = generate(*options, "--raw", "[user] abc >")
    assert tokens(asked) == tokens(raw)
    assert tokens(asked) != tokens(generate(*options, "abc"))


def test_a_model_without_one_has_turns_with_it(generate: Run, template: Path) -> None:
    """It also answers the prompt as a chat turn then, without an option."""
    done = generate("abc", "-n", "1", "--json", "--chat-template", str(template))
    assert tokens(done) == tokens(generate("[user] abc >", "-n", "1", "--json"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("no Jinja at all", "which holds no Jinja; name a file that holds a Jinja template"),
        (None, "name a file that holds a Jinja template"),
        ("{% for x %}", "the chat template is broken in line 1"),
    ],
)
def test_what_is_no_template(generate: Run, tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "wrong.jinja"
    if content is not None:
        file.write_text(content)
    done = generate("abc", "--chat-template", str(file))
    assert done.code == 2 and said in done.err and done.out == ""


def test_it_is_that_of_the_model_it_was_given_for(tmp_path: Path) -> None:
    other = write_tiny(tmp_path / "turns.gguf", "llama", template=TURNS)
    with load(PYCODE.target, chat_template=OWN) as engine:
        assert engine.prefers_chat
        with Session(engine, max_tokens=2) as session:
            session.send("abc").result()
            assert "[user] abc >" in "".join(map(engine.model.piece_text, session.written.tokens))
        engine.switch(draft="none")
        assert engine.model.chat_template == OWN
        engine.switch(other)
        assert engine.model.chat_template == TURNS


def test_a_name_is_no_template() -> None:
    with pytest.raises(InvalidValueError, match="holds no Jinja"):
        load(PYCODE.target, chat_template="own.jinja")
