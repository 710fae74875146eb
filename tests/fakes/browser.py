"""A browser that nobody sees, and the server's page in it."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fakes.served import Served

from localspec.server.page import page as file_at
from localspec.server.page import page_paths

SITE = "http://page.test"


@contextmanager
def headless() -> Iterator[Any]:
    """Chromium; the test is skipped without it, or without playwright."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


def open_files(page: Any, prefix: str = "") -> None:
    """Open the page's own files with their own headers, where no server answers."""

    def answer(route: Any) -> None:
        path = route.request.url.removeprefix(SITE + prefix)
        if path not in page_paths():
            route.abort()
            return
        found = file_at(path)
        route.fulfill(body=bytes(found.body), headers=dict(found.headers))

    page.route("**/*", answer)
    page.goto(f"{SITE}{prefix}/")


@contextmanager
def opened(context: Any, served: Served) -> Iterator[Any]:
    """The page, which is closed with its context. Whatever it says to the console is a fault."""
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    elsewhere: list[str] = []
    page.on("request", lambda request: elsewhere.append(request.url))
    page.goto(served.url)
    yield page
    context.close()
    # The browser itself reports refused requests.
    assert not [line for line in said if "the server responded with" not in line]
    assert all(url.startswith(served.url) for url in elsewhere if not url.startswith("data:"))


@contextmanager
def ready(browser: Any, served: Served) -> Iterator[Any]:
    """The page on a narrow screen, once the server has told it of the model."""
    with opened(browser.new_context(viewport={"width": 390, "height": 700}), served) as page:
        page.locator("#draft", has_text="draft:").wait_for(timeout=60_000)
        yield page


def shown(page: Any) -> list[str]:
    """The questions and answers of the conversation."""
    found: list[str] = page.locator("article :is(.asked, .text)").all_inner_texts()
    return [each.strip() for each in found]


def answered(page: Any) -> None:
    """Wait until the last answer is written."""
    page.locator("article.answer").last.get_by_text("tok/s").wait_for(timeout=60_000)
    page.locator("#send", has_text="Send").wait_for(timeout=60_000)


def script(page: Any, *answers: list[dict[str, Any]] | str) -> list[dict[str, Any]]:
    """Let the page have these answers, and no others; the requests as they come.

    answers: the deltas of each, as of `part`; or the message of an error.
    """
    asked: list[dict[str, Any]] = []
    left = [*answers]

    def answer(route: Any) -> None:
        asked.append(route.request.post_data_json)
        found = left.pop(0)
        if isinstance(found, str):
            route.fulfill(status=400, json={"error": {"message": found}})
            return
        lines = "".join(f"data: {json.dumps(each)}\n\n" for each in [*found, _LAST])
        route.fulfill(body=lines + "data: [DONE]\n\n", content_type="text/event-stream")

    page.route("**/v1/chat/completions", answer)
    return asked


_LAST = {
    "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    "timings": {
        "predicted_n": 3,
        "predicted_per_second": 50.0,
        "draft_n": 4,
        "draft_n_accepted": 3,
    },
    "localspec": {"seed": 7, "slot": 0},
}


def part(text: str, origin: str = "plain", *, thought: bool = False) -> dict[str, Any]:
    """A token of a scripted answer."""
    delta = {"reasoning_content" if thought else "content": text}
    return {"choices": [{"index": 0, "delta": delta, "origin": origin, "finish_reason": None}]}


def say(page: Any, text: str) -> None:
    """Send a message, and wait until it is answered."""
    page.fill("#text", text)
    page.keyboard.press("Enter")
    answered(page)
