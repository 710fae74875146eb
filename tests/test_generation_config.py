"""GenerationConfig and RuntimeConfig: bad values are refused by name before anything loads."""

import json
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from fakes.pycode import load
from pydantic import create_model

from localspec.engine.engine import Engine
from localspec.engine.engine import load as engine_load
from localspec.errors import InvalidValueError, ModelNotFoundError
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.llama.model import Model
from localspec.loading.config import RuntimeConfig, threads_for
from localspec.sampling.params import SamplingParams
from localspec.speculation.draft import MAX_DEPTH

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"depth": -1}, "depth is -1"),
    ({"depth": 63}, "depth is 63; it must be at least 0 and at most 62"),
    ({"depth": 2.5}, "depth is 2.5, a float; it must be a whole number"),
    ({"depth": "auto"}, "depth is 'auto', a str; it must be a whole number, or None for the def"),
    ({"max_tokens": 0}, "max_tokens is 0"),
    ({"seed": -1}, "seed is -1"),
    ({"seed": 2**64}, "seed is"),
    ({"seed": 2.5}, "seed is 2.5"),
    ({"rule": "best"}, "rule is 'best'; choose from: coupled"),
    ({"stop": [5]}, "stop is 5"),
    ({"stop": [""]}, "stop string is empty"),
    ({"stop": 5}, "stop is 5; it must be a text or a list"),
    ({"stop": b"a"}, "stop is b'a'; it must be a text or a list"),
    ({"schema": [1]}, r"schema is \[1\]; it must be a JSON schema"),
    ({"schema": {"enum": {1}}}, "schema cannot be written as JSON"),
    ({"schema": create_model("A", a=(int, ...))}, "schema is .*A.*; take its model_json_schema"),
    ({"grammar": 5}, "grammar is 5; it must be a text"),
    ({"dry_sequence_breakers": 5}, "dry_sequence_breakers is 5"),
    ({"logit_bias": 5}, "logit_bias is 5"),
    ({"top_p": 0}, "top_p is 0"),
    ({"logit_bias": {"5": 1}}, "logit_bias key is '5', a str; .*: write 5 without quotes"),
    ({"logit_bias": {5: "x"}}, "logit_bias of 5 is 'x', a str; it must be a number$"),
    ({"logit_bias": {5: float("nan")}}, "logit_bias 5: nan must map"),
    ({"temperature": "0.5"}, "temperature is '0.5', a str; .* a number: write 0.5 without quotes"),
    ({"temperature": True}, "temperature is True, a bool; it must be a number: write 1$"),
    ({"temperature": np.bool_(True)}, "temperature is .*True.*, a bool; it must be a number"),
    ({"temperature": [0.5]}, r"temperature is \[0.5\], a list; it must be a number"),
    ({"temperature": np.array([0.5, 1])}, "temperature is array.*, an ndarray; it must be a num"),
    ({"temperature": 10**400}, "temperature is 1000.*it must be a number"),
    ({"temperature": float("nan")}, "temperature is nan; it must be a finite number"),
    ({"top_k": 40.0}, "top_k is 40.0, a float; it must be a whole number: write 40$"),
    ({"seed": float("inf")}, "seed is inf, a float; it must be a whole number$"),
    (
        {"top_logprobs": 3, "logprobs": False},
        "top_logprobs is 3, and logprobs is off; leave one of them out, or give top_logprobs=0",
    ),
    ({"logprobs": "no"}, "logprobs is 'no', a str; it must be True or False"),
    ({"sampling": {}}, "no setting 'sampling'"),
    (
        {"schema": {"type": "object"}, "response_format": {"type": "json_object"}},
        "both a schema and a response_format",
    ),
    ({"response_format": {"type": "json_schema"}}, 'response_format is {"type": "json_schema"}'),
    ({"temprature": 1}, "no setting 'temprature'"),
]


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, SCHEMA),
        ({"type": "json_schema", "schema": SCHEMA}, SCHEMA),
        ({"type": "json_object", "schema": SCHEMA}, SCHEMA),
        ({"type": "json_object", "schema": None}, {"type": "object"}),
        ({"type": "json_object"}, {"type": "object"}),
    ],
)
def test_a_response_format_names_its_schema(given: dict[str, Any], schema: object) -> None:
    """As OpenAI has it, as llama-server does, and as llama-cpp-python's server does."""
    assert json.loads(GenerationConfig.of(response_format=given).schema or "") == schema


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_a_wrong_setting_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        GenerationConfig.of(**options)


def test_none_is_a_default_and_a_seed_is_drawn() -> None:
    drawn = GenerationConfig.of(seed=None, temperature=None, stop="\n")
    assert drawn.stop == ("\n",)
    assert drawn.seed != GenerationConfig.of().seed
    assert drawn.params({"general.sampling.temp": 0.3}).temperature == 0.3


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    given = {"seed": np.uint64(2**64 - 1), "max_tokens": np.int32(5), "depth": np.int8(3)}
    found = GenerationConfig.of(**given)
    assert (found.seed, found.max_tokens, found.depth) == (2**64 - 1, 5, 3)
    assert all(type(each) is int for each in (found.seed, found.max_tokens, found.depth))
    with pytest.raises(InvalidValueError, match="seed is -1;"):
        GenerationConfig.of(seed=np.int64(-1))


NUMBERS = (int, float, int | None, float | None)


@pytest.mark.parametrize("name", [*get_type_hints(GenerationOptions)])
def test_a_number_of_any_option_may_be_numpys_and_no_text(name: str) -> None:
    hint = get_type_hints(GenerationOptions)[name]
    if hint not in NUMBERS:
        return
    is_whole = int in (hint, *get_args(hint))
    config = GenerationConfig.of(**{name: np.int16(1) if is_whole else np.float32(1)})
    value = getattr(config, name, config.sampling.get(name))
    assert value == 1 and type(value) is (int if is_whole else float)
    with pytest.raises(InvalidValueError, match=f"{name} is '1', a str; .*write 1 without quotes"):
        GenerationConfig.of(**{name: "1"})


@pytest.mark.parametrize("name", [*get_type_hints(engine_load)])
def test_a_number_of_any_option_of_load_is_no_text(name: str) -> None:
    """Refused before a model is looked for."""
    if get_type_hints(engine_load)[name] not in NUMBERS:
        return
    for value in ("1", True):
        with pytest.raises(InvalidValueError, match=f"{name} is {value!r}, a .*: write 1"):
            engine_load("nowhere/none", **{name: value})  # type: ignore[arg-type]


def test_lists_of_numbers() -> None:
    with pytest.raises(InvalidValueError, match=r"tensor_split is '3,1', a str; .* a list of num"):
        engine_load("nowhere/none", tensor_split="3,1")  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match=r"tensor_split \[1\] is '1', a str; .*write 1"):
        engine_load("nowhere/none", tensor_split=[3, "1"])  # type: ignore[list-item]
    options = {"logit_bias": {np.int32(5): np.float32(-1)}, "top_k": np.int8(3)}
    params = SamplingParams(**options)  # type: ignore[arg-type]
    assert repr(params.logit_bias) == "{5: -1.0}" and type(params.top_k) is int
    assert RuntimeConfig(threads=np.int64(2)).costs_depend_on["threads"] == 2
    with pytest.raises(ModelNotFoundError):
        engine_load("nowhere.gguf", tensor_split=iter([np.float32(3), 1]))  # type: ignore[arg-type]


def test_without_a_depth_it_is_left_to_what_pays() -> None:
    """None is what nothing said gives, not a number, and 1 and 62 are numbers there can be."""
    assert GenerationConfig.of().depth is None
    assert GenerationConfig.of(depth=None).depth is None
    assert [GenerationConfig.of(depth=depth).depth for depth in (1, MAX_DEPTH)] == [1, 62]


@pytest.mark.parametrize(
    "options",
    [{"threads": 100_000}, {"threads": 0}, {"context": 1}, {"context": 10**11}, {"context": "big"}],
)
def test_a_wrong_runtime_option_is_named(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(InvalidValueError, match=f"{name} is {value!r}"):
        RuntimeConfig(**options)


def test_a_small_model_gets_one_thread(target_model: Model) -> None:
    assert 7_000_000 < target_model.size < 9_000_000
    assert threads_for(target_model.size) == 1
    assert threads_for(2**40) >= 1


@pytest.fixture(scope="module")
def engine():  # type: ignore[no-untyped-def]
    with load(draft="none", threads=1) as engine:
        yield engine


@pytest.mark.parametrize(
    "prompt", [None, 5, [1, {"role": "user"}], [1.5], ["a", 5], "\udcff", [-1], [4096], ""]
)
def test_a_wrong_prompt_is_refused_in_words(engine: Engine, prompt: Any) -> None:
    if prompt == "":
        # The bundled target begins every text with BOS, so an empty one can be gone on from.
        assert engine.generate(prompt, max_tokens=2).stats.prompt_tokens == 1
        return
    with pytest.raises(InvalidValueError):
        engine.generate(prompt)


def test_ids_of_any_integer_kind(engine: Engine) -> None:
    ids = engine.model.tokenize("def f(x):")
    by_list = engine.generate(ids, max_tokens=8, seed=1)
    assert engine.generate(np.array(ids), max_tokens=8, seed=1).token_ids == by_list.token_ids


def test_the_likeliest_tokens_come_with_log_probabilities() -> None:
    assert GenerationConfig.of(top_logprobs=3).logprobs
    assert not GenerationConfig.of(top_logprobs=0).logprobs
