"""A server with the bundled pair, for all tests of a process."""

from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from fakes import templates
from fakes.browser import headless, open_files
from fakes.served import Served, serving
from fakes.tiny import write_tiny
from openai import OpenAI

import localspec
from localspec.engine.engine import Engine


@pytest.fixture(scope="session")
def served(own_cache: None) -> Iterator[Served]:
    with serving("--threads", "1", "--parallel", "3", "--ctx", "1024") as running:
        yield running


@pytest.fixture(scope="session")
def reproducible(own_cache: None) -> Iterator[Served]:
    """A server whose texts do not depend on their company, not even in a near tie."""
    options = ("--threads", "1", "--parallel", "3", "--ctx", "512", "--reproducible")
    with serving(*options) as running:
        yield running


@pytest.fixture(scope="session")
def strict(own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A tiny model whose template is strict, and that reasons."""
    model = tmp_path_factory.mktemp("strict") / "strict.gguf"
    write_tiny(model, "llama", quantised=False, template=templates.STRICT, context=2048)
    with serving(str(model), "--threads", "1", "--draft", "suffix", "--parallel", "2") as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(served: Served) -> Iterator[Anthropic]:
    with Anthropic(base_url=served.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def alone(own_cache: None) -> Iterator[Engine]:
    """The same model, without a server and without drafters."""
    with localspec.load(draft="none", threads=1, context=1024) as engine:
        yield engine


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser that nobody sees."""
    with headless() as opened:
        yield opened


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[Any]:
    """The page's files, without a server."""
    page = browser.new_page()
    open_files(page)
    yield page
    page.close()
