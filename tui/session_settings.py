"""Session settings: how the answers of a saved session are written."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from localspec.drafters.spec import AUTO, NAMES, split_kind, split_names
from localspec.errors import LocalspecError
from localspec.generation_config import GenerationConfig
from localspec.loading.config import RuntimeConfig
from localspec.models.locate import locate
from localspec.models.projectors import NO_PROJECTOR
from localspec.utils.option_names import typed_name
from localspec_tui.labels import model_label
from localspec_tui.row_values import UNREADABLE, text_or

ROTATIONS = ("rope_scaling", "rope_scale", "rope_freq_base", "yarn_orig_ctx", "draft_rope_scale")
# Options of `localspec.load` that a session keeps. Who names one of a group means all of it.
_GROUPS = (("context",), ("kv_type",), ("drafter_kv_type",), ROTATIONS, ("lora",))
KEPT = frozenset(name for group in _GROUPS for name in group)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How answers of a session are written. draft: names of the drafters.

    sampling: options of GenerationConfig that are not the default. drop_oldest: whether the oldest
    turns are dropped when the context is full; if not, the answer stops. session_options: other
    options of Session, such as `thinking_budget`. chat_template: in place of the model's own.
    mmproj: the file that reads images for the model, or "none"; None: the one beside it.
    runtime: options of `localspec.load` that change the text or how long it may be, those of KEPT.
    """

    draft: str = AUTO
    sampling: Mapping[str, Any] = field(default_factory=dict)
    drop_oldest: bool = False
    session_options: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None
    runtime: Mapping[str, Any] = field(default_factory=dict)
    mmproj: str | None = None

    @classmethod
    def parse(cls, text: str | None) -> "SessionSettings":
        """Read what `as_json` wrote; what cannot be used is left out."""
        try:
            found = json.loads(text or "{}")
            draft, sampling = found.get("draft"), found.get("sampling", {})
            GenerationConfig.of(**sampling)
        except (*UNREADABLE, LocalspecError):
            return cls()
        template, drops = found.get("chat_template"), found.get("drop_oldest") is True
        return cls(
            text_or(draft, AUTO),
            sampling,
            drops,
            _session_options(found.get("session_options")),
            template if isinstance(template, str) else None,
            _runtime(found.get("runtime")),
            text_or(found.get("mmproj"), "") or None,
        )

    def as_json(self) -> str:
        """The settings as a text."""
        return json.dumps(
            {
                "draft": self.draft,
                "sampling": dict(self.sampling),
                "drop_oldest": self.drop_oldest,
                "session_options": dict(self.session_options),
                "chat_template": self.chat_template,
                "runtime": dict(self.runtime),
                # Images are switched off for now only.
                "mmproj": None if self.mmproj == NO_PROJECTOR else self.mmproj,
            }
        )

    @property
    def when_full(self) -> Literal["stop", "drop"]:
        """What Session does when the context is full."""
        return "drop" if self.drop_oldest else "stop"

    def usable_draft(self) -> tuple[str, str | None]:
        """The drafters, and None; or `auto`, and a note that names those that are gone."""
        names = split_names(self.draft)
        missing = [name for name in names if not is_there(split_kind(name)[1])]
        if not missing:
            return self.draft, None
        return AUTO, f"{gone(*missing)}; the drafters are those of --draft auto"


def with_variables(options: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Options of Session with these variables for the chat template."""
    return {**options, "template_options": {**options.get("template_options", {}), **variables}}


def _session_options(found: object) -> dict[str, Any]:
    """The options of Session that were saved, as far as they can be used."""
    options = found if isinstance(found, dict) else {}
    budget, variables = options.get("thinking_budget"), options.get("template_options")
    kept: dict[str, Any] = {}
    if type(budget) is int and budget >= 0:
        kept["thinking_budget"] = budget
    if isinstance(variables, dict):
        kept["template_options"] = variables
    return kept


def _runtime(found: object) -> dict[str, Any]:
    """The options of `localspec.load` that were saved, if they can be used."""
    options = kept_of(found) if isinstance(found, dict) else {}
    adapters = options.get("lora", [])
    if not isinstance(adapters, list) or not all(isinstance(each, str) for each in adapters):
        return {}
    try:
        RuntimeConfig.of(**options)
    except (*UNREADABLE, LocalspecError):
        return {}
    return options


def kept_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options of `localspec.load` that a session keeps.

    A context that nobody has named is none of them: it is that of the model, or of the settings.
    """
    found = {name: value for name, value in options.items() if name in KEPT}
    if not found.get("context"):
        found.pop("context", None)
    return found


def named_with(names: frozenset[str]) -> frozenset[str]:
    """These options, and those that they stand for as well."""
    return frozenset(name for group in _GROUPS if names & {*group} for name in group)


def in_words(runtime: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What of `runtime` is other than now, as options of the command line; "" if nothing is."""
    return " ".join(
        word
        for group in _GROUPS
        if any(name in runtime and runtime[name] != now.get(name) for name in group)
        for word in _words(runtime, group)
    )


def _words(runtime: Mapping[str, Any], group: tuple[str, ...]) -> Iterator[str]:
    given = {name: runtime[name] for name in group if runtime.get(name) not in (None, [])}
    for name, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            yield f"{typed_name(name)} {each if isinstance(each, str) else f'{each:.10g}'}"
    if not given:
        yield "--rope-scaling model" if group == ROTATIONS else f"{typed_name(group[0])} none"


def is_there(name: str) -> bool:
    """Whether it is a drafter without a model, or a model on this disk."""
    try:
        return name in NAMES or locate(name).is_file()
    except LocalspecError:
        return False


def gone(*names: str) -> str:
    """Say that these models are not on this disk."""
    labels = " and ".join(map(model_label, names))
    return f"{labels} {'is' if len(names) == 1 else 'are'} not on this machine any more"
