"""Files of the cache, damaged or replaced by something else: none ends or blocks a run."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
from fakes.damaged_files import damage
from fakes.pycode import PYCODE

from localspec.control.cost_profile import CostProfile, DrafterSeconds
from localspec.drafters.drawn_from import DrawnFrom, DrawnText
from localspec.drafters.suffix_store import PastTexts
from localspec.engine.state_store import StateStore
from localspec.hub import partial_files
from localspec.llama import extra_buffers
from localspec.loading import acceptance_priors, calibration, equal_digits, verdicts
from localspec.loading.acceptance_priors import BestSetting, stored_forecast
from localspec.loading.config import RuntimeConfig
from localspec.models.summaries import summary_of
from localspec.sampling.distribution import Distribution
from localspec.scaling import demo_size
from localspec.speculation.equal_digits import EqualDigits
from localspec.utils.stored_json import store_json
from localspec_tui.preferences import Preferences

RUNTIME = RuntimeConfig()


def costs(model: Path) -> Callable[[], object]:
    profile = CostProfile({1: 0.2, 4: 0.3}, {"small": DrafterSeconds(0.1, 0.1, 0.01)})
    store_json(calibration._file(model, [model], RUNTIME, ()), asdict(profile))
    drafters = {"small": model}

    def read() -> object:
        if profile := calibration.remembered(model, drafters, RUNTIME):
            assert profile.step("small", 3) >= 0
        return profile

    return read


def plan(model: Path) -> Callable[[], object]:
    best = BestSetting("small", "coupled", 4, 1.5)
    rates = {"small": 0.5}
    forecast = stored_forecast(model, [model], 0.8, rates, best)
    acceptance_priors.store(model, [model], forecast)
    return lambda: acceptance_priors.find(model, [model], 0.8).rates


def digits(model: Path) -> Callable[[], object]:
    found = EqualDigits(((1, 2), (4,)), 64, True)
    store_json(equal_digits._file(model, RUNTIME), found.as_dict())
    return lambda: (found := equal_digits.remembered(model, RUNTIME)) and str(found)


def verdict(model: Path) -> Callable[[], object]:
    found = verdicts.remembered_verdict("load_checks", "crash", [model], lambda: "none")
    assert found == "none"
    return lambda: verdicts.remembered_verdict("load_checks", "crash", [model], lambda: "other")


def buffers(_: Path) -> Callable[[], object]:
    extra_buffers.remember(works=True)
    extra_buffers._results.clear()
    return extra_buffers.remembered


def summary(model: Path) -> Callable[[], object]:
    assert summary_of([model])

    def read() -> object:
        found = summary_of([model])
        return found and (f"{found.parameters:d}", f"{found.vocabulary.n_vocab:d}")

    return read


def size(_: Path) -> Callable[[], object]:
    store_json(demo_size._file("Q4_0", None), {"parameters": "0.1B", "speed_up": 2.0})
    return lambda: (found := demo_size.remembered("Q4_0", None)) and f"{found.speed_up:.1f}"


def download(_: Path) -> Callable[[], object]:
    partial_files.record_download("user/repo", "blob", "model", 1000)
    return lambda: partial_files._partial_file("user/repo", "blob.incomplete")


def preferences(_: Path) -> Callable[[], object]:
    Preferences().remember(theme="dark", model="m")
    return Preferences.read


def past_texts(_: Path) -> Callable[[], object]:
    known = DrawnFrom()
    known.add(1, Distribution(np.zeros(2, np.float32), np.array([2, 4]), 0.8))
    PastTexts("vocabulary").add(DrawnText([1, 2, 3], known))

    def read() -> object:
        found = PastTexts("vocabulary").load()
        return [([*each.tokens], b"".join(each.drawn_from.columns())) for each in found]

    return read


def state(_: Path) -> Callable[[], object]:
    StateStore().save("key", {"model": "m"}, {})
    return lambda: StateStore().load("key", {"model": "m"})


KINDS = [
    costs, plan, digits, verdict, buffers, summary, size, download, preferences, past_texts, state,
]  # fmt: skip


def file_of(home: Path) -> Path:
    [file] = [each for each in home.rglob("*") if each.is_file() and each.suffix in
              (".json", ".tokens", ".state") and not each.is_symlink()]  # fmt: skip
    return file


@contextmanager
def caches() -> Iterator[Callable[[int], str]]:
    """The cases: a file of each kind in turn is damaged and read."""
    with TemporaryDirectory(prefix="localspec-fuzz-") as folder:
        stored = {}
        for kind in KINDS:
            home = Path(folder) / kind.__name__
            home.mkdir()
            (home / "model.gguf").symlink_to(PYCODE[0])
            with patch.dict(os.environ, LOCALSPEC_HOME=str(home)):
                read = kind(home / "model.gguf")
                file = file_of(home)
                stored[kind.__name__] = home, read, file, file.read_bytes()

        def case(number: int) -> str:
            name = [*stored][number % len(stored)]
            home, read, file, written = stored[name]
            with patch.dict(os.environ, LOCALSPEC_HOME=str(home)):
                damage(file, written, Random(number))
                read()
            return name

        yield case
