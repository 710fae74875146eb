"""Members of requests: those that are read, and those that are refused because none may be lost."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.sampling.params import SamplingParams
from localspec.server import anthropic_input, openai_chat, openai_completions, openai_responses
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.options import settings_of
from localspec.server.stored_responses import StoredResponses


def tokens(text: str) -> list[int]:
    """A token per character, as of a vocabulary."""
    if not text.isprintable():
        raise InvalidValueError("no valid Unicode")
    return [ord(each) for each in text]


SERVICE: Any = SimpleNamespace(
    settings_of=lambda body, **given: settings_of(body, {}, tokens, **given),
    require_model=lambda _: None,
    template_options={},
    engine=SimpleNamespace(context=512, model=SimpleNamespace(chat_template=None, projector=None)),
)

QUESTION = [{"role": "user", "content": "x"}]


def refusal(read: Any, body: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as raised:
        read(Fields(body))
    assert raised.value.status == 400
    return raised.value


@pytest.mark.parametrize(
    "body",
    [
        {"mirostat": 3},
        {"mirostat": -1},
        {"mirostat_mode": 1.5},
        {"mirostat": 2, "mirostat_tau": -1},
        {"mirostat_eta": 101},
        {"xtc_probability": 1.5},
        {"xtc_threshold": -0.1},
        {"samplers": ["xtc", "top_k"], "xtc_probability": 0.1},
        {"dry_sequence_breakers": "ab"},
        {"dry_sequence_breakers": ["\ud800"]},
        {"guided_whitespace_pattern": "[ ]?"},
        {"json_schema": "object"},
        {"stop_token_ids": [1]},
        {"lora": [{"id": 0}]},
        {"adaptive_target": 1.1},
        {"adaptive_decay": 1.1},
        {"min_keep": 2},
        {"grammar_lazy": True},
        {"samplers": ["top_p", "top_k"]},
        {"samplers": ["temperature", "top_p"]},
        {"samplers": ["top_k", "top_k"]},
        {"samplers": "tkp"},
        {"samplers": ["top_k", "top_n_sigma"], "top_n_sigma": 1},
        {"top_n_sigma": float("nan")},
        {"allowed_token_ids": [1]},
        {"use_beam_search": True},
        {"skip_special_tokens": False},
        {"no_repeat_ngram_size": 3},
        {"format": "json"},
        {"dynatemp_range": -1},
        {"samplers": ["top_k", "infill"]},
        {"samplers": ["top_k", "penalties"]},
        {"samplers": 3},
        {"draft_model": "suffix", "localspec": {"draft": "ngram"}},
        {"speculative.p_min": 0.5},
        {"speculative": {"n_min": 2}},
        {"logit_bias": {"1" * 5000: 1}},
        {"logit_bias": {"-5": 1}},
        {"logit_bias": {"a" * 120_001: 1}},
        {"logit_bias": [["\ud800", 1]]},
        {"logit_bias": {"5": 101}},
        {"logit_bias": {"5": float("nan")}},
        {"logit_bias": {"5": True}},
        {"logit_bias": {"5": None}},
        {"logit_bias": [5, 1]},
        {"logit_bias": [[5]]},
        {"logit_bias": [[5, 1, 2]]},
        {"logit_bias": [["ab", None]]},
        {"logit_bias": [[True, 1]]},
        {"logit_bias": [[-5, 1]]},
        {"logit_bias": 5},
    ],
    ids=lambda body: next(iter(body)),
)
def test_what_would_be_lost_is_refused(body: dict[str, Any]) -> None:
    error = refusal(lambda fields: settings_of(fields, {}, tokens), body)
    assert next(iter(body)).partition(".")[0] in error.message


def test_dry_is_set_as_on_llama_server() -> None:
    body = {
        "dry_multiplier": 0.8,
        "dry_base": 2,
        "dry_allowed_length": 3,
        "dry_penalty_last_n": -1,
        "dry_sequence_breakers": ["x"],
    }
    expected = SamplingParams(**{**body, "dry_base": 2.0})
    assert settings_of(Fields(body), {}, tokens).params({}) == expected
    settings = settings_of(Fields({**body, "dry_base": 0, "dry_sequence_breakers": []}), {}, tokens)
    assert settings.params({}).dry_base == 1.75
    assert settings.params({}).dry_sequence_breakers == ()
    off = settings_of(Fields({**body, "samplers": ["top_k", "temperature"]}), {}, tokens)
    assert not off.params({}).has_dry
    late = {**body, "samplers": ["top_k", "dry"]}
    assert refusal(lambda fields: settings_of(fields, {}, tokens), late).param == "samplers"
    many = {"dry_sequence_breakers": ["x"] * 65}
    assert "64 texts" in refusal(lambda fields: settings_of(fields, {}, tokens), many).message


def test_xtc_is_set_as_on_llama_server() -> None:
    body = {"xtc_probability": 0.5, "xtc_threshold": 0.2}
    assert settings_of(Fields(body), {}, tokens).params({}) == SamplingParams(**body)
    assert settings_of(Fields({**body, "samplers": "kxt"}), {}, tokens).params({}).has_xtc
    off = settings_of(Fields({**body, "samplers": ["top_k", "temperature"]}), {}, tokens)
    recommended = {"general.sampling.xtc_probability": 0.5}
    assert not off.params(recommended).has_xtc


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ({"mirostat": 2, "mirostat_tau": 3, "mirostat_eta": 0.2},
         {"mirostat": 2, "mirostat_tau": 3, "mirostat_eta": 0.2}),
        ({"mirostat_mode": 1}, {"mirostat": 1}),
        ({"mirostat": 2, "mirostat_mode": 1}, {"mirostat": 2}),
        ({"mirostat": 2, "samplers": ["top_p", "top_k"], "temperature": 0.3},
         {"mirostat": 2, "temperature": 0.3}),
        ({"adaptive_target": 0.4, "adaptive_decay": 0.5},
         {"adaptive_target": 0.4, "adaptive_decay": 0.5}),
        ({"adaptive_target": 0}, {"adaptive_target": 0}),
        ({"adaptive_target": 0.4, "samplers": ["adaptive_p", "min_p", "temperature"]},
         {"adaptive_target": 0.4, "top_k": 0, "top_p": 1}),
        ({"adaptive_target": 0.4, "samplers": "mta"},
         {"adaptive_target": 0.4, "top_k": 0, "top_p": 1}),
        ({"adaptive_target": 0.4, "samplers": ["min_p", "temperature"]}, {"top_k": 0, "top_p": 1}),
    ],
    ids=str,
)  # fmt: skip
def test_samplers_with_a_state_are_set_as_on_llama_server(
    body: dict[str, Any], changed: dict[str, Any]
) -> None:
    assert settings_of(Fields(body), {}, tokens).params({}) == SamplingParams(**changed)


def test_what_changes_nothing_is_not_refused() -> None:
    """Programs that know many samplers send each of them, switched off."""
    off = {"mirostat": 0, "typ_p": 1, "lora": []}
    settings = settings_of(Fields({**off, "top_n_sigma": -1.0, "json_schema": None}), {}, tokens)
    assert settings.depth is None
    settings_of(
        Fields({"adaptive_target": -0.01, "adaptive_decay": 0.9, "min_keep": 0}), {}, tokens
    )


ALL = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ({"samplers": ALL}, {}),
        ({"samplers": "edskypmxt"}, {}),
        ({"samplers": "edskypmxt", "top_n_sigma": 1.5, "dynatemp_range": 0.5},
         {"top_n_sigma": 1.5, "dynatemp_range": 0.5}),
        ({"samplers": ["top_k"], "top_n_sigma": 1.5, "dynatemp_range": 0.5},
         {"top_p": 1, "min_p": 0, "temperature": 1}),
        ({"samplers": ["Top-K", "nucleus", "minp", "temp"]}, {}),
        ({"samplers": ["temperature"]}, {"top_k": 0, "top_p": 1, "min_p": 0}),
        ({"samplers": ["top_k", "temperature"], "top_k": 7}, {"top_p": 1, "min_p": 0, "top_k": 7}),
        ({"samplers": []}, {"top_k": 0, "top_p": 1, "min_p": 0, "temperature": 1}),
        ({"samplers": ["top_p", "top_k"], "top_k": 0}, {"top_k": 0, "min_p": 0, "temperature": 1}),
        ({"samplers": ["typ_p", "penalties", "tfs_z", "temperature"], "repeat_penalty": 1},
         {"top_k": 0, "top_p": 1, "min_p": 0}),
        ({"samplers": ["top_k", "temperature"], "repeat_penalty": 2, "typ_p": 1, "typical_p": 0.5},
         {"top_p": 1, "min_p": 0}),
    ],
    ids=str,
)  # fmt: skip
def test_the_samplers_that_a_list_names_are_on(
    body: dict[str, Any], changed: dict[str, Any]
) -> None:
    """In their order here; the others are off, those that a GGUF recommends too."""
    metadata = {"general.sampling.penalty_repeat": 1.5, "general.sampling.penalty_last_n": 64}
    settings = settings_of(Fields(body), {}, tokens)
    expected = GenerationConfig.of(repeat_penalty=1.0, **changed).params(metadata)
    found = settings.params(metadata)
    if {"penalties", "e"} & {*body["samplers"]}:
        expected = replace(expected, repeat_penalty=body.get("repeat_penalty", 1.5))
    assert found == expected


def test_one_drafter_may_be_named_twice() -> None:
    body = {"draft_model": "suffix", "localspec": {"draft": "suffix"}}
    assert settings_of(Fields(body), {}, tokens).drafter == "suffix"


def test_a_schema_beside_the_other_members() -> None:
    """llama-server's form, in every protocol."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    body = Fields({"json_schema": schema, "messages": QUESTION, "input": "x", "max_tokens": 4})
    for settings in (
        openai_chat.read(body, SERVICE).chat.settings,
        openai_responses.read(body, SERVICE, StoredResponses()).chat.settings,
        anthropic_input.read(body, SERVICE).settings,
    ):
        assert json.loads(settings.schema or "") == schema
    both = {**body.values, "response_format": {"type": "json_object"}}
    error = refusal(lambda fields: openai_chat.read(fields, SERVICE), both)
    assert "choose one" in error.message


def test_an_empty_stop_string_ends_no_text() -> None:
    assert settings_of(Fields({"stop": [""]}), {}, tokens).stop == ()
    assert settings_of(Fields({"stop": ["", "x"]}), {}, tokens).stop == ("x",)


def test_names_of_other_servers() -> None:
    body = {"repetition_penalty": 1.5, "repeat_last_n": 9, "speculative": {"n_max": 3}}
    settings = settings_of(Fields(body), {}, tokens)
    assert settings.params({}).repeat_penalty == 1.5
    assert settings.params({}).penalty_window == 9
    assert settings.depth == 3
    assert settings_of(Fields({"speculative.n_max": 2}), {}, tokens).depth == 2
    assert settings_of(Fields({"speculative": {"type": "none"}}), {}, tokens).depth == 0


@pytest.mark.parametrize(
    "member",
    [
        {"functions": [{"name": "f"}]},
        {"function_call": {"name": "f"}},
        {"audio": {"voice": "x"}},
        {"web_search_options": {}},
        {"top_logprobs": 3},
        {"reasoning_format": "none"},
        {"reasoning_budget_message": "enough"},
        {"parse_tool_calls": False},
        {"t_max_predict_ms": 100},
        {"n_indent": 4},
        {"echo": True},
    ],
    ids=lambda member: next(iter(member)),
)
def test_members_of_chats_that_are_not_here(member: dict[str, Any]) -> None:
    body = {"messages": QUESTION, **member}
    error = refusal(lambda fields: openai_chat.read(fields, SERVICE), body)
    assert error.param == next(iter(member))


@pytest.mark.parametrize(
    "member",
    [
        {"thinking_budget_tokens": 5},
        {"thinking_budget": 5},
        {"thinking_token_budget": 5},
        {"reasoning": {"max_tokens": 5}},
        {"thinking_budget": 0, "thinking_token_budget": 5},
        {"thinking_budget_tokens": -1, "reasoning": {"max_tokens": 5}},
    ],
)
def test_a_text_that_is_continued_has_no_thinking_budget(member: dict[str, Any]) -> None:
    def read(body: Fields) -> Any:
        return openai_completions.read(body, SERVICE)

    assert "the thinking budget is 5" in str(refusal(read, {"prompt": "x", **member}))
    read(Fields({"prompt": "x", "thinking_budget": 0, "thinking_token_budget": -1}))


@pytest.mark.parametrize("name", ["t_max_predict_ms", "n_indent"])
def test_members_of_completions_that_are_not_here(name: str) -> None:
    def read(body: Fields) -> Any:
        return openai_completions.read(body, SERVICE)

    assert refusal(read, {"prompt": "x", name: 5}).param == name
    assert refusal(read, {"prompt": "x", "post_sampling_probs": True}).status == 400
    assert read(Fields({"prompt": "x", name: 0, "n_cmpl": 3})).form.choices == 3


@pytest.mark.parametrize(
    ("given", "bias"),
    [
        ({"5": 1, "7": -100}, {5: 1.0, 7: float("-inf")}),
        ([[5, 1.5], [7, False], [8, -100]], {5: 1.5, 7: float("-inf"), 8: float("-inf")}),
        ({"5": False}, {5: float("-inf")}),
        ([["ab", 1.5], ["", 3]], {97: 1.5, 98: 1.5}),
        ({"ab": -2, " 7": 1}, {97: -2.0, 98: -2.0, 7: 1.0}),
        ([["5", 1]], {53: 1.0}),
        ([["aba", 1], [97, 0.5], ["b", False]], {97: 2.5, 98: float("-inf")}),
        ([], {}),
        ({}, {}),
        (None, {}),
    ],
)
def test_biases_in_the_forms_of_clients(given: Any, bias: dict[int, float]) -> None:
    assert (
        dict(settings_of(Fields({"logit_bias": given}), {}, tokens).params({}).logit_bias) == bias
    )


@pytest.mark.parametrize(
    ("body", "usual"),
    [
        ({"samplers": ["xtc", "top_k"]}, {"xtc_probability": 0.0}),
        ({"samplers": "xk"}, {"xtc_probability": 0.0}),
        ({"samplers": ["xtc", "top_k"], "xtc_probability": 0.1, "xtc_threshold": 0.9}, {}),
    ],
)
def test_xtc_may_stand_anywhere_while_it_is_off(body: dict[str, Any], usual: Any) -> None:
    settings_of(Fields(body), usual, tokens)
    with pytest.raises(ApiError, match="samplers"):
        settings_of(Fields({**body, "xtc_threshold": 0.1}), {"xtc_probability": 0.2}, tokens)


def test_an_empty_grammar_is_none() -> None:
    assert settings_of(Fields({"grammar": ""}), {}, tokens).is_free


def test_members_of_chats_that_change_nothing() -> None:
    """As llama-server's own page sends them."""
    harmless = {"reasoning_format": "auto", "thinking_budget_tokens": -1}
    openai_chat.read(Fields({"messages": QUESTION, **harmless}), SERVICE)


@pytest.mark.parametrize(
    "member",
    [
        {"conversation": "conv_1"},
        {"prompt": {"id": "p"}},
        {"top_logprobs": 21},
        {"background": True},
    ],
    ids=lambda member: next(iter(member)),
)
def test_members_of_responses_that_are_not_here(member: dict[str, Any]) -> None:
    def read(fields: Fields) -> Any:
        return openai_responses.read(fields, SERVICE, StoredResponses())

    error = refusal(read, {"input": "x", **member})
    assert error.param == next(iter(member))


def test_what_no_text_is_held_to_is_left_out_of_a_schema_and_said() -> None:
    """As pydantic's set; llama-server leaves it out, too."""
    tags = {"type": "array", "uniqueItems": True, "contains": {"const": 1}}
    sizes = {"propertyNames": {"$ref": "#/$defs/size"}, "additionalProperties": {"type": "null"}}
    schema = {
        "type": "object",
        "properties": {"tags": tags, "not": {"format": "path"}, "sizes": sizes},
        "$defs": {"size": {"enum": ["s", "l"]}},
    }
    as_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    ways: list[dict[str, Any]] = [{"json_schema": schema}, {"response_format": as_format}]
    for body in ways:
        settings = SERVICE.settings_of(Fields(body))
        named = {"s": {"type": "null"}, "l": {"type": "null"}}
        assert json.loads(settings.schema)["properties"] == {
            "tags": {"type": "array"},
            "not": {},
            "sizes": {"properties": named, "additionalProperties": False},
        }
        assert settings.not_enforced == ("answer: contains, format path, uniqueItems",)
