"""Client setup: what other programs must be told to use this server."""

from collections.abc import Callable

_ANY_KEY = "none"
Setup = Callable[[str, str, str], str]


def _openai(url: str, name: str, key: str) -> str:
    return f"""\
export OPENAI_BASE_URL={url}/v1
export OPENAI_API_KEY={key}

from openai import OpenAI
client = OpenAI()
answer = client.chat.completions.create(
    model="{name}", messages=[{{"role": "user", "content": "Hello!"}}]
)
print(answer.choices[0].message.content)"""


def _anthropic(url: str, name: str, key: str) -> str:
    return f"""\
export ANTHROPIC_BASE_URL={url}
export ANTHROPIC_API_KEY={key}

from anthropic import Anthropic
answer = Anthropic().messages.create(
    model="{name}", max_tokens=500, messages=[{{"role": "user", "content": "Hello!"}}]
)
print(answer.content[0].text)"""


def _claude_code(url: str, name: str, key: str) -> str:
    return f"""\
export ANTHROPIC_BASE_URL={url}
export ANTHROPIC_AUTH_TOKEN={key}
export ANTHROPIC_MODEL={name}
export ANTHROPIC_SMALL_FAST_MODEL={name}
export ANTHROPIC_DEFAULT_HAIKU_MODEL={name}
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
claude"""


def _codex(url: str, name: str, key: str) -> str:
    return f"""\
# ~/.codex/config.toml
model = "{name}"
model_provider = "localspec"

[model_providers.localspec]
name = "localspec"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "LOCALSPEC_API_KEY"

# and in the shell
export LOCALSPEC_API_KEY={key}
codex"""


def _opencode(url: str, name: str, key: str) -> str:
    return f"""\
# opencode.json
{{
  "$schema": "https://opencode.ai/config.json",
  "provider": {{
    "localspec": {{
      "npm": "@ai-sdk/openai-compatible",
      "options": {{ "baseURL": "{url}/v1", "apiKey": "{key}" }},
      "models": {{ "{name}": {{}} }}
    }}
  }},
  "model": "localspec/{name}"
}}"""


def _aider(url: str, name: str, key: str) -> str:
    return f"""\
export OPENAI_API_BASE={url}/v1
export OPENAI_API_KEY={key}
aider --model openai/{name}"""


def _curl(url: str, name: str, key: str) -> str:
    body = f'{{"model": "{name}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'
    return f"""\
curl {url}/v1/chat/completions -H 'Authorization: Bearer {key}' \\
  -H 'Content-Type: application/json' -d '{body}'"""


CLIENTS: dict[str, Setup] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "opencode": _opencode,
    "aider": _aider,
    "openai": _openai,
    "anthropic": _anthropic,
    "curl": _curl,
}


def setup(client: str, url: str, name: str, *, key: bool) -> str:
    """The settings of a client. name: the model's. key: whether the server asks for one.

    The key itself is never shown.
    """
    return CLIENTS[client](url, name, "YOUR_KEY" if key else _ANY_KEY)
