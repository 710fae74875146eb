"""Answers on the page that do not come, break off, or are left while they are written."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.browser import part, ready, say, script, shown
from fakes.served import Served

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect

PATH = "**/v1/chat/completions"


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    with ready(browser, served) as page:
        yield page


def ask_without_an_answer(page: Any, text: str) -> None:
    """Ask this in the place of the first message."""
    page.route(PATH, lambda route: None)
    page.locator(".edit").first.click()
    page.fill("#text", text)
    page.keyboard.press("Enter")
    page.locator("#send", has_text="Stop").wait_for()
    assert shown(page) == [text, ""]


def test_what_an_edited_message_replaces_stays_until_it_is_answered(page: Any) -> None:
    """Where the page is loaded again meanwhile."""
    script(page, [part("one")], [part("two")])
    say(page, "first")
    say(page, "second")
    ask_without_an_answer(page, "other")
    page.reload()
    assert shown(page) == ["first", "one", "second", "two"]
    expect(page.locator("#text")).to_have_value("other")


def test_what_was_asked_is_brought_back_with_what_it_replaces(page: Any) -> None:
    script(page, [part("one")], [part("two")])
    say(page, "first")
    say(page, "second")
    ask_without_an_answer(page, "other")
    page.get_by_role("button", name="New").click()
    page.get_by_role("button", name="Bring it back").click()
    assert shown(page) == ["first", "one", "second", "two"]
    expect(page.locator("#text")).to_have_value("other")
    page.fill("#text", "")
    page.get_by_role("button", name="Again").last.click()
    page.locator("#send", has_text="Stop").wait_for()
    assert shown(page) == ["first", "one", "second", ""]
    page.get_by_role("button", name="New").click()
    page.get_by_role("button", name="Bring it back").click()
    assert shown(page) == ["first", "one", "second", "two"]
    expect(page.locator("#text")).to_have_value("")


def test_a_stream_that_ends_without_its_last_event_is_no_whole_answer(page: Any) -> None:
    body = f"data: {json.dumps(part('half an'))}\n\n"
    page.route(PATH, lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.fill("#text", "hello")
    page.keyboard.press("Enter")
    alert = page.locator(".answer").get_by_role("alert")
    expect(alert).to_have_text("The connection ended before the answer did.")
    assert shown(page) == ["hello", "half an"]


def test_an_error_of_a_proxy_is_told_in_words(page: Any) -> None:
    page.route(PATH, lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
    page.fill("#text", "hello")
    page.keyboard.press("Enter")
    alert = page.locator(".answer").get_by_role("alert")
    expect(alert).to_have_text("The server answers with an error: 502.")
    expect(page.locator("#text")).to_have_value("hello")


def test_a_conversation_is_kept_when_its_page_goes_out_of_sight(page: Any) -> None:
    """A phone may end such a page without a further word."""
    page.fill("#text", "not sent yet")
    page.evaluate(
        """() => {
            Object.defineProperty(document, "hidden", { value: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    assert page.evaluate("sessionStorage.getItem('draft')") == '"not sent yet"'


def test_what_was_kept_with_one_answer_to_a_message_is_taken_over(page: Any) -> None:
    said = {"text": "one", "runs": [["drafted", 3]]}
    none = {"text": "", "runs": []}
    answers = [
        {"said": said, "thought": none, "facts": "3 tokens · stopped"},
        {"said": none, "thought": none, "facts": "…"},
    ]
    kept = [
        {"text": text, "images": [], "answer": answer}
        for text, answer in zip(("first", "second"), answers, strict=True)
    ]
    page.evaluate(
        """(kept) => addEventListener("pagehide", () => sessionStorage.setItem("talk", kept))""",
        json.dumps(kept),
    )
    page.reload()
    page.locator("#draft", has_text="draft:").wait_for()
    assert shown(page) == ["first", "one"]
    assert page.locator(".facts").inner_text() == "3 tokens · stopped"
    assert page.input_value("#text") == "second"
