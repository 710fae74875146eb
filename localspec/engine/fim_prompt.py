"""FIM prompt: a text with a gap, as the token ids after which a model fills it.

The orders are those that models were taught (Bavarian et al. 2022, "Efficient Training of Language
Models to Fill in the Middle"; Hui et al. 2024, Qwen2.5-Coder, for several files), as llama-server's
/infill writes them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.engine.prompt import text_tokens
from localspec.errors import InvalidValueError
from localspec.llama.fim_tokens import FimTokens
from localspec.llama.model import Model

# Of so many tokens, three quarters are for the text ahead of the gap and a quarter for the text
# behind it: llama-server's batch. Texts around a gap are cut to what is nearest to it.
_AROUND = 2048
_REPOSITORY, _FILE = "myproject\n", "filename\n"
# Between pieces of other files where a model has no token for that.
_SNIPPET = "\n\n--- snippet ---\n\n"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of another file. name: of the file."""

    name: str
    text: str


def fim_prompt(model: Model, prefix: str | Sequence[int], suffix: str) -> list[int]:
    """The prompt for the gap between a prefix, also as token ids, and a suffix.

    What is written like a control token in the texts is text. Raises InvalidValueError if the model
    has no tokens for this, and for texts that are no valid Unicode.
    """
    fim = _fim_tokens(model)
    ahead = _plain(model, prefix) if isinstance(prefix, str) else [*prefix]
    return _joined(model, fim, ahead, _plain(model, suffix))


def infill_prompt(
    model: Model,
    prefix: str,
    suffix: str,
    *,
    written: str = "",
    snippets: Iterable[Snippet] = (),
    context: int,
    most_tokens: int,
) -> list[int]:
    """The prompt for a gap, with pieces of other files as far as there is room.

    written: the beginning of what fills the gap; control tokens in it are read. context: of the
    model, in tokens. most_tokens: how many may be generated. Raises as `fim_prompt`.
    """
    fim = _fim_tokens(model)
    around = min(_AROUND, context // 2)
    begun = text_tokens(written, lambda text: model.tokenize(text, add_special=False))
    ahead = _last(_plain(model, prefix), 3 * (around // 4))
    behind = _plain(model, suffix)[: max(0, around // 4 - 2 - len(begun))]
    room = context - around - min(most_tokens, around)
    others = _last(_others(model, fim, snippets), room)
    return [*others, *_joined(model, fim, [*ahead, *begun], behind)]


def _fim_tokens(model: Model) -> FimTokens:
    if model.fim_tokens is None:
        raise InvalidValueError(
            "this model cannot fill in the middle: its vocabulary has no tokens for the text "
            "before and behind a gap; leave the suffix out, or serve a model that has them"
        )
    return model.fim_tokens


def _joined(model: Model, fim: FimTokens, ahead: Sequence[int], behind: Sequence[int]) -> list[int]:
    begin = [model.bos] if model.adds_bos else []
    return [*begin, fim.prefix, *ahead, fim.suffix, *behind, fim.middle]


def _others(model: Model, fim: FimTokens, snippets: Iterable[Snippet]) -> list[int]:
    """The pieces of other files, and the beginning of the file with the gap."""
    found: list[int] = []
    if fim.repository is not None:
        found += [fim.repository, *_plain(model, _REPOSITORY)]
    for each in snippets:
        if fim.file is None:
            found += _plain(model, _SNIPPET)
        else:
            found += [fim.file, *_plain(model, f"{each.name}\n")]
        found += _plain(model, each.text)
    if fim.file is not None:
        found += [fim.file, *_plain(model, _FILE)]
    return found


def _plain(model: Model, text: str) -> list[int]:
    def tokens(plain: str) -> list[int]:
        return model.tokenize(plain, add_special=False, parse_special=False)

    return text_tokens(text, tokens)


def _last(tokens: Sequence[int], count: int) -> Sequence[int]:
    return tokens[max(0, len(tokens) - max(0, count)) :]
