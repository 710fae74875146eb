"""JSON that a schema describes: from models that reason first, and beside tools."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

import localspec
from localspec.server import openai_chat
from localspec.server.fields import Fields
from localspec.server.service import Service
from localspec.server.slot_pool import SlotPool

SCHEMA = {
    "type": "object",
    "properties": {"mode": {"enum": ["r", "w"]}},
    "required": ["mode"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "open_file", "parameters": SCHEMA}}
# It ends within the reasoning, as templates of models that always reason do. (The blanks keep the
# tag out of the reach of the penalty that `answer` uses.)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n<think>" + "\n \t" * 9 + "{# </think> #}"
)


@pytest.fixture(scope="module")
def service(own_cache: None) -> Iterator[Service]:
    with localspec.load(draft="none", threads=1, context=512) as engine:
        engine.model.__dict__["chat_template"] = TEMPLATE
        yield Service(engine, SlotPool(engine, 1, 1), ["m"])


def answer(service: Service, first: str, then: str, **more: Any) -> Any:
    """An answer that begins with a text, and goes on with another one where it may.

    A bias makes the model write tokens in this order, and a penalty each of them once.
    """
    ids = service.engine.tokenize(first, add_special=False)
    bias = {str(token): 100 - 10 * at for at, token in enumerate(ids)}
    for token in range(service.engine.model.n_vocab):
        piece = service.piece(token)
        if piece and not then.encode().startswith(piece[:1]) and piece[:1] in b"{<":
            bias.setdefault(str(token), -50)
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    body = {
        "messages": [{"role": "user", "content": "Open it."}],
        "response_format": wanted,
        "logit_bias": bias,
        "repeat_penalty": 100,
        "repeat_last_n": 8,
        "temperature": 0,
        "max_tokens": 100,
        **more,
    }
    request = openai_chat.read(Fields(body), service)
    (choice,) = asyncio.run(openai_chat.complete(request, service))["choices"]
    return choice


def test_reasoning_may_precede_it(service: Service) -> None:
    choice = answer(service, "x</think>", "{")
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["reasoning_content"] == "x"
    jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)


def test_a_call_may_stand_in_its_place(service: Service) -> None:
    choice = answer(service, "x</think>", "<", tools=[TOOL], parallel_tool_calls=False)
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)


@pytest.mark.parametrize("member", [{"guided_choice": ["r-", "w-"]}, {"regex": "r-|w-"},
                                    {"guided_grammar": 'root ::= ("r" | "w") "-"'}])  # fmt: skip
def test_reasoning_may_precede_any_text(service: Service, member: dict[str, Any]) -> None:
    choice = answer(service, "x</think>", "", response_format=None, **member)
    assert choice["message"]["reasoning_content"] == "x"
    assert choice["message"]["content"] in ("r-", "w-")
    choice = answer(service, "x</think>", "<", response_format=None, tools=[TOOL], **member)
    assert choice["finish_reason"] == "tool_calls"


def test_a_grammar_of_llama_server_is_of_the_reasoning_too(service: Service) -> None:
    choice = answer(service, "x", "", response_format=None, grammar='root ::= "x" "</think>r"')
    assert choice["message"]["reasoning_content"] == "x"
    assert choice["message"]["content"] == "r"
