"""Text files that go into a message on the page."""

from typing import Any

import pytest
from fakes.browser import open_files

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect


@pytest.fixture
def page(browser: Any) -> Any:
    page = browser.new_page()
    open_files(page)
    yield page
    page.close()


def choose(page: Any, *files: tuple[str, bytes]) -> None:
    given = [{"name": name, "mimeType": "", "buffer": data} for name, data in files]
    page.set_input_files("#file", given)


def test_texts_go_into_the_message_in_their_order(page: Any) -> None:
    """Each in a block of code that its text does not end."""
    page.fill("#text", "Compare: ")
    choose(
        page,
        ("notes.txt", b"\xef\xbb\xbfone\r\ntwo\n\n"),
        ("README", "f\u00fcnf\n```sh\nls\n```".encode()),
        ("wide.csv", "a;b\n".encode("utf-16")),
        ("empty.py", b""),
    )
    expect(page.locator("#text")).to_have_value(
        "Compare:\n\nnotes.txt:\n```txt\none\ntwo\n```\n\n"
        "README:\n````\nf\u00fcnf\n```sh\nls\n```\n````\n\n"
        "wide.csv:\n```csv\na;b\n```\n\nempty.py:\n```py\n\n```"
    )
    expect(page.locator("#text")).to_be_focused()


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        ("a.pdf", b"%PDF-1.7\n\xe2\xe3", "a.pdf is a PDF; pdftotext writes its text"),
        ("a.pdf", b"%PDF-1.7\n" + b"a" * 300_000, "a.pdf is a PDF; pdftotext writes its text"),
        ("a.log", b"a" * 262_145, "a.log has more than 256 KiB; attach a smaller file."),
        ("a.zip", b"PK\x03\x04\0\0", "a.zip is no text; convert it to a text file."),
        ("a.txt", b"gr\xfcn", "a.txt is no text in UTF-8; save it as UTF-8."),
        ("a.txt", "ab".encode("utf-32"), "a.txt is no text in UTF-8; save it as UTF-8."),
    ],
    ids=["PDF", "large PDF", "large", "binary", "Latin-1", "UTF-32"],
)
def test_what_cannot_go_into_a_message_is_told(
    page: Any, name: str, data: bytes, line: str
) -> None:
    """And what was chosen beside it is attached."""
    choose(page, (name, data), ("b.md", b"b"))
    expect(page.locator("#talk > .error")).to_contain_text(line)
    expect(page.locator("#text")).to_have_value("b.md:\n```md\nb\n```")


def test_a_text_as_large_as_may_be_is_taken(page: Any) -> None:
    choose(page, ("a.log", b"a" * 262_144))
    expect(page.locator("#text")).to_have_value(f"a.log:\n```log\n{'a' * 262_144}\n```")


def test_a_text_of_many_empty_lines_is_taken_at_once(page: Any) -> None:
    """A tab that is busy with them answers nobody."""
    lines = "\n" * 130_000
    choose(page, ("a.log", f"{lines}x\n\n".encode()))
    page.wait_for_function("document.querySelector('#text').value", timeout=5_000)
    expect(page.locator("#text")).to_have_value(f"a.log:\n```log\n{lines}x\n```")


def test_a_folder_that_is_dropped_is_told(page: Any) -> None:
    """A browser hands it over as a file that cannot be read."""
    page.evaluate(
        """() => {
            const file = new File(["a"], "photos");
            file.slice = () => ({ arrayBuffer: () => Promise.reject(new DOMException("no")) });
            const dataTransfer = { types: ["Files"], files: [file] };
            const event = new Event("drop", { bubbles: true, cancelable: true });
            document.body.dispatchEvent(Object.assign(event, { dataTransfer }));
        }"""
    )
    line = "photos cannot be read; of a folder, attach the files."
    expect(page.locator("#talk > .error")).to_have_text(line)


def test_an_image_before_the_model_is_known_is_told(page: Any) -> None:
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"a"})
    line = "Whether the model reads images is not known yet; attach a.png once it is loaded."
    expect(page.locator("#talk > .error")).to_have_text(line)
