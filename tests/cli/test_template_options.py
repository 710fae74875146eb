"""What the command line tells a chat template: how much to reason, and variables by name."""

from pathlib import Path

import pytest
from fakes.command_line import Run
from fakes.templates import QWEN3, R1
from fakes.tiny import TURNS, write_tiny

pytestmark = pytest.mark.usefixtures("bare_environment")

# As gpt-oss: it knows levels, and has no switch.
LEVELS = "{% if reasoning_effort %}Reasoning: {{ reasoning_effort }}\n{% endif %}" + TURNS
STYLED = "{{ style }}{{ year + 1 if year }}" + TURNS


@pytest.fixture
def leveled(tmp_path: Path) -> str:
    return str(write_tiny(tmp_path / "leveled.gguf", "llama", template=LEVELS))


def prompt_of(generate: Run, model: str, *options: str) -> list[int]:
    done = generate("-m", model, "abc", "-n", "1", "--json", *options)
    assert done.code == 0 and "no effect" not in done.err and "only switches" not in done.err
    found: list[int] = done.record["recipe"]["prompt_token_ids"]
    return found


def raw(generate: Run, model: str, text: str) -> list[int]:
    done = generate("-m", model, text, "--raw", "-n", "1", "--json")
    found: list[int] = done.record["recipe"]["prompt_token_ids"]
    return found


def test_a_level_of_reasoning_reaches_the_template(generate: Run, leveled: str) -> None:
    plain = prompt_of(generate, leveled)
    low = prompt_of(generate, leveled, "--reasoning-effort", "low")
    high = prompt_of(generate, leveled, "--template-option", "reasoning_effort=high")
    assert low[-len(plain) + 1 :] == plain[1:] and len(low) > len(plain)
    assert low != high and len(low) > len(plain) < len(high)


def test_a_level_that_the_template_refuses_names_those_that_it_takes(
    generate: Run, tmp_path: Path
) -> None:
    picky = "{% if reasoning_effort not in ('low', 'max') %}{{ raise_exception('no') }}{% endif %}"
    model = str(write_tiny(tmp_path / "picky.gguf", "llama", template=picky + LEVELS))
    prompt_of(generate, model, "--reasoning-effort", "max")
    done = generate("-m", model, "abc", "-n", "1", "--reasoning-effort", "xhigh")
    assert done.code == 2
    assert "takes no reasoning_effort xhigh; it takes low, max\n" in done.err
    no = "{{ raise_exception('no') }}"
    refused = str(write_tiny(tmp_path / "refused.gguf", "llama", template=no))
    done = generate("-m", refused, "abc", "-n", "1", "--reasoning-effort", "xhigh")
    assert done.code == 2 and "it takes" not in done.err


def test_with_a_switch_alone_a_level_is_on_or_off(generate: Run, tmp_path: Path) -> None:
    model = str(write_tiny(tmp_path / "switch.gguf", "llama", template=QWEN3))
    off = prompt_of(generate, model, "--no-think")
    assert prompt_of(generate, model, "--reasoning-effort", "none") == off
    assert prompt_of(generate, model, "--template-option", "enable_thinking=false") == off
    assert prompt_of(generate, model) != off
    done = generate("-m", model, "abc", "-n", "1", "--reasoning-effort", "low")
    its = "the chat template of switch.gguf knows no levels of it"
    assert f"localspec: --reasoning-effort low only switches reasoning on: {its}\n" in done.err


def test_variables_are_json_or_texts(generate: Run, tmp_path: Path) -> None:
    model = str(write_tiny(tmp_path / "styled.gguf", "llama", template=STYLED))
    plain = prompt_of(generate, model, "--template-option", "style=")
    styled = ("--template-option", "style=x y=z", "--template-option", "year=6")
    found = prompt_of(generate, model, *styled)
    assert len(found) > len(plain)
    assert found == prompt_of(generate, model, "--template-option", "style=x y=z7")
    assert prompt_of(generate, model, "--template-option", 'style="NaN"') == prompt_of(
        generate, model, "--template-option", "style=NaN"
    )


def test_the_way_out_is_named_where_one_has_no_effect(
    generate: Run, leveled: str, tmp_path: Path
) -> None:
    thinker = str(write_tiny(tmp_path / "r1.gguf", "llama", template=R1))
    talker = str(write_tiny(tmp_path / "talker.gguf", "llama", template=TURNS))

    def said(model: str, *options: str) -> str:
        done = generate("-m", model, "abc", "-n", "1", *options)
        [line] = [each for each in done.err.splitlines() if "no effect" in each]
        return line.removeprefix("localspec: ")

    off = "--no-think has no effect: the chat template of"
    switch = "has no switch for reasoning"
    assert said(leveled, "--no-think") == (
        f"{off} leveled.gguf {switch}; --reasoning-effort low makes it short"
    )
    assert said(thinker, "--no-think") == (
        f"{off} r1.gguf {switch}; --thinking-budget 0 ends it at once"
    )
    assert said(talker, "--no-think") == f"{off} talker.gguf {switch}"
    assert said(talker, "--reasoning-effort", "low") == (
        "--reasoning-effort low has no effect: the chat template of talker.gguf knows no levels "
        "of reasoning"
    )
    assert said(talker, "--template-option", "style=dry") == (
        "--template-option style has no effect: the chat template of talker.gguf does not read "
        "style"
    )
    assert said(talker, "--raw", "--template-option", "style=dry") == (
        "--template-option has no effect: a text is continued; --chat asks the model"
    )
    given = tmp_path / "given.jinja"
    given.write_text(LEVELS)
    assert "the chat template of --chat-template has no switch" in said(
        talker, "--no-think", "--chat-template", str(given)
    )


def test_a_text_that_was_told_something_is_audited(
    cli: Run, generate: Run, leveled: str, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    told = ("--reasoning-effort", "high", "--template-option", "bos_token=x")
    done = generate("-m", leveled, "abc", "--ignore-eos", "-n", "9", "--json", *told)
    record.write_text(done.out, encoding="utf-8")
    audited = cli("audit", str(record))
    assert audited.code == 0 and audited.out.startswith("9 of 9 tokens are what the seed gives")


@pytest.mark.parametrize("command", ["generate", "chat", "serve"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--reasoning-effort", "much"), "--reasoning-effort is 'much'; it must be one of none,"),
        (("--template-option", "style"), "--template-option is 'style'; it must be NAME=VALUE"),
        (("--template-option", "=x"), "--template-option is '=x'; it must be NAME=VALUE"),
        (("--template-option", "tools=[]"), "--template-option is 'tools=[]'; tools are not"),
    ],
)
def test_a_wrong_one_is_one_line(
    cli: Run, command: str, options: tuple[str, ...], said: str
) -> None:
    done = cli(command, *options)
    assert done.code == 2 and done.err.count("\n") == 1
    assert f"localspec: error: {said}" in done.err


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--think=low", "did you mean --reasoning-effort low?"),
        ("--think=false", "did you mean --no-think?"),
        ("--think=true", "did you mean --think?"),
        ("--effort", "did you mean --reasoning-effort?"),
        ("--reasoning-budget", "did you mean --thinking-budget?"),
        ("--chat-template-kwargs", "did you mean --template-option?"),
    ],
)
def test_other_programs_have_other_names(cli: Run, word: str, said: str) -> None:
    for command in ("generate", "chat", "serve"):
        done = cli(command, word)
        assert done.code == 2 and done.err.count("\n") == 1
        assert said in done.err
