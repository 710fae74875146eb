"""Foreign options and commands: those of Ollama and llama.cpp, for whoever types them by habit.

Many of llama.cpp's have several letters behind one hyphen. Taken for options of one letter, they
would mean something else: -md a model named d, -ngl so many tokens as "gl".
"""

from collections.abc import Sequence

import click

from localspec.utils.similar_names import did_you_mean

# Several names are those of different commands.
_NAMES_HERE = {
    "-c": "--ctx",
    "-cmoe": "--cpu-moe",
    "-ncmoe": "--cpu-moe",
    "-ctk": "--kv-type",
    "-ctv": "--kv-type",
    "-ctkd": "--draft-kv-type",
    "-ctvd": "--draft-kv-type",
    "-dev": "--device",
    "-devd": "--draft-device",
    "-f": "--prompts",
    "-fa": "--flash-attn",
    "-hf": "--model",
    "-md": "--draft",
    "-mg": "--device",
    "-mm": "--mmproj",
    "-ngl": "--gpu-layers",
    "-ngld": "--draft-gpu-layers",
    "-np": "--parallel",
    "-p": "--prompt --prompts --port",
    "-r": "--stop",
    "-s": "--seed",
    "-sm": "--split-mode",
    "-sys": "--system",
    "-t": "--threads",
    "-ts": "--tensor-split",
    "-ub": "--ubatch",
    "--cache-type-k": "--kv-type",
    "--cache-type-k-draft": "--draft-kv-type",
    "--cache-type-v": "--kv-type",
    "--cache-type-v-draft": "--draft-kv-type",
    "--chat-template-kwargs": "--template-option",
    "--default-chat-template-kwargs": "--template-option",
    "--device-draft": "--draft-device",
    "--draft-max": "--depth",
    "--draft-n": "--depth",
    "--effort": "--reasoning-effort",
    "--file": "--prompts",
    "--format": "--schema",
    "--gpu-layers-draft": "--draft-gpu-layers",
    "--hf-repo": "--model",
    "--json-schema": "--schema",
    "--lora-modules": "--lora",
    "--lora-scaled": "--lora",
    "--main-gpu": "--device",
    "--max-model-len": "--ctx",
    "--metrics": "--stats",
    "--mirostat-ent": "--mirostat-tau",
    "--mirostat-lr": "--mirostat-eta",
    "--mlock": "--load-mode",
    "--model-draft": "--draft",
    "--n-cpu-moe": "--cpu-moe",
    "--n-gpu-layers": "--gpu-layers",
    "--n-gpu-layers-draft": "--draft-gpu-layers",
    "--n-predict": "-n",
    "--no-mmap": "--load-mode",
    "--no-mmproj": "--mmproj",
    "--predict": "-n",
    "--prompt-cache": "--keep",
    "--reasoning": "--think",
    "--reasoning-budget": "--thinking-budget",
    "--repeat-last-n": "--penalty-window",
    "--reverse-prompt": "--stop",
    "--served-model-name": "--alias",
    "--sleep-idle-seconds": "--unload-after",
    "--slot-save-path": "--keep",
    "--spec-draft-device": "--draft-device",
    "--spec-draft-model": "--draft",
    "--spec-draft-n-max": "--depth",
    "--spec-draft-ngl": "--draft-gpu-layers",
    "--spec-draft-type-k": "--draft-kv-type",
    "--spec-draft-type-v": "--draft-kv-type",
    "--spec-type": "--draft",
    "--speculative-config": "--draft",
    "--temp": "--temperature",
    "--verbose": "--stats",
}
# Ollama's --think with a value; others are levels.
_THINK = {"true": "--think", "false": "--no-think"}
_PROMPT = "the prompt is an argument in quotes, or stdin"
_CHAT = "localspec chat is for conversations"
_IN_WORDS = {
    "-cnv": _CHAT,
    "-f": _PROMPT,
    "-i": _CHAT,
    "-p": _PROMPT,
    "--conversation": _CHAT,
    "--file": _PROMPT,
    "--interactive": _CHAT,
    "--prompt": _PROMPT,
}
# What is no option of `chat`.
_IN_CHAT = {
    **dict.fromkeys(
        (name for name, words in _IN_WORDS.items() if words == _PROMPT),
        "messages are typed in the chat; localspec generate answers one prompt",
    ),
    "--delete": "localspec chats --delete deletes conversations",
    "--export": "localspec chats --export writes a conversation",
    "--list": "localspec chats lists conversations",
}
# Options of programs that load models for which there is none here.
_NONE_HERE = {
    "--jinja": "chat templates (Jinja) are always read; leave it out",
    "--keep-alive": "localspec serve --unload-after MINUTES frees a model that is not used",
    "--lora-init-without-apply": "adapters are on in all texts; leave it out",
    "--metrics": "/metrics is always there; leave it out",
    "--multiline": "a message may always have several lines; leave it out",
    "--multiline-input": "a message may always have several lines; leave it out",
    "--no-ui": "the page is always there; leave it out",
    "--no-webui": "the page is always there; leave it out",
    "--slots": "/slots is always there; leave it out",
}
_NONE_STAYS = "a model is loaded while a command runs; Ctrl-C ends localspec serve"
_PAIRS = "-m takes a model's file as it is, and models.toml lists pairs of your own"
_COMMANDS = {
    "complete": "did you mean generate?",
    "cp": _PAIRS,
    "create": _PAIRS,
    "delete": "did you mean rm?",
    "download": "did you mean pull?",
    "info": "did you mean show?",
    "ps": _NONE_STAYS,
    "remove": "did you mean rm?",
    "search": "localspec ls --all lists the models that are known",
    "stop": _NONE_STAYS,
    "version": "did you mean --version?",
}


def command_here(name: str) -> str:
    """Return what another program's command is here, as a hint; empty if that is unknown."""
    return _COMMANDS.get(name, "")


def refuse_foreign_options(ctx: click.Context, words: Sequence[str]) -> None:
    """Raise NoSuchOption for one of several letters, and for Ollama's --think with a value.

    ctx: of the command. words: its arguments.
    """
    for word in words:
        if word == "--":
            return
        name, _, value = word.partition("=")
        if name == "--think" and value:
            raise click.NoSuchOption(word, ctx=ctx)
        is_short = len(word) > 2 and not word.startswith("--")
        if is_short and (word in _NAMES_HERE or word in _IN_WORDS):
            raise click.NoSuchOption(word, ctx=ctx)


def _named_here(option: str) -> Sequence[str]:
    """Return the options that an unknown one may have meant, some with a value."""
    name, _, value = option.partition("=")
    if name != "--think":
        return _NAMES_HERE.get(option, "").split()
    return [_THINK.get(value, f"--reasoning-effort {value}")]


def name_here(ctx: click.Context, option: str) -> str:
    """Return what an unknown option may have meant, as a hint; empty if that is unknown."""
    parameters = ctx.command.get_params(ctx)
    spelt = [name for each in parameters for name in (*each.opts, *each.secondary_opts)]
    known = [name for name in spelt if name.startswith("-")]
    is_long = option.startswith("--")
    if ctx.command.name == "chat" and option in _IN_CHAT:
        return _IN_CHAT[option]
    for name in _named_here(option):
        if name.split()[0] in known:
            return f"did you mean {name}?"
    arguments = [each.name for each in parameters if isinstance(each, click.Argument)]
    takes_prompt = "prompt" in arguments
    in_words = {**(_NONE_HERE if "--ctx" in known else {}), **(_IN_WORDS if takes_prompt else {})}
    if option in in_words:
        return in_words[option]
    if is_long and (similar := did_you_mean(option, known)):
        return similar
    if isinstance(ctx.command, click.Group):
        return "options follow a command: localspec generate -m MODEL PROMPT"
    return (
        "-- stands before a prompt that begins with a hyphen"
        if takes_prompt and not is_long
        else ""
    )
