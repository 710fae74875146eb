"""Page: what a browser sees at /."""

from pathlib import Path

from starlette.responses import HTMLResponse, Response

_PAGE = Path(__file__).with_name("page.html")
# The page needs nothing from elsewhere, and no other page may frame it.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def page() -> Response:
    """The page, which asks the other paths for everything else."""
    return HTMLResponse(_PAGE.read_bytes(), headers=_HEADERS)
