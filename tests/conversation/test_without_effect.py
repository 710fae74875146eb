"""Options of sessions that have no effect on an answer: each is said in one line, once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.pycode import load
from fakes.tiny import TURNS, write_tiny

from localspec.conversation.events import Notice
from localspec.conversation.session import Session
from localspec.conversation.thinking import thinking_variables
from localspec.engine.engine import Engine
from localspec.utils.option_names import typed_options

TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
# As the templates of Llama 3 and gpt-oss: what is not given is assigned.
READER = (
    "{% if not tools is defined %}{% set tools = none %}{% endif %}{% if tools %}tools {% endif %}"
    "{% set style = style | default('dull') %}{% if not enable_thinking %}brief {% endif %}"
    "{% macro told(year) %}{{ year }} {% endmacro %}{{ told(year) }}{{ style }}"
)
GRAMMAR = 'root ::= "an" "br"'
ITS = "the chat template of turns.gguf"
RAW = "the text is continued without a chat template"
COPIES = "only suffix copies from it; add it to draft"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    """A model whose template reads the messages only."""
    with load(write_tiny(folder / "turns.gguf", "llama", template=TURNS), "none") as engine:
        yield engine


@pytest.fixture(scope="module")
def reader(folder: Path) -> Iterator[Engine]:
    """A model whose template reads tools, a style and a switch for reasoning; suffix drafts."""
    with load(
        write_tiny(folder / "reader.gguf", "llama", template=READER + TURNS), "suffix"
    ) as engine:
        yield engine


def said(session: Session, **options: Any) -> list[str]:
    """What an answer says of options without effect."""
    answer = session.send("ab", max_tokens=2, temperature=0, **options)
    return [each.line for each in answer if isinstance(each, Notice) and "no effect" in each.line]


@pytest.mark.parametrize(
    ("of_session", "options", "line"),
    [
        ({"tools": TOOLS}, {}, f"tools has no effect: {ITS} reads no tools"),
        (
            {"template_options": {"style": "dry", "user": "me"}},
            {},
            "template_options style and template_options user have no effect: "
            f"{ITS} does not read style and user",
        ),
        (
            {"template_options": {"enable_thinking": False}},
            {},
            f"template_options enable_thinking has no effect: {ITS} does not read enable_thinking",
        ),
        (
            {"template_options": thinking_variables(False)},
            {},
            f"switching reasoning off has no effect: {ITS} has no switch for it",
        ),
        (
            {"template_options": thinking_variables(True), "raw": True},
            {},
            f"switching reasoning on has no effect: {RAW}",
        ),
        (
            {"raw": True, "tools": TOOLS, "template_options": {"style": "dry"}},
            {},
            f"tools and template_options have no effect: {RAW}",
        ),
        (
            {"thinking_budget": 5},
            {"grammar": GRAMMAR},
            "thinking_budget has no effect: the grammar describes the whole answer",
        ),
        (
            {"thinking_budget": 5},
            {"schema": {"type": "object"}},
            "thinking_budget has no effect: the schema describes the whole answer",
        ),
        ({}, {"depth": 3}, "depth has no effect: nothing drafts"),
        ({}, {"prediction": "an"}, f"prediction has no effect: {COPIES}"),
    ],
)
def test_what_has_no_effect_is_said_once(
    engine: Engine, of_session: dict[str, Any], options: dict[str, Any], line: str
) -> None:
    with Session(engine, **of_session) as session:
        assert said(session, **options) == [line]
        assert said(session, **options) == []


def test_what_has_an_effect_needs_no_word(engine: Engine, reader: Engine) -> None:
    variables = {"style": "dry", "year": 1970, **thinking_variables(False)}
    with Session(reader, tools=TOOLS, template_options=variables, thinking_budget=5) as session:
        assert said(session, depth=3, prediction="an") == []
        assert "tools" in session.written.text and "brief 1970 dry" in session.written.text
    with Session(engine, tools=[], template_options={}, raw=True) as session:
        assert said(session, depth=0) == []


def test_a_switch_for_reasoning_is_told_where_the_template_reads_the_other_one(
    reader: Engine,
) -> None:
    with Session(reader, template_options={"thinking": False}) as session:
        [line] = said(session)
        why = "the chat template of reader.gguf does not read thinking"
        assert line == f"template_options thinking has no effect: {why}"


def test_at_the_terminal_an_option_is_called_as_it_is_typed(engine: Engine) -> None:
    with typed_options(), Session(engine, thinking_budget=5) as session:
        [line] = said(session, grammar=GRAMMAR)
        assert line == "--thinking-budget has no effect: the grammar describes the whole answer"
