"""`localspec generate --prediction FILE`: drafts follow the file, and the text does not."""

from pathlib import Path

import pytest
from fakes.command_line import Run
from fakes.generate_runs import PROMPT

pytestmark = pytest.mark.usefixtures("bare_environment")
ASKED = (PROMPT, "--json", "-n", "40", "--seed", "3", "--draft", "suffix", "--depth", "6")


def test_drafts_follow_the_file_and_the_text_does_not(generate: Run, tmp_path: Path) -> None:
    plain = generate(*ASKED).record
    assert plain["stats"]["predicted"] == 0
    file = tmp_path / "known.py"
    for text in (plain["text"], plain["text"][20:], "", "# nothing of this\n"):
        file.write_text(text, encoding="utf-8")
        done = generate(*ASKED, "--prediction", str(file))
        record = done.record
        assert record["token_ids"] == plain["token_ids"]
        assert not any("--prediction" in line for line in done.lines)
        assert (record["stats"]["predicted"] > 0) == bool(text)
        assert str(file) not in str(record["recipe"])
        if text == plain["text"]:
            assert record["stats"]["predicted_accepted"] > 20
            assert record["stats"]["steps"] < plain["stats"]["steps"]


@pytest.mark.parametrize("way", [["--draft", "none"], ["--depth", "0"]])
def test_that_it_has_no_effect_is_said(generate: Run, tmp_path: Path, way: list[str]) -> None:
    (tmp_path / "known").write_text("abc", encoding="utf-8")
    done = generate(PROMPT, "-n", "3", *way, "--prediction", str(tmp_path / "known"))
    assert done.code == 0
    assert any("--prediction has no effect: " in line for line in done.lines)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file or directory; name a text file"), (b"\xff", "it is not UTF-8")],
)
def test_a_file_that_cannot_be_read_is_refused(
    generate: Run, tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "known"
    if content is not None:
        file.write_bytes(content)
    done = generate(PROMPT, "--prediction", str(file))
    [line] = done.lines
    assert done.code == 2
    assert "--prediction" in line and message in line
