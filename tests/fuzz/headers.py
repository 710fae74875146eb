"""Damaged models: refused in one line by the checks, or survived by llama.cpp and the command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from fakes.broken_gguf import broken
from fakes.gguf_document import Document, parse
from fakes.loader import Loader
from fakes.tiny import FAMILIES, write_tiny
from fuzz.command import Command, Ends, sound

from localspec.errors import ModelLoadError
from localspec.gguf.check import check_generative


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

    def generate(self, number: int, command: Command) -> str:
        """A mutant in `localspec generate`."""
        return sound(self._generated(number, command))

    def generate_twice(self, number: int, warm: Command, fresh: Command) -> str:
        """The same in a fork and in a process of its own, which must end alike."""
        ends = self._generated(number, warm)
        others = self._generated(number, fresh)
        assert ends == others, f"{ends} in a fork, {others} in a process of its own"
        return sound(ends)

    def _generated(self, number: int, command: Command) -> Ends:
        options = ["--draft", "none", "-n", "4", "--raw", "--seed", "1"]
        return command("generate", "-m", str(self.mutant(number)), *options, typed="abc")


@contextmanager
def mutants(models: list[Path]) -> Iterator[Headers]:
    """The mutants of these models, in a folder that is deleted."""
    with TemporaryDirectory(prefix="localspec-fuzz-") as folder:
        headers = Headers(Path(folder), models)
        try:
            yield headers
        finally:
            headers.close()
