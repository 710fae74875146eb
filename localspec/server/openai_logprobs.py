"""Log-probabilities, as OpenAI's protocols write them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Token
from localspec.server.errors import JSON
from localspec.server.options import TextSettings
from localspec.server.service import Service

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


def _as_given(pieces: Iterable[bytes], given: bytes) -> Iterator[bytes]:
    """Yield the pieces of a text as it has them.

    Some vocabularies put a space in front of the text, and behind each special token in it.
    """
    at = 0
    for piece in pieces:
        bare = piece.removeprefix(b" ")
        is_added = not given.startswith(piece, at) and given.startswith(bare, at)
        found = bare if is_added else piece
        at += len(found)
        yield found


class CompletionLogprobs:
    """The lists of the older protocol, for the tokens of one text, all at once or one by one."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._detokenizer = Detokenizer()
        self._offset = 0

    def lists(self, tokens: Sequence[Token]) -> JSON:
        """The lists of the next tokens. A `text_offset` counts the whole characters before it."""
        return self._lists(tokens, [self._service.piece(token.id) for token in tokens])

    def prompt_lists(self, tokens: Sequence[Token], given: object, text: str) -> JSON:
        """The lists of the prompt in front of the text; its first token has no log-probability.

        given: the prompt of the request. text: what of the answer it is.
        """
        pieces = [self._service.prompt_piece(token.id) for token in tokens]
        if isinstance(given, str):
            if tokens[0].id in self._service.tokens("", add_special=True):
                pieces[0] = b""  # a BOS that stands in front of it
            pieces = [*_as_given(pieces, given.encode())]
        found = self._lists(tokens, pieces)
        found["token_logprobs"][0] = found["top_logprobs"][0] = None
        self._detokenizer, self._offset = Detokenizer(), len(text)
        return found

    def _lists(self, tokens: Sequence[Token], pieces: Sequence[bytes]) -> JSON:
        found: JSON = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token, piece in zip(tokens, pieces, strict=True):
            found["tokens"].append(self._text(token.id))
            found["token_logprobs"].append(_shown(token.logprob))
            found["top_logprobs"].append(
                {self._text(other): _shown(value) for other, value in token.top}
            )
            found["text_offset"].append(self._offset)
            self._offset += len(self._detokenizer.push(piece))
        return found

    def _text(self, token: int) -> str:
        """A token's text; of a part of a character its bytes, as OpenAI writes them."""
        piece = self._service.piece(token)
        try:
            return piece.decode() or self._service.engine.model.piece_text(token)
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
