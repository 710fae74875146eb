"""ApiError: what a client is told when its request cannot be answered."""

from http import HTTPStatus
from typing import Any

from localspec.engine.media_marks import without_marks
from localspec.errors import InvalidValueError, LocalspecError
from localspec.sampling.filters import NoTokenError

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
JSON = dict[str, Any]
# In how many seconds a client that was told to come again may do so.
_RETRY_SECONDS = 5


class ApiError(Exception):
    """An answer with an HTTP status of 400 or more.

    message: one sentence with the way out. param: the member of the request that is wrong. code: a
    word for programs. retry_after: in how many seconds the client may ask again. members: what else
    the error has in OpenAI's protocols.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
        members: JSON | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.members = members or {}
        self.headers: dict[str, str] = {}
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)

    @classmethod
    def of(cls, error: Exception) -> "ApiError":
        """What a client is told of an error of the engine."""
        match error:
            case ApiError():
                return error
            case InvalidValueError() | NoTokenError():
                return cls(400, without_marks(str(error)), code="invalid_value")
            case LocalspecError():
                return cls(500, without_marks(str(error)))
            case RecursionError():
                return cls(400, "the body is nested too deeply; send it flatter")
        return cls(500, "the server failed at this request; its log says where")

    @property
    def kind(self) -> str:
        """The `type` of errors in both protocols."""
        usual = "invalid_request_error" if self.status < 500 else "server_error"
        return _KINDS.get(self.status, usual)

    def as_openai(self) -> JSON:
        """The body as OpenAI's clients read it."""
        body = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": body | self.members}

    def as_anthropic(self) -> JSON:
        """The body as Anthropic's clients read it."""
        kind = "api_error" if self.kind == "server_error" else self.kind
        return {"type": "error", "error": {"type": kind, "message": self.message}}

    def as_ollama(self) -> JSON:
        """The body as Ollama's clients read it."""
        return {"error": self.message}

    @property
    def reason(self) -> str:
        """The words that belong to the status."""
        return HTTPStatus(self.status).phrase


def shutting_down() -> ApiError:
    """The error of a request that comes while the server ends."""
    return ApiError(503, "the server is shutting down", code="shutting_down")


def queue_full(what: str) -> ApiError:
    """The error of a request for which there is no room among those that wait. what: how many do.

    Nothing is known of when there will be.
    """
    return ApiError(
        429, f"{what} already; ask again later", code="queue_full", retry_after=_RETRY_SECONDS
    )


def too_long(
    what: str, context: int, tokens: int | None = None, option: str | None = "--ctx"
) -> ApiError:
    """The error of a prompt that the context is too small for.

    what: of which lengths. tokens: of the prompt, if they were counted. option: for a larger
    context; None: there is none. Agents shorten their
    conversations at words of Anthropic's ("prompt is too long: 9000 tokens > 8191 maximum"), at
    OpenAI's code or, where they see no more than the message, as LiteLLM does, at OpenAI's words
    ("this model's maximum context length is"), or at llama-server's type, and by its numbers.
    """
    members: JSON = {"type": "exceed_context_size_error", "n_ctx": context}
    if tokens is not None:
        members["n_prompt_tokens"] = tokens
    return ApiError(
        400,
        f"prompt is too long: {what}; shorten it"
        + (f", or start the server with a larger {option}" if option else "")
        + f" (this model's maximum context length is {context} tokens)",
        code="context_length_exceeded",
        members=members,
    )
