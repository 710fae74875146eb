"""Client setup: what other programs must be told to use this server."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Tokens that an agent sends before the user has said anything: its instructions and its tools.
OWN_TOKENS = {"claude-code": 20_000, "codex": 10_000, "opencode": 10_000}
# It compacts a conversation when an answer and so many tokens are left of the context.
_MARGINS = {"claude-code": 13_000}
# What a conversation has at most that Codex has just compacted: its own words, 20,000 tokens of the
# user's messages and a summary. With a lower limit it could compact again and again.
_COMPACTED = 35_000
_LONG_MESSAGES = (
    "# compacting leaves 20,000 tokens of your messages: if they are long, take --ctx 65536\n"
)
# A context in which each of them has room to work.
USUAL_CONTEXTS = {"claude-code": 65_536, "codex": 32_768, "opencode": 32_768}
# No agent asks for longer answers than this by itself.
_LONGEST_ANSWER = 32_000
_ANY_KEY = "none"


@dataclass(frozen=True, slots=True)
class Server:
    """A server as clients see it.

    names: the models'. key: what is shown in the place of the key. reads: by the names of models
    that read more than text, what they read, as OpenRouter and others name it. contexts: by the
    names of models, the tokens of a text. embedder: the name of a model for embeddings; None: there
    is none.
    """

    url: str
    names: Sequence[str]
    key: str
    reads: Mapping[str, Sequence[str]]
    contexts: Mapping[str, int]
    embedder: str | None = None

    @property
    def model(self) -> str:
        """The first name, in quotes."""
        return json.dumps(self.names[0], ensure_ascii=False)

    def context(self, client: str, name: str = "") -> int:
        """The tokens of a text of a model, by default the first; else those of USUAL_CONTEXTS."""
        return self.contexts.get(name or self.names[0], USUAL_CONTEXTS[client])


Setup = Callable[[Server], str]


def _for_context(client: str, context: int) -> str:
    own = f"{OWN_TOKENS[client]:,}"
    return f"for a server with --ctx {context}; its instructions and tools take some {own} tokens"


def _exports(**variables: str) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _openai(server: Server) -> str:
    return f"""\
{_exports(OPENAI_BASE_URL=f"{server.url}/v1", OPENAI_API_KEY=server.key)}

from openai import OpenAI
client = OpenAI()
answer = client.chat.completions.create(
    model={server.model}, messages=[{{"role": "user", "content": "Hello!"}}]
)
print(answer.choices[0].message.content){_vectors(server, "client.embeddings.create")}"""


def _vectors(server: Server, function: str) -> str:
    """A line that asks for embeddings, if the server has a model for them."""
    if server.embedder is None:
        return ""
    return f'\nvectors = {function}(model={json.dumps(server.embedder)}, input=["Hello!"])'


def _anthropic(server: Server) -> str:
    return f"""\
{_exports(ANTHROPIC_BASE_URL=server.url, ANTHROPIC_API_KEY=server.key)}

from anthropic import Anthropic
answer = Anthropic().messages.create(
    model={server.model}, max_tokens=500, messages=[{{"role": "user", "content": "Hello!"}}]
)
print("".join(block.text for block in answer.content if block.type == "text"))"""


def _room_for_answer(context: int) -> int:
    """The tokens of a context that are left for an answer: agents else fill it with the prompt."""
    return min(max(1, context // 4), _LONGEST_ANSWER)


def too_small_for(client: str, context: int) -> str:
    """Why a client's own words alone do not fit into a context; empty where they do."""
    own, free = OWN_TOKENS.get(client), _room_for_answer(context) + _MARGINS.get(client, 0)
    if own is None or own + free < context:
        return ""
    return (
        f"{client} sends some {own:,} tokens of its own and keeps {free:,} free: a context of "
        f"{context:,} is too small for it"
    )


def claude_code_variables(url: str, name: str, key: str, context: int) -> dict[str, str]:
    """The environment of Claude Code, which asks for models of several sizes.

    context: the tokens of a text. By itself it takes far more for granted, as it does in any case
    for names that begin with `claude-`.
    """
    models = ("MODEL", "DEFAULT_OPUS_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_HAIKU_MODEL")
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": key,
        **{f"ANTHROPIC_{model}": name for model in models},
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(context),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(_room_for_answer(context)),
    }


def _claude_code(server: Server) -> str:
    context = server.context("claude-code")
    variables = claude_code_variables(server.url, server.names[0], server.key, context)
    own = server.names[0].startswith("claude-")
    ignored = (
        "# it takes no context for names that begin with claude-: use --alias\n" if own else ""
    )
    return f"""\
# {_for_context("claude-code", context)},
# and it compacts a conversation when an answer and {_MARGINS["claude-code"]:,} more are left
{ignored}{_exports(**variables, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")}
claude"""


def _codex(server: Server) -> str:
    context = server.context("codex")
    limit = context - _room_for_answer(context)
    long = "" if limit >= _COMPACTED else _LONG_MESSAGES
    return f"""\
# ~/.codex/config.toml; {_for_context("codex", context)}
{long}model = {server.model}
model_provider = "localspec"
model_context_window = {context}
model_auto_compact_token_limit = {limit}

[model_providers.localspec]
name = "localspec"
base_url = "{server.url}/v1"
wire_api = "responses"
env_key = "LOCALSPEC_API_KEY"

# and in the shell
{_exports(LOCALSPEC_API_KEY=server.key)}
codex"""


def _opencode(server: Server) -> str:
    options = {"baseURL": f"{server.url}/v1", "apiKey": server.key}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "localspec",
        "options": options,
        "models": {name: _opencode_model(server, name) for name in server.names},
    }
    settings = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"localspec": provider},
        "model": f"localspec/{server.names[0]}",
    }
    return f"""\
# opencode.json; {_for_context("opencode", server.context("opencode"))}
{json.dumps(settings, indent=2)}"""


def _opencode_model(server: Server, name: str) -> dict[str, Any]:
    """What it must know to make conversations shorter in time, and to attach images.

    It takes a model that is not described for text only, and for one without an end.
    """
    context, reads = server.context("opencode", name), server.reads.get(name)
    known = {"limit": {"context": context, "output": _room_for_answer(context)}}
    if not reads:
        return known
    return {"attachment": True, "modalities": {"input": [*reads], "output": ["text"]}, **known}


def _aider(server: Server) -> str:
    model = f"openai/{server.names[0]}"
    start = f"""\
{_exports(OPENAI_API_BASE=f"{server.url}/v1", OPENAI_API_KEY=server.key)}
aider --model {shlex.quote(model)}"""
    if "image" not in server.reads.get(server.names[0], ()):
        return start
    known = {"litellm_provider": "openai", "mode": "chat", "supports_vision": True}
    return f"""\
{start}

# .aider.model.metadata.json, in the same folder, so that it adds images
{json.dumps({model: known}, indent=2)}"""


def _ollama(server: Server) -> str:
    key = {} if server.key == _ANY_KEY else {"OLLAMA_API_KEY": server.key}
    exports = {"OLLAMA_HOST": server.url} | key
    return f"""\
# for programs without a setting for the address, start the server with --port 11434
{_exports(**exports)}

from ollama import chat{", embed" if server.embedder else ""}
answer = chat(model={server.model}, messages=[{{"role": "user", "content": "Hello!"}}])
print(answer.message.content){_vectors(server, "embed")}"""


def _curl(server: Server) -> str:
    messages = [{"role": "user", "content": "Hello!"}]
    bodies: dict[str, Any] = {"chat/completions": {"model": server.names[0], "messages": messages}}
    if server.embedder:
        bodies["embeddings"] = {"model": server.embedder, "input": ["Hello!"]}
    return "\n".join(
        f"""\
curl {server.url}/v1/{path} -H 'Authorization: Bearer {server.key}' \\
  -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"""
        for path, body in bodies.items()
    )


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


def setup(
    client: str,
    url: str,
    names: Sequence[str],
    *,
    key: bool,
    reads: Mapping[str, Sequence[str]] | None = None,
    contexts: Mapping[str, int] | None = None,
    embedder: str | None = None,
) -> str:
    """The settings of a client.

    names: the models', of which clients that cannot list several get the first. key: whether the
    server asks for one. reads, contexts, embedder: as in Server.
    """
    server = Server(url, names, key_shown(key=key), reads or {}, contexts or {}, embedder)
    settings = CLIENTS[client](server)
    if len(names) == 1 or client in _LISTING:
        return settings
    others = " or ".join(names[1:])
    return f"{settings}\n# for {others}, put that name wherever {names[0]} stands"
