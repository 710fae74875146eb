"""Loading: what the server answers until its model is loaded."""

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from localspec.server.errors import JSON, ApiError
from localspec.server.exchange import JsonAnswer
from localspec.server.guard import respond
from localspec.server.page import page, page_paths

# In how many seconds a client whose request was refused may ask again.
_RETRY_SECONDS = 5


class LoadingApp:
    """An application that says how far loading is, and becomes another one at the end.

    app: that one; None while the model loads.
    """

    def __init__(self) -> None:
        self.app: ASGIApp | None = None
        # Replaced as a whole: the thread that loads writes it, the event loop reads it.
        self._progress: tuple[str, float | None] = "loading", None

    def report(self, action: str, share: float | None) -> None:
        """Note how far loading is, as `utils.progress` reports it; any thread may."""
        self._progress = action, share

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.app is not None:
            await self.app(scope, receive, send)
        elif (answer := self._answer(scope)) is not None:
            await answer(scope, receive, send)
        else:
            await respond(self._refusal, scope, send)

    def _answer(self, scope: Scope) -> Response | None:
        if scope["method"] in ("GET", "HEAD"):
            if (path := scope["path"]) in page_paths():
                return page(path)
            if path in ("/health", "/v1/health"):
                return JsonAnswer(self._health, status_code=503, headers=self._refusal.headers)
        return None

    @property
    def _health(self) -> JSON:
        """llama-server's answer, older and newer, and how far it is."""
        action, share = self._progress
        return {
            "status": "loading model",
            "action": action,
            "progress": share,
            "error": {"code": 503, "message": "Loading model", "type": "unavailable_error"},
        }

    @property
    def _refusal(self) -> ApiError:
        action, share = self._progress
        far = action if share is None else f"{action}, {share:.0%}"
        return ApiError(
            503,
            f"the model is not ready yet ({far}); ask again in a moment",
            code="loading_model",
            retry_after=_RETRY_SECONDS,
        )
