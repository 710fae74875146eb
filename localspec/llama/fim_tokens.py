"""FIM tokens: what stands between the parts of a text with a gap ("fill in the middle")."""

from dataclasses import dataclass
from typing import Any

import llama_cpp


@dataclass(frozen=True, slots=True)
class FimTokens:
    """The tokens before the text ahead of the gap, before the text behind it, and before the gap.

    repository, file: before the names of a repository and of a file; None if the model has none.
    """

    prefix: int
    suffix: int
    middle: int
    repository: int | None = None
    file: int | None = None

    @classmethod
    def of(cls, vocabulary: Any) -> "FimTokens | None":
        """Those of the library's vocabulary; None unless it has the first three.

        The library takes them from the GGUF (`tokenizer.ggml.fim_pre_token_id` and the like), and
        else looks for the texts that families give them.
        """
        found: list[int | None] = [
            int(token) if (token := of(vocabulary)) >= 0 else None
            for of in (
                llama_cpp.llama_vocab_fim_pre,
                llama_cpp.llama_vocab_fim_suf,
                llama_cpp.llama_vocab_fim_mid,
                llama_cpp.llama_vocab_fim_rep,
                llama_cpp.llama_vocab_fim_sep,
            )
        ]
        match found:
            case [int(prefix), int(suffix), int(middle), repository, file]:
                return cls(prefix, suffix, middle, repository, file)
        return None
