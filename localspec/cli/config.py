"""`localspec config`: what options are by default, where that is set, and changing it."""

import os
from collections.abc import Callable, Mapping

import click

from localspec.cli.config_edit import with_value
from localspec.cli.config_models import checked_drafters, checked_model
from localspec.cli.output import Output
from localspec.cli.settings import SETTINGS, Found, Settings, config_file
from localspec.cli.table import table_text
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.paths import real_path, write_atomically
from localspec.utils.similar_names import did_you_mean
from localspec.utils.toml_file import read_text

_ACTIONS = ("path", "set", "unset")
_CHECKED: Mapping[str, Callable[[str], tuple[str, str | None]]] = {
    "model": checked_model,
    "draft": checked_drafters,
}


@click.command(context_settings={"ignore_unknown_options": True})  # as -1 is a value
@click.argument("action", required=False, metavar=f"[{'|'.join(_ACTIONS)}]")
@click.argument("name", required=False, metavar="[SETTING]")
@click.argument("value", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not a table.")
def config(*, action: str | None, name: str | None, value: str | None, as_json: bool) -> None:
    """Show the values that options have by default, and where each value is set.

    The first of these that gives a value counts: the option on the command line, the variable
    LOCALSPEC_NAME, config.toml, localspec's own default.

    \b
    localspec config                 shows all settings
    localspec config path            prints the file's name
    localspec config set threads 4   writes it into the file
    localspec config unset threads   removes it there

    \b
    SETTING is model, draft, ctx, threads, ubatch, kv_type, draft_kv_type, flash_attn, one that
    says where models run: gpu_layers, rpc, device, split_mode, tensor_split, cpu_moe, load_mode,
    draft_device, draft_gpu_layers; or one for longer contexts: rope_scaling, rope_scale,
    rope_freq_base, yarn_orig_ctx, draft_rope_scale.
    """
    output = Output()
    match action:
        case None:
            _show(output, as_json=as_json)
        case "path":
            output.data(f"{config_file()}\n")
        case "set" | "unset":
            _change(_setting(name), _new_value(action, value), output)
        case _:
            raise InvalidValueError(
                f"there is no action {action!r}; choose {', '.join(_ACTIONS)}, or none to see all"
            )


def _show(output: Output, *, as_json: bool) -> None:
    settings = Settings()
    found = {name: settings.find(name) for name in SETTINGS} | {"home": _home()}
    if as_json:
        records = {name: {"value": each.value, "from": each.source} for name, each in found.items()}
        output.record({"file": str(settings.file), "settings": records})
        return
    rows = [
        (name, str(SETTINGS[name].default if each.value is None else each.value), each.source)
        for name, each in found.items()
    ]
    output.data(table_text(("setting", "value", "from"), rows))
    output.note(
        f"the file is {settings.file}; localspec config set NAME VALUE changes it; a variable "
        "LOCALSPEC_NAME comes before it, and an option of a command (--threads) before both"
    )


def _home() -> Found:
    """Return the folder of localspec's own files, which only a variable changes."""
    source = "LOCALSPEC_HOME" if os.environ.get("LOCALSPEC_HOME") else "default"
    return Found(str(config_file().parent), source)


def _change(name: str, text: str | None, output: Output) -> None:
    """Write the value of a setting into the file, or remove it there (None)."""
    file = real_path(config_file())  # what a link leads to, which stays a link
    value = None if text is None else SETTINGS[name].parsed(text, f"the value of {name}")
    problem = None
    if name in _CHECKED and value is not None:
        value, problem = _CHECKED[name](str(value))
    variable = SETTINGS[name].in_variable()
    edited = with_value(read_text(file), name, value, str(file))
    try:
        write_atomically(file, edited)
    except OSError as error:
        instead = f"set {SETTINGS[name].variable}, or " if value is not None else ""
        raise LocalspecError(
            f"{file} cannot be written: {error.strerror}; {instead}let LOCALSPEC_HOME name a "
            "folder that can be written"
        ) from error
    found = variable or Found(value, "default" if value is None else config_file().name)
    shown = SETTINGS[name].default if found.value is None else found.value
    but = f", but {problem}" if problem else ""
    output.note(f"{name} is {shown} now ({found.source}){but}")


def _setting(name: str | None) -> str:
    if name == "home":
        raise InvalidValueError("home is set by the variable LOCALSPEC_HOME alone")
    if name not in SETTINGS:
        hint = did_you_mean(name or "", SETTINGS, most=1) or f"choose {', '.join(SETTINGS)}"
        what = f"there is no setting {name!r}" if name else "no setting is named"
        raise InvalidValueError(f"{what}; {hint}")
    return name


def _new_value(action: str, value: str | None) -> str | None:
    if (value is None) != (action == "unset"):
        example = "set threads 4" if action == "set" else "unset threads"
        raise InvalidValueError(f"localspec config {action} is written as: config {example}")
    return value
