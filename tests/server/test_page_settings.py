"""The settings of the page, and what the server says for it."""

from collections.abc import Iterator
from typing import Any

import pytest
from fakes.browser import opened, part, say, script
from fakes.served import Served, serving

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    with opened(browser.new_context(), served) as page:
        page.locator("#draft", has_text="draft:").wait_for(timeout=60_000)
        yield page


def own_members(asked: dict[str, Any]) -> dict[str, Any]:
    """What the settings have added to a request."""
    usual = {"model", "messages", "stream", "timings_per_token", "return_progress", "localspec"}
    return {name: value for name, value in asked.items() if name not in usual}


def test_settings_are_sent_and_remembered(page: Any) -> None:
    asked = script(page, *[[part("one")] for _ in range(4)])
    say(page, "x")
    assert own_members(asked[0]) == {}
    opening = page.get_by_role("button", name="Settings")
    opening.click()
    given = {"Temperature": "0.5", "Top-p": "0.9", "Top-k": "20", "Min-p": "0", "Seed": "12"}
    for label, value in {**given, "Longest answer": "100", "System prompt": " Be short.\n"}.items():
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Done").click()
    wanted = {"temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0, "seed": 12}
    for _ in range(2):
        assert opening.inner_text() == "Settings (7)"
        say(page, "y")
        assert own_members(asked[-1]) == {**wanted, "max_tokens": 100}
        assert asked[-1]["messages"][0] == {"role": "system", "content": "Be short."}
        page.reload()
    opening.click()
    assert page.get_by_label("Seed").input_value() == "12"
    page.get_by_role("button", name="Clear all").click()
    assert page.get_by_label("Seed").input_value() == ""
    page.get_by_role("button", name="Done").click()
    say(page, "z")
    assert own_members(asked[-1]) == {} and asked[-1]["messages"][0]["role"] == "user"


def test_the_server_takes_them(page: Any, served: Served) -> None:
    page.get_by_role("button", name="Settings").click()
    for label, value in {"Temperature": "1", "Top-k": "5", "Seed": "5", "Longest": "3"}.items():
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Done").click()
    say(page, "How do I list files by size?")
    line = page.locator(".answer .facts").inner_text()
    assert line.startswith("3 tokens") and "seed 5" in line and "cut off" in line


def test_a_seed_of_minus_one_is_random_beside_that_of_the_server(
    browser: Any, own_cache: None
) -> None:
    options = ("--threads", "1", "--ctx", "256", "--draft", "none", "--seed", "12")
    with serving(*options) as seeded, opened(browser.new_context(), seeded) as page:
        page.locator("#draft", has_text="draft:").wait_for(timeout=60_000)
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("Longest").fill("2")
        page.get_by_role("button", name="Done").click()
        say(page, "x")
        page.get_by_role("button", name="Settings").click()
        assert page.get_by_label("Seed").get_attribute("placeholder") == "12"
        page.get_by_label("Seed").fill("-1")
        page.get_by_role("button", name="Done").click()
        say(page, "x")
        fixed, drawn = page.locator(".answer .facts").all_inner_texts()
        assert "seed 12" in fixed
        assert "seed " in drawn and "seed 12 " not in f"{drawn} "


def test_what_is_no_value_is_neither_sent_nor_kept(page: Any) -> None:
    asked = script(page, [part("one")])
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Top-p").fill("0.5")
    page.get_by_label("Top-p").fill("5")
    page.get_by_role("button", name="Done").click()
    expect(page.locator("#settings")).to_be_visible()  # the browser says what is wrong
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Settings").click()
    assert page.get_by_label("Top-p").input_value() == "0.5"
    page.keyboard.press("Escape")
    say(page, "x")
    assert own_members(asked[0]) == {"top_p": 0.5}


def test_empty_fields_show_what_the_server_does(page: Any) -> None:
    page.get_by_role("button", name="Settings").click()
    shown = {
        name: page.locator(f"[name={name}]").get_attribute("placeholder")
        for name in ("temperature", "top_k", "top_p", "min_p", "seed", "max_tokens")
    }
    # The bundled model recommends its temperature.
    assert shown == {
        "temperature": "0.2", "top_k": "40", "top_p": "0.95", "min_p": "0.05", "seed": "random",
        "max_tokens": "no limit",
    }  # fmt: skip
    assert page.get_by_label("Reasoning").is_hidden()


def test_reasoning_is_a_choice_where_the_model_has_it(browser: Any, strict: Served) -> None:
    with opened(browser.new_context(), strict) as page:
        page.locator("#draft", has_text="draft:").wait_for(timeout=60_000)
        asked = script(page, *[[part("one")] for _ in range(3)])
        page.get_by_role("button", name="Settings").click()
        choice = page.get_by_label("Reasoning")
        assert choice.locator("option").all_inner_texts() == ["by default (on)", "on", "off"]
        for option, wanted in (("off", False), ("on", True)):
            choice.select_option(option)
            page.keyboard.press("Escape")
            say(page, "x")
            assert own_members(asked[-1]) == {"enable_thinking": wanted}
            page.get_by_role("button", name="Settings").click()
        choice.select_option("")
        page.keyboard.press("Escape")
        say(page, "x")
        assert own_members(asked[-1]) == {}


DESCRIBED = """async (props) => {
    const { Settings } = await import("/static/settings.js");
    localStorage.setItem("settings", JSON.stringify({ thinking: "low" }));
    const settings = new Settings(document.getElementById("settings"), () => {});
    const found = [];
    for (const each of props) {
        settings.describe(each);
        const choice = document.getElementById("thinking");
        const options = [...choice.options].map((option) => option.value);
        found.push([options, choice.closest("div").hidden, settings.chosen]);
    }
    localStorage.clear();
    return found;
}"""


def test_effort_is_a_choice_where_the_template_has_it(tab: Any) -> None:
    """What a model does not have is not sent, and chosen again where another one has it."""

    def props(thinking: bool | None, template: str) -> dict[str, Any]:
        usual = {"params": {}}
        told = {"thinking": thinking}
        return {"default_generation_settings": usual, "chat_template": template, "localspec": told}

    effort, switch = props(None, "{{ reasoning_effort }}"), props(False, "{{ enable_thinking }}")
    levels = ["low", "medium", "high"]
    assert tab.evaluate(DESCRIBED, [effort, switch, props(None, ""), None, effort]) == [
        [["", *levels], False, {"reasoning_effort": "low"}],
        [["", "on", "off"], False, {}],
        [[""], True, {}],
        [["", "on", "off"], False, {}],
        [["", *levels], False, {"reasoning_effort": "low"}],
    ]
