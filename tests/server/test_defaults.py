"""Defaults of a server: what its options say counts where a request does not say otherwise."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import templates
from fakes.command_line import localspec
from fakes.served import Served, serving
from fakes.tiny import TURNS, write_tiny

from localspec.cli.thinking_options import TemplateOptions
from localspec.server.thinking import beside

GREETING = [{"role": "user", "content": "list files"}]
# A request of each protocol, and its member for the longest answer.
REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/chat/completions": ({"messages": GREETING}, "max_tokens"),
    "/v1/completions": ({"prompt": "ls"}, "max_tokens"),
    "/completion": ({"prompt": "ls"}, "n_predict"),
    "/v1/responses": ({"input": "list files"}, "max_output_tokens"),
    "/v1/messages": ({"messages": GREETING}, "max_tokens"),
    "/api/chat": ({"messages": GREETING, "stream": False}, "num_predict"),
    "/api/generate": ({"prompt": "list files", "stream": False}, "num_predict"),
}


@pytest.fixture(scope="module")
def seeded(own_cache: None) -> Iterator[Served]:
    options = ("--temperature", "1.5", "--top-k", "7", "--repeat-penalty", "1.25", "--seed", "11")
    more = ("--threads", "1", "--parallel", "2", "--ctx", "512", "--draft", "none")
    with serving(*options, *more, "--rule", "token", "--dry-sequence-breaker", "x") as served:
        yield served


def _request(path: str, **members: Any) -> dict[str, Any]:
    body, most = REQUESTS[path]
    if path.startswith("/api/"):
        return {**body, "options": {most: 4, **members}}
    return {**body, most: 4, **members}


@pytest.mark.parametrize("path", REQUESTS)
def test_a_request_has_them_unless_it_says_otherwise(seeded: Served, path: str) -> None:
    first, again = (seeded.post(path, _request(path)).json() for _ in range(2))
    assert first["localspec"]["seed"] == again["localspec"]["seed"] == 11
    assert first["localspec"]["rule"] == "token"
    own = seeded.post(path, _request(path, seed=12)).json()
    assert own["localspec"]["seed"] == 12
    # Random, in llama-server's words.
    assert seeded.post(path, _request(path, seed=-1)).json()["localspec"]["seed"] != 11


def test_each_of_them_is_one_and_a_request_may_name_any(seeded: Served) -> None:
    params = seeded.get("/props").json()["default_generation_settings"]["params"]
    names = ("temperature", "top_k", "repeat_penalty", "seed")
    assert [params[name] for name in names] == [1.5, 7, 1.25, 11]
    body = {"prompt": "ls", "n_predict": 1}
    used = seeded.post("/completion", body).json()["generation_settings"]
    assert [used[name] for name in names] == [1.5, 7, 1.25, 11]
    own = {"temperature": 0.5, "top_k": 0, "repeat_penalty": 1, "seed": 3}
    used = seeded.post("/completion", {**body, **own}).json()["generation_settings"]
    assert [used[name] for name in names] == [0.5, 0, 1, 3]
    # What neither says is the GGUF's.
    assert used["top_p"] == params["top_p"] == pytest.approx(0.95)


def test_what_has_no_effect_is_said_at_the_start(seeded: Served) -> None:
    assert "localspec: --rule has no effect: nothing drafts" in seeded.lines


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--temperature", "-1"), "--temperature is -1"),
        (("--top-p", "0"), "--top-p is 0"),
        (("--rule", "none"), "--rule is 'none'"),
    ],
)
def test_a_wrong_one_is_refused_before_anything_is_loaded(
    arguments: tuple[str, ...], said: str
) -> None:
    done = localspec("serve", *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


# Reasoning, and other variables of the chat template.

LEVELS = (
    "{% if reasoning_effort %}{% if reasoning_effort == 'xhigh' %}{{ raise_exception('no') }}"
    "{% endif %}<{{ reasoning_effort }}>{% endif %}" + templates.STRICT
)
QUIET = "<think></think>"
CHATS = [path for path, (body, _) in REQUESTS.items() if body.get("prompt") != "ls"]


@pytest.fixture(scope="module")
def told(own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of two models, of which one has levels of reasoning."""
    folder = tmp_path_factory.mktemp("told")
    models = [folder / "levels.gguf", folder / "switch.gguf"]
    for file, template in zip(models, (LEVELS, templates.STRICT), strict=True):
        write_tiny(file, "llama", quantised=False, template=template, context=2048)
    options = ("--no-think", "--reasoning-effort", "xhigh", "--draft", "suffix", "--system", "Hm.")
    with serving(*map(str, models), *options, "--threads", "1", "--parallel", "2") as served:
        yield served


def _prompt(served: Served, model: str, **members: Any) -> str:
    body = {"model": model, "messages": GREETING, **members}
    return str(served.post("/apply-template", body).json()["prompt"])


def test_a_request_says_more_of_reasoning_than_the_server(told: Served) -> None:
    # The template refuses that level, and has the nearest one.
    assert _prompt(told, "levels").startswith("<high>")
    assert _prompt(told, "levels").endswith(QUIET)
    own = _prompt(told, "levels", reasoning_effort="low")
    assert own.startswith("<low>") and not own.endswith(QUIET)
    on = _prompt(told, "levels", enable_thinking=True)
    assert on.startswith("<high>") and not on.endswith(QUIET)
    named = _prompt(told, "levels", chat_template_kwargs={"reasoning_effort": "max"})
    assert named.startswith("<max>")
    props = told.get("/props").json()["localspec"]
    assert (props["thinking"], props["reasoning_effort"]) == (False, "xhigh")


@pytest.mark.parametrize(
    ("usual", "asked", "found"),
    [
        ({"reasoning_effort": "none"}, {"enable_thinking": True}, {"enable_thinking": True}),
        ({"reasoning_effort": "high"}, {"enable_thinking": False}, {"enable_thinking": False}),
        (
            {"reasoning_effort": "high", "enable_thinking": False},
            {"enable_thinking": True},
            {"reasoning_effort": "high", "enable_thinking": True},
        ),
        ({"thinking": False, "x": 1}, {"enable_thinking": True}, {"x": 1, "enable_thinking": True}),
        ({"enable_thinking": True}, {"thinking": False}, {"thinking": False}),
        (
            {"reasoning_effort": "none", "enable_thinking": False},
            {"reasoning_effort": "low", "enable_thinking": True},
            {"reasoning_effort": "low", "enable_thinking": True},
        ),
        ({"thinking": False}, {"x": 1}, {"thinking": False, "x": 1}),
        ({"enable_thinking": False}, {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
    ],
)
def test_a_requests_switch_replaces_all_that_says_the_opposite(
    usual: dict[str, Any], asked: dict[str, Any], found: dict[str, Any]
) -> None:
    assert beside(usual, asked) == found
    assert beside(usual, beside(usual, asked)) == found


@pytest.mark.parametrize("path", CHATS)
def test_answers_of_all_protocols_have_it(told: Served, path: str) -> None:
    """The prompt says it, which is longer where reasoning is closed."""

    def read(**members: Any) -> int:
        body = {"model": "levels", **_request(path), **members}
        usage = told.post(path, body).json()
        return int(usage["timings"]["prompt_n"] + usage["timings"]["cache_n"])

    switches = {
        "/v1/responses": {"reasoning": {"effort": "high"}},
        "/v1/messages": {"output_config": {"effort": "high"}},
        "/api/chat": {"think": "high"},
        "/api/generate": {"think": "high"},
    }
    own = switches.get(path, {"reasoning_effort": "high"})
    assert read() - read(**own) == len("</think>")


@pytest.mark.parametrize("path", CHATS)
def test_a_chat_without_a_system_prompt_has_the_servers(told: Served, path: str) -> None:
    owns = {
        "/v1/responses": {"instructions": "HmmHmm."},
        "/v1/messages": {"system": "HmmHmm."},
        "/api/generate": {"system": "HmmHmm."},
    }
    messages = {"messages": [{"role": "system", "content": "HmmHmm."}, *GREETING]}

    def read(**members: Any) -> int:
        body = {"model": "levels", **_request(path), **members}
        found = told.post(path, body).json()["timings"]
        return int(found["prompt_n"] + found["cache_n"])

    assert read(**owns.get(path, messages)) - read() == len("HmmHmm.") - len("Hm.")
    empty = {name: "" for name in owns.get(path, {})}
    silent = {"messages": [{"role": "system", "content": ""}, *GREETING]}
    assert read(**(empty or silent)) == read()


# The protocols that have system messages behind a question, and their member for messages.
REMINDED = {
    "/v1/responses": "input",
    "/v1/chat/completions": "messages",
    "/v1/messages": "messages",
    "/api/chat": "messages",
}


@pytest.mark.parametrize("path", REMINDED)
def test_a_later_system_message_is_no_system_prompt(told: Served, path: str) -> None:
    def read(system: str) -> int:
        role = "developer" if path == "/v1/responses" else "system"
        own = [{"role": role, "content": system}] if system else []
        messages = [*own, *GREETING, {"role": "system", "content": "Now."}, *GREETING]
        body = {"model": "levels", **_request(path), REMINDED[path]: messages}
        found = told.post(path, body).json()["timings"]
        return int(found["prompt_n"] + found["cache_n"])

    assert read("HmmHmm.") - read("") == len("HmmHmm.") - len("Hm.")


def test_the_servers_system_prompt_is_first_and_only_where_there_is_none(told: Served) -> None:
    def prompt(*roles: str) -> str:
        messages = [{"role": role, "content": f"<{role}>"} for role in roles]
        return str(told.post("/apply-template", {"messages": messages}).json()["prompt"])

    assert prompt("user").index("Hm.") < prompt("user").index("<user>")
    assert "Hm." not in prompt("developer", "user") + prompt("system", "user")
    later = prompt("user", "system", "user")
    assert later.index("Hm.") < later.index("<user>") < later.index("<system>")
    assert told.get("/props").json()["localspec"]["system"] == "Hm."


def test_of_several_models_each_is_told_what_it_can_follow(told: Served) -> None:
    assert not [line for line in told.lines if "only switches" in line or "no effect" in line]
    assert _prompt(told, "switch").endswith(QUIET)
    assert not [line for line in told.lines if "no effect" in line]


def test_a_server_that_lets_models_think_does_so_for_anthropics_clients(
    own_cache: None, tmp_path: Path
) -> None:
    model = tmp_path / "switch.gguf"
    write_tiny(model, "llama", quantised=False, template=templates.STRICT, context=512)
    counted = {}
    for switch in ("--think", "--no-think"):
        with serving(str(model), switch, "--threads", "1", "--draft", "none") as served:
            body, _ = REQUESTS["/v1/messages"]
            asked = served.post("/v1/messages/count_tokens", body)
            counted[switch] = asked.json()["input_tokens"]
            silent = served.post("/v1/messages/count_tokens", {**body, "system": ""})
            assert silent.json() == asked.json()  # an empty system prompt is none
    assert counted["--no-think"] > counted["--think"]


def test_what_a_model_cannot_follow_is_said_at_the_start(own_cache: None, tmp_path: Path) -> None:
    model = tmp_path / "plain.gguf"
    write_tiny(model, "llama", quantised=False, template=TURNS, context=512)
    options = ("--no-think", "--template-option", "style=dry", "--threads", "1")
    with serving(str(model), *options, "--draft", "none") as served:
        assert served.get("/health").status_code == 200
        its = "the chat template of plain.gguf"
        assert (
            f"localspec: --no-think has no effect: {its} has no switch for reasoning"
            in served.lines
        )
        said = f"localspec: --template-option style has no effect: {its} does not read style"
        assert said in served.lines


def test_a_template_that_cannot_be_read_reads_no_variables() -> None:
    told = TemplateOptions(others={"style": "dry"})
    assert [*told.without_effect("{% if x %}broken", "its template")] == [
        "--template-option style has no effect: its template does not read style"
    ]
