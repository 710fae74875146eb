"""What `localspec bench` measures: what the user names, else what shows drafts at work."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.bench import Sweep, Task, default_sets, load_tasks
from localspec.cli.options import comma_separated
from localspec.cli.usual_pair import usual_pair
from localspec.errors import InvalidValueError
from localspec.generation_config import require
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
