"""Copy sources: texts beside the current one that the suffix drafter may copy from."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from localspec.drafters.suffix import Suffix
from localspec.drafters.suffix_store import MOST_TOKENS, PastTexts
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.llama.model import Model
from localspec.utils.option_names import option


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

    def note(self, kinds: Collection[str]) -> str | None:
        """One line where nothing copies from the texts. kinds: of the drafters."""
        past = ["earlier texts"] if self.past else []
        sources = [*(["the files"] if self.files else []), *past]
        if not sources or Suffix.name in kinds:
            return None
        unstored = "; this text is not stored, as nothing drafts" if past and not kinds else ""
        what = f"nothing is copied from {' and '.join(sources)}: only suffix copies from them"
        return f"{what}; add it to {option('draft')}{unstored}"


NO_SOURCES = CopySources()


def prediction_unused(settings: GenerationConfig, drafters: Collection[str]) -> str | None:
    """Why the prediction of a text has no effect; None if it has, or there is none.

    drafters: the names of those that are loaded.
    """
    if not settings.prediction:
        return None
    if Suffix.name not in drafters:
        return f"only suffix copies from it; add it to {option('draft')}"
    if settings.depth == 0:
        return "nothing is drafted at depth 0"
    if settings.drafter not in (None, Suffix.name):
        return f"only suffix copies from it, and {settings.drafter} alone may draft"
    return None


def copy_sources(model: Model, past: PastTexts | None, texts: Iterable[str]) -> CopySources:
    """The sources for a target. texts: those of files.

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
