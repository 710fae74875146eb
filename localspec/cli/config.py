"""`localspec config`: what options are by default, where that is set, and changing it."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import click

from localspec.cli.config_edit import with_value
from localspec.cli.config_models import checked_drafters, checked_model
from localspec.cli.output import Output
from localspec.cli.settings import SETTINGS, Found, Settings, Value, config_file
from localspec.cli.table import table_text
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.paths import real_path, write_atomically
from localspec.utils.similar_names import did_you_mean
from localspec.utils.toml_file import read_text

_ACTIONS = ("path", "get", "set", "unset")
_CHECKED: Mapping[str, Callable[[str], tuple[str, str | None]]] = {
    "model": checked_model,
    "draft": checked_drafters,
}


@click.command(context_settings={"ignore_unknown_options": True})  # as -1 is a value
@click.argument("action", required=False, metavar=f"[{'|'.join(_ACTIONS)}]")
@click.argument("name", required=False, metavar="[SETTING]")
@click.argument("value", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not text.")
def config(*, action: str | None, name: str | None, value: str | None, as_json: bool) -> None:
    """Show the values that options have by default, and where each value is set.

    The first of these that gives a value counts: the option on the command line, the variable
    LOCALSPEC_NAME, config.toml, localspec's own default.

    \b
    localspec config                 shows all settings
    localspec config path            prints the file's name
    localspec config get threads     prints one value; stderr says where it is set
    localspec config set threads 4   writes it into the file
    localspec config unset threads   removes it there

    \b
    SETTING is model, draft, ctx, threads, ubatch, kv_type, draft_kv_type, flash_attn, one that
    says where models run: gpu_layers, rpc, device, split_mode, tensor_split, cpu_moe, load_mode,
    draft_device, draft_gpu_layers; one for longer contexts: rope_scaling, rope_scale,
    rope_freq_base, yarn_orig_ctx, draft_rope_scale; one that says how tokens are drawn:
    temperature, top_k, top_p, min_p, repeat_penalty; or keep, on or off.
    """
    output = Output()
    match action:
        case None:
            _show(output, as_json=as_json)
        case "path":
            output.data(f"{config_file()}\n")
        case "get":
            _show_one("home" if name == "home" else _setting(name), value, output, as_json=as_json)
        case "set" | "unset":
            _change(_setting(name), _new_value(action, value), output)
        case _:
            way_out = f"choose {', '.join(_ACTIONS)}, or none to see all"
            if action in SETTINGS:
                way_out = f"localspec config get {action} shows that setting"
            raise InvalidValueError(f"there is no action {action!r}; {way_out}")


def _show(output: Output, *, as_json: bool) -> None:
    settings = Settings()
    found = {name: _found(name, settings) for name in (*SETTINGS, "home")}
    if as_json:
        records = {name: _record(each) for name, each in found.items()}
        output.record({"file": str(settings.file), "settings": records})
        return
    rows = [(name, _shown(name, each), each.source) for name, each in found.items()]
    output.data(table_text(("setting", "value", "from"), rows))
    output.note(
        f"the file is {settings.file}; localspec config set NAME VALUE changes it; a variable "
        "LOCALSPEC_NAME comes before it, and an option of a command (--threads) before both"
    )


def _show_one(name: str, value: str | None, output: Output, *, as_json: bool) -> None:
    """Show a value; where it is set goes to stderr, so that a script gets the value alone."""
    if value is not None:
        raise InvalidValueError("localspec config get is written as: config get threads")
    found = _found(name, Settings())
    if as_json:
        output.record(_record(found))
        return
    output.data(f"{_shown(name, found)}\n")
    output.note(f"{name}: {found.source}")


def _shown(name: str, found: Found) -> str:
    return str(SETTINGS[name].default if found.value is None else found.value)


def _record(found: Found) -> dict[str, Any]:
    return {"value": found.value, "from": found.source}


def _found(name: str, settings: Settings) -> Found:
    """Return a setting, or the folder of localspec's own files, which only a variable changes."""
    if name != "home":
        return settings.find(name)
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
    _require_unicode(name, value)
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
    but = f", but {problem}" if problem else ""
    output.note(f"{name} is {_shown(name, found)} now ({found.source}){but}")


def _require_unicode(name: str, value: Value | None) -> None:
    """Raise InvalidValueError for a text that the file, which is UTF-8, cannot hold."""
    try:
        str(value).encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(
            f"{name} is {value!r}, which is not UTF-8, as the file is; set "
            f"{SETTINGS[name].variable}, or use a shell in UTF-8 (LC_ALL=C.UTF-8)"
        ) from error


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
