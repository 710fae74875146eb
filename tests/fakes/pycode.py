"""Pycode: a small real pair that continues Python code, for tests and for figures to compare."""

from pathlib import Path
from typing import Any

from localspec.engine import engine
from localspec.models import registry

_FOLDER = Path(__file__).parents[1] / "pycode"
PYCODE = registry.Bundled(_FOLDER / "pycode-7m-q8_0.gguf", _FOLDER / "pycode-4m-q4_0.gguf")


def load(model: str | Path | None = None, draft: Any = "auto", **options: Any) -> engine.Engine:
    """`localspec.load`, with pycode where no model is named."""
    return engine.load(PYCODE.target if model is None else model, draft, **options)


def make_known() -> None:
    """Name the pair in the user's models.toml, so that `auto` finds its drafter."""
    registry.user_file().parent.mkdir(parents=True, exist_ok=True)
    registry.user_file().write_text(
        f"[pairs.pycode]\ntarget = '{PYCODE.target}'\ndrafter = '{PYCODE.drafter}'\n"
        'prompt = "raw"\n',
        encoding="utf-8",
    )
