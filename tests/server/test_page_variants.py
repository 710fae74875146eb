"""Answers on the page that go on, and several answers to one message."""

from collections.abc import Iterator
from typing import Any

import pytest
from fakes.browser import answered, part, ready, say, script, shown
from fakes.served import Served

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect

CUT_OFF = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    with ready(browser, served) as page:
        yield page


def press(page: Any, name: str) -> None:
    """Press the last button of this name that is seen, and wait for what it writes."""
    page.get_by_role("button", name=name).last.click()
    answered(page)


def contents(asked: dict[str, Any]) -> list[str]:
    return [message["content"] for message in asked["messages"]]


def test_an_answer_that_was_cut_off_goes_on_in_its_place(page: Any) -> None:
    asked = script(page, [part("```sh\nls", "draft"), CUT_OFF], "too long", [part(" -l\n```")])
    say(page, "first")
    press(page, "Continue")
    expect(page.locator(".answer").get_by_role("alert")).to_have_text("too long")
    assert page.locator(".facts").inner_text().endswith("cut off, no more tokens were allowed")
    page.reload()
    press(page, "Continue")
    assert page.locator(".answer pre").inner_text() == "ls -l"
    assert page.locator(".answer").get_by_role("alert").count() == 0
    assert page.locator(".facts").inner_text().startswith("continued: 3 tokens")
    assert page.get_by_role("button", name="Continue").count() == 0
    for each in asked[1:]:
        assert each["messages"][-1] == {"role": "assistant", "content": "```sh\nls"}
        assert contents(each) == ["first", "```sh\nls"] and each["continue_final_message"] is True
    assert "continue_final_message" not in asked[0]
    page.get_by_role("button", name="Origins").click()
    spans = page.locator(".raw span").evaluate_all("all => all.map((each) => each.className)")
    assert spans == ["drafted", ""]


def test_it_goes_on_as_it_would_have(page: Any) -> None:
    """What the server is sent is the text that the model has written."""

    def ask(tokens: int) -> str:
        chosen = {"temperature": "0", "max_tokens": str(tokens)}
        page.evaluate(f"localStorage.setItem('settings', JSON.stringify({chosen}))")
        page.get_by_role("button", name="New").click()
        page.reload()
        page.locator("#draft", has_text="draft:").wait_for()
        say(page, "How do I list files by size?")
        return str(page.evaluate("JSON.parse(sessionStorage.talk)[0].answers[0].said.text"))

    whole, begun = ask(60), ask(5)
    assert begun != whole and whole.startswith(begun)
    while page.get_by_role("button", name="Continue").is_visible():
        press(page, "Continue")
    assert page.evaluate("JSON.parse(sessionStorage.talk)[0].answers[0].said.text") == whole


def test_reasoning_that_was_cut_off_goes_on(page: Any) -> None:
    """It is sent as what it is, with what was said behind it."""
    thought = part("one ", thought=True)
    asked = script(
        page,
        [thought, CUT_OFF],
        [part("two", thought=True), part("three"), CUT_OFF],
        [part(" four")],
    )
    say(page, "first")
    assert page.input_value("#text") == ""
    assert page.get_by_role("button", name="Copy").count() == 0
    page.reload()
    press(page, "Continue")
    press(page, "Continue")
    assert shown(page) == ["first", "three four"]
    assert page.locator(".thought > div").text_content() == "one two"
    begun = {"role": "assistant", "content": "", "reasoning_content": "one "}
    assert asked[1]["messages"][1] == begun
    begun = {"role": "assistant", "content": "three", "reasoning_content": "one two"}
    assert asked[2]["messages"][1] == begun


def test_earlier_answers_are_kept_and_what_is_shown_is_sent(page: Any) -> None:
    asked = script(page, *[[part(each)] for each in ("one", "two", "three", "four", "five")])
    say(page, "first")
    assert page.locator(".place").is_hidden()
    press(page, "Again")
    press(page, "Again")
    former, following = (page.get_by_role("button", name=f"{name} answer")
                         for name in ("Former", "Next"))  # fmt: skip
    expect(page.locator(".place")).to_have_text("3 / 3")
    expect(following).to_be_disabled()
    former.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator(".place")).to_have_text("1 / 3")
    expect(page.get_by_role("status")).to_have_text("Answer 1 of 3.")
    expect(former).to_be_disabled()
    expect(following).to_be_focused()
    assert shown(page) == ["first", "one"]
    page.keyboard.press("Enter")
    say(page, "second")
    assert contents(asked[3]) == ["first", "two", "second"]
    page.reload()
    assert shown(page) == ["first", "two", "second", "four"]
    assert page.locator(".place").first.inner_text() == "2 / 3"
    say(page, "third")
    assert contents(asked[4]) == ["first", "two", "second", "four", "third"]


def test_what_was_said_behind_an_answer_stays_with_it(page: Any) -> None:
    asked = script(page, *[[part(each)] for each in ("one", "two", "three", "four")])
    say(page, "first")
    press(page, "Again")
    say(page, "second")
    page.get_by_role("button", name="Former").first.click()
    assert shown(page) == ["first", "one"]
    say(page, "other")
    assert contents(asked[3]) == ["first", "one", "other"]
    page.reload()
    assert shown(page) == ["first", "one", "other", "four"]
    page.locator(".edit").last.click()
    page.get_by_role("button", name="Next").first.click()
    assert shown(page) == ["first", "two", "second", "three"]
    assert page.locator("#editing").is_hidden() and page.input_value("#text") == ""
    page.get_by_role("button", name="Former").first.click()
    assert shown(page) == ["first", "one", "other", "four"]


def test_another_answer_that_does_not_come_is_none(page: Any) -> None:
    script(page, [part("one")], [part("two")], "too hot")
    say(page, "first")
    press(page, "Again")
    page.get_by_role("button", name="Former").click()
    page.get_by_role("button", name="Again").click()
    page.locator("#talk > .error", has_text="too hot").wait_for()
    expect(page.locator(".place")).to_have_text("1 / 2")
    page.reload()
    assert shown(page) == ["first", "one"]
    expect(page.locator(".place")).to_have_text("1 / 2")


def test_an_answer_that_is_shown_again_has_the_view_of_now(page: Any) -> None:
    script(page, [part("one", "draft")])
    say(page, "first")
    page.route("**/v1/chat/completions", lambda route: None)
    page.get_by_role("button", name="Again").click()
    page.locator("#send", has_text="Stop").wait_for()
    page.click("#view")
    page.click("#send")
    expect(page.locator(".text .drafted")).to_have_text("one")
    assert shown(page) == ["first", "one"]
