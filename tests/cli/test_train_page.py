"""The page of `localspec train --report`: whole, by itself, and safe whatever a model wrote."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.browser import headless
from fakes.trainings import trained

from localspec.cli.train_page import train_page
from localspec.distillation.last_trial import Sample
from localspec.distillation.trained import Trained

HOSTILE = "</style></div><script>alert(1)</script><img src=x onerror=alert(2)>&\"'\x1b[31m\0\u202e"


def tree(page: str) -> ET.Element:
    first, _, rest = page.partition("\n")
    assert first == "<!DOCTYPE html>"
    return ET.fromstring(rest)


def text_of(element: ET.Element) -> str:
    return "".join(element.itertext())


def test_all_that_a_training_did_is_on_the_page() -> None:
    page = tree(train_page(trained()))
    labels = [svg.get("aria-label") for svg in page.iter("{http://www.w3.org/2000/svg}svg")]
    names = ("eagle3-x-Q8_0.gguf", "draft.gguf", "suffix")
    assert labels == [
        "Acceptance on held-out texts by round",
        *(f"Tokens per step, temperature {each}" for each in ("0", "0.8")),
        *(f"Expected speed, temperature {each}" for each in ("0", "0.8")),
        *(f"Acceptance by position, {name}, T = {each}" for name in names for each in ("0", "0.8")),
    ]
    assert len(page.findall(".//tbody/tr")) == 8
    said = text_of(page)
    for fact in (
        "eagle3 for target-q8_0.gguf",
        "ab" * 32,
        "eagle3-x-Q8_0.gguf, 5.1 MB, reads layers 2, 5, 7",
        "--kind eagle3 --minutes 8 --type Q8_0",
        "8 min from the forecast to the end (8 min foreseen); writing texts 2 min, training 5 min",
        "900 prompts (chats): 21,777 tokens of answers, 30,000 with their prompts",
        "14 rounds were planned",
        "8 of the held-out prompts, 4 tokens drafted at a time",
        "32 other prompts were held out: the acceptance by round was measured on them, all else on "
        "8 of them",
    ):
        assert fact in said
    # Tokens per step by the cost of a step, at the depth that pays most.
    assert "1.95 x" in said and f"{2.2 / 1.9:.2f} x" in said


def test_each_token_of_a_sample_has_the_class_of_its_origin() -> None:
    samples = tree(train_page(trained())).findall(".//figure[@class='sample']")
    assert [text_of(each.find("figcaption")) for each in samples] == [  # type: ignore[arg-type]
        "T = 0: user\nHow do I list files?",
        "T = 0.8: user\nHow do I list files?",
    ]
    pieces = [(each.get("class"), each.text) for each in samples[0].findall(".//span")]
    assert pieces == [
        ("plain", "Run"),
        ("corrected", " ls"),
        ("drafted", " -l"),
        ("bonus", " now"),
    ]


def test_what_a_model_wrote_is_text_and_nothing_else() -> None:
    hostile = Sample(HOSTILE, [(HOSTILE, HOSTILE), ("", "plain"), ("\ud800", "corrected")])
    done = trained(own=f"/models/{HOSTILE.replace('/', '')}.gguf", target=HOSTILE, sample=hostile)
    written = train_page(done)
    page = tree(written)
    names = {element.tag.rpartition("}")[2] for element in page.iter()}
    assert not names & {"script", "img", "a", "link", "iframe"}
    assert {each.get("class") for each in page.iter("span")} <= {"drafted", "corrected", "bonus"}
    assert "\x1b" not in written and "\0" not in written
    written.encode()
    assert "<script>alert(1)</script>" in text_of(page)


def test_the_page_needs_nothing_else() -> None:
    written = train_page(trained()).replace('xmlns="http://www.w3.org/2000/svg"', "")
    for outside in ("http", "src=", "href=", "url(", "@import", "<script"):
        assert outside not in written


def test_a_training_that_was_stopped_has_rounds_alone() -> None:
    stopped = replace(trained(), finished=False, trials=[])
    page = tree(train_page(stopped))
    assert "Stopped before it ended" in text_of(page)
    titles = [text_of(each) for each in page.iter("h2")]
    assert titles == ["Acceptance by round", "What it was trained on"]


def test_an_untrained_drafter_of_one_place_and_an_answer_without_text() -> None:
    one = replace(trained(sample=Sample("", [])), history=[[0.0]])
    page = tree(train_page(one))
    assert "all tokens, untrained: 0.0%" in text_of(page)
    assert '<div class="written"></div>' in train_page(one)


def test_answers_without_a_token() -> None:
    trials = [replace(each, tokens_per_step=0.0, by_place=[]) for each in trained().trials]
    cells = [
        text_of(each) for each in tree(train_page(replace(trained(), trials=trials))).iter("td")
    ]
    assert cells.count("0.00") == 8


def test_what_is_kept_of_a_training_gives_the_same_page() -> None:
    done = replace(trained(), path=Path("/models/x.gguf").absolute())
    kept = json.loads(json.dumps(done.to_json()))
    assert train_page(Trained.of_json(kept)) == train_page(done)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with headless() as opened:
        yield opened


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    file = tmp_path / "report.html"
    hostile = Sample("long " + "x" * 500, [("y" * 500 + HOSTILE, "corrected")])
    file.write_text(train_page(trained(sample=hostile)), encoding="utf-8")
    context = browser.new_context(
        viewport={"width": width, "height": 700}, color_scheme=scheme, offline=True
    )
    page, said = context.new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda asked: said.append(asked.url) if asked.url[:5] != "file:" else None)
    page.goto(file.as_uri())
    assert page.locator("figure").count() > 8
    # Nothing is wider than the screen, and the table scrolls by itself.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(22, 24, 28)") == (scheme == "dark")
    context.close()
    assert not said
