"""The settings that are printed for clients, followed to the letter."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest
from fakes.command_line import localspec
from fakes.projectors import tiny_projector
from fakes.served import Served, serving, wait_for
from fakes.tiny import write_tiny

from localspec.server.address import Address
from localspec.server.client_setup import CLIENTS, setup

NAME = "terminal-9m-q8_0"
# A name that would break what is not quoted.
ODD = 'it\'s "my" model'


@pytest.fixture
def printed(served: Served) -> dict[str, str]:
    return {client: setup(client, served.url, [NAME], key=False) for client in CLIENTS}


def shell(script: str) -> str:
    """What a script prints; it must not fail."""
    clean = {name: value for name, value in os.environ.items() if "API" not in name}
    done = subprocess.run(
        ["sh", "-eu", "-c", script], env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(text: str) -> str:
    """What the second part of a printed text prints, in the environment of the first."""
    exports, _, code = text.partition("\n\n")
    return shell(f"{exports}\n{sys.executable} - <<'END'\n{code}\nEND\n")


@pytest.mark.slow
def test_what_is_printed_works(printed: dict[str, str], served: Served) -> None:
    answer = json.loads(shell(printed["curl"]))
    assert answer["choices"][0]["message"]["content"]
    for client in ("openai", "anthropic", "ollama"):
        assert len(python(printed[client])) > 1


def test_codex_finds_the_server(printed: dict[str, str], served: Served) -> None:
    file, _, in_the_shell = printed["codex"].partition("\n# and in the shell\n")
    settings = tomllib.loads(file)
    provider = settings["model_providers"][settings["model_provider"]]
    assert provider["wire_api"] == "responses"
    assert f"export {provider['env_key']}=" in in_the_shell
    body = {"model": settings["model"], "input": "ls", "max_output_tokens": 2, "stream": True}
    answer = httpx.post(f"{provider['base_url']}/responses", json=body, timeout=60)
    assert "response.incomplete" in answer.text


def test_opencode_finds_the_server(printed: dict[str, str], served: Served) -> None:
    settings = json.loads(printed["opencode"].partition("\n")[2])
    name, _, model = settings["model"].partition("/")
    provider = settings["provider"][name]
    assert model in provider["models"]
    body = {"model": model, "messages": [{"role": "user", "content": "ls"}], "max_tokens": 2}
    url = f"{provider['options']['baseURL']}/chat/completions"
    assert httpx.post(url, json=body, timeout=60).status_code == 200


def test_claude_code_and_aider_find_the_server(printed: dict[str, str], served: Served) -> None:
    variables = shell(printed["claude-code"].rpartition("\nclaude")[0] + "\nenv")
    found = dict(line.partition("=")[::2] for line in variables.splitlines() if "=" in line)
    models = {value for name, value in found.items() if name.endswith("_MODEL")}
    assert models == {NAME}
    body = {"model": NAME, "max_tokens": 2, "messages": [{"role": "user", "content": "ls"}]}
    given = {"Authorization": f"Bearer {found['ANTHROPIC_AUTH_TOKEN']}"}
    url = f"{found['ANTHROPIC_BASE_URL']}/v1/messages?beta=true"
    assert httpx.post(url, json=body, headers=given, timeout=60).status_code == 200
    assert f"aider --model openai/{NAME}" in printed["aider"]
    base = printed["aider"].partition("OPENAI_API_BASE=")[2].partition("\n")[0]
    assert httpx.get(f"{base}/models", timeout=60).json()["data"][0]["id"] == NAME


def test_what_is_said_at_the_start(served: Served) -> None:
    """The command that prints the settings of clients is the one for this server."""
    (line,) = [line for line in served.lines if "settings of other clients" in line]
    command = line.partition("clients: ")[2].partition(" --setup")[0].split()
    done = localspec(*command[1:], "--setup", "codex")
    known = {NAME: 1024}
    assert done.out == f"{setup('codex', served.url, [NAME], key=False, contexts=known)}\n"
    (claude,) = [line for line in served.lines if "Claude Code: " in line]
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS=1024 " in claude
    assert f"ANTHROPIC_BASE_URL={served.url}" in claude
    assert f"ANTHROPIC_DEFAULT_HAIKU_MODEL={NAME}" in claude
    (agents,) = [line for line in served.lines if "agents (claude-code, codex" in line]
    assert agents.endswith(
        "send 10,000 tokens and more of their own and keep room for an answer: 1,024 are too few"
    )


def test_the_context_of_a_server_is_known_without_ctx_and_with_rotations(tmp_path: Path) -> None:
    """By the command that it prints; and an agent that it is too small for is named."""
    model = str(write_tiny(tmp_path / "long.gguf", "llama", context=40_000))
    rotated = ("--rope-scaling", "yarn", "--rope-scale", "2")
    for asked, window, agents in (
        ((), 8_192, "claude-code, codex, opencode"),
        (("--ctx", "32768"), 32_768, "claude-code"),
        (("--ctx", "49152", *rotated), 49_152, ""),
    ):
        with serving(model, "--draft", "none", *asked) as served:
            last = f"agents ({agents}) send " if agents else "other clients: "
            wait_for(lambda: any(last in line for line in served.lines))  # noqa: B023
            (line,) = [line for line in served.lines if "other clients: " in line]
        command = shlex.split(line.partition("clients: ")[2].partition(" --setup")[0])
        printed = localspec(*command[1:], "--setup", "codex").out
        settings = tomllib.loads(printed.partition("\n# and in")[0])
        assert settings["model_context_window"] == window


@pytest.mark.parametrize(
    ("context", "answer"), [(None, None), (2_048, 512), (65_536, 16_384), (262_144, 32_000)]
)
def test_agents_are_told_how_long_a_text_may_be(context: int | None, answer: int | None) -> None:
    """Where that is not known, as long as they need."""
    known = {} if context is None else {NAME: context, "other": 4096}

    def told(client: str) -> str:
        return setup(client, "http://a", [NAME, "other"], key=False, contexts=known)

    codex = tomllib.loads(told("codex").partition("\n# and in")[0])
    window = codex["model_context_window"]
    assert window == (context or 32_768)
    assert window - codex["model_auto_compact_token_limit"] == (answer or 8_192)
    models = json.loads(told("opencode").partition("\n")[2])["provider"]["localspec"]["models"]
    assert models[NAME]["limit"] == {"context": window, "output": answer or 8_192}
    assert models["other"]["limit"]["context"] == (4_096 if known else 32_768)
    variables = shell(told("claude-code").partition("\nclaude")[0] + "\nenv")
    found = dict(line.partition("=")[::2] for line in variables.splitlines())
    assert found["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == str(context or 65_536)
    # Below 100,000 tokens it warns of that one, and takes it for 100,000.
    assert "CLAUDE_CODE_AUTO_COMPACT_WINDOW" not in found
    assert found["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == str(answer or 16_384)


@pytest.mark.parametrize(("context", "is_told"), [(32_768, True), (65_536, False)])
def test_codex_is_told_which_context_long_messages_take(context: int, is_told: bool) -> None:
    """Where what is left of a conversation is above its limit, it would compact without end."""
    settings = setup("codex", "http://a", [NAME], key=False, contexts={NAME: context})
    limit = tomllib.loads(settings.partition("\n# and in")[0])["model_auto_compact_token_limit"]
    assert (limit < 35_000, "take --ctx 65536" in settings) == (is_told, is_told)


def test_the_context_is_that_of_the_server_and_none_that_the_model_does_not_read(
    tmp_path: Path,
) -> None:
    def window(*asked: str) -> int:
        printed = localspec("serve", *asked, "--setup", "codex").out
        return int(tomllib.loads(printed.partition("\n# and in")[0])["model_context_window"])

    long = str(write_tiny(tmp_path / "long.gguf", "llama", context=40_000))
    assert (window(), window("--ctx", "1024"), window("--ctx", "99999")) == (2048, 1024, 2048)
    assert window("--ctx", "99999", "--rope-scaling", "yarn", "--rope-scale", "64") == 99_999
    assert (window(long), window(long, "--ctx", "20000")) == (32_768, 20_000)
    assert window("qwen3-8b", "--ctx", "20000") == 20_000  # known, and not here
    assert window("qwen3-8b", "--ctx", "65536") == 40_960
    assert window("user/repo", "--ctx", "65536") == 65_536  # nothing is known of it
    for rotation in ("--rope-scale", "2"), ("--rope-freq-base", "50000"):
        assert window("--ctx", "3000", *rotation) == 3000
    assert "MAX_CONTEXT_TOKENS=40000\n" in localspec("serve", long, "--setup", "claude-code").out


def test_a_context_that_an_agent_fills_by_itself_is_told() -> None:
    small = (
        "codex sends some 10,000 tokens of its own and keeps 512 free: "
        "a context of 2,048 is too small for it, "
    )
    asked = ("serve", "--setup", "codex")
    # No context of this model is large enough.
    for given in (), ("--ctx", "2048"), ("--ctx", "999999"):
        assert localspec(*asked, *given).err == f"localspec: {small}serve another model\n"
    larger = f"localspec: {small}give a larger --ctx\n"
    assert localspec(*asked, "--ctx", "2048", "--rope-scale", "64").err == larger
    asked = ("serve", "qwen3-8b", "--setup")
    assert localspec(*asked, "codex", "--ctx", "2048").err == larger
    assert localspec(*asked, "codex", "--ctx", "32768").err == ""
    claude = localspec(*asked, "claude-code").err
    assert claude.endswith(
        "sends some 20,000 tokens of its own and keeps 23,240 free: a context of 40,960 is too "
        "small for it, serve another model\n"
    )
    asked = ("serve", "user/repo", "--setup")
    claude = localspec(*asked, "claude-code", "--ctx", "32768").err
    assert "a context of 32,768 is too small for it, give a larger --ctx\n" in claude
    assert localspec(*asked, "claude-code", "--ctx", "49152").err == ""
    assert localspec("serve", "--setup", "curl").err == ""


@pytest.mark.parametrize("context", ["-5", "0", "1"])
def test_no_settings_for_a_context_that_no_server_has(context: str) -> None:
    done = localspec("serve", "--setup", "codex", "--ctx", context)
    assert (done.code, done.out) == (2, "") and f"--ctx is {context}; it must be" in done.err


def test_a_name_for_which_claude_code_takes_no_context() -> None:
    told = "# it takes no context for names that begin with claude-: use --alias\n"
    assert told in setup("claude-code", "http://a", ["claude-x"], key=False)
    assert told not in setup("claude-code", "http://a", ["x-claude-"], key=False)


def test_a_name_of_any_characters_is_one_for_codex() -> None:
    text = setup("codex", "http://a", ["\U0001f999 é"], key=False)
    assert tomllib.loads(text.partition("\n# and in")[0])["model"] == "\U0001f999 é"


@pytest.mark.parametrize("client", list(CLIENTS))
def test_odd_names_and_keys(client: str) -> None:
    text = setup(client, "http://127.0.0.1:1", [ODD], key=True)
    assert "YOUR_KEY" in text
    if client in ("curl", "aider", "claude-code"):
        command = {"curl": "curl() { printf '%s' \"$*\"; }", "aider": "aider() { echo $*; }"}
        said = shell(f"{command.get(client, 'claude() { echo $ANTHROPIC_MODEL; }')}\n{text}\n")
        assert ODD in (said if client != "curl" else json.loads(said.partition("-d ")[2])["model"])
    elif client == "codex":
        assert tomllib.loads(text.partition("\n# and in")[0])["model"] == ODD
    elif client == "opencode":
        assert ODD in json.loads(text.partition("\n")[2])["provider"]["localspec"]["models"]
    else:
        compile(text.partition("\n\n")[2], client, "exec")


@pytest.mark.parametrize("client", list(CLIENTS))
def test_clients_are_told_what_models_read(client: str) -> None:
    """Those that ask for it; of models that read text only nothing is said."""
    names, reads = ["eye", "words"], {"eye": ["text", "image", "audio"]}
    text = setup(client, "http://127.0.0.1:1", names, key=False, reads=reads)
    if client == "opencode":
        models = json.loads(text.partition("\n")[2])["provider"]["localspec"]["models"]
        modalities = {"input": reads["eye"], "output": ["text"]}
        limit = {"limit": {"context": 32_768, "output": 8_192}}
        seeing = {"attachment": True, "modalities": modalities}
        assert models == {"eye": {**seeing, **limit}, "words": limit}
    elif client == "aider":
        file = text.partition("metadata.json")[2].partition("\n")[2].partition("\n#")[0]
        assert json.loads(file)["openai/eye"]["supports_vision"]
        assert list(json.loads(file)) == ["openai/eye"]
    else:
        assert text == setup(client, "http://127.0.0.1:1", names, key=False)
    for others in ([*names][::-1], ["ear", "words"]):
        heard = {"ear": ["text", "audio"]}
        if client == "aider":
            assert "vision" not in setup(client, "http://a", others, key=False, reads=heard)


def test_what_a_model_reads_is_found_beside_it(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "a.gguf", "llama", quantised=False)
    projector = tmp_path / "eyes" / "mmproj-F16.gguf"
    projector.parent.mkdir()
    projector.symlink_to(tiny_projector("llama"))
    known = ("serve", str(model), "--setup", "opencode")
    assert "attachment" not in localspec(*known).out
    told = localspec(*known, "--mmproj", str(projector)).out
    assert '"modalities": {\n' in told and '"image"\n' in told
    (tmp_path / "mmproj-a.gguf").symlink_to(tiny_projector("llama"))
    assert localspec(*known).out == told
    assert "attachment" not in localspec(*known, "--mmproj", "none").out


@pytest.mark.parametrize("client", list(CLIENTS))
def test_several_models(client: str) -> None:
    """They are all listed, or a comment says how to ask for those that are not."""
    text = setup(client, "http://127.0.0.1:1", ["first", "second", "third"], key=False)
    settings, _, comment = text.partition("\n# for ")
    if client == "opencode":
        found = json.loads(settings.partition("\n")[2])
        assert list(found["provider"]["localspec"]["models"]) == ["first", "second", "third"]
        assert found["model"] == "localspec/first" and not comment
    else:
        assert "second" not in settings
        assert comment == "second or third, put that name wherever first stands"
        assert settings == setup(client, "http://127.0.0.1:1", ["first"], key=False)


def test_the_command_for_several_models() -> None:
    known = ("serve", "qwen3-8b", "smollm2-1.7b", "--setup")
    done = localspec(*known, "opencode")
    assert {"qwen3-8b", "smollm2-1.7b"} <= set(done.out.split('"'))
    short = (
        "sends some 10,000 tokens of its own and keeps 512 free: a context of 2,048 is too small"
    )
    lines = localspec(*known, "codex", "--ctx", "2048").err.splitlines()
    assert [line.partition(f": codex {short}")[0] for line in lines] == [
        "localspec: qwen3-8b",
        "localspec: smollm2-1.7b",
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qwen3-8b", ""),  # known, and not here
        ("user/repo:Q8_0", ""),
        ("quen3-8b", "there is no model 'quen3-8b'; did you mean qwen3-8b"),
        ("nowhere/model.gguf", "there is no model file nowhere/model.gguf"),
    ],
)
def test_a_name_that_means_no_model_is_told(name: str, said: str) -> None:
    done = localspec("serve", name, "--setup", "curl")
    assert done.code == 0 and done.out.startswith("curl ")
    assert said in done.err and bool(done.err) is bool(said)
    assert localspec("serve", name, "--alias", "x", "--setup", "curl").err == ""


def test_a_key_is_never_shown() -> None:
    done = localspec("serve", "--setup", "curl", LOCALSPEC_API_KEY="secret")
    assert "YOUR_KEY" in done.out and "secret" not in done.out


# A server that listens at all addresses.


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("192.168.1.7", "http://192.168.1.7:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),
        ("::", "http://[::1]:8080"),
    ],
)
def test_an_address_is_one_that_clients_can_use(
    host: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ["192.168.1.7", "fd00::7"]
    monkeypatch.setattr("localspec.server.address.own_addresses", lambda: own)
    found = Address(host, key="k")
    everywhere = host in ("0.0.0.0", "::")
    # At 0.0.0.0 no address of IPv6 answers.
    known = {"0.0.0.0": "http://192.168.1.7:8080"}
    known["::"] = f"{known['0.0.0.0']} or http://[fd00::7]:8080"
    others = known.get(host, "")
    assert (found.url, found.others) == (url, others)
    own.clear()
    assert found.others == ("port 8080 at any address of this machine" if everywhere else "")


def test_a_server_for_others_says_where_they_reach_it() -> None:
    options = ("--host", "0.0.0.0", "--threads", "1", "--draft", "none")
    with serving(*options, LOCALSPEC_API_KEY="k") as served:
        assert served.url.startswith("http://127.0.0.1:")
        assert served.get("/health").status_code == 200
        [line] = [each for each in served.lines if "other machines" in each]
        port = served.url.rpartition(":")[2]
        assert line.startswith("localspec: other machines reach it at ") and port in line
        assert not [each for each in served.lines if "//0.0.0.0" in each]


def test_settings_for_another_machine_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_API_KEY", "k")
    done = localspec("serve", "--host", "0.0.0.0", "--setup", "codex")
    assert 'base_url = "http://127.0.0.1:8080/v1"' in done.out and "0.0.0.0" not in done.out
    assert "localspec: on another machine it is " in done.err
    assert "in place of http://127.0.0.1:8080" in done.err
