"""`serve --copy-from`: the drafts of all texts may be copied from the file."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes.served import PATIENCE, Served, free_port, serving

ARGUMENTS = ("--threads", "1", "--ctx", "512", "--parallel", "2", "--draft", "suffix")
DEPTH = ("--depth", "6")
REQUEST = {
    "messages": [{"role": "user", "content": "How do I list hidden files?"}],
    "seed": 3,
    "temperature": 0.8,
    "max_tokens": 48,
}


def answer(served: Served) -> tuple[str, int]:
    """The text, and how many of its tokens were copied."""
    reply = served.post("/v1/chat/completions", REQUEST).json()
    return reply["choices"][0]["message"]["content"], reply["timings"].get("draft_n_accepted", 0)


@pytest.mark.slow
def test_every_text_copies_from_the_file_and_stays_what_it_is(tmp_path: Path) -> None:
    with serving(*ARGUMENTS, *DEPTH) as served:
        text, copied = answer(served)
    file = tmp_path / "older.txt"
    file.write_text(f"Something else.\n{text}\nAnd more.", encoding="utf-8")
    options = (*ARGUMENTS, *DEPTH, "--copy-from", str(file))
    with serving(*options) as served, ThreadPoolExecutor(2) as clients:
        both = list(clients.map(answer, [served, served]))
    assert [each for each, _ in both] == [text, text]
    assert all(count > copied + 5 for _, count in both)


def test_a_file_that_cannot_be_copied_from_ends_the_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "localspec", "serve", "--port", str(free_port())]
    run = subprocess.run(
        [*command, *ARGUMENTS, "--copy-from", str(tmp_path / "gone.py")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert run.returncode == 2
    assert "gone.py: No such file or directory; name a text file" in run.stderr
    assert "Traceback" not in run.stderr
