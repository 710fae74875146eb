"""What `localspec bench` measures: what the user names, else what shows drafts at work."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.bench import BenchmarkReport, Sweep, Task, default_sets, load_tasks
from localspec.cli.options import comma_separated
from localspec.cli.usual_pair import usual_pair
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig, require
from localspec.loading.config import RuntimeConfig
from localspec.models.locate import locate

ROUNDS = 3
# On the pair of the demo, where a token takes as long as in a real model: a minute or two.
_DEMO_ROUNDS, _DEMO_DRAFTS = 1, ("suffix", "model", "auto")


@dataclass(frozen=True, slots=True)
class Choice:
    """What is measured.

    temperature: where the user gives none; None is the model's own. note: on the model, where the
    user names none.
    """

    sweep: Sweep
    tasks: Sequence[Task]
    rounds: int
    temperature: float | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """A benchmark as it is asked for, whatever it measures.

    settings: of all texts. options: those that they were made of. note: shows a line. check: called
    with the report without figures, before anything is measured. cancel: set by Ctrl-C.
    """

    choice: Choice
    runtime: RuntimeConfig
    settings: GenerationConfig
    options: Mapping[str, Any]
    note: Callable[[str], None]
    check: Callable[[BenchmarkReport], None]
    cancel: threading.Event = field(default_factory=threading.Event)


def choose(
    *,
    model: str | None,
    draft: str | None,
    drafts: str | None,
    depths: Sequence[int | None],
    sets: str | None,
    file: str | None,
    rounds: int | None,
) -> Choice:
    """Return what the options name, and what is measured where they do not.

    Raises InvalidValueError for wrong options, and ModelNotFoundError for a missing model.
    """
    if rounds is not None:
        require("rounds", rounds, 1)
    prompts = Path(file) if file else None
    chosen_sets, chosen_drafts = comma_separated(sets or ""), comma_separated(drafts or "") or None
    pair = usual_pair(model)
    if pair.drafter and not draft:
        chosen_drafts = chosen_drafts or list(_DEMO_DRAFTS)
    if draft and "," in draft and not Path(draft).exists():
        raise InvalidValueError(f"draft is {draft!r}; it names one model, and --drafts several")
    drafter = locate(draft) if draft else pair.drafter
    tasks = load_tasks(chosen_sets or ([] if file else default_sets(pair.target)), prompts)
    return Choice(
        Sweep(pair.target, drafter, chosen_drafts, depths),
        tasks,
        rounds or (_DEMO_ROUNDS if pair.drafter else ROUNDS),
        temperature=pair.temperature,
        note=pair.note,
    )
