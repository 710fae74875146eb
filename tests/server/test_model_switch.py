"""Several models at one address, of which one is loaded at a time, and models that are unloaded."""

import asyncio
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import ollama
import psutil
import pytest
from fakes.command_line import localspec as command
from fakes.projectors import tiny_projector
from fakes.pycode import PYCODE
from fakes.served import Served, serving, wait_for
from openai import OpenAI

import localspec
from localspec.errors import InvalidValueError, ModelLoadError
from localspec.models.bundled_files import bundled_files
from localspec.models.registry import bundled
from localspec.server.catalog import Catalog, ServedModel
from localspec.server.errors import ApiError
from localspec.server.model_switch import ModelSwitch

TRAINED = Path(__file__).parents[1] / "trained"
FIRST, SECOND = "terminal-9m-q8_0", "second"
QUESTION: Any = [{"role": "user", "content": "How do I list files by size?"}]
ASKED: Any = {"messages": QUESTION, "temperature": 0, "max_tokens": 40}


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
    # What is true of each model's context is said at the first.
    assert sum("are too few" in line for line in both.lines) == 1


def test_what_has_no_effect_is_logged_once_for_all_models(both: Served) -> None:
    for name in (FIRST, SECOND, FIRST):
        answer = ask(both, name, max_tokens=1, temprature=1)
        assert len(answer["localspec"]["not_used"]) == 1
    wait_for(lambda: sum(" + 1 tokens" in line for line in both.lines) >= 3)
    assert sum("not used of a request: temprature" in line for line in both.lines) == 1


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


def test_lists_name_all_models_and_load_none(both: Served, second: Path) -> None:
    ask(both, SECOND)
    (line,) = [line for line in both.lines if "settings of other clients" in line]
    assert f"localspec serve {FIRST} {second} " in line
    loads = sum(" loading " in line for line in both.lines)
    listed = both.get("/v1/models").json()["data"]
    assert [each["id"] for each in listed] == [FIRST, SECOND]
    assert ["meta" in each for each in listed] == [False, True]
    assert both.get(f"/v1/models/{FIRST}").json()["id"] == FIRST
    tags = both.get("/api/tags").json()["models"]
    names = (FIRST, "terminal", SECOND)
    assert [each["name"] for each in tags] == [f"{name}:latest" for name in names]
    assert len({each["digest"] for each in tags}) == 2
    (running,) = both.get("/api/ps").json()["models"]
    assert (running["name"], running["context_length"]) == (f"{SECOND}:latest", 512)
    for name in (FIRST, f"{SECOND}:latest"):
        shown = both.post("/api/show", {"model": name}).json()
        assert shown["model_info"]["llama.context_length"] == 512
        assert both.get(f"/v1/models/{name}").json()["id"] == name.removesuffix(":latest")
        assert shown["capabilities"] == ["completion", "tools"]
    assert both.get("/health").status_code == both.get("/").status_code == 200
    assert both.get("/props").json()["model_alias"] == SECOND
    assert both.post("/api/embed", {"model": FIRST}).status_code == 501
    assert both.post("/v1/nothing", {"model": FIRST}).status_code == 404
    assert "use POST" in both.get("/v1/chat/completions").json()["error"]["message"]
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


def test_the_wait_for_a_model_counts(both: Served) -> None:
    """In the log, its objects and the metrics, which have one number."""
    ask(both, FIRST)
    counted = "localspec:queue_seconds_total"
    before = metric(both, counted)
    body = {"model": SECOND, "prompt": "ls", "stream": False, "options": {"num_predict": 2}}
    answer = both.post("/api/generate", body).json()
    assert metric(both, counted) - before > answer["load_duration"] / 2e9


@pytest.mark.parametrize("is_damaged_before", [True, False])
def test_a_model_that_cannot_be_loaded(
    own_cache: None, second: Path, tmp_path: Path, texts: dict[str, str], is_damaged_before: bool
) -> None:
    """The request says why, and the other model is there for the next one."""
    broken = shutil.copy(second, tmp_path / "broken.gguf")
    if is_damaged_before:
        broken.write_bytes(b"GGUF")
    with serving(FIRST, str(broken), "--threads", "1", "--ctx", "512") as served:
        assert text_of(ask(served, FIRST)) == texts[FIRST]
        broken.write_bytes(b"GGUF")
        tags = served.get("/api/tags").json()["models"]
        assert [each["name"] for each in tags] == [f"{FIRST}:latest", "terminal:latest"]
        answer = served.post("/v1/chat/completions", {**ASKED, "model": "broken"})
        assert answer.status_code == 500
        assert "broken.gguf" in answer.json()["error"]["message"]
        assert served.get("/health").status_code == 200
        (running,) = served.get("/api/ps").json()["models"]
        assert running["name"] == f"{FIRST}:latest"
        assert text_of(ask(served, "default")) == texts[FIRST]


@pytest.mark.slow
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
            return any(f"{FIRST} is unloaded" in line for line in served.lines)

        wait_for(is_unloaded)
        assert served.get("/slots").json() == []
        assert served.get("/api/ps").json() == {"models": []}
        props = served.get("/props").json()
        assert props["model_alias"] == FIRST and "no model" in props["localspec"]["no_drafter"]
        assert metric(served, counted) == before
        assert not any(" loading " in line for line in served.lines)
        assert text_of(ask(served, FIRST)) == text_of(first) == texts[FIRST]
        assert metric(served, counted) == 2 * before
        client = ollama.Client(served.url)
        with client:
            assert client.generate(FIRST, keep_alive=0).done_reason == "unload"
            assert client.ps().models == []
            assert client.generate(FIRST).done_reason == "load"
            (running,) = client.ps().models
            assert running.expires_at and running.expires_at.year < 9999
            wait_for(lambda: not client.ps().models)
        assert served.end(signal.SIGINT) == 0


def metric(served: Served, name: str) -> float:
    lines = served.get("/metrics").text.splitlines()
    (found,) = [line for line in lines if line.startswith(f"{name} ")]
    return float(found.rpartition(" ")[2])


@pytest.mark.slow
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


@pytest.mark.slow
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
        ((FIRST, str(bundled().target)), 2, f"two of the models are called {FIRST}"),
        ((FIRST, "no/such-model"), 3, "no/such-model is not on this machine"),
        ((FIRST, SECOND, "--alias", "a"), 2, "alias is of one model, and 2 are named"),
        (
            (FIRST, SECOND, "--mmproj", str(tiny_projector("llama"))),
            *(2, "mmproj is of one model, and 2 are named"),
        ),
        (("--unload-after", "0"), 2, "unload-after is 0; it must be above 0"),
        (("--unload-after", "nan"), 2, "unload-after is nan"),
    ],
)
def test_what_cannot_be_served(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = command("serve", *arguments, "--port", "18431")
    assert (done.code, said in done.err) == (code, True), done.err


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        (str(TRAINED / "eagle3-terminal-9m-q8_0.gguf"), "the vocabularies have 8192 and 4096"),
        ("pard=3:terminal-5m-q4_0", "terminal-5m-q4_0.gguf cannot draft for pycode-7m-q8_0.gguf"),
    ],
)
def test_a_drafter_that_fits_one_model_only(draft: str, said: str) -> None:
    """It is refused before anything is loaded, not where a request names the other model."""
    done = command("serve", FIRST, str(PYCODE.target), "--draft", draft, "--port", "18431")
    assert done.code == 6 and "--draft does not fit pycode-7m-q8_0: " in done.err, done.err
    assert said in done.err and "without it, each model takes a drafter of its own" in done.err


class Models:
    """Models a and b of a switch. history: what was loaded, closed and written, in order."""

    def __init__(self, **options: Any) -> None:
        self.history: list[str] = []
        self.services = {name: self._service(name) for name in "ab"}
        self.failing: set[str] = set()
        self.load_seconds = 0.0
        catalog = Catalog([ServedModel([name], HEADER, self._loader(name)) for name in "ab"])
        catalog.enter(catalog.models[0], self.services["a"])
        self.switch = ModelSwitch(catalog, **options)

    def _service(self, name: str) -> Any:
        return SimpleNamespace(
            name=name,
            engine=SimpleNamespace(context=64),
            adapters=(),
            pool=SimpleNamespace(busy=0),
            close=lambda: self.history.append(f"close {name}"),
        )

    def _loader(self, name: str) -> Callable[[], Any]:
        def load() -> Any:
            self.history.append(f"load {name}")
            time.sleep(self.load_seconds)
            if name in self.failing:
                raise ModelLoadError(f"{name} is broken")
            return self.services[name]

        return load

    async def write(self, name: str, go: asyncio.Event | None = None) -> str:
        """A text of the model of this name, which takes until `go` is set."""
        async with self.switch.lease(name) as service:
            if go:
                await go.wait()
            written: str = service.name
            self.history.append(f"write {written}")
            return written


HEADER = bundled_files()[0]


def run(trial: Callable[[Models], Awaitable[None]], **options: Any) -> None:
    async def trying() -> None:
        async with asyncio.timeout(30):
            await trial(Models(**options))

    asyncio.run(trying())


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_requests_come_to_their_turn_in_order() -> None:
    """So none waits for ever behind those for the other model."""

    async def trial(models: Models) -> None:
        go, tasks = asyncio.Event(), []
        for name in ("a", "b", "a", "a", "b:latest", "default"):
            tasks.append(asyncio.create_task(models.write(name, go)))
            await settled()
        assert models.history == [] and models.switch.waiting == 5
        go.set()
        assert await asyncio.gather(*tasks) == ["a", "b", "a", "a", "b", "b"]
        changes = [each for each in models.history if not each.startswith("write")]
        assert changes == ["close a", "load b", "close b", "load a", "close a", "load b"]
        assert models.history[0] == "write a" and models.switch.waiting == 0

    run(trial)


def test_who_gives_up_at_the_door_holds_nobody_up() -> None:
    async def trial(models: Models) -> None:
        go = asyncio.Event()
        long = asyncio.create_task(models.write("a", go))
        await settled()
        gone = asyncio.create_task(models.write("b"))
        await settled()
        behind = asyncio.create_task(models.write("a"))
        await settled()
        assert not behind.done()
        gone.cancel()
        assert await behind == "a" and not long.done()
        go.set()
        await long
        assert models.history == ["write a", "write a"]

    run(trial)


def test_a_load_is_not_left_half_done() -> None:
    """Whoever asked for it may have gone; the next one finds the model."""

    async def trial(models: Models) -> None:
        models.load_seconds = 0.2
        gone = asyncio.create_task(models.write("b"))
        while "load b" not in models.history:
            await asyncio.sleep(0.01)
        assert models.switch.loads
        gone.cancel()
        assert await models.write("b") == "b"
        assert gone.cancelled()
        assert models.history == ["close a", "load b", "write b"]

    run(trial)


def test_as_many_wait_as_the_queue_has_room_for() -> None:
    async def trial(models: Models) -> None:
        go = asyncio.Event()
        tasks = [asyncio.create_task(models.write("a", go))]
        await settled()
        for name in ("b", "a", "b"):
            tasks.append(asyncio.create_task(models.write(name, go)))
            await settled()
        assert models.switch.waiting == 3
        with pytest.raises(ApiError, match="3 requests wait for a model") as refused:
            await models.write("a")
        assert refused.value.status == 429 and refused.value.headers["Retry-After"]
        go.set()
        assert await asyncio.gather(*tasks) == ["a", "b", "a", "b"]

    run(trial, queue_limit=3)


def test_a_text_that_is_given_up_ends_before_its_model_is_closed() -> None:
    async def trial(models: Models) -> None:
        models.services["a"].pool.busy = 1
        task = asyncio.create_task(models.write("b"))
        await asyncio.sleep(0.05)
        assert models.history == []
        models.services["a"].pool.busy = 0
        assert await task == "b"

    run(trial)


def test_threads_end_before_their_model_is_closed() -> None:
    """A request whose client has gone may still read its prompt in one."""

    async def trial(models: Models) -> None:
        await models.write("a")

        def reading() -> None:
            time.sleep(0.2)
            models.history.append("read")

        thread = asyncio.create_task(asyncio.to_thread(reading))
        await settled()
        assert await models.write("b") == "b"
        await thread
        assert models.history == ["write a", "read", "close a", "load b", "write b"]

    run(trial)


def test_the_next_request_after_one_that_failed_to_load() -> None:
    async def trial(models: Models) -> None:
        models.failing.add("b")
        with pytest.raises(ModelLoadError, match="b is broken"):
            await models.write("b")
        assert await models.write("") == "a"
        assert models.history == ["close a", "load b", "load a", "write a"]

    run(trial)


def test_a_file_that_cannot_be_read_costs_nobody_the_other_model(tmp_path: Path) -> None:
    async def trial(models: Models) -> None:
        broken = tmp_path / "b.gguf"
        broken.write_bytes(b"GGUF")
        catalog = models.switch.catalog
        (a, b) = catalog.models
        lost = ServedModel(["b"], broken, b.load)
        switch = ModelSwitch(Catalog([a, lost]))
        switch.catalog.enter(a, models.services["a"])
        with pytest.raises(ModelLoadError, match=r"b\.gguf"):
            async with switch.lease("b"):
                raise AssertionError
        async with switch.lease("a") as service:
            assert service is models.services["a"]
        assert models.history == []

    run(trial)


def test_no_request_is_taken_while_the_server_ends() -> None:
    async def trial(models: Models) -> None:
        models.switch.closing = True
        for name in ("a", "b"):
            with pytest.raises(ApiError, match="shutting down") as refused:
                await models.write(name)
            assert refused.value.status == 503 and models.history == []

    run(trial)


def test_a_model_is_not_loaded_where_the_server_ends_while_another_is_unloaded() -> None:
    async def trial(models: Models) -> None:
        asked = asyncio.create_task(models.write("b"))
        while "close a" not in models.history:
            await asyncio.sleep(0)
        models.switch.closing = True
        with pytest.raises(ApiError, match="shutting down"):
            await asked
        assert models.history == ["close a"]

    run(trial)


def test_a_model_is_unloaded_unless_a_request_comes() -> None:
    async def trial(models: Models) -> None:
        assert await models.write("a") == "a"
        ends = models.switch.ends_at
        assert ends and ends > datetime.now(UTC)
        async with models.switch.lease("a"):
            await asyncio.sleep(0.5)
            assert models.switch.catalog.service and models.history == ["write a"]
        while "close a" not in models.history:
            await asyncio.sleep(0.01)
        assert await models.write("") == "a"
        await models.switch.unload("b")
        assert models.switch.catalog.service
        await models.switch.unload("a")
        assert not models.switch.catalog.service

    run(trial, unload_after=0.2)


def test_a_name_means_one_model() -> None:
    def model(*names: str) -> ServedModel:
        return ServedModel(names, HEADER, lambda: None)  # type: ignore[arg-type, return-value]

    first, second = model("x:q4", "pair"), model("x:q8", "pair")
    catalog = Catalog([first, second])
    assert catalog.find("x:q8") is second and catalog.find("pair") is first
    assert catalog.find("") is catalog.find("default:latest") is None
    with pytest.raises(InvalidValueError, match="two of the models are called x:q4"):
        Catalog([first, model("x:q4")])
