"""Copy sources: texts beside the current one that the suffix drafter may copy from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.drafters.suffix_store import PastTexts
from localspec.errors import InvalidValueError
from localspec.llama.model import Model
from localspec.utils.bounded_file import MOST_TEXT_BYTES, read_at_most

# As many as of past texts: an index takes 140 bytes per token.
MOST_TOKENS = 200_000
COPIER = "suffix"


@dataclass(frozen=True, slots=True)
class CopySources:
    """Texts that are in no prompt, but may be copied from.

    past: the store of earlier texts, if they are kept. files: the tokens of files.
    """

    past: PastTexts | None = None
    files: tuple[Sequence[int], ...] = ()

    def load(self) -> list[Sequence[int]]:
        """All texts, the oldest first."""
        return [*(self.past.load() if self.past else ()), *self.files]

    def note(self, kinds: Iterable[str]) -> str | None:
        """One line where nothing copies from the files. kinds: of the drafters."""
        if not self.files or COPIER in kinds:
            return None
        return f"nothing is copied from the files: no drafter copies; add {COPIER} to --draft"


NO_SOURCES = CopySources()


def read_texts(files: Iterable[str | Path]) -> tuple[str, ...]:
    """The texts of files. Raises InvalidValueError for one that cannot be read, or is no text."""
    texts = []
    for file in map(Path, files):
        try:
            texts.append(read_at_most(file, MOST_TEXT_BYTES).decode("utf-8"))
        except OSError as error:
            raise InvalidValueError(
                f"{file} cannot be copied from: {error.strerror or error}"
            ) from error
        except UnicodeDecodeError as error:
            raise InvalidValueError(
                f"{file} cannot be copied from: it is not UTF-8 text (byte {error.start} is "
                f"0x{error.object[error.start]:02x})"
            ) from error
    return tuple(texts)


def copy_sources(model: Model, past: PastTexts | None, texts: Iterable[str]) -> CopySources:
    """The sources for a target.

    Raises InvalidValueError if the texts have more than MOST_TOKENS tokens.
    """
    files = tuple(model.tokenize(text, add_special=False, parse_special=False) for text in texts)
    tokens = sum(map(len, files))
    if tokens > MOST_TOKENS:
        raise InvalidValueError(
            f"the files to copy from have {tokens:,} tokens; at most {MOST_TOKENS:,} are indexed: "
            "name fewer or shorter ones"
        )
    return CopySources(past, files)
