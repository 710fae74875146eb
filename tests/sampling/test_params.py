"""Sampler settings: what is refused and how, and what a GGUF's own recommendation changes."""

import dataclasses
import math
from typing import Any

import pytest

from localspec.errors import InvalidValueError
from localspec.sampling.params import SamplingParams

FLOATS = (
    "temperature",
    "dynatemp_range",
    "dynatemp_exponent",
    "top_n_sigma",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
    "mirostat_tau",
    "mirostat_eta",
    "adaptive_target",
    "adaptive_decay",
)


WHOLE = ("top_k", "penalty_window", "dry_allowed_length", "dry_penalty_last_n")


def test_defaults_are_those_of_llama_cpp() -> None:
    assert dataclasses.asdict(SamplingParams()) == {
        "temperature": 0.8,
        "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0,
        "top_n_sigma": 0.0,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "typical_p": 1.0,
        "repeat_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "penalty_window": 64,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": 64,
        "dry_sequence_breakers": ("\n", ":", '"', "*"),
        "dry_breaker_tokens": {},
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "mirostat": 0,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "adaptive_target": -1.0,
        "adaptive_decay": 0.9,
        "logit_bias": {},
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in FLOATS for value in (math.nan, math.inf, -math.inf)),
        ("temperature", -0.1),
        ("temperature", 101.0),
        *((name, 2**31) for name in WHOLE),
        ("dynatemp_range", -0.1),
        ("dynatemp_exponent", -1.0),
        ("top_n_sigma", -1.0),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", -0.5),
        ("top_p", 1.0001),
        ("min_p", -0.001),
        ("min_p", 1.5),
        ("typical_p", 0.0),
        ("typical_p", 2.0),
        ("repeat_penalty", 0.0),
        ("repeat_penalty", -1.1),
        ("penalty_window", -2),
        ("mirostat", 3),
        ("mirostat", -1),
        ("mirostat_tau", -0.1),
        ("mirostat_tau", 100.5),
        ("mirostat_eta", -0.1),
        ("mirostat_eta", 101.0),
        ("adaptive_target", 1.01),
        ("adaptive_decay", -0.1),
        ("adaptive_decay", 1.1),
    ],
)
def test_bad_values_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(InvalidValueError) as caught:
        SamplingParams(**{name: value})  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(f"{name} is {value}; it must be ")
    assert "\n" not in message
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("token", "bias"), [(-1, 1.0), (3, math.nan), (3, math.inf), (-7, -math.inf)]
)
def test_bad_biases_are_refused_by_token(token: int, bias: float) -> None:
    with pytest.raises(InvalidValueError, match=f"logit_bias {token}: {bias} must map"):
        SamplingParams(logit_bias={1: 0.5, token: bias})


@pytest.mark.parametrize(
    "chosen",
    [
        {"temperature": 0.0},
        {"temperature": 100.0},
        {"top_k": 0},
        dict.fromkeys(WHOLE, 2**31 - 1),
        {"top_p": 1.0},
        {"top_p": 1e-9},
        {"min_p": 0.0},
        {"min_p": 1.0},
        {"typical_p": 1e-9},
        {"repeat_penalty": 0.5},
        {"frequency_penalty": -2.0, "presence_penalty": -2.0},
        {"penalty_window": -1},
        {"penalty_window": 0},
        {"mirostat": 1, "mirostat_tau": 0.0, "mirostat_eta": 0.0},
        {"mirostat": 2, "mirostat_tau": 100.0, "mirostat_eta": 100.0},
        {"adaptive_target": -3.0, "adaptive_decay": 0.0},
        {"adaptive_target": 1.0, "adaptive_decay": 1.0},
        {"logit_bias": {0: -math.inf, 5: -100.0, 7: 3.5}},
    ],
)
def test_edges_are_allowed(chosen: dict[str, Any]) -> None:
    params = SamplingParams(**chosen)
    assert {name: getattr(params, name) for name in chosen} == chosen


def test_frozen_and_by_name_only() -> None:
    params = SamplingParams()
    for field in dataclasses.fields(params):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(params, field.name, 0)
    assert not hasattr(params, "__dict__")
    with pytest.raises(TypeError):
        SamplingParams(0.5)  # type: ignore[misc]
    assert dataclasses.replace(params, top_k=3).top_k == 3
    with pytest.raises(InvalidValueError):
        dataclasses.replace(params, top_k=-3)


def test_instances_share_no_bias() -> None:
    assert SamplingParams().logit_bias is not SamplingParams().logit_bias


@pytest.mark.parametrize(
    ("chosen", "penalises"),
    [
        ({}, False),
        ({"repeat_penalty": 1.1}, True),
        ({"frequency_penalty": -0.5}, True),
        ({"presence_penalty": 0.5}, True),
        ({"penalty_window": -1}, False),
        ({"repeat_penalty": 1.1, "penalty_window": -1}, True),
        ({"repeat_penalty": 1.1, "penalty_window": 0}, False),
    ],
)
def test_whether_the_text_matters(chosen: dict[str, Any], penalises: bool) -> None:
    assert SamplingParams(**chosen).penalises is penalises


METADATA = {
    "general.sampling.temp": 0.6,
    "general.sampling.top_k": 20,
    "general.sampling.top_p": 0.9,
    "general.sampling.min_p": 0.01,
    "general.sampling.xtc_probability": 0.25,
    "general.sampling.xtc_threshold": 0.2,
    "general.sampling.penalty_last_n": 128,
    "general.sampling.penalty_repeat": 1.05,
}
RECOMMENDED = SamplingParams(
    temperature=0.6,
    top_k=20,
    top_p=0.9,
    min_p=0.01,
    xtc_probability=0.25,
    xtc_threshold=0.2,
    penalty_window=128,
    repeat_penalty=1.05,
)


def test_a_model_recommends_its_settings() -> None:
    assert SamplingParams.for_model(METADATA) == RECOMMENDED
    assert SamplingParams.for_model({}) == SamplingParams()


def test_recommendations_may_be_strings() -> None:
    strings = {key: str(value) for key, value in METADATA.items()}
    params = SamplingParams.for_model(strings)
    assert params == RECOMMENDED
    assert isinstance(params.top_k, int)
    assert isinstance(params.temperature, float)
    assert SamplingParams.for_model({"general.sampling.temp": 1}).temperature == 1.0


def test_what_was_chosen_comes_before_the_recommendation() -> None:
    params = SamplingParams.for_model(METADATA, temperature=0.0, top_k=5, min_p=None)
    assert params == dataclasses.replace(RECOMMENDED, temperature=0.0, top_k=5)
    typical = SamplingParams.for_model(METADATA, typical_p=0.5, logit_bias={3: 1.0})
    assert typical == dataclasses.replace(RECOMMENDED, typical_p=0.5, logit_bias={3: 1.0})


def test_other_metadata_is_ignored() -> None:
    others = {"general.name": "x", "general.sampling.sequence": "x", "llama.block_count": 4}
    assert SamplingParams.for_model(others) == SamplingParams()


def test_a_bad_recommendation_or_choice_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"top_p is 3\.0"):
        SamplingParams.for_model({"general.sampling.top_p": 3.0})
    assert SamplingParams.for_model({"general.sampling.top_p": 3.0}, top_p=0.5).top_p == 0.5
    with pytest.raises(InvalidValueError, match="top_k is -4"):
        SamplingParams.for_model(METADATA, top_k=-4)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [("temp", "warm", "temperature"), ("top_k", "40.5", "top_k"), ("top_k", [1], "top_k")],
)
def test_a_recommendation_that_is_no_number_says_what_to_set(
    key: str, value: object, named: str
) -> None:
    metadata = {f"general.sampling.{key}": value}
    with pytest.raises(InvalidValueError, match=f"general.sampling.{key} .*set {named} yourself"):
        SamplingParams.for_model(metadata)
    assert getattr(SamplingParams.for_model(metadata, **{named: 1}), named) == 1


@pytest.mark.parametrize("mirostat", [2, "2", 2.0])
def test_a_gguf_recommends_mirostat(mirostat: object) -> None:
    metadata = {
        "general.sampling.mirostat": mirostat,
        "general.sampling.mirostat_tau": 3,
        "general.sampling.mirostat_eta": "0.2",
    }
    params = SamplingParams.for_model(metadata)
    assert params == SamplingParams(mirostat=2, mirostat_tau=3.0, mirostat_eta=0.2)
    assert isinstance(params.mirostat, int)
    assert SamplingParams.for_model(metadata, mirostat=0).first_state is None


def test_a_negative_top_k_of_a_gguf_is_off() -> None:
    assert SamplingParams.for_model({"general.sampling.top_k": "-1"}).top_k == 0


@pytest.mark.parametrize(("name", "value"), [("temperature", "x"), ("top_k", 2.5)])
def test_what_is_no_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidValueError, match=f"{name} is {value!r}"):
        SamplingParams(**{name: value})


def test_who_is_told_of_a_bad_value_is_who_has_chosen_it() -> None:
    metadata = {"general.sampling.top_p": 7.0}
    with pytest.raises(InvalidValueError, match=r"^top_p is 5"):
        SamplingParams.for_model(metadata, top_p=5)
    with pytest.raises(InvalidValueError, match=r"^the GGUF's own top_p is 7"):
        SamplingParams.for_model(metadata)


def test_the_least_temperature_is_that_of_a_float32() -> None:
    assert not SamplingParams(temperature=2.0**-149).is_greedy
    assert SamplingParams(temperature=2.0**-150).is_greedy
