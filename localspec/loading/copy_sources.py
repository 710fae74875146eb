"""Copy sources: texts beside the current one that the suffix drafter may copy from."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from localspec.drafters.earlier_texts import KEPT_TOKENS, EarlierTexts
from localspec.drafters.suffix import Suffix
from localspec.drafters.suffix_store import MOST_TOKENS, PastTexts
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.llama.model import Model
from localspec.utils.option_names import option

# Of a token, on average over a text.
_MOST_LETTERS = 16


@dataclass(frozen=True, slots=True)
class CopySources:
    """The texts of an engine beside the current one; has_files: whether some are those of files."""

    earlier: EarlierTexts = field(default_factory=EarlierTexts)
    has_files: bool = False

    def note(self, kinds: Collection[str]) -> str | None:
        """One line where nothing copies from the texts. kinds: of the drafters."""
        past = ["earlier texts"] if self.earlier.store else []
        sources = [*(["the files"] if self.has_files else []), *past]
        if not sources or Suffix.name in kinds:
            return None
        unstored = "; this text is not stored, as nothing drafts" if past and not kinds else ""
        what = f"nothing is copied from {' and '.join(sources)}: only suffix copies from them"
        return f"{what}; add it to {option('draft')}{unstored}"


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


def copy_sources(
    model: Model, past: PastTexts | None, files: Sequence[str], earlier: Sequence[str] = ()
) -> CopySources:
    """The sources for a target.

    past: the store of texts of earlier runs. files: their texts. earlier: other texts, the oldest
    first, of which the latest are used that fit.

    Raises InvalidValueError if the files have more than MOST_TOKENS tokens.
    """
    of_files = [_tokens(model, text) for text in files]
    tokens = sum(map(len, of_files))
    if tokens > MOST_TOKENS:
        raise InvalidValueError(
            f"the files to copy from have {tokens:,} tokens; at most {MOST_TOKENS:,} are indexed: "
            "name fewer or shorter ones"
        )
    given = _Given(model, earlier, of_files)
    kept = MOST_TOKENS if past else KEPT_TOKENS
    return CopySources(EarlierTexts(given, past, kept=kept), bool(files))


class _Given:
    """The latest of earlier texts that fit, and those of files; tokenized where they are read."""

    def __init__(
        self, model: Model, earlier: Sequence[str], of_files: Sequence[Sequence[int]]
    ) -> None:
        self._model, self._earlier, self._of_files = model, earlier, of_files

    def __iter__(self) -> Iterator[Sequence[int]]:
        found, room = list[Sequence[int]](), KEPT_TOKENS
        for text in reversed(self._earlier):
            found.append(_tokens(self._model, text[-_MOST_LETTERS * room :])[-room:])
            room -= len(found[-1])
            if room <= 0:
                break
        yield from reversed(found)
        yield from self._of_files


def _tokens(model: Model, text: str) -> Sequence[int]:
    return model.tokenize(text, add_special=False, parse_special=False)
