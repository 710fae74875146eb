"""Page: what a browser sees at /, and the files that it is made of."""

from functools import cache
from pathlib import Path

from starlette.responses import Response

_FOLDER = Path(__file__).with_name("static")
_KINDS = {".css": "text/css", ".js": "text/javascript"}
# The page needs nothing from elsewhere, no other page may frame it, and no text becomes HTML. After
# an upgrade, no older file may run beside the new ones.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@cache
def page_paths() -> dict[str, Path]:
    """The paths of the page, which need no key, and the files there."""
    beside = {f"/static/{file.name}": file for file in _FOLDER.iterdir() if file.suffix in _KINDS}
    return {"/": _FOLDER / "page.html", **beside}


@cache
def page(path: str) -> Response:
    """The file at one of `page_paths`. The page asks the other paths for everything else."""
    file = page_paths()[path]
    kind = _KINDS.get(file.suffix, "text/html")
    return Response(file.read_bytes(), headers=_HEADERS, media_type=kind)
