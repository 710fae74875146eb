"""What `localspec bench` measures: what the user names, else what shows drafts at work."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.bench import Sweep, Task, default_sets, load_tasks
from localspec.cli.options import comma_separated
from localspec.generation_config import require
from localspec.models import registry
from localspec.models.locate import locate
from localspec.scaling.written_pair import written_pair

ROUNDS = 3
# On the pair of the demo, where a token takes as long as in a real model: a minute or two.
_DEMO_ROUNDS, _DEMO_DRAFTS = 1, ("suffix", "model", "auto")
_BUNDLED = (
    "no model named, so the bundled pair, which is too quick for drafts to pay; localspec demo "
    "writes a larger one, without a download, and then bench measures that"
)


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
    demo = written_pair() if model is None else None
    if demo:
        sweep = Sweep(
            demo.target,
            locate(draft) if draft else demo.drafter,
            chosen_drafts or (None if draft else _DEMO_DRAFTS),
            depths,
        )
        tasks = load_tasks(chosen_sets or ([] if file else default_sets(demo.target)), prompts)
        note = f"no model named, so the pair that localspec demo wrote: {demo.target.stem}"
        return Choice(sweep, tasks, rounds or _DEMO_ROUNDS, temperature=0, note=note)
    target = registry.bundled().target if model is None else locate(model)
    sweep = Sweep(target, locate(draft) if draft else None, chosen_drafts, depths)
    tasks = load_tasks(chosen_sets or ([] if file else default_sets(target)), prompts)
    return Choice(sweep, tasks, rounds or ROUNDS, note=None if model else _BUNDLED)
