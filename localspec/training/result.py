"""Result: the file of a trained drafter, what the target really accepts of it, and who finds it."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from localspec.conversion.convert import another_file, new_file
from localspec.conversion.target import TargetFile
from localspec.conversion.token_counts import Counts
from localspec.conversion.trim import TRIMMABLE, trim_in_place
from localspec.distillation.last_trial import DEPTH, TEMPERATURES, TOKENS, Trial, try_drafter
from localspec.engine.engine import Engine
from localspec.errors import InvalidValueError, LocalspecError
from localspec.gguf.facts import facts_of
from localspec.gguf.files import ModelFiles
from localspec.gguf.fingerprint import fingerprint
from localspec.gguf.heads import kind_of
from localspec.gguf.reader import display_name, read_header
from localspec.models.own_drafters import own_drafters
from localspec.models.speed_up import bytes_read, step_costs
from localspec.models.trained_drafters import TARGET, default_folder, is_trained_for
from localspec.training.drafter_kind import TrainableDrafter

# Further metadata of a trained drafter: the target's name, where the texts were from, the share of
# tokens that held-out texts accept.
TARGET_NAME, TEXTS, ACCEPTANCE = (
    f"localspec.trained.{key}" for key in ("target_name", "texts", "acceptance")
)
# What a drafter is compared with in any case.
PLAIN, SUFFIX = "none", "suffix"
# From so many tokens on, a head's logits take most of its time. Where it was measured, a quarter of
# 128,256 tokens was accepted as often as all of them (docs/heads.md).
LARGE_VOCABULARY = 1 << 16
# Prompts of the last trial: as many as its time allows, at least so many.
_FEWEST_PROMPTS = 4
_DEPTHS = range(1, DEPTH + 1)
_SLOWER, _LOADING = 2.0, 1.0


def default_path(target: TargetFile, kind: str, type_name: str) -> Path:
    """The file of a target's drafter among localspec's own files."""
    of = ModelFiles((target.path.name,)).base_name
    name = f"{kind}-{of}-{fingerprint(target.path)[:8]}-{type_name}.gguf"
    return default_folder() / name


def require_replaceable(path: Path, target: TargetFile) -> None:
    """Raise InvalidValueError for a file that is no drafter trained for this target."""
    if not os.path.lexists(path):
        return
    try:
        is_own = is_trained_for(target.path, read_header(path))
    except LocalspecError:
        is_own = False
    if not is_own:
        raise another_file(path)


def require_writable(path: Path) -> None:
    """Raise InvalidValueError for a file that cannot be written, before hours of work for it."""
    folder = next(each for each in path.absolute().parents if os.path.lexists(each))
    if not (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)):
        raise InvalidValueError(
            f"{display_name(path)} cannot be written: {folder} is no folder in which files can be "
            "made; name another place with -o"
        )


def export(
    drafter: TrainableDrafter,
    path: Path,
    target: TargetFile,
    texts: str,
    rates: Sequence[float],
    *,
    counts: Callable[[], Counts],
) -> None:
    """Write the drafter; the file appears when it is whole. rates: the held-out acceptance.

    counts: how often each token occurs in the texts; called where a head for a large vocabulary is
    trimmed to the tokens that matter. Raises LocalspecError where it cannot be written.
    """
    about: Mapping[str, object] = {
        "general.name": path.stem,
        "general.type": "model",
        TARGET: fingerprint(target.path),
        TARGET_NAME: target.name,
        TEXTS: texts,
        ACCEPTANCE: round(float(rates[0]), 4),
    }
    # It may know phrases of one's chats.
    with new_file(path, is_private=True) as part:
        drafter.export(part, about)
        if target.n_vocab >= LARGE_VOCABULARY and kind_of(read_header(part)) in TRIMMABLE:
            trim_in_place(part, target, counts())


@dataclass(frozen=True, slots=True)
class Rival:
    """A drafter that the target has already. name: what to type. kind: one of KINDS."""

    name: str
    kind: str
    file: Path


def rivals(target: Path, own: Rival) -> list[Rival]:
    """The first other drafter of the target that `auto` would take; none without one."""
    found = [
        Rival(each.typed, each.kind, each.file)
        for each in own_drafters(target)
        if each.file and not each.objection
    ]
    return [each for each in found if not each.file.samefile(own.file)][:1]


def expected_costs(target: Path, rivals: Sequence[Rival]) -> dict[str, list[float]]:
    """What steps with drafts of 1 to DEPTH tokens take, in plain steps, by the names of all tried.

    By the bytes that passes read, of which drafters without a model read none.
    """
    facts, found = facts_of(target), dict[str, list[float]]()
    for each in rivals:
        costs = step_costs(facts, facts_of(each.file), each.kind)
        found[each.name] = [costs[depth] for depth in _DEPTHS]
    plain = bytes_read(facts, 1)
    model_free = [bytes_read(facts, depth + 1) / plain for depth in _DEPTHS]
    return {**found, PLAIN: [], SUFFIX: model_free}


def last_trials(
    engine: Engine,
    costs: Mapping[str, Sequence[float]],
    prompts: Sequence[Sequence[int]],
    watch: Callable[[float], None],
    cancel: Event,
) -> list[Trial]:
    """What the target accepts of drafters, on some prompts. costs: as `expected_costs`.

    Raises Stopped if `cancel` is set.
    """
    found: list[Trial] = []
    for name, cost in costs.items():
        for temperature in TEMPERATURES:
            # A drafter that is new to these prompts: one that copies knows the texts before.
            engine.switch(draft=name)
            tried = try_drafter(engine, name, prompts, temperature, cancel, step_costs=cost)
            found.append(tried)
            watch(len(found) / (len(costs) * len(TEMPERATURES)))
    return found


def trial_prompts(seconds: float, plain: float, configurations: int) -> int:
    """How many prompts a trial of so many seconds has. plain: seconds of a token."""
    # A drafter may make a quick target slower, and is loaded first.
    each = _SLOWER * TOKENS * plain * len(TEMPERATURES)
    return max(_FEWEST_PROMPTS, int((seconds / configurations - _LOADING) / each))


def pays(trials: Sequence[Trial], own: Rival) -> bool:
    """Whether a drafter is faster than plain decoding, by accepted tokens and the bytes of a step.

    At the depth that pays most, as `auto` drafts. The seconds of a few texts would say less.
    """
    return _gain(trials, own.name) > _gain(trials, PLAIN)


def is_preferred(trials: Sequence[Trial], own: Rival, others: Sequence[Rival]) -> bool:
    """Whether a drafter pays, and is as good as all others."""
    gain = _gain(trials, own.name)
    return pays(trials, own) and all(gain >= _gain(trials, each.name) for each in others)


def _gain(trials: Sequence[Trial], name: str) -> float:
    return sum(each.expected_speed for each in trials if each.name == name)
