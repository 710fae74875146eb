"""Conversations on the page: how they are shown, edited and kept. The answers are scripted."""

from collections.abc import Iterator
from typing import Any

import pytest
from fakes.browser import SITE, answered, open_files, opened, part, say, script
from fakes.served import Served

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect

MARKDOWN = [
    part("# Title\n\n", "draft"), part("some **bold** text\n\n", "corrected"),
    part("```sh\nls -l\n", "bonus"), part("pwd\n```\n", "plain"), part("and the end"),
]  # fmt: skip
RAW = "# Title\n\nsome **bold** text\n\n```sh\nls -l\npwd\n```\nand the end"


@pytest.fixture
def context(browser: Any) -> Any:
    return browser.new_context(viewport={"width": 390, "height": 700})


@pytest.fixture
def page(context: Any, served: Served) -> Iterator[Any]:
    with opened(context, served) as page:
        page.locator("#draft", has_text="draft:").wait_for(timeout=60_000)
        yield page


def texts(page: Any, kind: str) -> list[str]:
    """What the conversation shows: questions (asked) or answers (text)."""
    found: list[str] = page.locator(f"article .{kind}").all_inner_texts()
    return [each.strip() for each in found]


def talk_at_length(page: Any) -> None:
    """Have the model write whatever comes, to the end of its context."""
    chosen = {"temperature": "100", "top_p": "1", "top_k": "0", "min_p": "0"}
    page.evaluate(f"localStorage.setItem('settings', JSON.stringify({chosen}))")
    page.reload()
    page.locator("#draft", has_text="draft:").wait_for()


def test_answers_are_read_and_their_origins_are_another_view(page: Any) -> None:
    script(page, MARKDOWN, [part("two", "draft")])
    say(page, "one")
    assert page.locator(".answer h2").inner_text() == "Title"
    assert page.locator(".answer strong").inner_text() == "bold"
    assert page.locator(".answer pre").inner_text() == "ls -l\npwd"
    assert "75% accepted" in page.locator(".facts").inner_text()
    switch = page.get_by_role("button", name="Origins")
    assert switch.get_attribute("aria-pressed") == "false"
    assert page.locator("#legend").is_hidden()
    switch.click()
    say(page, "and")
    for _ in range(2):
        assert switch.get_attribute("aria-pressed") == "true"
        assert page.locator("#legend").is_visible()
        assert page.locator(".answer h2").count() == 0
        raw = page.locator(".raw").filter(has_text="Title")
        assert raw.evaluate("each => each.textContent") == RAW
        spans = raw.locator("span").evaluate_all("all => all.map((each) => each.className)")
        assert spans == ["drafted", "corrected", ""]
        page.reload()  # the choice is remembered
        page.locator(".raw", has_text="two").wait_for()
    switch.click()
    assert page.locator(".answer h2").inner_text() == "Title"
    assert page.locator(".raw").count() == 0


def test_reasoning_is_folded_once_it_has_ended(page: Any) -> None:
    thought = [part("one *or*", "draft", thought=True), part(" two", thought=True)]
    script(page, [*thought, part("three")], thought, [part("four")])
    say(page, "x")
    reasoning = page.locator("details.thought").first
    assert reasoning.get_attribute("open") is None
    assert not reasoning.locator("em").is_visible()
    reasoning.locator("summary").click()
    assert reasoning.locator("em").inner_text() == "or"
    assert texts(page, "text") == ["three"]
    say(page, "y")  # only a thought
    assert page.locator("details.thought").nth(1).get_attribute("open") == ""
    page.fill("#text", "")
    say(page, "z")
    assert page.locator("details.thought").nth(2).is_hidden()


@pytest.mark.parametrize("clipboard", [True, False], ids=["clipboard", "without"])
def test_answers_and_code_are_copied(context: Any, served: Served, clipboard: bool) -> None:
    """Also where the page came without encryption, and has no clipboard of its own."""
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=served.url)
    if not clipboard:
        context.add_init_script(
            "Object.defineProperty(Navigator.prototype, 'clipboard', { get: () => undefined })"
        )
    with opened(context, served) as page:
        script(page, MARKDOWN)
        say(page, "one")
        for box, wanted in (("figure", "ls -l\npwd"), (".acts", RAW)):
            button = page.locator(f"{box} .copy")
            button.click()
            expect(button).to_have_text("Copied")
            page.locator("#text").focus()
            page.keyboard.press("Control+a")
            page.keyboard.press("Control+v")
            expect(page.locator("#text")).to_have_value(wanted)
            expect(button).to_have_text("Copy")


def test_asking_again_takes_another_seed_and_the_place_of_the_answer(page: Any) -> None:
    asked = script(page, [part("one")], [part("two")], [part("three")], "too hot", [part("four")])
    say(page, "first")
    say(page, "second")
    (again,) = [each for each in page.get_by_text("Again").all() if each.is_visible()]
    again.click()
    expect(page.locator(".answer .text").last).to_have_text("three")
    answered(page)
    assert texts(page, "text") == ["one", "three"]
    assert asked[2]["messages"] == asked[1]["messages"]
    assert "seed" not in asked[1] and asked[2]["seed"] >= 0
    # Where that fails, the former answer stays.
    page.get_by_text("Again").last.click()
    page.locator("#talk > .error", has_text="too hot").wait_for()
    assert texts(page, "text") == ["one", "three"] and page.input_value("#text") == ""
    page.get_by_text("Again").last.click()
    expect(page.locator(".answer .text").last).to_have_text("four")
    assert asked[4]["messages"] == asked[1]["messages"] and asked[4]["seed"] != asked[2]["seed"]


def test_a_message_is_edited_and_what_came_after_it_is_dropped(page: Any) -> None:
    asked = script(page, *[[part(each)] for each in ("one", "two", "three", "four")])
    for question in ("first", "second", "third"):
        say(page, question)
    page.fill("#text", "unsent")
    page.locator(".edit").nth(1).click()
    assert page.input_value("#text") == "second"
    page.keyboard.press("Escape")
    assert page.input_value("#text") == "unsent" and page.locator("#editing").is_hidden()
    page.locator(".edit").nth(1).click()
    page.get_by_role("button", name="Cancel").click()
    assert page.input_value("#text") == "unsent"
    page.locator(".edit").nth(2).click()
    page.locator(".edit").nth(1).click()
    say(page, "other")
    assert texts(page, "asked") == ["first", "other"]
    assert texts(page, "text") == ["one", "four"]
    assert [each["content"] for each in asked[3]["messages"]] == ["first", "one", "other"]
    assert page.input_value("#text") == "unsent" and page.locator("#editing").is_hidden()


def test_an_edited_message_that_fails_drops_nothing(page: Any) -> None:
    asked = script(page, [part("one")], [part("two")], "too hot", [part("three")])
    say(page, "first")
    say(page, "second")
    page.locator(".edit").first.click()
    page.fill("#text", "other")
    page.keyboard.press("Enter")
    page.locator("#talk > .error", has_text="too hot").wait_for()
    expect(page.locator("#text")).to_have_value("other")
    assert texts(page, "asked") == ["first", "second"]
    assert texts(page, "text") == ["one", "two"]
    page.reload()
    assert texts(page, "asked") == ["first", "second"]
    page.fill("#text", "")
    page.locator("#text").press("ArrowUp")
    assert page.input_value("#text") == "second"
    say(page, "again")
    assert [each["content"] for each in asked[3]["messages"]] == ["first", "one", "again"]


def test_a_new_conversation_forgets_the_former_one(page: Any) -> None:
    asked = script(page, [part("one")], [part("two")], [part("three")])
    say(page, "first")
    page.get_by_role("button", name="New").click()
    assert page.locator("article").count() == 0
    assert page.evaluate("sessionStorage.getItem('talk')") == "[]"
    page.get_by_role("button", name="Bring it back").click()
    assert (texts(page, "asked"), texts(page, "text")) == (["first"], ["one"])
    say(page, "second")
    assert len(asked[1]["messages"]) == 3
    page.get_by_role("button", name="New").click()
    say(page, "third")
    assert [each["content"] for each in asked[2]["messages"]] == ["third"]
    assert page.get_by_role("button", name="Bring it back").count() == 0


def test_a_new_conversation_ends_the_answer_that_is_written(page: Any, served: Served) -> None:
    talk_at_length(page)
    page.fill("#text", "How do I list files by size?")
    page.keyboard.press("Enter")
    page.locator("article.answer").wait_for()
    page.get_by_role("button", name="New").click()
    served.wait_until_free()
    page.wait_for_timeout(300)
    assert page.locator("article").count() == 0
    assert page.locator("#send").inner_text() == "Send"
    assert page.evaluate("sessionStorage.getItem('talk')") == "[]"
    assert page.input_value("#text") == ""


def test_a_conversation_outlives_a_reload(page: Any) -> None:
    asked = script(page, MARKDOWN, [part("two")], "broken", [part("three")])
    say(page, "first")
    say(page, "second")
    page.fill("#text", "fails")
    page.keyboard.press("Enter")
    page.locator(".answer .error", has_text="broken").wait_for()
    shown = page.locator(".answer .text .settled").first.inner_html()
    page.reload()
    assert texts(page, "asked") == ["first", "second"]
    assert page.locator(".answer .text .settled").first.inner_html() == shown
    assert "50.0 tok/s" in page.locator(".answer .facts").first.inner_text()
    say(page, "third")
    words = ["first", RAW, "second", "two", "third"]
    assert [each["content"] for each in asked[-1]["messages"]] == words


def test_a_message_that_no_answer_came_to_is_in_the_box_again_after_a_reload(page: Any) -> None:
    page.route("**/v1/chat/completions", lambda route: None)
    page.fill("#text", "first")
    page.keyboard.press("Enter")
    page.locator("article.answer").wait_for()
    page.reload()
    expect(page.locator("#text")).to_have_value("first")
    assert page.locator("article").count() == 0


def test_an_answer_that_was_being_written_is_kept_as_far_as_it_came(page: Any) -> None:
    talk_at_length(page)
    page.fill("#text", "How do I list files by size?")
    page.keyboard.press("Enter")
    page.locator(".answer .facts", has_text="tok/s").wait_for(timeout=60_000)
    page.reload()
    assert page.locator(".answer .facts").inner_text().endswith(" · stopped")
    assert texts(page, "text")[0]


KEPT = """async ([images, text]) => {
    const { Talk } = await import("/static/talk.js");
    const said = { text, runs: [] };
    const kept = { said, thought: { text: "", runs: [] }, facts: "" };
    const answer = { said, kept, behind: [] };
    const pictures = images.map((length) => ({ name: "a", url: "x".repeat(length) }));
    const saved = new Talk([{ text: "q", images: pictures, answer, answers: [answer] }]).save();
    return [saved, Talk.recalled().map(({ images, lost }) => [images.length, lost ?? null])];
}"""


def test_what_is_too_long_to_keep(tab: Any) -> None:
    """Images go first, then answers that are not shown; then nothing is kept. The page says it."""
    assert tab.evaluate(KEPT, [[1000, 1000], "a"]) == ["", [[2, None]]]
    assert tab.evaluate(KEPT, [[3_000_000, 2_000_000], "a"]) == ["", [[0, 2]]]
    assert tab.evaluate(KEPT, [[], "a" * 5_000_000]) == ["it", []]


def test_of_answers_that_are_too_long_to_keep_those_that_are_shown_stay(page: Any) -> None:
    script(page, [part("old " * 600_000)], [part("new " * 600_000)], [part("short")])
    say(page, "first")
    assert page.locator(".error").count() == 0
    page.get_by_role("button", name="Again").click()
    answered(page)
    told = page.locator(".error", has_text="too long for the browser to keep")
    expect(told).to_have_count(1)
    assert told.inner_text().endswith("a reload would forget its other answers.")
    say(page, "second")
    expect(told).to_have_count(1)
    page.reload()
    answered(page)
    first, second = texts(page, "text")
    assert first.startswith("new new") and second == "short"
    expect(page.get_by_role("button", name="Former answer").first).to_be_hidden()


@pytest.mark.parametrize("kept", ['[{"text": "old"}]', '{"turns": []}', "[", "3"])
def test_what_another_version_has_kept_is_no_hindrance(page: Any, kept: str) -> None:
    page.evaluate(
        """(kept) => {
            addEventListener("pagehide", () => {
                for (const name of ["talk", "draft", "model"]) sessionStorage.setItem(name, kept);
                for (const name of ["view", "settings"]) localStorage.setItem(name, kept);
            });
        }""",
        kept,
    )
    page.reload()
    page.locator("#draft", has_text="draft:").wait_for()
    assert page.locator("article").count() == 0
    script(page, [part("one")])
    say(page, "first")
    assert texts(page, "text") == ["one"]


def test_a_browser_that_keeps_nothing(context: Any, served: Served) -> None:
    context.add_init_script(
        "for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty("
        "window, name, { get() { throw new DOMException('no', 'SecurityError'); } })"
    )
    with opened(context, served) as page:
        script(page, [part("one")], [part("two")])
        say(page, "first")
        page.locator(".error", has_text="too long for the browser to keep").wait_for()
        say(page, "second")
        assert page.locator(".error").count() == 1
        assert texts(page, "text") == ["one", "two"]


def test_an_answer_that_is_cut_off_says_so(page: Any) -> None:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    script(page, [part("one"), last])
    say(page, "x")
    line = page.locator(".answer .facts").inner_text()
    assert "seed 7" in line and line.endswith("cut off, no more tokens were allowed")


def test_escape_stops_the_answer_but_not_from_within_the_settings(page: Any) -> None:
    page.route("**/v1/chat/completions", lambda route: None)
    page.fill("#text", "first")
    page.keyboard.press("Enter")
    page.locator("#send", has_text="Stop").wait_for()
    page.get_by_role("button", name="Settings").click()
    page.keyboard.press("Escape")
    expect(page.locator("#settings")).to_be_hidden()
    assert page.locator("#send").inner_text() == "Stop"
    assert page.locator(".edit").is_hidden()
    page.keyboard.press("Escape")
    page.locator("#send", has_text="Send").wait_for()
    expect(page.get_by_role("status")).to_have_text("Stopped.")


def test_readers_of_the_screen_are_told_of_blocks_and_not_of_tokens(page: Any) -> None:
    script(page, MARKDOWN)
    say(page, "one")
    expect(page.get_by_role("status")).to_have_text("The answer is written.")
    live = page.locator("[aria-live]")
    assert live.evaluate_all("all => all.map((each) => each.className)") == ["settled"]
    # What is only shown in another way is no news.
    for _ in range(2):
        page.get_by_role("button", name="Origins").click()
    assert page.locator(".answer h2").count() == 1 and live.count() == 0
    page.get_by_role("button", name="Settings").click()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea, select")].filter(
            (each) => !(each.hidden || each.labels?.length || each.ariaLabel || each.innerText))"""
    )
    assert nameless == []


DRAWN = """async () => {
    const { Answer } = await import("/static/answer.js");
    const frames = [];
    window.requestAnimationFrame = (draw) => frames.push(draw);
    const answer = new Answer("read", () => {});
    document.body.append(answer.node);
    for (let token = 0; token < 1000; token++) answer.add({ text: "word ", origin: "plain" });
    const before = [frames.length, answer.text.textContent.length];
    frames[0]();
    const after = answer.text.textContent.length;
    answer.add({ text: "end" });
    answer.end();
    frames.slice(1).forEach((draw) => draw());  // none is left
    return [...before, after, answer.text.textContent.length, answer.kept.said.runs.length];
}"""


def test_many_tokens_are_drawn_at_once(browser: Any) -> None:
    page = browser.new_page()
    open_files(page)
    assert page.evaluate(DRAWN) == [1, 0, 4999, 5003, 1]
    page.close()


TURNED = """async (views) => {
    const { Answer } = await import("/static/answer.js");
    const parts = [
        ["one *t", "plain"], ["wo*\\n\\n- th", "draft"], ["ree", "draft"], ["\\n\\nfour", "bonus"],
    ];
    const write = (turn) => {
        const answer = new Answer("read", () => {});
        parts.forEach(([text, origin], place) => {
            answer.add({ text, origin });
            answer.views.forEach((view) => view.draw());
            turn(answer, place);
        });
        answer.end();
        return answer;
    };
    const turned = write((answer, place) => answer.show(views[place % views.length]));
    return ["read", "origins"].map((view) => {
        const usual = write(() => {});
        for (const each of [usual, turned]) each.show(view);
        return [usual.text.innerHTML === turned.text.innerHTML, turned.text.textContent];
    });
}"""


@pytest.mark.parametrize("views", [["origins", "read"], ["read", "origins", "origins"]], ids=str)
def test_the_view_may_change_while_an_answer_is_written(tab: Any, views: list[str]) -> None:
    read, origins = tab.evaluate(TURNED, views)
    assert read == [True, "one twothreefour"]
    assert origins == [True, "one *two*\n\n- three\n\nfour"]


def test_it_works_behind_a_path(browser: Any) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_files(page, "/models/fast")
    page.wait_for_function("document.getElementById('draft').textContent.includes('answer')")
    asked = [url for url in asked if not url.startswith("data:")]
    assert f"{SITE}/models/fast/health" in asked
    assert f"{SITE}/models/fast/static/inline.js" in asked
    assert all(url.startswith(f"{SITE}/models/fast/") for url in asked)
    page.close()
