"""Ctrl-C behind a model that was loaded: the model is freed."""

from pathlib import Path
from typing import Any

import pytest

from localspec import load
from localspec.errors import LocalspecError
from localspec.llama.model import Model
from localspec.loading import drafter_loader, loader


def test_an_interrupt_behind_a_drafter_frees_it(
    target_path: Path, drafter_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, make = list[Model](), drafter_loader._model

    def noted(*arguments: Any) -> Model:
        loaded.append(make(*arguments))
        return loaded[-1]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(drafter_loader, "_model", noted)
    monkeypatch.setattr(drafter_loader, "_rope", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(target_path, draft=drafter_path, context=128)
    [drafter] = loaded
    with pytest.raises(LocalspecError, match="was closed"):
        _ = drafter.handle


def test_an_interrupt_behind_all_models_frees_them(
    target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = list[Model]()

    def noted(*arguments: Any, **options: Any) -> Model:
        loaded.append(Model(*arguments, **options))
        return loaded[-1]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loader, "Model", noted)
    monkeypatch.setattr(loader, "note_use", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(target_path, draft="none", context=128)
    [target] = loaded
    with pytest.raises(LocalspecError, match="was closed"):
        _ = target.handle
