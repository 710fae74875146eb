"""Log-probabilities, as OpenAI's protocols write them."""

import math
from collections.abc import Iterable
from typing import Any

from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Token
from localspec.server.errors import JSON
from localspec.server.options import TextSettings
from localspec.server.service import Service
from localspec.speculation.prompt_logprobs import ORIGIN

# JSON has no infinity.
_LEAST = -9999.0


def token_logprobs(token: Token, settings: TextSettings, service: Service) -> JSON:
    """A token with its log-probability and the likeliest tokens, of a chat.

    Where those of the samplers were asked for, probabilities, in llama-server's names.
    """
    after = settings.post_sampling_probs
    return {
        **_logprob(token.id, token.logprob, service, after=after),
        "top_probs" if after else "top_logprobs": [
            _logprob(other, value, service, after=after) for other, value in token.top
        ],
        "origin": token.origin,
    }


def _logprob(token: int, value: float | None, service: Service, *, after: bool) -> dict[str, Any]:
    piece = service.piece(token)
    text = piece.decode("utf-8", "replace")
    found = {"prob": math.exp(_shown(value))} if after else {"logprob": _shown(value)}
    return {"token": text, **found, "bytes": list(piece), "id": token}


def _shown(value: float | None) -> float:
    return _LEAST if value is None else max(value, _LEAST)


class CompletionLogprobs:
    """The lists of the older protocol, for the tokens of one text, all at once or one by one.

    echo: the prompt, where it comes in front of the text.
    """

    def __init__(self, service: Service, echo: str = "") -> None:
        self._service, self._echo = service, echo
        self._detokenizer = Detokenizer()
        self._offset = 0

    def lists(self, tokens: Iterable[Token]) -> JSON:
        """The lists of the next tokens. A `text_offset` counts the whole characters before it.

        The very first token of a prompt has no log-probability.
        """
        found: JSON = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token in tokens:
            found["tokens"].append(self._text(token.id))
            top = {self._text(other): _shown(value) for other, value in token.top}
            is_first = token.origin == ORIGIN and token.logprob is None
            found["token_logprobs"].append(None if is_first else _shown(token.logprob))
            found["top_logprobs"].append(None if is_first else top)
            found["text_offset"].append(self._offset)
            self._offset += len(self._detokenizer.push(self._piece(token)))
        return found

    def _piece(self, token: Token) -> bytes:
        """A token's bytes in the text; in a prompt control tokens have some, but no added BOS."""
        if token.origin != ORIGIN:
            return self._service.piece(token.id)
        piece = self._service.prompt_piece(token.id)
        is_added = token.logprob is None and not self._echo.encode().startswith(piece)
        return b"" if is_added else piece

    def _text(self, token: int) -> str:
        """A token's text; of a part of a character its bytes, as OpenAI writes them."""
        piece = self._service.piece(token)
        try:
            return piece.decode() or self._service.engine.model.piece_text(token)
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
