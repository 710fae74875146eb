"""Settings: what an option is where the command line does not name it.

A variable LOCALSPEC_NAME comes first, then config.toml, then localspec's own default. Only the
command line reads them: `localspec.load` takes what it is given.
"""

import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from localspec.cli.output import write_note
from localspec.errors import InvalidValueError, ModelNotFoundError
from localspec.llama.bounds import LEAST_BASE, MOST_BASE, MOST_CONTEXT, MOST_SCALE, MOST_THREADS
from localspec.llama.placement import LOAD_MODES, SPLIT_MODES
from localspec.sampling.bounds import MOST_TEMPERATURE, MOST_WHOLE
from localspec.utils.option_names import typed_name
from localspec.utils.paths import config_folder
from localspec.utils.similar_names import did_you_mean
from localspec.utils.toml_file import parse_toml, read_text

Value = str | int | float
# As in gguf.kv_types, which takes long to import.
_KV_TYPES = ("f16", "bf16", "f32", "q8_0", "q4_0")
_REAL = re.compile(r"\d+\.?\d*(e\+?\d+)?", re.IGNORECASE)
# Values of --draft that need no model.
_NO_MODELS = {"auto", "none", "suffix", "lookup", "ngram", "mtp"}


@dataclass(frozen=True, slots=True)
class Setting:
    """An option that can be set for good.

    name: its key in config.toml. default: what it is where nobody sets it, in words. least: the
    smallest number; None: the value is a text. is_above: numbers are larger than `least`. most: the
    largest one; None: no limit. is_whole: whether the number must be. choices: the texts there are;
    () is any. of_two: whether the value may be two of them with a slash between. parameter: the
    name of the option's value in a command, where that is another one.
    """

    name: str
    default: str
    least: int | None = None
    choices: tuple[str, ...] = ()
    of_two: bool = False
    parameter: str = ""
    is_whole: bool = True
    is_above: bool = False
    most: float | None = None

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"LOCALSPEC_{self.name.upper()}"

    @property
    def option(self) -> str:
        """The option of the command line that sets it."""
        return typed_name(self.name)

    def checked(self, value: Any, where: str) -> Value:
        """Return a value of the file. Raises InvalidValueError, which begins with `where`."""
        if self.least is not None:
            kinds = (int,) if self.is_whole else (int, float)
            # A float is finite, and so are the whole numbers that can be one.
            limit = math.inf if self.is_whole else sys.float_info.max
            most = limit if self.most is None else self.most
            fits = type(value) in kinds and self.least <= value <= most
            fits = fits and not (self.is_above and value == self.least)
            bound = "above" if self.is_above else "of at least"
            wanted = f"a {'whole ' if self.is_whole else ''}number {bound} {self.least}"
            wanted += "" if self.most is None else f" and at most {self.most:.10g}"
        else:
            fits = isinstance(value, str) and bool(value) and self._may_be(value)
            wanted = f"one of {', '.join(self.choices)}" if self.choices else "a text in quotes"
            wanted += ", or two of them as q8_0/f16" if self.of_two else ""
        if not fits:
            raise InvalidValueError(f"{where} is {value!r}; it must be {wanted}")
        checked: Value = value
        return _expanded(str(value)) if self.name in ("model", "draft") else checked

    def _may_be(self, text: str) -> bool:
        parts = text.split("/") if self.of_two else [text]
        return len(parts) <= 2 and {*parts} <= {*(self.choices or parts)}

    def parsed(self, text: str, where: str) -> Value:
        """Return the value that a text means. Raises InvalidValueError as `checked` does."""
        if self.least is not None and text.removeprefix("-").isdecimal():
            return self.checked(int(text), where)
        is_real = not self.is_whole and _REAL.fullmatch(text)
        return self.checked(float(text) if is_real else text, where)

    def in_variable(self) -> "Found | None":
        """Return what its variable sets, if it does. Raises InvalidValueError as `checked` does."""
        if text := os.environ.get(self.variable):
            return Found(self.parsed(text, self.variable), self.variable)
        return None


# How texts are written: of generate, chat and serve. What is measured or checked is not theirs.
_OF_TEXTS = (
    Setting("temperature", "the model's, else 0.8", 0, is_whole=False, most=MOST_TEMPERATURE),
    Setting("top_k", "the model's, else 40", 0, most=MOST_WHOLE),
    Setting("top_p", "the model's, else 0.95", 0, is_above=True, is_whole=False, most=1),
    Setting("min_p", "the model's, else 0.05", 0, is_whole=False, most=1),
    Setting("repeat_penalty", "1", 0, is_above=True, is_whole=False),
)
_WRITE = ("generate", "chat", "serve")
SETTINGS = {
    each.name: each
    for each in (
        Setting("model", "the bundled pair"),
        Setting("draft", "auto"),
        Setting("ctx", "the model's, at most 8192", 2, parameter="context", most=MOST_CONTEXT),
        Setting("rope_scaling", "the GGUF's", choices=("none", "linear", "yarn")),
        Setting("rope_scale", "the GGUF's", 1, is_whole=False, most=MOST_SCALE),
        Setting(
            "rope_freq_base",
            "the GGUF's",
            LEAST_BASE,
            is_above=True,
            is_whole=False,
            most=MOST_BASE,
        ),
        Setting("yarn_orig_ctx", "the GGUF's", 2, most=MOST_CONTEXT),
        Setting(
            "draft_rope_scale",
            "the target's, if made for equal contexts",
            1,
            is_whole=False,
            most=MOST_SCALE,
        ),
        Setting("threads", "by model size, at most one per fast core", 1, most=MOST_THREADS),
        Setting("ubatch", "512, or 2048 for experts beside a GPU", 64),
        Setting("gpu_layers", "all", -1),
        Setting("rpc", "no other machine"),
        Setting("device", "all GPUs"),
        Setting("split_mode", SPLIT_MODES[0], choices=SPLIT_MODES),
        Setting("tensor_split", "by free memory"),
        Setting("cpu_moe", "as few as fit", -1),
        Setting("load_mode", LOAD_MODES[0], choices=LOAD_MODES),
        Setting("draft_device", "a GPU of the target"),
        Setting("draft_gpu_layers", "all", -1),
        Setting("kv_type", "f16", choices=_KV_TYPES, of_two=True),
        Setting("flash_attn", "auto", choices=("auto", "on", "off"), parameter="flash_attention"),
        Setting(
            "draft_kv_type", "f16", choices=_KV_TYPES, of_two=True, parameter="drafter_kv_type"
        ),
        Setting("keep", "off", choices=("on", "off")),
        *_OF_TEXTS,
    )
}


# A conversation that goes on, or a recorded text, has its own.
_OF_A_CONVERSATION = {"model", "draft", *(each.name for each in _OF_TEXTS)}


@dataclass(frozen=True, slots=True)
class Found:
    """The value of a setting, None for the default, and where it is from."""

    value: Value | None
    source: str


class Settings:
    """The settings of this user; the file is read when the first one is asked for."""

    def __init__(self) -> None:
        self.file = config_file()

    def find(self, name: str) -> Found:
        """Return a setting. Raises InvalidValueError for a wrong value, and for a broken file."""
        if found := SETTINGS[name].in_variable():
            return found
        if name in self._in_file:
            return Found(self._in_file[name], self.file.name)
        return Found(None, "default")

    @cached_property
    def _in_file(self) -> Mapping[str, Value]:
        """The values in the file, all of them checked; unknown keys are named and left out."""
        found = parse_toml(read_text(self.file), str(self.file))
        for key in (key for key in found if key not in SETTINGS):
            hint = did_you_mean(key, SETTINGS, most=1) or f"the keys are {', '.join(SETTINGS)}"
            write_note(f"{self.file}: the unknown key {key!r} is ignored; {hint}")
        return {
            key: SETTINGS[key].checked(value, f"{self.file}: {key}")
            for key, value in found.items()
            if key in SETTINGS
        }


class CommandDefaults(Mapping[str, Any]):
    """The settings as defaults of one command's options, by the names of their values.

    For click's `default_map`: it asks for what the command line does not name.
    """

    def __init__(self, command: str, settings: Settings) -> None:
        self._command = command
        self._settings = settings
        self._names = {each.parameter or each.name: each.name for each in _obeyed(command)}
        self._known: dict[str, Value | None] = {}

    def __getitem__(self, parameter: str) -> Value:
        name = self._names[parameter]
        if name not in self._known:
            self._known[name] = self._value(name)
        if (value := self._known[name]) is None:
            raise KeyError(parameter)
        return value

    def __iter__(self) -> Iterator[str]:
        return (parameter for parameter in self._names if parameter in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def raise_with_origin(self, error: InvalidValueError | ModelNotFoundError) -> None:
        """Raise the error with where its value, model or drafter was set, if it was set."""
        if isinstance(error, InvalidValueError):
            parameter, _, rest = str(error).partition(" is ")
            name = self._names.get(parameter, parameter)
            value = self._known.get(name)
            if value is not None and str(value) in rest:
                source = self._settings.find(name).source
                raise InvalidValueError(f"{error} ({name}: {source})") from error
            return
        for name in ("model", "draft"):
            value = self._known.get(name)
            if value and any(each in str(error) for each in _models(str(value))):
                source = self._settings.find(name).source
                raise ModelNotFoundError(f"{error} ({name}: {source})") from error

    def _value(self, name: str) -> Value | None:
        if name in _OF_A_CONVERSATION and self._has_own_model():
            return None
        value = self._settings.find(name).value
        return self._draft(str(value)) if value and name == "draft" else value

    def _has_own_model(self) -> bool:
        """Whether a conversation goes on, or a recorded text is scored, which names its model."""
        own = {"chat": ("latest", "resume"), "audit": ("file",)}.get(self._command, ())
        return any(map(on_command_line, own))

    def _draft(self, value: str) -> str | None:
        """Return what drafts; of `bench`, which compares all that need no model, the model."""
        models = _models(value)
        model = self._settings.find("model").value
        # `chat` has both, an argument and an option.
        named = on_command_line("model") or on_command_line("named")
        if models and model and named and named != model:
            write_note(f"draft {value} was set for {model}, not for {named}, which gets auto")
            return None
        if self._command == "bench":
            return models[0] if models else None
        return value


def config_file() -> Path:
    """Return the file of the settings, which may not exist."""
    return config_folder() / "config.toml"


def _obeyed(command: str) -> Iterator[Setting]:
    """Yield the settings that a command obeys, if it has options for them."""
    # `bench` makes its contexts as large as its prompts need; `pull` fetches what is named.
    # The device of `train` is torch's.
    others = {
        "bench": {*SETTINGS} - {"ctx"},
        "pair": {"ctx"},
        "pull": set(),
        "train": {*SETTINGS} - {"device"},
    }
    wanted = others.get(command, {*SETTINGS})
    if command not in _WRITE:
        wanted = wanted - {each.name for each in _OF_TEXTS}
    return (setting for setting in SETTINGS.values() if setting.name in wanted)


def sampling_settings() -> Sequence[str]:
    """Return the names of the settings that say how tokens are drawn."""
    return [each.name for each in _OF_TEXTS]


def on_command_line(parameter: str) -> Any:
    """Return what the command line names for a parameter, None where it names nothing."""
    context = click.get_current_context(silent=True)
    if context and context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE:
        return context.params.get(parameter)
    return None


def _models(value: str) -> list[str]:
    """Return the names in a value that are models."""
    return [name for name in value.split(",") if name.strip() not in _NO_MODELS]


def _expanded(value: str) -> str:
    """Return names of models with the home folder for ~, as a shell would write it."""
    return ",".join(
        os.path.expanduser(name) if name.startswith("~/") else name for name in value.split(",")
    )
