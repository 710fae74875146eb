"""Client setup: what other programs must be told to use this server."""

import json
import shlex
from collections.abc import Callable, Sequence

# Tokens that an agent sends before the user has said anything: its instructions and its tools.
OWN_TOKENS = {"claude-code": 20_000, "codex": 10_000, "opencode": 10_000}
_ANY_KEY = "none"
Setup = Callable[[str, Sequence[str], str], str]


def _exports(**variables: str) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _openai(url: str, names: Sequence[str], key: str) -> str:
    return f"""\
{_exports(OPENAI_BASE_URL=f"{url}/v1", OPENAI_API_KEY=key)}

from openai import OpenAI
client = OpenAI()
answer = client.chat.completions.create(
    model={json.dumps(names[0])}, messages=[{{"role": "user", "content": "Hello!"}}]
)
print(answer.choices[0].message.content)"""


def _anthropic(url: str, names: Sequence[str], key: str) -> str:
    return f"""\
{_exports(ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY=key)}

from anthropic import Anthropic
answer = Anthropic().messages.create(
    model={json.dumps(names[0])}, max_tokens=500, messages=[{{"role": "user", "content": "Hello!"}}]
)
print("".join(block.text for block in answer.content if block.type == "text"))"""


def claude_code_variables(url: str, name: str, key: str) -> dict[str, str]:
    """The environment of Claude Code, which asks for models of several sizes."""
    models = ("MODEL", "DEFAULT_OPUS_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_HAIKU_MODEL")
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": key,
        **{f"ANTHROPIC_{model}": name for model in models},
    }


def _claude_code(url: str, names: Sequence[str], key: str) -> str:
    variables = claude_code_variables(url, names[0], key)
    return f"""\
# its instructions and tools take some {OWN_TOKENS["claude-code"]:,} tokens: start the server with
# --ctx 32768 or more
{_exports(**variables, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")}
claude"""


def _codex(url: str, names: Sequence[str], key: str) -> str:
    return f"""\
# ~/.codex/config.toml; its instructions and tools take some {OWN_TOKENS["codex"]:,} tokens: start
# the server with --ctx 32768 or more
model = {json.dumps(names[0])}
model_provider = "localspec"

[model_providers.localspec]
name = "localspec"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "LOCALSPEC_API_KEY"

# and in the shell
{_exports(LOCALSPEC_API_KEY=key)}
codex"""


def _opencode(url: str, names: Sequence[str], key: str) -> str:
    options = {"baseURL": f"{url}/v1", "apiKey": key}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "localspec",
        "options": options,
        "models": {name: {} for name in names},
    }
    settings = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"localspec": provider},
        "model": f"localspec/{names[0]}",
    }
    return f"""\
# opencode.json; start the server with --ctx 32768 or more
{json.dumps(settings, indent=2)}"""


def _aider(url: str, names: Sequence[str], key: str) -> str:
    return f"""\
{_exports(OPENAI_API_BASE=f"{url}/v1", OPENAI_API_KEY=key)}
aider --model {shlex.quote(f"openai/{names[0]}")}"""


def _ollama(url: str, names: Sequence[str], key: str) -> str:
    exports = {"OLLAMA_HOST": url} | ({} if key == _ANY_KEY else {"OLLAMA_API_KEY": key})
    return f"""\
# for programs without a setting for the address, start the server with --port 11434
{_exports(**exports)}

from ollama import chat
answer = chat(model={json.dumps(names[0])}, messages=[{{"role": "user", "content": "Hello!"}}])
print(answer.message.content)"""


def _curl(url: str, names: Sequence[str], key: str) -> str:
    body = json.dumps({"model": names[0], "messages": [{"role": "user", "content": "Hello!"}]})
    return f"""\
curl {url}/v1/chat/completions -H 'Authorization: Bearer {key}' \\
  -H 'Content-Type: application/json' -d {shlex.quote(body)}"""


CLIENTS: dict[str, Setup] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "opencode": _opencode,
    "aider": _aider,
    "openai": _openai,
    "anthropic": _anthropic,
    "ollama": _ollama,
    "curl": _curl,
}

# Those whose settings list all models.
_LISTING = ("opencode",)


def key_shown(*, key: bool) -> str:
    """What is shown in the place of the key, which is never shown itself."""
    return "YOUR_KEY" if key else _ANY_KEY


def setup(client: str, url: str, names: Sequence[str], *, key: bool) -> str:
    """The settings of a client.

    names: the models', of which clients that cannot list several get the first. key: whether the
    server asks for one.
    """
    settings = CLIENTS[client](url, names, key_shown(key=key))
    if len(names) == 1 or client in _LISTING:
        return settings
    others = " or ".join(names[1:])
    return f"{settings}\n# for {others}, put that name wherever {names[0]} stands"
