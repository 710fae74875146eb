"""`localspec generate` with a model that reasons: cut off, hidden, ended, told not to."""

import re
from pathlib import Path

import pytest
from fakes.command_line import Run
from fakes.generate_runs import posix, streamed
from fakes.templates import QWEN3, R1
from fakes.terminal import on_terminal
from fakes.tiny import TURNS, write_tiny

pytestmark = pytest.mark.usefixtures("bare_environment")


@pytest.fixture
def thinker(tmp_path: Path) -> str:
    """A model whose prompts open its reasoning, which it never ends by itself."""
    return str(write_tiny(tmp_path / "thinker.gguf", "llama", template=R1))


@pytest.fixture
def talker(tmp_path: Path) -> str:
    """A model that chats and does not reason."""
    return str(write_tiny(tmp_path / "talker.gguf", "llama", template=TURNS))


def test_a_chat_turn_may_fill_the_context(generate: Run, talker: str) -> None:
    done = generate("-m", talker, "abc", "--ignore-eos", "--json")
    assert done.record["stop_reason"] == "context"
    assert "localspec: the context of 256 tokens is full; --ctx makes it larger" in done.err
    longest = generate("-m", talker, "abc", "--ignore-eos", "--min-tokens", "100", "-n", "120")
    assert "localspec: cut off after 120 tokens; -n allows more" in longest.err


def test_a_text_that_is_continued_has_256_tokens(generate: Run, tmp_path: Path) -> None:
    model = str(write_tiny(tmp_path / "long.gguf", "llama", template=TURNS, context=512))
    done = generate("-m", model, "--raw", "abc", "--ignore-eos", "--json")
    assert len(done.record["token_ids"]) == 256
    assert "localspec: cut off after 256 tokens; -n allows more" in done.err


def test_a_cut_within_the_reasoning_is_called_that(generate: Run, thinker: str) -> None:
    done = generate("-m", thinker, "abc", "--ignore-eos", "-n", "9")
    said = "localspec: cut off after 9 tokens, while it was still thinking; -n allows more"
    assert done.code == 0 and said in done.err
    raw = generate("-m", thinker, "--raw", "abc <think>", "--ignore-eos", "-n", "9")
    assert "localspec: cut off after 9 tokens; -n allows more" in raw.err
    full = generate("-m", thinker, "abc", "--ignore-eos")
    said = "the context of 256 tokens is full, while it was still thinking; --ctx makes it larger"
    assert f"localspec: {said}" in full.err


# Hidden, apart, ended, switched off.


def test_hidden_reasoning_is_not_written(generate: Run, thinker: str) -> None:
    """The model never ends it, so nothing is left."""
    asked = ("-m", thinker, "abc", "--ignore-eos", "-n", "9", "--seed", "3")
    shown, hidden = generate(*asked), generate(*asked, "--hide-thinking")
    assert len(shown.out) > 1 and hidden.out == "\n"
    assert hidden.err == shown.err
    assert generate(*asked, "--hide-thinking", "--no-stream").out == "\n"
    record = generate(*asked, "--hide-thinking", "--json").record
    assert record["text"] == "" and record["thought"].strip() == shown.out.strip()
    assert generate(*asked, "--json").record["text"] == shown.out.removesuffix("\n")


def test_a_budget_ends_the_reasoning_and_the_answer_follows(generate: Run, thinker: str) -> None:
    asked = ("-m", thinker, "abc", "--ignore-eos", "-n", "40", "--seed", "3", "--depth", "3")
    limited = (*asked, "--thinking-budget", "6")
    done = generate(*limited, "--json")
    record, free = done.record, generate(*asked, "--json").record
    inserted = [at for at, origin in enumerate(record["origins"]) if origin == "inserted"]
    assert inserted == [*range(6, 6 + len(inserted))]
    assert record["token_ids"][:6] == free["token_ids"][:6]
    assert record["token_ids"] != free["token_ids"]
    assert len(record["token_ids"]) == 40 and record["stop_reason"] == "length"
    thought, said = record["text"].split("\n</think>\n\n", 1)
    assert record["thought"].rstrip("\n") == thought.rstrip("\n")
    assert "reasoning was ended: its budget of 6 tokens is used up" in done.err
    assert "thinking; -n" not in done.err
    assert generate(*limited, "--hide-thinking").out.lstrip("\n") == said.lstrip("\n") + "\n"
    tokens, whole = streamed(generate(*limited, "--hide-thinking", "--stream", "--json").out)
    assert whole["text"] == said.lstrip("\n") and len(tokens) == 40


@pytest.mark.parametrize(("rule", "temperature"), [("coupled", "1"), ("token", "0")])
def test_with_a_budget_drafts_change_no_text(
    generate: Run, thinker: str, rule: str, temperature: str
) -> None:
    limits = ("-n", "40", "--thinking-budget", "6", "--seed", "3", "--rule", rule)
    asked = ("-m", thinker, "abc abc abc", "--ignore-eos", *limits, "--json")
    asked = (*asked, "--temperature", temperature)
    drafted, plain = (generate(*asked, "--draft", draft).record for draft in ("ngram", "none"))
    assert drafted["stats"]["drafted"] > 0
    assert drafted["token_ids"] == plain["token_ids"]


def test_a_budget_that_leaves_no_room_for_an_answer(generate: Run, thinker: str) -> None:
    # With this seed, the sixth token ends a character; within one, reasoning is not ended.
    asked = ("-m", thinker, "abc", "--ignore-eos", "-n", "7", "--seed", "3")
    done = generate(*asked, "--thinking-budget", "6")
    assert "cut off after 6 tokens, while it was still thinking; -n allows more" in done.err
    refused = generate("-m", "nowhere.gguf", "abc", "--thinking-budget", "6", "--schema", "{}")
    assert refused.code == 2 and "leave one of them out" in refused.err
    for length in ("0", "-2"):
        refused = generate("-m", "nowhere.gguf", "abc", "-n", length)
        assert refused.code == 2 and f"--max-tokens is {length}; it must be" in refused.err
    refused = generate("abc", "--thinking-budget", "-1")
    assert refused.code == 2 and "--thinking-budget is -1; it must be at least 0" in refused.err


def test_a_budget_for_a_model_that_does_not_reason_is_said(
    generate: Run, talker: str, thinker: str
) -> None:
    said = "localspec: --thinking-budget had no effect: the model did not reason\n"
    limited = ("abc", "--ignore-eos", "-n", "9", "--thinking-budget", "50")
    assert said in generate("-m", talker, *limited).err
    assert "no effect" not in generate("-m", thinker, *limited).err
    assert "no effect" not in generate("-m", thinker, *limited[:-1], "0").err


def test_a_budget_of_nothing_leaves_an_answer_alone(generate: Run, thinker: str) -> None:
    asked = ("-m", thinker, "abc", "--ignore-eos", "-n", "12", "--thinking-budget", "0", "--json")
    record = generate(*asked, "--logprobs", "0").record
    likely = [each["logprob"] is not None for each in record["logprobs"]]
    assert likely == [origin != "inserted" for origin in record["origins"]]
    assert record["thought"].strip() == ""
    assert record["text"].startswith("\n</think>\n\n")
    inserted = record["origins"].count("inserted")
    assert record["origins"][:inserted] == ["inserted"] * inserted and 0 < inserted < 12


def test_reasoning_in_a_channel_is_not_told_apart(generate: Run, tmp_path: Path) -> None:
    channels = "{# <|channel|>analysis #}" + TURNS
    asked = ("-m", str(write_tiny(tmp_path / "oss.gguf", "llama", template=channels)), "abc")
    assert generate(*asked, "-n", "2", "--json").record["thought"] is None
    for limit in (("--hide-thinking",), ("--thinking-budget", "3")):
        refused = generate(*asked, *limit)
        assert refused.code == 2 and refused.out == ""
        assert "oss.gguf writes its reasoning into a channel, which --hide-thinking" in refused.err


def test_a_text_with_inserted_tokens_is_not_audited(
    cli: Run, generate: Run, thinker: str, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    done = generate(
        "-m", thinker, "abc", "--ignore-eos", "-n", "40", "--thinking-budget", "6", "--json"
    )
    record.write_text(done.out, encoding="utf-8")
    refused = cli("audit", str(record))
    assert refused.code == 2 and "ended by --thinking-budget" in refused.err


def test_reasoning_is_switched_off_where_the_template_can(generate: Run, tmp_path: Path) -> None:
    model = str(write_tiny(tmp_path / "switch.gguf", "llama", template=QWEN3))
    prompts = {}
    for options in ((), ("--think",), ("--no-think",)):
        done = generate("-m", model, "abc", "-n", "1", "--json", *options)
        assert "no effect" not in done.err
        prompts[options] = done.record["recipe"]["prompt_token_ids"]
    assert prompts[()] == prompts["--think",] != prompts["--no-think",]


def test_where_nothing_can_be_switched_a_line_says_so(
    generate: Run, thinker: str, talker: str
) -> None:
    for model in (thinker, talker):
        done = generate("-m", model, "abc", "-n", "1", "--no-think")
        assert "localspec: --no-think has no effect: the chat template of t" in done.err
    raw = generate("-m", talker, "--raw", "abc", "-n", "1", "--hide-thinking", "--json")
    assert "nothing is known of reasoning in a text that is continued" in raw.err
    assert raw.record["thought"] is None
    assert "reasoning" not in generate("-m", talker, "abc", "-n", "1", "--hide-thinking").err


@posix
def test_a_terminal_says_that_the_model_thinks(thinker: str, tmp_path: Path) -> None:
    """On a line that is erased before anything else is written."""
    asked = ("-m", thinker, "abc", "--ignore-eos", "-n", "200", "--hide-thinking")
    # The seconds of the first line are those of a slow machine, too.
    code, shown = on_terminal("generate", *asked, "--thinking-budget", "150", "--draft", "none")
    assert code == 0
    last = shown.rindex("thinking, token ")
    assert re.match(r"thinking, token \d+\r +\r", shown[last:])
