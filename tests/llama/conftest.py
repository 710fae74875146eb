"""Contexts of tiny models, of each kind of memory there is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.checked import KINDS, Checked, Make, context_of, write_family

from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.llama.sequence import KVSequence


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Model]]:
    folder: Path = tmp_path_factory.mktemp("models")
    made = {
        family: Model(write_family(folder / f"{family}.gguf", family), ON_PROCESSOR)
        for family in ("llama", "gemma3", "mamba", "qwen35")
    }
    yield made
    for model in made.values():
        model.close()


@pytest.fixture
def make(models: dict[str, Model]) -> Iterator[Make]:
    made: list[KVSequence] = []

    def context(kind: str, **options: Any) -> KVSequence:
        made.append(context_of(models[KINDS[kind][0]], kind, **options))
        return made[-1]

    yield context
    for each in made:
        each.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def checked(make: Make, kind: str) -> Checked:
    return Checked(make(kind), make(kind))
