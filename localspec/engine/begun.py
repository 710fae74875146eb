"""Begun: what stands already of a text that goes on, and its grammar behind that."""

from collections.abc import Sequence
from typing import NamedTuple

from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.llama.model import Model
from localspec.sampling.params import SamplerState
from localspec.sampling.prefix import Constraint
from localspec.utils.format import excerpt
from localspec.utils.option_names import option


class Begun(NamedTuple):
    """What stands already of a text that goes on.

    described: its tokens, as far as a grammar or schema describes them. sampler_state: what its
    tokens have made of mirostat's or adaptive-p's state; None: it begins.
    """

    described: Sequence[int] = ()
    sampler_state: SamplerState | None = None


NOTHING_BEGUN = Begun()
_MOST_SHOWN = 30


def constraint_behind(
    settings: GenerationConfig, model: Model, described: Sequence[int] = ()
) -> Constraint | None:
    """The grammar or schema of a text; None: it has neither.

    described: the tokens of the text that stand already. Raises InvalidValueError where they are
    no beginning of what it describes.
    """
    compiled = settings.compiled_grammar()
    if compiled is None:
        return None
    from localspec.llama.grammar import Grammar  # see GenerationConfig.compiled_grammar

    grammar = Grammar.begin(compiled, model)
    if (fitting := grammar.fitting(described)) == len(described):
        return grammar.behind(described)
    name = "grammar" if settings.schema is None else "schema"
    kept, rest = (
        b"".join(map(model.piece, tokens)).decode(errors="replace")
        for tokens in (described[:fitting], described[fitting:])
    )
    place = f"behind {excerpt(kept[-_MOST_SHOWN:])}" if kept else "at its beginning"
    raise InvalidValueError(
        f"the answer is no beginning of what the {name} describes: {excerpt(rest)} cannot come "
        f"{place}; edit or regenerate the answer, or leave the {name} out ({option(name)})"
    )
