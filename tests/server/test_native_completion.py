"""POST /completion, as llama-server's own clients send it."""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import httpx
import pytest
from fakes.served import Served
from hypothesis import given
from hypothesis import strategies as st

import localspec
from localspec.engine.engine import Engine
from localspec.server import native_answer, native_completion
from localspec.server.fields import Fields
from localspec.server.native_answer import _Written
from localspec.server.openai_parts import merged
from localspec.server.reply import Delta
from localspec.server.service import Service
from localspec.server.slot_pool import SlotPool
from localspec.server.tool_calls import Text

PROMPT = "for i in ls ls ls"
BODY: dict[str, Any] = {
    "prompt": PROMPT,
    "n_predict": 24,
    "temperature": 0.7,
    "seed": 3,
    "ignore_eos": True,
}
SETTINGS: dict[str, Any] = {"max_tokens": 24, "temperature": 0.7, "seed": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def alone(strict: Served) -> Iterator[Engine]:
    """The same model, whose weights are exact enough for any width of passes, without a server."""
    with localspec.load(strict.process.args[4], "none", threads=1) as engine:  # type: ignore[index]
        yield engine


def completed(strict: Served, path: str = "/completion", **changed: Any) -> Any:
    answer = strict.post(path, {**BODY, **changed})
    assert answer.status_code == 200, answer.text
    return answer.json()


def parts_of(strict: Served, **changed: Any) -> list[dict[str, Any]]:
    lines = strict.post("/completion", {**BODY, **changed, "stream": True}).text.splitlines()
    assert "[DONE]" not in "".join(lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


@pytest.mark.parametrize("path", ["/completion", "/completions"])
def test_a_text_is_continued(strict: Served, alone: Engine, path: str) -> None:
    wanted = alone.generate(PROMPT, **SETTINGS)
    found = completed(strict, path, return_tokens=True)
    assert (found["content"], found["tokens"]) == (wanted.text, wanted.token_ids)
    assert (found["stop"], found["stop_type"], found["index"]) == (True, "limit", 0)
    assert found["tokens_predicted"] == found["timings"]["predicted_n"] == 24
    assert found["tokens_evaluated"] == wanted.stats.prompt_tokens
    assert found["prompt"].replace("▁", " ").endswith(PROMPT)
    chosen = found["generation_settings"]
    assert (chosen["seed"], chosen["n_predict"]) == (3, 24)
    assert chosen["temperature"] == pytest.approx(0.7)
    assert completed(strict, path)["tokens"] == []


def test_a_text_in_a_stream(strict: Served, alone: Engine) -> None:
    *parts, last = parts_of(strict)
    assert "".join(part["content"] for part in parts) == alone.generate(PROMPT, **SETTINGS).text
    assert len(parts) > 5 and not any(part["stop"] for part in parts)
    assert last["stop"] and last["content"] == "" and last["timings"]["predicted_n"] == 24
    tokens = alone.generate(PROMPT, **SETTINGS).token_ids
    assert [token for part in (*parts, last) for token in part["tokens"]] == tokens
    counts = [part["tokens_predicted"] for part in parts]
    assert counts == sorted(counts) and counts[0] < 24 == last["tokens_predicted"]
    *parts, last = parts_of(strict, response_fields=["stop_type"])
    assert last == {"stop_type": "limit"} and parts[0]["content"]


def test_prompts_of_tokens_of_texts_and_of_both(strict: Served, alone: Engine) -> None:
    wanted = alone.generate(PROMPT, **SETTINGS).text
    tokens = alone.tokenize(PROMPT)
    assert completed(strict, prompt=tokens)["content"] == wanted
    # What is written out between tokens is made tokens where it stands.
    end = alone.detokenize(tokens[-1:])
    mixed = completed(strict, prompt=[*tokens[:-1], end])
    assert (
        mixed["content"]
        == alone.generate([*tokens[:-1], *alone.tokenize(end, add_special=False)], **SETTINGS).text
    )
    # llama-server's form of a prompt beside pictures, of which there are none.
    assert completed(strict, prompt={"prompt_string": PROMPT})["content"] == wanted
    several = completed(strict, prompt=[{"prompt_string": PROMPT}, tokens, "x"])
    assert [each["index"] for each in several] == [0, 1, 2]
    other = alone.generate("x", **SETTINGS).text
    assert [each["content"] for each in several] == [wanted, wanted, other]
    one = completed(strict, prompt=[PROMPT])
    assert [each["content"] for each in one] == [wanted]
    streamed = parts_of(strict, prompt=[PROMPT, "x"])
    for number, text in enumerate((wanted, other)):
        own = [part for part in streamed if part["index"] == number]
        assert "".join(part["content"] for part in own) == text and own[-1]["stop"]


def test_choices_have_seeds_of_their_own(strict: Served) -> None:
    first, second = completed(strict, n_cmpl=2)
    assert first["content"] == completed(strict)["content"]
    again = completed(strict, seed=4)
    assert second["generation_settings"]["seed"] == again["generation_settings"]["seed"] == 4
    # Both are written at once: in company a near tie may come out another way later on.
    assert second["content"][:2] == again["content"][:2] != first["content"][:2]


def test_probabilities(strict: Served, alone: Engine) -> None:
    wanted = alone.generate(PROMPT, logprobs=True, top_logprobs=3, **SETTINGS)
    found = completed(strict, n_probs=3)["completion_probabilities"]
    assert [each["id"] for each in found] == wanted.token_ids
    for each, logprob, top in zip(
        found, wanted.logprobs or (), wanted.top_logprobs or (), strict=True
    ):
        assert each["logprob"] == pytest.approx(logprob, abs=0.05)
        for other, (token, likely) in zip(each["top_logprobs"], top, strict=True):
            assert other["logprob"] == pytest.approx(likely, abs=0.05)
            # Of tokens nearly as likely as the last, the digits decide which is there.
            assert other["id"] == token or likely < top[-1][1] + 0.1
    *parts, last = parts_of(strict, n_probs=3)
    streamed = [each for part in parts for each in part["completion_probabilities"]]
    assert [each["id"] for each in streamed] == wanted.token_ids
    assert "completion_probabilities" not in last
    assert "completion_probabilities" not in completed(strict)


def test_probabilities_behind_the_samplers(strict: Served) -> None:
    """Those that tokens are drawn with: of what is left, so that they add up to 1."""
    options: Any = {"n_probs": 4, "post_sampling_probs": True, "top_k": 4, "min_p": 0, "top_p": 1}
    options["ignore_eos"] = False
    # Both answers then go on behind a prompt that was read in the same pieces.
    completed(strict, temperature=0.7, **options)
    answer = completed(strict, temperature=0.7, **options)
    before_samplers = {**options, "n_probs": 12, "post_sampling_probs": False}
    plain = completed(strict, temperature=0.7, **before_samplers)
    assert answer["content"] == plain["content"]
    assert answer["generation_settings"]["post_sampling_probs"] is True
    for after, before in zip(
        answer["completion_probabilities"], plain["completion_probabilities"], strict=True
    ):
        top = {each["id"]: each["prob"] for each in after["top_probs"]}
        assert sum(top.values()) == pytest.approx(1)
        assert after["prob"] == top[after["id"]]
        assert [*top.values()] == sorted(top.values(), reverse=True)
        raw = {each["id"]: each["logprob"] / 0.7 for each in before["top_logprobs"]}
        # Of tokens nearly as likely as the last of the four, the digits decide which is there.
        assert min(raw[id] for id in top) > sorted(raw.values())[-4] - 0.02
        whole = sum(math.exp(raw[id]) for id in top)
        assert top == pytest.approx({id: math.exp(raw[id]) / whole for id in top}, abs=1e-3)
        assert "logprob" not in after
    *parts, _ = parts_of(strict, temperature=0.7, **options)
    streamed = [each for part in parts for each in part["completion_probabilities"]]
    assert [each["prob"] for each in streamed] == pytest.approx(
        [each["prob"] for each in answer["completion_probabilities"]], abs=1e-3
    )
    (sure, *_) = completed(strict, temperature=0, **options)["completion_probabilities"]
    assert [sure["prob"], *(each["prob"] for each in sure["top_probs"])] == [1, 1]
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "logprobs": True}
    more = {"top_logprobs": 4, "post_sampling_probs": True, "top_k": 4, "min_p": 0, "top_p": 1}
    chat = strict.post("/v1/chat/completions", {**body, **more}).json()
    for each in chat["choices"][0]["logprobs"]["content"]:
        assert sum(other["prob"] for other in each["top_probs"]) == pytest.approx(1)


def test_a_stop_string_is_named(strict: Served) -> None:
    text = completed(strict)["content"]
    word = text[4:7]
    found = completed(strict, stop=[word])
    assert (found["stop_type"], found["stopping_word"]) == ("word", word)
    assert found["content"] == text[: text.index(word)]


@pytest.mark.slow
def test_without_a_limit_it_fills_the_context(strict: Served, alone: Engine) -> None:
    found = completed(strict, n_predict=-1)
    assert found["tokens_evaluated"] + found["tokens_predicted"] == alone.context
    assert found["stop_type"] == "limit"


@pytest.mark.slow
def test_a_full_context_is_told_from_a_limit(strict: Served) -> None:
    assert completed(strict, n_predict=-1)["truncated"] is True
    assert completed(strict)["truncated"] is False


@pytest.mark.parametrize("name", ["max_completion_tokens", "max_tokens"])
def test_limits_and_probabilities_by_other_names(strict: Served, name: str) -> None:
    found = completed(strict, **{"n_predict": None, name: 4, "logprobs": 2})
    assert found["tokens_predicted"] == 4
    assert [len(each["top_logprobs"]) for each in found["completion_probabilities"]] == [2] * 4
    text = strict.post("/v1/completions", {**BODY, "n_predict": None, name: 4}).json()
    assert text["usage"]["completion_tokens"] == 4


def test_the_settings_have_the_names_of_requests(strict: Served) -> None:
    chosen = {"repeat_last_n": 9, "repeat_penalty": 1.2, "n_probs": 1, "top_k": -5, "top_p": 0}
    found = completed(strict, **chosen, t_max_predict_ms=-1)["generation_settings"]
    assert {name: found[name] for name in ("repeat_last_n", "repeat_penalty", "n_probs")} == {
        name: chosen[name] for name in ("repeat_last_n", "repeat_penalty", "n_probs")
    }
    assert found["top_k"] == 0 and found["top_p"] == pytest.approx(0, abs=1e-6)
    assert found["stream"] is False and found["grammar"] == ""
    read = completed(strict, n_predict=0)
    assert read["generation_settings"]["n_predict"] == 0


def test_a_top_p_of_0_takes_the_likeliest(strict: Served) -> None:
    greedy = completed(strict, temperature=0)["content"]
    assert completed(strict, temperature=1.5, top_p=0)["content"] == greedy


def test_each_part_of_a_stream_tells_its_times_if_asked(strict: Served) -> None:
    *parts, _ = parts_of(strict, timings_per_token=True)
    counts = [part["timings"]["predicted_n"] for part in parts]
    assert counts == sorted(counts) and counts[0] < 24
    assert not any("timings" in part for part in parts_of(strict)[:-1])


@given(text=st.text("ab \t\n", max_size=40), least=st.integers(1, 4), seed=st.randoms())
def test_a_text_ends_before_a_line_that_is_indented_too_little(
    text: str, least: int, seed: Random
) -> None:
    """However it is cut into parts."""
    short = re.compile(rf"\n[ \t]{{0,{least - 1}}}(?![ \t]|\Z)")
    found = short.search(text)
    written, kept, rest = _Written(), "", text
    while rest and not written.is_dedented:
        size = seed.randint(1, 5)
        kept += written.add(Delta(None, (Text(rest[:size]),)), least)
        rest = rest[size:]
    assert written.is_dedented == (found is not None)
    assert kept == written.text == (text[: found.end()] if found else text)


def test_a_prompt_that_is_only_read(strict: Served) -> None:
    prompt = "a b c d e f g h i j"
    read = completed(strict, prompt=prompt, n_predict=0, cache_prompt=True)
    assert (read["content"], read["tokens_predicted"]) == ("", 0)
    assert read["timings"]["predicted_n"] == read["timings"]["predicted_per_second"] == 0
    assert read["timings"]["predicted_per_token_ms"] is None
    assert completed(strict, prompt=prompt)["tokens_cached"] > 5


def test_only_what_is_asked_for(strict: Served) -> None:
    found = completed(strict, response_fields=["content", "timings/predicted_n", "no/such"])
    assert sorted(found) == ["content", "timings/predicted_n"]


def test_a_text_that_ends_for_its_time_has_the_tokens_of_its_content(
    strict: Served, alone: Engine
) -> None:
    """Though more of them may have been written by then."""
    newline = next(
        token for token in range(alone.model.n_vocab) if alone.detokenize([token]) == "\n"
    )
    asked = {"logit_bias": [[newline, 3]], "t_max_predict_ms": 1, "n_predict": 300}
    found = completed(strict, return_tokens=True, n_probs=1, **asked)
    assert found["content"].endswith("\n") and found["tokens_predicted"] < 300
    assert alone.detokenize(found["tokens"]) == found["content"]
    assert [each["id"] for each in found["completion_probabilities"]] == found["tokens"]


def test_what_a_client_for_many_servers_sends(strict: Served) -> None:
    """The names of several servers at once, and lists where others have maps."""
    asked = {
        "max_new_tokens": 24, "max_tokens": 24, "typical": 1, "typical_p": 1, "skew": 0, "tfs": 1,
        "top_a": 0, "repetition_penalty": 1.1, "rep_pen": 1.1, "rep_pen_range": 0, "min_tokens": 0,
        "add_bos_token": True, "smoothing_factor": 0, "no_repeat_ngram_size": 0,
        "length_penalty": 1, "use_beam_search": False, "smoothing_curve": 1, "stopping_strings": [],
        "truncation_length": 2048, "ban_eos_token": False, "skip_special_tokens": True,
        "mirostat_mode": 0, "mirostat": 0, "mirostat_tau": 5, "mirostat_eta": 0.1,
        "custom_token_bans": "", "banned_strings": [], "api_type": "llamacpp", "sampler_order": [6],
        "xtc_threshold": 0.1, "xtc_probability": 0, "nsigma": 0, "top_n_sigma": 0, "min_keep": 0,
        "guidance_scale": 1, "negative_prompt": "", "grammar_string": "", "grammar": "",
        "repeat_penalty": 1, "repeat_last_n": 0, "tfs_z": 1, "num_predict": 24, "num_ctx": 2048,
        "dry_multiplier": 0, "dry_sequence_breakers": ["\n"], "dry_penalty_last_n": 0,
        "n_probs": 0, "post_sampling_probs": False, "logit_bias": [], "cache_prompt": True,
        "samplers": [
            "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "tfs_z", "typical_p", "top_p",
            "min_p", "adaptive_p", "xtc", "temperature",
        ],
    }  # fmt: skip
    assert completed(strict, **asked)["content"] == completed(strict, repeat_penalty=1)["content"]
    banned = completed(strict, return_tokens=True)["tokens"][0]
    other = completed(strict, return_tokens=True, **{**asked, "logit_bias": [[banned, False]]})
    assert banned not in other["tokens"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", BODY),
        ("/v1/completions", {**BODY, "max_tokens": 24}),
        ("/v1/chat/completions", {**BODY, "messages": [{"role": "user", "content": PROMPT}]}),
        ("/v1/messages", {**BODY, "messages": [{"role": "user", "content": PROMPT}],
                          "max_tokens": 24}),
    ],
)  # fmt: skip
def test_a_bias_of_a_text_is_that_of_its_tokens(
    strict: Served, alone: Engine, path: str, body: dict[str, Any]
) -> None:
    def written(**bias: Any) -> str:
        answer = strict.post(path, {**body, "n_predict": 24, **bias}).json()
        return json.dumps([answer.get(name) for name in ("content", "choices")])

    text = "ls for"
    tokens = alone.model.tokenize(text, add_special=False, parse_special=False)
    assert len(tokens) > 1
    by_ids = written(logit_bias=[[token, 5] for token in tokens])
    assert written(logit_bias=[[text, 5]]) == written(logit_bias={text: 5}) == by_ids
    assert by_ids != written()


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_drafts_change_nothing(strict: Served, temperature: float) -> None:
    plain = completed(strict, temperature=temperature, localspec={"draft": "none"})
    drafted = completed(strict, temperature=temperature, localspec={"depth": 4})
    assert drafted["content"] == plain["content"] and drafted["timings"]["draft_n"] > 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompt": None}, "prompt is missing"),
        ({"prompt": 3}, "prompt is 3; it must be a text"),
        ({"prompt": []}, "prompt is []"),
        ({"prompt": [[]]}, "prompt is [[]]"),
        (
            {"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}},
            "1 files, and the text 0",
        ),
        ({"prompt": {"prompt_string": "<__media__>", "multimodal_data": ["x"]}}, "reads text only"),
        ({"prompt": {"prompt_string": 3}}, "it must be a text"),
        ({"prompt": [True, 1]}, "it must be a text"),
        ({"prompt": [1, 10**9]}, "token"),
        ({"prompt": ["x"] * 65}, "there are 65 prompts; send 64 at most"),
        ({"prompt": "XYZ " * 4000}, "prompt is too long"),
        ({"n_probs": -1}, "n_probs is -1"),
        ({"post_sampling_probs": 1}, "post_sampling_probs is 1; it must be true or false"),
        ({"mirostat": 3}, "mirostat is 3; it must be at most 2"),
        ({"thinking_budget": 5}, "the thinking budget is 5"),
        ({"prompt": ["x", "y"], "t_max_predict_ms": 100}, "t_max_predict_ms is 100"),
        ({"n_predict": "many"}, "n_predict is 'many'"),
        ({"prompt": ["x", "y"], "n_indent": 4}, "n_indent is 4"),
        ({"n_predict": None, "logprobs": True}, "logprobs is true"),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_what_is_refused(strict: Served, changed: dict[str, Any], said: str) -> None:
    answer = httpx.post(f"{strict.url}/completion", json={**BODY, **changed}, timeout=60)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_a_line_that_is_cut_is_the_end_also_where_the_model_has_come_to_its_own(
    own_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model writes ahead of what is read of it."""

    async def read_late(*given: Any) -> AsyncIterator[Any]:
        for each in [each async for each in merged(*given)]:
            yield each

    monkeypatch.setattr(native_answer, "merged", read_late)
    body = {"prompt": "ls -l ls -l ls -l", "n_predict": 40, "temperature": 0}
    with localspec.load(draft="none", threads=1, context=256) as engine:
        service = Service(engine, SlotPool(engine, 1, 1), ["m"])

        async def answered(**more: Any) -> Any:
            request = native_completion.read(Fields({**body, **more}), service)
            return await (await native_completion.answer(request, service)).complete()

        whole, cut = asyncio.run(answered()), asyncio.run(answered(n_indent=4))
    assert (whole["content"], whole["stop_type"]) == ("\n```", "eos")
    assert (cut["content"], cut["stop_type"]) == ("\n", "limit")
