"""Which drafter goes with which target: by models.toml, or by their vocabularies."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from localspec.gguf.facts import Facts
from localspec.hub import store
from localspec.hub.reference import Reference, Repository
from localspec.imports import links
from localspec.models import registry
from localspec.models.registry import Pair
from localspec.models.summaries import ModelSummary, StoredVocabulary, VocabularySummary
from localspec.models.vocabulary_match import mismatch


def pair_of(target: Reference, name: str = "") -> Pair | None:
    """Find the pair of models.toml that has this target, in whatever quantisation.

    target: a file, which may not exist, or a repository; one without the pair's heads inside will
    do. name: what the user called the target; where several pairs have it, the pair of that name is
    taken, else the first. Raises InvalidValueError for a user's models.toml that cannot be used.
    """
    return next(iter(_pairs_of(target, name)), None)


def sampling_pair(target: Reference, name: str = "") -> Pair | None:
    """Find the pair whose sampling is recommended for a target: of `pair_of`, or of the same model.

    The arguments are those of `pair_of`. A pair that says nothing of sampling is passed over.
    """
    found = [*_pairs_of(target, name), *_pairs_elsewhere(target)]
    return next((pair for pair in found if pair.sampling), None)


def _pairs_of(target: Reference, name: str) -> list[Pair]:
    """Return the pairs that have a target, that of the name first."""
    known = registry.pairs().values()
    having = [pair for pair in known if _is_same_model(pair.target, target)]
    having += [pair for pair in known if lacks_heads(target, pair)]
    named = registry.pair_named(name)
    return sorted(having, key=lambda pair: pair != named)


def lacks_heads(target: Reference, pair: Pair) -> bool:
    """Whether a model is of a repository that has the pair's target without the heads inside."""
    return any(_is_same_model(each, target) for each in pair.without_heads)


def pair_like(target: Facts) -> Pair | None:
    """Find the pair of a target by its repository or file; else by its names."""
    file = target.files[0]
    return pair_of(file) or pair_elsewhere(file) or pair_named_like(names_of(file, target.name))


def pair_elsewhere(target: Reference) -> Pair | None:
    """Find the pair of the same model in another uploader's repository, told by its name."""
    return next(iter(_pairs_elsewhere(target)), None)


def _pairs_elsewhere(target: Reference) -> list[Pair]:
    repository = _repository_id(target)
    if repository is None:
        return []
    name = _model_name(repository)
    return [
        pair
        for pair in registry.pairs().values()
        if isinstance(pair.target, Repository) and name in _titles(pair.target)
    ]


def pair_named_like(names: Sequence[str]) -> Pair | None:
    """Find the pair after whose target a model is named: another quantisation, or a fine-tune.

    Qwen3-8B-abliterated gets the pair of Qwen3-8B. names: as `names_of` returns them.
    """
    known = registry.pairs().values()
    return next((pair for pair in known if _is_named_like(names, pair)), None)


def names_of(file: Path | PurePosixPath, name: str | None) -> list[str]:
    """Return what a model is called: by its file, and by its header (general.name)."""
    return [file.stem, *([name] if name else [])]


class DrafterFinder:
    """Finds the drafters for a target among these models, without loading any of them.

    Two vocabularies are compared once, however many models have them.
    """

    def __init__(self, models: Iterable[ModelSummary]) -> None:
        self._models = sorted(models, key=lambda model: model.parameters)
        self._matches: dict[tuple[VocabularySummary, VocabularySummary], bool] = {}

    def drafters_for(self, target: ModelSummary) -> Sequence[ModelSummary]:
        """Return the models with the target's vocabulary and fewer parameters, smallest first."""
        smaller = (model for model in self._models if model.parameters < target.parameters)
        return [model for model in smaller if self._share_vocabulary(target, model)]

    def _share_vocabulary(self, target: ModelSummary, drafter: ModelSummary) -> bool:
        if target.vocabulary == drafter.vocabulary:
            return True
        key = target.vocabulary, drafter.vocabulary
        if key not in self._matches:
            vocabularies = StoredVocabulary(target), StoredVocabulary(drafter)
            self._matches[key] = mismatch(*vocabularies) is None
        return self._matches[key]


def _is_same_model(one: Reference, other: Reference) -> bool:
    """Whether both are of one repository, or the same file."""
    if isinstance(one, Path) and isinstance(other, Path):
        return one == other or (one.exists() and other.exists() and one.samefile(other))
    first, second = _repository_id(one), _repository_id(other)
    return bool(first and second) and str(first).lower() == str(second).lower()


def _repository_id(model: Reference) -> str | None:
    if isinstance(model, Repository):
        return model.id
    return store.repository_of(model) or links.repository_of(model)


def _is_named_like(names: Iterable[str], pair: Pair) -> bool:
    if not isinstance(pair.target, Repository):
        return False
    wanted = tuple(f"{name}-" for name in _titles(pair.target))
    return any(f"{_normalized(name)}-".startswith(wanted) for name in names)


def _titles(target: Repository) -> tuple[str, str]:
    """What files and repositories of a model are called; some have the publisher in front."""
    name = _model_name(target.id)
    return name, f"{_normalized(target.id.partition('/')[0])}-{name}"


def _model_name(repository: str) -> str:
    """The model that a repository is called after, without the uploader and heads inside."""
    name = _normalized(repository.partition("/")[2])
    return name.removesuffix("-gguf").removesuffix("-mtp")


def _normalized(name: str) -> str:
    """Return a name in lower case, with hyphens for spaces and underscores."""
    return re.sub(r"[\s_-]+", "-", name.lower())
