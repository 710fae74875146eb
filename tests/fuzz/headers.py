"""Damaged models: refused in one line by the checks, or survived by llama.cpp and the command."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from fakes.broken_gguf import broken
from fakes.gguf_document import Document, parse
from fakes.loader import Loader
from fakes.tiny import FAMILIES, write_tiny
from fuzz.campaign import peak_bytes

from localspec.errors import ModelLoadError
from localspec.gguf.check import check_generative

MOST_BYTES = 2 << 30
_SECONDS = 120
# What the command ends with for a model: done, refused in a line, or interrupted by a full context.
_CODES = (0, 2, 3, 5, 6)


class Headers:
    """Mutants of models, each a pure function of its number.

    models: GGUF files to damage; a tiny model of every family if there are none.
    """

    def __init__(self, folder: Path, models: list[Path]) -> None:
        self._folder = folder
        self._loader = Loader()
        originals = models or [write_tiny(folder / f"{name}.gguf", name) for name in FAMILIES]
        self._documents: list[Document] = [parse(each) for each in originals]

    def close(self) -> None:
        """End the child that loads mutants."""
        self._loader.close()

    def mutant(self, number: int) -> Path:
        """The file of a mutant."""
        path = self._folder / "mutant.gguf"
        document = self._documents[number % len(self._documents)]
        path.write_bytes(broken(document, Random(number)))
        return path

    def check(self, number: int) -> str:
        """A mutant in the checks of this process."""
        path = self.mutant(number)
        try:
            check_generative(path)
        except ModelLoadError as error:
            message = str(error)
            assert message.isprintable() and path.name in message, message
            assert len(message) < len(str(path)) + 300, message
            return "refused"
        return "passed"

    def load(self, number: int) -> str:
        """A mutant in the checks; one that passes is loaded in a child."""
        if self.check(number) == "refused":
            return "refused"
        answers = self._loader.load(self._folder / "mutant.gguf")
        assert not any("alloc" in answer for answer in answers), answers
        return "decoded" if answers == ["decoded"] * 2 else "not loaded"

    def generate(self, number: int) -> str:
        """A mutant in `localspec generate`, in a process of its own."""
        command = [
            "generate",
            "-m",
            str(self.mutant(number)),
            "--draft",
            "none",
            "-n",
            "4",
            "--raw",
        ]
        return sound(run_command(*command, home=self._folder / "home", typed="abc"))


class Ends(NamedTuple):
    """How a command ended."""

    code: int
    errors: str


def run_command(*arguments: str, home: Path, typed: str = "") -> Ends:
    """`localspec ARGUMENTS` in a process of its own. home: the folder of its files.

    Raises AssertionError for one without an end, or with more memory than MOST_BYTES.
    """
    environment = {**os.environ, "LOCALSPEC_HOME": str(home), "HF_HUB_CACHE": str(home / "hub")}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "localspec", *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, said = child.communicate(typed.encode(), timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise AssertionError(f"no end within {_SECONDS} s: {arguments!r:.300}") from error
    assert peak_bytes() < MOST_BYTES, f"{peak_bytes() >> 20} MB"
    return Ends(child.returncode, said.decode("utf-8", "replace"))


def sound(ends: Ends, codes: Sequence[int] = _CODES) -> str:
    """How a command ended: its exit code. Raises AssertionError for an end it must not have.

    That is a signal, a traceback, an unexpected error, and more or less than one line of error.
    """
    code, errors = ends
    assert code in codes, f"exit {code}: {errors[-400:]}"
    assert "Traceback" not in errors and "unexpected" not in errors, errors[-600:]
    assert errors.count("localspec: error:") == (code != 0), errors[-600:]
    assert len(errors) < 8000, errors[:400]
    return f"exit {code}"


@contextmanager
def mutants(models: list[Path]) -> Iterator[Headers]:
    """The mutants of these models, in a folder that is deleted."""
    with TemporaryDirectory(prefix="localspec-fuzz-") as folder:
        headers = Headers(Path(folder), models)
        try:
            yield headers
        finally:
            headers.close()
