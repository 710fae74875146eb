"""What many tests share: a real pair, loaded once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fakes.pycode import PYCODE, make_known
from fakes.share import choose_share, describe, take_share
from fakes.smoke_tests import ForkedSmokeTests
from hypothesis import settings

from localspec.cli.settings import SETTINGS
from localspec.llama import extra_buffers
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.loading import load_check
from localspec.loading.load_check import check_extra_buffers
from localspec.utils.busy_cores import allowed_cores

# No test may depend on how busy the machine is.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


# Shells start what runs in the background without Ctrl-C; the programs that tests start have it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Hide NVIDIA GPUs: many tests expect a processor's digits, threads and memory."""
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    choose_share(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half as many again as there are processors: tests wait for screens, servers and processes."""
    return len(allowed_cores()) * 3 // 2


def pytest_report_header() -> str:
    return describe()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    taken = take_share(items)
    here = set(taken)
    config.hook.pytest_deselected(items=[item for item in items if item not in here])
    items[:] = taken


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that tests measure or write goes to the user's cache."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as undo:
        for setting in SETTINGS.values():
            patch.delenv(setting.variable, raising=False)
        patch.setenv("LOCALSPEC_HOME", str(tmp_path_factory.mktemp("cache")))
        make_known()
        if hasattr(os, "fork"):
            quick = undo.enter_context(ForkedSmokeTests())
            patch.setattr(load_check, "run_smoke_test", quick.run)
        # Tests load models without the loader, which would do this, on any build there is.
        check_extra_buffers()
        # What it says of a build that crashes is not what other tests are about.
        patch.setattr(extra_buffers, "warnings", tuple)
        yield


@pytest.fixture(scope="session")
def target_path() -> Path:
    return PYCODE.target


@pytest.fixture(scope="session")
def drafter_path() -> Path:
    return PYCODE.drafter


@pytest.fixture(scope="session")
def target_model(target_path: Path) -> Iterator[Model]:
    with Model(target_path) as model:
        yield model


@pytest.fixture(scope="session")
def drafter_model(drafter_path: Path) -> Iterator[Model]:
    with Model(drafter_path) as model:
        yield model


@pytest.fixture
def make_context() -> Iterator[Callable[..., KVSequence]]:
    """Contexts in the settings where logits are equal bit for bit at every width."""
    made: list[KVSequence] = []

    def make(model: Model, *, n_ctx: int = 512, threads: int = 1) -> KVSequence:
        made.append(
            single_sequence(
                model, ContextParams(n_ctx=n_ctx, threads=threads, flash_attention=True)
            )
        )
        return made[-1]

    yield make
    for context in made:
        context.close()
