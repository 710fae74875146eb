"""Chat templates of public models render in the worker as in plain Jinja, and as quickly.

LLAMA_TEMPLATES names a folder of them, such as models/templates in the sources of llama.cpp.
"""

import json
import os
import re
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import jinja2
import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.errors import InvalidValueError
from localspec.llama.chat_template import render

FOLDER = os.environ.get("LLAMA_TEMPLATES", "")
FILES = sorted(Path(FOLDER).glob("*.jinja")) if FOLDER else []
NOW = datetime(2026, 1, 2, 3, 4, 5)
TURNS = [("user", "hi"), ("assistant", "Hello.\n"), ("user", "What does `ls` do? é😀")] * 10
MESSAGES = [{"role": role, "content": text} for role, text in TURNS]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FUNCTION = {"name": "ls", "description": "List files", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]
# A usual text takes a few milliseconds; a busy machine many times that.
SECONDS = 2.0

if not FILES:
    pytest.skip("LLAMA_TEMPLATES names no folder of templates", allow_module_level=True)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _as_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def plainly(template: str, tools: Any) -> str | None:
    """The text in this process, as transformers renders it; None for a template that refuses.

    The mark of what is trained on becomes a block that is always rendered.
    """
    template = re.sub(r"(\{%-?\s*)generation\b", r"\1if true", template)
    template = re.sub(r"(\{%-?\s*)endgeneration\b", r"\1endif", template)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _as_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": NOW.strftime}
    given = {"bos_token": "<s>", "eos_token": "</s>", "documents": None, "tools": tools}
    try:
        compiled = environment.from_string(template)
        return compiled.render(messages=MESSAGES, add_generation_prompt=True, **given)
    except (jinja2.TemplateError, TypeError):
        return None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["chat", "tools"])
def test_a_public_template_renders_as_in_plain_jinja(file: Path, tools: Any) -> None:
    template = file.read_text()
    expected = plainly(template, tools)
    # The worker starts before time counts.
    assert render("x", MESSAGES, bos="", eos="") == "x"
    begun = perf_counter()
    if expected is None:
        with pytest.raises(InvalidValueError, match="chat template"):
            render(template, MESSAGES, bos="<s>", eos="</s>", tools=tools, now=NOW)
    else:
        assert expected == render(template, MESSAGES, bos="<s>", eos="</s>", tools=tools, now=NOW)
    assert perf_counter() - begun < SECONDS
