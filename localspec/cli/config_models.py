"""Models in settings: what `localspec config set` checks of a name before it writes it."""

import os
from collections.abc import Iterable

from localspec.drafters.spec import NAMES, join_names, parse_draft, split_kind, split_names
from localspec.errors import ModelNotFoundError
from localspec.models.locate import locate, reference_of


def checked_model(name: str, others: Iterable[str] = ()) -> tuple[str, str | None]:
    """Return a model as it is to be written, and why it cannot be loaded yet, or None.

    A file gets its whole path, as commands run in any folder. others: as in `locate`. Raises
    ModelNotFoundError for a word that means no model.
    """
    if os.path.isfile(name):
        return os.path.abspath(name), None
    try:
        locate(name, others)
    except ModelNotFoundError as error:
        # A disk may be away just now, and what is to be pulled may be set before.
        if not ({"/", "\\"} & {*name} or name.lower().endswith(".gguf")):
            reference_of(name, others)
        return name, str(error)
    return name, None


def checked_drafters(value: str) -> tuple[str, str | None]:
    """Do the same for the drafters of --draft. Raises InvalidValueError for a wrong list too."""
    parse_draft(value)
    drafters, problems = [], list[str]()
    for name in split_names(value):
        kind, model = split_kind(name)
        if name not in NAMES:
            model, problem = checked_model(model, NAMES)
            problems += [problem] if problem else []
        drafters.append(kind + model)
    return join_names(drafters), "; ".join(problems) or None
