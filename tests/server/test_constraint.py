"""What a text must satisfy, in the words of vLLM's and SGLang's clients."""

import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from fakes.served import Served
from openai import OpenAI

from localspec.server.constraint import Constraint
from localspec.server.errors import ApiError
from localspec.server.fields import Fields

MODEL = "terminal-9m-q8_0"
QUESTION = [{"role": "user", "content": "How do I list files by size?"}]
DATE = r"^(19|20)\d\d-(0[1-9]|1[0-2])-\d{1,2}(/[A-Z]\w)?$"
CHOICES = ["ls -S", "ls", 'du "a\\b"', "é\n", "sort\t"]
SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string", "maxLength": 6}, "safe": {"type": "boolean"}},
    "required": ["command", "safe"],
}
GBNF = 'root ::= word (", " word){1,2}\nword ::= [a-c]{1,3}'
LARK = 'start: word (", " word)~1..2\nword: /[a-c]{1,3}/'
WORDS = r"[a-c]{1,3}(, [a-c]{1,3}){1,2}"


def is_valid(text: str) -> bool:
    jsonschema.validate(json.loads(text), SCHEMA)
    return True


def matches(regex: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(regex, text) is not None


@pytest.mark.parametrize(
    ("member", "holds"),
    [
        ({"guided_regex": DATE}, matches(DATE)),
        ({"structured_outputs": {"regex": DATE, "json": None}}, matches(DATE)),
        ({"regex": "[ab]/[^/]{2}"}, matches("[ab]/[^/]{2}")),
        ({"guided_choice": CHOICES}, CHOICES.__contains__),
        ({"structured_outputs": {"choice": CHOICES}}, CHOICES.__contains__),
        ({"guided_json": SCHEMA}, is_valid),
        ({"guided_json": json.dumps(SCHEMA)}, is_valid),
        ({"json_schema": json.dumps(SCHEMA)}, is_valid),
        ({"structured_outputs": {"json": SCHEMA, "disable_fallback": True}}, is_valid),
        ({"guided_grammar": GBNF}, matches(WORDS)),
        ({"ebnf": GBNF}, matches(WORDS)),
        ({"structured_outputs": {"grammar": LARK}}, matches(WORDS)),
    ],
    ids=lambda value: (
        "-".join([*value, *map(str, value.values())])[:40] if isinstance(value, dict) else ""
    ),
)
def test_no_other_text_comes_out(
    reproducible: Served, member: dict[str, Any], holds: Callable[[str], bool]
) -> None:
    """Whatever is drafted, in a stream too, where words are drawn that nobody would write."""
    client = OpenAI(base_url=f"{reproducible.url}/v1", api_key="none", max_retries=0)
    found = set[str]()
    for seed in range(6):
        options: Any = {"model": MODEL, "seed": seed, "temperature": 1.5, "max_tokens": 100}
        extra = {**member, "min_p": 0, "top_k": 0}
        chat = client.chat.completions.create(messages=QUESTION, extra_body=extra, **options)  # type: ignore[call-overload]
        assert chat.choices[0].finish_reason == "stop"
        text = chat.choices[0].message.content
        assert holds(text)
        found.add(text)
        plain = {**extra, "localspec": {"depth": 0}}
        parts = client.completions.create(prompt="$ ", extra_body=plain, stream=True, **options)
        alone = "".join(part.choices[0].text for part in parts)
        drafted = client.completions.create(prompt="$ ", extra_body=extra, **options)
        assert alone == drafted.choices[0].text
        assert holds(alone)
    assert len(found) > 1


def test_any_object(client: OpenAI) -> None:
    extra = {"structured_outputs": {"json_object": True}}
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=400, seed=1, extra_body=extra,  # type: ignore[arg-type]
    )  # fmt: skip
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)


@pytest.mark.parametrize("path", ["/v1/completions", "/completion"])
def test_a_text_that_is_continued_has_a_format_too(served: Served, path: str) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    body = {"prompt": "$ ls", "response_format": form, "max_tokens": 100, "temperature": 1.5}
    answer = served.post(path, body).json()
    assert is_valid(answer["content"] if "content" in answer else answer["choices"][0]["text"])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"regex": "a\\"},
            "regex is 'a\\\\'; it must be a regular expression (it ends with a backslash",
        ),
        ({"guided_regex": "a("}, "guided_regex is 'a('; it must be a regular expression (unclosed"),
        ({"guided_regex": "(?=a)b"}, "look-ahead and look-behind, is not supported"),
        ({"regex": r"\bls"}, r"regex is '\\bls'; it must be a regular expression (lookarounds not"),
        ({"structured_outputs": {"regex": r"(a)\1"}}, "structured_outputs.regex is"),
        ({"guided_regex": 5}, "guided_regex is 5; it must be a string"),
        ({"guided_regex": "\ud800"}, "it must be valid Unicode"),
        ({"grammar": 'root ::= "\ud800"'}, "it must be valid Unicode"),
        ({"guided_choice": []}, "guided_choice is []; it must be a list of texts"),
        ({"guided_choice": "ab"}, "guided_choice is 'ab'; it must be a list"),
        ({"guided_choice": ["a", 1]}, "it must be a list of texts"),
        ({"guided_choice": ["a\udc00"]}, "it must be a list of texts"),
        ({"guided_choice": ["a" * 120_001]}, "guided_choice has 120"),
        ({"guided_json": "{"}, "guided_json is '{'; it must be a JSON schema"),
        ({"json_schema": [1]}, "json_schema is [1]; it must be a JSON schema"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag is"),
        ({"structured_outputs": {"disable_any_whitespace": True}}, "it must be left out"),
        ({"structured_outputs": {"xml": "x"}}, "it must be one of json, regex, choice"),
        (
            {"guided_regex": "a", "guided_choice": ["a"]},
            "guided_regex and guided_choice both say what the text is; choose one",
        ),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            "structured_outputs.regex and structured_outputs.choice both say",
        ),
        (
            {"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'},
            "response_format and grammar both say",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_none(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ApiError) as raised:
        Constraint.of(Fields(body), {})
    assert said in raised.value.message
    assert raised.value.status == 400


def test_what_asks_for_nothing() -> None:
    asked = {"response_format": {"type": "text"}, "guided_regex": "", "grammar": "", "ebnf": None}
    nothing = {"json_object": False, "regex": None, "_backend": None}
    assert Constraint.of(Fields({**asked, "structured_outputs": nothing}), {}) == Constraint()


def test_a_regex_that_is_too_large_is_the_clients_fault(served: Served) -> None:
    body = {"prompt": "x", "max_tokens": 20, "guided_regex": "(a?){500}a{500}"}
    answer = served.post("/v1/completions", body)
    assert answer.status_code == 400
    assert "the grammar cannot be followed" in answer.json()["error"]["message"]
    assert served.busy == 0
