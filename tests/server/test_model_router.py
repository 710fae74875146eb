"""Several models at one address, of which one is loaded at a time, and models that are unloaded."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest
from fakes.command_line import localspec as command
from fakes.served import Served, serving, wait_for
from openai import OpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import localspec
from localspec.errors import ModelLoadError
from localspec.models.bundled_files import bundled_files
from localspec.server.catalog import Catalog, ServedModel
from localspec.server.model_router import ModelRouter

FIRST, SECOND = "terminal-9m-q8_0", "second"
QUESTION: Any = [{"role": "user", "content": "How do I list files by size?"}]
ASKED: Any = {"messages": QUESTION, "temperature": 0, "max_tokens": 40}
NEVER_GONE: Any = {"type": "http.request", "body": b"", "more_body": False}


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model than the first: the small one of the bundled pair."""
    (small,) = [each for each in bundled_files() if FIRST not in each.name]
    path = tmp_path_factory.mktemp("second") / f"{SECOND}.gguf"
    shutil.copy(small, path)
    return path


@pytest.fixture(scope="module")
def texts(own_cache: None, second: Path) -> dict[str, str]:
    """What each model answers alone."""
    found = {}
    for name, path in ((FIRST, None), (SECOND, second)):
        with localspec.load(path, "none", threads=1, context=512) as engine:
            found[name] = engine.generate(QUESTION, temperature=0, max_tokens=40).text
    assert found[FIRST] != found[SECOND]
    return found


@pytest.fixture(scope="module")
def both(own_cache: None, second: Path) -> Iterator[Served]:
    options = ("--threads", "1", "--ctx", "512", "--parallel", "2")
    with serving(FIRST, str(second), *options) as running:
        yield running


def ask(served: Served, model: str, path: str = "/v1/chat/completions", **more: Any) -> Any:
    answer = served.post(path, {**ASKED, "model": model, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(answer: Any) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


def test_a_request_gets_the_model_that_it_names(both: Served, texts: dict[str, str]) -> None:
    for name in (FIRST, SECOND, SECOND, FIRST):
        answer = ask(both, name)
        assert (answer["model"], text_of(answer)) == (name, texts[name])
        # One that names none gets the one that is loaded.
        assert ask(both, "default")["model"] == ask(both, "")["model"] == name
    loads = [line for line in both.lines if " loading " in line]
    assert [line.rpartition(" ")[2] for line in loads] == [SECOND, FIRST]


@pytest.mark.slow
def test_requests_for_both_models_at_once(both: Served, texts: dict[str, str]) -> None:
    names = [FIRST, SECOND, SECOND, FIRST, FIRST, SECOND, FIRST, SECOND]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: ask(both, name), names))
    assert [answer["model"] for answer in answers] == names
    assert [text_of(answer) for answer in answers] == [texts[name] for name in names]
    streams = [name for name in names if name == SECOND]
    with OpenAI(base_url=f"{both.url}/v1", api_key="none") as client:
        for name in streams:
            parts = client.chat.completions.create(**ASKED, model=name, stream=True)
            said = [part.choices[0].delta.content or "" for part in parts]
            assert "".join(said) == texts[name]


def test_lists_name_all_models_and_load_none(both: Served) -> None:
    ask(both, SECOND)
    loads = sum(" loading " in line for line in both.lines)
    listed = both.get("/v1/models").json()["data"]
    assert [each["id"] for each in listed] == [FIRST, SECOND]
    assert ["meta" in each for each in listed] == [False, True]
    assert both.get(f"/v1/models/{FIRST}").json()["id"] == FIRST
    tags = both.get("/api/tags").json()["models"]
    assert [each["name"] for each in tags] == [f"{FIRST}:latest", f"{SECOND}:latest"]
    assert len({each["digest"] for each in tags}) == 2
    (running,) = both.get("/api/ps").json()["models"]
    assert (running["name"], running["context_length"]) == (f"{SECOND}:latest", 512)
    for name, context in ((FIRST, 2048), (SECOND, 512)):
        shown = both.post("/api/show", {"model": name}).json()
        assert shown["model_info"]["llama.context_length"] == context
        assert shown["capabilities"] == ["completion", "tools"]
    assert both.get("/health").status_code == both.get("/").status_code == 200
    assert both.get("/props").json()["model_alias"] == SECOND
    assert both.post("/api/embed", {"model": FIRST}).status_code == 501
    assert both.post("/v1/nothing", {"model": FIRST}).status_code == 404
    unknown = both.post("/api/chat", {"model": "other", "messages": QUESTION})
    assert unknown.status_code == 404
    assert f"ask for {FIRST} or {SECOND}" in unknown.json()["error"]
    assert httpx.post(f"{both.url}/v1/completions", content=b"{").status_code == 400
    assert sum(" loading " in line for line in both.lines) == loads


def test_an_answer_goes_on_with_another_model(both: Served, texts: dict[str, str]) -> None:
    """The answers of a conversation are kept, whichever model wrote them."""
    said = {"temperature": 0, "max_output_tokens": 20}
    with OpenAI(base_url=f"{both.url}/v1", api_key="none") as client:
        first = client.responses.create(model=FIRST, input="ls", extra_body=said)
        other = client.responses.create(
            model=SECOND, input="And?", previous_response_id=first.id, extra_body=said
        )
        assert other.model == SECOND and other.usage and first.usage
        assert other.usage.input_tokens > first.usage.input_tokens
        assert client.responses.retrieve(first.id).output_text == first.output_text


def test_a_model_that_cannot_be_loaded(
    own_cache: None, second: Path, tmp_path: Path, texts: dict[str, str]
) -> None:
    """The request says why, and the other model is there for the next one."""
    broken = shutil.copy(second, tmp_path / "broken.gguf")
    with serving(FIRST, str(broken), "--threads", "1", "--ctx", "512") as served:
        assert text_of(ask(served, FIRST)) == texts[FIRST]
        broken.unlink()
        answer = served.post("/v1/chat/completions", {**ASKED, "model": "broken"})
        assert answer.status_code == 500
        assert "broken.gguf" in answer.json()["error"]["message"]
        assert served.get("/health").status_code == 200
        assert served.get("/api/ps").json() == {"models": []}
        assert text_of(ask(served, "default")) == texts[FIRST]


def test_a_model_is_unloaded_after_a_while(own_cache: None, texts: dict[str, str]) -> None:
    """A page that looks now and then neither keeps it nor loads it."""
    options = ("--threads", "1", "--ctx", "512", "--unload-after", "0.02")
    with serving(*options) as served:
        first = ask(served, FIRST)
        counted = "llamacpp:tokens_predicted_total"
        before = metric(served, counted)
        assert before == first["usage"]["completion_tokens"]

        def is_unloaded() -> bool:
            assert served.get("/slots").status_code == served.get("/health").status_code == 200
            return any("is unloaded; a" in line for line in served.lines)

        wait_for(is_unloaded)
        assert served.get("/slots").json() == []
        assert served.get("/api/ps").json() == {"models": []}
        props = served.get("/props").json()
        assert props["model_alias"] == FIRST and "no model" in props["localspec"]["no_drafter"]
        assert metric(served, counted) == before
        assert not any(" loading " in line for line in served.lines)
        assert text_of(ask(served, FIRST)) == text_of(first) == texts[FIRST]
        assert metric(served, counted) == 2 * before
        assert served.end() == 0


def metric(served: Served, name: str) -> float:
    lines = served.get("/metrics").text.splitlines()
    (found,) = [line for line in lines if line.startswith(f"{name} ")]
    return float(found.rpartition(" ")[2])


def test_a_conversation_is_kept_while_the_other_model_answers(
    own_cache: None, second: Path, texts: dict[str, str]
) -> None:
    options = ("--threads", "1", "--ctx", "512", "--parallel", "1", "--keep")
    with serving(FIRST, str(second), *options) as served:
        read = ask(served, FIRST)["usage"]["prompt_tokens"]
        assert text_of(ask(served, SECOND)) == texts[SECOND]
        again = ask(served, FIRST)
        assert text_of(again) == texts[FIRST]
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == read - 1


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_memory_is_free_once_a_model_is_unloaded(own_cache: None) -> None:
    with serving("--threads", "1", "--load-mode", "mmap", "--unload-after", "0.05") as served:
        (child,) = psutil.Process(served.process.pid).children()

        def holds_model() -> bool:
            return ".gguf" in Path(f"/proc/{child.pid}/maps").read_text(encoding="utf-8")

        for _ in range(2):
            ask(served, FIRST)
            assert holds_model()
            wait_for(lambda: not holds_model())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((FIRST, FIRST), 2, f"two of the models are called {FIRST}"),
        ((FIRST, "no/such-model"), 3, "no/such-model is not on this machine"),
        ((FIRST, SECOND, "--alias", "a"), 2, "alias is of one model, and 2 are named"),
        (("--unload-after", "0"), 2, "unload-after is 0; it must be above 0"),
        (("--unload-after", "nan"), 2, "unload-after is nan"),
    ],
)
def test_what_cannot_be_served(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = command("serve", *arguments, "--port", "18431")
    assert (done.code, said in done.err) == (code, True), done.err


class Models:
    """A router of models a and b whose texts take as long as a test says.

    history: what was loaded, closed and answered, in order.
    """

    def __init__(self) -> None:
        self.history: list[str] = []
        self.go = asyncio.Event()
        self.services = {name: self._service(name) for name in "ab"}
        self.failing: set[str] = set()
        catalog = Catalog([ServedModel([name], Path(name), self._loader(name)) for name in "ab"])
        catalog.enter(catalog.models[0], self.services["a"])
        self.router = ModelRouter(catalog, self._app, aside=Starlette())

    def _service(self, name: str) -> Any:
        return SimpleNamespace(
            closing=False,
            engine=SimpleNamespace(context=64),
            pool=SimpleNamespace(busy=0),
            close=lambda: self.history.append(f"close {name}"),
        )

    def _loader(self, name: str) -> Callable[[], Any]:
        def load() -> Any:
            self.history.append(f"load {name}")
            if name in self.failing:
                raise ModelLoadError(f"{name} is broken")
            return self.services[name]

        return load

    def _app(self, service: Any) -> Starlette:
        (name,) = [each for each, found in self.services.items() if found is service]

        async def answer(request: Request) -> JSONResponse:
            asked = (await request.json())["model"]
            assert asked in (name, "")
            await self.go.wait()
            self.history.append(f"answer {name}")
            return JSONResponse({"by": name})

        return Starlette(routes=[Route("/text", answer, methods=["POST"])])

    @asynccontextmanager
    async def client(self) -> Any:
        transport = httpx.ASGITransport(app=self.router)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client


def run(trial: Callable[[Models, httpx.AsyncClient], Awaitable[None]]) -> None:
    async def trying() -> None:
        models = Models()
        async with models.client() as client, asyncio.timeout(30):
            await trial(models, client)

    asyncio.run(trying())


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_requests_are_answered_in_their_order() -> None:
    """So none waits for ever behind those for the other model."""

    async def trial(models: Models, client: httpx.AsyncClient) -> None:
        tasks = []
        for name in ("a", "b", "a", "a", "b", ""):
            tasks.append(asyncio.create_task(client.post("/text", json={"model": name})))
            await settled()
        assert models.history == []
        models.go.set()
        found = [task.json()["by"] for task in await asyncio.gather(*tasks)]
        assert found == ["a", "b", "a", "a", "b", "b"]
        begun = [each for each in models.history if each[0] in "lc"]
        assert begun == ["close a", "load b", "close b", "load a", "close a", "load b"]
        assert models.history[0] == "answer a"

    run(trial)


def test_a_text_that_is_given_up_ends_before_its_model_is_closed() -> None:
    async def trial(models: Models, client: httpx.AsyncClient) -> None:
        models.go.set()
        models.services["a"].pool.busy = 1
        task = asyncio.create_task(client.post("/text", json={"model": "b"}))
        await asyncio.sleep(0.05)
        assert models.history == []
        models.services["a"].pool.busy = 0
        assert (await task).json() == {"by": "b"}

    run(trial)


def test_threads_end_before_their_model_is_closed() -> None:
    """A request whose client has gone may still read its prompt in one."""

    async def trial(models: Models, client: httpx.AsyncClient) -> None:
        models.go.set()
        reads = asyncio.Event()
        loop = asyncio.get_running_loop()

        def reading() -> None:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), loop).result()
            models.history.append("read")

        thread = asyncio.create_task(asyncio.to_thread(reading))
        reads.set()
        await settled()
        assert (await client.post("/text", json={"model": "b"})).json() == {"by": "b"}
        await thread
        assert models.history[:2] == ["read", "close a"]

    run(trial)


def test_nothing_is_loaded_for_a_client_that_has_gone() -> None:
    async def trial(models: Models, client: httpx.AsyncClient) -> None:
        body = b'{"model": "b"}'
        messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]

        async def receive() -> Any:
            return messages.pop(0)

        async def send(_message: Any) -> None:
            raise AssertionError

        scope = {"type": "http", "method": "POST", "path": "/text", "headers": [],
                 "query_string": b"", "app": models.router}  # fmt: skip
        await models.router(scope, receive, send)
        assert models.history == []

    run(trial)


def test_the_next_request_after_one_that_failed_to_load() -> None:
    async def trial(models: Models, client: httpx.AsyncClient) -> None:
        models.go.set()
        models.failing.add("b")
        failed = await client.post("/text", json={"model": "b"})
        assert failed.status_code == 500 and "b is broken" in failed.json()["error"]["message"]
        assert (await client.post("/text", json={"model": ""})).json() == {"by": "a"}
        assert models.history == ["close a", "load b", "load a", "answer a"]

    run(trial)


def test_no_model_is_loaded_while_the_server_ends() -> None:
    async def trial(models: Models, client: httpx.AsyncClient) -> None:
        models.services["a"].closing = True
        refused = await client.post("/text", json={"model": "b"})
        assert refused.status_code == 503 and models.history == []

    run(trial)
