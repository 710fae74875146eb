"""The page, in a browser that nobody sees; skipped without playwright and Chromium."""

import shutil
from base64 import b64decode, b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fakes.browser import answered, opened, part, say, script
from fakes.projectors import picture, tiny_projector
from fakes.served import Served, free_port, health, serving, starting, wait_for
from fakes.tiny import TURNS, write_tiny
from fakes.tiny_embedders import write_bert

from localspec.models.bundled_files import bundled_files

playwright = pytest.importorskip("playwright.sync_api")


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    """The page on a phone. Whatever it says to the console is a fault."""
    context = browser.new_context(viewport={"width": 390, "height": 700})
    with opened(context, served) as page:
        yield page


def test_a_conversation(page: Any, served: Served) -> None:
    for number, question in enumerate(["How do I list files by size?", "and by date?"]):
        page.fill("#text", question)
        page.keyboard.press("Enter")
        answer = page.locator("article.answer").nth(number)
        answer.get_by_text("tok/s").wait_for(timeout=60_000)
        page.locator("#send", has_text="Send").wait_for(timeout=60_000)
        assert len(answer.inner_text().splitlines()) >= 2
    assert page.locator("article").count() == 4
    # Nothing is wider than the screen.
    assert page.locator("#talk").bounding_box()["width"] <= 390
    page.locator(".slots", has_text="kept").wait_for(timeout=10_000)


def test_a_text_that_is_stopped_and_an_error(page: Any, served: Served) -> None:
    page.fill("#text", "word " * 3000)
    page.keyboard.press("Enter")
    page.locator("article .error", has_text="too long").wait_for(timeout=60_000)
    page.fill("#text", "<script>alert(1)</script>")
    page.keyboard.press("Enter")
    page.locator("#send", has_text="Send").wait_for(timeout=60_000)
    assert "<script>" in page.locator("article.question").nth(1).inner_text()
    page.keyboard.press("Escape")
    served.wait_until_free()


def test_a_message_may_be_sent_before_the_server_said_how_it_is(
    browser: Any, served: Served
) -> None:
    page = browser.new_page()
    page.route("**/health", lambda route: None)
    page.goto(served.url)
    page.fill("#text", "Find large files")
    page.keyboard.press("Enter")
    page.locator("article.answer").get_by_text("tok/s").wait_for(timeout=60_000)
    page.locator("#send", has_text="Send").wait_for(timeout=60_000)
    page.close()


def test_it_works_beside_eight_streams(page: Any, served: Served) -> None:
    body = {"prompt": "ls", "max_tokens": 150, "ignore_eos": True, "temperature": 1}
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(served.post, "/v1/completions", body) for _ in range(8)]
        page.fill("#text", "Find large files")
        page.keyboard.press("Enter")
        page.locator("article.answer").get_by_text("tok/s").wait_for(timeout=120_000)
        page.locator("#send", has_text="Send").wait_for(timeout=120_000)
        assert all(other.result().status_code == 200 for other in others)


@pytest.mark.parametrize(("width", "height"), [(320, 560), (390, 780), (1280, 800)])
def test_the_talk_stays_in_view(browser: Any, served: Served, width: int, height: int) -> None:
    """Also where many slots are shown, and after a long message was sent."""
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(served.url)
    page.locator("#busy", has_text="of 3 slots").wait_for()
    assert page.locator("#slots").evaluate("each => each.open") == (width > 1000)
    low = page.locator("#text").bounding_box()["height"]
    page.fill("#text", "What is this?\n" + "x" * 200 + "\n" * 8 + "end")
    assert page.locator("#text").bounding_box()["height"] > low + 50
    page.keyboard.press("Enter")
    assert page.locator("#text").bounding_box()["height"] < low + 1
    page.locator("article.answer").get_by_text("tok/s").wait_for(timeout=60_000)
    page.locator("#send", has_text="Send").wait_for(timeout=60_000)
    page.locator("#slots").evaluate("each => { each.open = true; }")
    page.locator("#each", has_text="slot 2").wait_for()
    talk, line = page.locator("#talk"), page.locator("article.answer .facts")
    assert talk.bounding_box()["height"] > 100
    end = line.bounding_box()["y"] + line.bounding_box()["height"]
    assert end <= talk.bounding_box()["y"] + talk.bounding_box()["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


FROM_END = """box => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
    done(box.scrollHeight - box.clientHeight - box.scrollTop);
})))"""


def test_a_reader_leaves_the_end_by_scrolling_up_however_little(page: Any) -> None:
    page.locator("#draft", has_text="draft:").wait_for()
    script(page, [part("line\n\n" * 100)])
    say(page, "x")
    talk = page.locator("#talk")
    assert talk.evaluate(FROM_END) < 2
    talk.evaluate("each => { each.scrollTop -= 12; }")
    assert 10 < talk.evaluate(FROM_END) < 14
    page.fill("#text", "\n" * 3)
    assert talk.evaluate(FROM_END) > 50
    talk.evaluate("each => { each.scrollTop = each.scrollHeight; }")
    assert talk.evaluate(FROM_END) < 2
    page.fill("#text", "\n" * 6)
    assert talk.evaluate(FROM_END) < 2


LOADS_LATE = """
import sys, time
from pathlib import Path
from localspec.engine.engine import load
from localspec.server.address import Address
from localspec.server.catalog import ServedModel
from localspec.server.run import listen, serve
from localspec.server.service import Service
from localspec.server.slot_pool import SlotPool
from localspec.utils.progress import report_progress

def load_late():
    report_progress("loading big.gguf", 0.42)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.05)
    engine = load(draft="none", threads=1, context=256)
    return Service(engine, SlotPool(engine, 1, 1), ["tiny"])

address = Address(port=int(sys.argv[1]))
ignore = lambda *_: None
models = [ServedModel(["tiny"], Path("tiny"), load_late)]
serve(models, address, listen(address), ready=ignore, signalled=ignore, progress=ignore)
"""


@pytest.mark.slow
def test_it_waits_until_the_model_is_loaded(browser: Any, tmp_path: Path) -> None:
    """And goes on by itself, also where the server was away meanwhile."""
    port, go = free_port(), tmp_path / "go"
    command = ("-c", LOADS_LATE, str(port), str(go))
    page = browser.new_page()
    with starting(*command) as process:
        wait_for(lambda: health(f"http://127.0.0.1:{port}"))
        page.goto(f"http://127.0.0.1:{port}")
        page.locator("#draft", has_text="loading big.gguf 42%").wait_for()
        assert page.locator("#send").is_disabled()
        go.touch()
        page.locator("#draft", has_text="draft: off").wait_for(timeout=60_000)
        assert page.locator("#send").is_enabled()
        page.locator("#slots", has_text="free").wait_for()
        process.terminate()
        page.locator("#draft", has_text="does not answer").wait_for()
        go.unlink()
        process.wait()
    with starting(*command):
        page.locator("#draft", has_text="loading big.gguf 42%").wait_for(timeout=60_000)
        go.touch()
        page.locator("#draft", has_text="draft: off").wait_for(timeout=60_000)
    page.close()


def test_a_long_message_leaves_a_small_box_behind(page: Any) -> None:
    small = page.locator("#text").bounding_box()["height"]
    page.fill("#text", "one\ntwo\nthree\nfour")
    assert page.locator("#text").bounding_box()["height"] > small + 30
    page.keyboard.press("Enter")
    assert page.locator("#text").bounding_box()["height"] < small + 2
    page.keyboard.press("Escape")
    page.locator("#send", has_text="Send").wait_for(timeout=60_000)


def test_a_message_that_fails_can_be_mended(page: Any) -> None:
    page.fill("#text", "word " * 3000)
    page.keyboard.press("Enter")
    page.locator("article .error").wait_for(timeout=60_000)
    assert page.input_value("#text").startswith("word word")


@pytest.mark.slow
def test_the_key_is_asked_for_once(browser: Any) -> None:
    """Who closes the question is left in peace, and may come back to it."""
    answers: list[str | None] = [None, "wrong", "secret"]
    asked: list[str] = []

    def answer(dialog: Any) -> None:
        asked.append(dialog.message)
        given = answers[len(asked) - 1]
        dialog.accept(given) if given else dialog.dismiss()

    with serving("--threads", "1", "--parallel", "1", LOCALSPEC_API_KEY="secret") as served:
        context = browser.new_context()
        page = context.new_page()
        page.on("dialog", answer)
        page.goto(served.url)
        again = page.get_by_role("button", name="Enter the API key")
        again.wait_for(timeout=30_000)
        page.wait_for_timeout(2000)
        assert len(asked) == 1
        again.click()
        page.locator(".slots", has_text="slot: free").wait_for(timeout=30_000)
        assert len(asked) == 3
        page.locator("#draft", has_text="draft:").wait_for(timeout=30_000)
        context.close()


@pytest.mark.slow
def test_several_models_are_a_choice(browser: Any, own_cache: None, tmp_path: Path) -> None:
    (small,) = [each for each in bundled_files() if "5m" in each.name]
    shutil.copy(small, tmp_path / "second.gguf")
    options = ("--threads", "1", "--ctx", "512", "--unload-after", "0.2")
    with serving("terminal-9m-q8_0", str(tmp_path / "second.gguf"), *options) as served:
        page = browser.new_page()
        page.goto(served.url)
        choice = page.get_by_label("Model")
        choice.wait_for(timeout=60_000)
        assert choice.locator("option").all_inner_texts() == ["terminal-9m-q8_0", "second"]
        choice.select_option("second")
        page.fill("#text", "How do I list files by size?")
        page.keyboard.press("Enter")
        page.locator("article.answer").get_by_text("tok/s").wait_for(timeout=60_000)
        running = served.get("/api/ps").json()["models"]
        assert [each["name"] for each in running] == ["second:latest"]
        assert choice.input_value() == page.title() == "second"
        page.locator("#busy", has_text="no model is loaded").wait_for(timeout=60_000)
        assert not any("loading terminal" in line for line in served.lines)
        page.close()


def test_models_for_embeddings_are_no_choice(browser: Any, own_cache: None, tmp_path: Path) -> None:
    options = ("--threads", "1", "--ctx", "512", "--embed", str(write_bert(tmp_path / "bert.gguf")))
    with serving(*options) as served:
        assert len(served.get("/v1/models").json()["data"]) == 2
        with opened(browser.new_context(), served) as page:
            page.locator("#draft", has_text="draft:").wait_for(timeout=60_000)
            assert page.locator("#name").inner_text() == page.title() == "terminal-9m-q8_0"
            assert page.get_by_label("Model").count() == 0
            page.fill("#text", "How do I list files by size?")
            page.keyboard.press("Enter")
            answered(page)


# Images.

PNG = b64encode(picture(90, 60, seed=1)).decode()
# Files as a program puts them on the clipboard, or a hand drops them: names, types, base64.
HANDED = """([event, given, more]) => {
    const data = new DataTransfer();
    for (const [name, type, base64] of given) {
        const bytes = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
        data.items.add(new File([bytes], name, { type }));
    }
    for (const [type, text] of more) data.items.add(text, type);
    const made = event === "paste"
        ? new ClipboardEvent(event, { clipboardData: data, bubbles: true, cancelable: true })
        : new DragEvent(event, { dataTransfer: data, bubbles: true, cancelable: true });
    return !document.getElementById("text").dispatchEvent(made);
}"""
DRAWN = """(type) => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [40, 30];
    canvas.getContext("2d").fillRect(5, 5, 20, 10);
    return canvas.toDataURL(type).split(",")[1];
}"""


@pytest.fixture(scope="module")
def seeing(own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two models, of which the first reads images."""
    files = [tmp_path_factory.mktemp("page") / f"{name}.gguf" for name in ("eye", "words")]
    for file in files:
        write_tiny(file, "llama", quantised=False, template=TURNS, context=1024)
    files[0].with_name("mmproj-eye.gguf").symlink_to(tiny_projector("llama"))
    options = ("--threads", "1", "--draft", "suffix", "--parallel", "1")
    with serving(*map(str, files), *options) as running:
        yield running


@pytest.fixture
def sent() -> list[Any]:
    """The messages of each request."""
    return []


@pytest.fixture
def eyes(browser: Any, seeing: Served, sent: list[Any]) -> Iterator[Any]:
    with opened(browser.new_context(viewport={"width": 390, "height": 700}), seeing) as page:
        page.on(
            "request",
            lambda request: (
                "chat/completions" in request.url
                and sent.append(request.post_data_json["messages"])
            ),
        )
        page.locator("#draft", has_text="draft:").wait_for(timeout=60_000)
        yield page


def chips(page: Any, count: int) -> Any:
    found = page.locator("#images button")
    playwright.expect(found).to_have_count(count)
    return found


def test_images_are_chosen_pasted_and_dropped(eyes: Any, sent: list[Any]) -> None:
    """What the server does not read becomes a PNG; all stay in the conversation."""
    webp = b64decode(eyes.evaluate(DRAWN, "image/webp"))
    assert webp[8:12] == b"WEBP"
    files = [("cat.png", "image/png", b64decode(PNG)), ("dog.webp", "image/webp", webp)]
    handed = [{"name": name, "mimeType": kind, "buffer": data} for name, kind, data in files]
    eyes.set_input_files("#file", handed)
    chips(eyes, 2)
    assert eyes.evaluate(HANDED, ["paste", [["a.png", "image/png", PNG]], []])
    chips(eyes, 3)
    assert eyes.evaluate(HANDED, ["dragover", [["b.png", "image/png", PNG]], []])
    assert eyes.evaluate(HANDED, ["drop", [["b.png", "image/png", PNG]], []])
    chips(eyes, 4).nth(2).click()
    names = [each.get_attribute("title") for each in chips(eyes, 3).all()]
    assert names == ["Remove cat.png", "Remove dog.webp", "Remove b.png"]
    eyes.fill("#text", "what")
    eyes.keyboard.press("Enter")
    answered(eyes)
    chips(eyes, 0)
    assert eyes.locator("article.question img").count() == 3
    ((question,),) = sent
    *images, text = question["content"]
    assert text == {"type": "text", "text": "what"}
    urls = [each["image_url"]["url"] for each in images]
    assert urls[0] == urls[2] == f"data:image/png;base64,{PNG}"
    assert urls[1].startswith("data:image/png;base64,")
    assert b64decode(urls[1].partition(",")[2])[:4] == b"\x89PNG"
    eyes.fill("#text", "and")
    eyes.keyboard.press("Enter")
    answered(eyes)
    assert sent[1][0] == question and sent[1][-1] == {"role": "user", "content": "and"}
    assert eyes.evaluate("document.documentElement.scrollWidth") <= 390


def test_an_image_needs_no_words_and_the_model_reads_it(
    eyes: Any, seeing: Served, sent: list[Any]
) -> None:
    eyes.set_input_files(
        "#file", {"name": "cat.png", "mimeType": "image/png", "buffer": b64decode(PNG)}
    )
    chips(eyes, 1)
    eyes.locator("#send").click()
    answered(eyes)
    (messages,) = sent
    assert [part["type"] for part in messages[0]["content"]] == ["image_url"]
    counted = seeing.post("/v1/chat/completions/input_tokens", {"messages": messages}).json()
    assert counted["input_tokens"] > 16, "its rows"
    wait_for(lambda: f" {counted['input_tokens']} + " in seeing.lines[-1])


def test_what_fails_comes_back_with_its_images(eyes: Any) -> None:
    """Also an image that the server cannot read."""
    broken = b64encode(b64decode(PNG)[:60]).decode()
    eyes.evaluate(HANDED, ["drop", [["broken.png", "image/png", broken]], []])
    chips(eyes, 1)
    eyes.fill("#text", "what")
    eyes.keyboard.press("Enter")
    eyes.locator("article .error").wait_for(timeout=60_000)
    chips(eyes, 1)
    assert eyes.input_value("#text") == "what"
    chips(eyes, 1).click()
    assert eyes.evaluate(HANDED, ["drop", [["cat.heic", "image/heic", "YWJj"]], []])
    told = "cat.heic cannot be read as an image here; convert it to JPEG or PNG."
    eyes.locator("#talk > .error", has_text=told).wait_for()
    chips(eyes, 0)


def test_text_that_is_pasted_with_its_picture_is_text(eyes: Any) -> None:
    more = [["text/plain", "a table"]]
    assert not eyes.evaluate(HANDED, ["paste", [["a.png", "image/png", PNG]], more])
    assert not eyes.evaluate(HANDED, ["paste", [], more])
    chips(eyes, 0)


def test_a_model_that_reads_text_only_gets_no_images(eyes: Any) -> None:
    eyes.get_by_label("Model").select_option("words")
    assert eyes.locator("#attach").is_visible()
    assert eyes.evaluate(HANDED, ["drop", [["a.png", "image/png", PNG]], []])
    eyes.locator("#talk > .error", has_text="words reads no images").wait_for()
    chips(eyes, 0)
    drawing = b64encode(b"<svg/>").decode()
    assert eyes.evaluate(HANDED, ["drop", [["a.svg", "image/svg+xml", drawing]], []])
    playwright.expect(eyes.locator("#text")).to_have_value("a.svg:\n```svg\n<svg/>\n```")
