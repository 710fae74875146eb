"""Bundled files: the models and heads that come with localspec, and what to type for them."""

from importlib import resources
from pathlib import Path

from localspec.hub.reference import Reference


def bundled_folder() -> Path:
    """Return the folder of all files that come with localspec."""
    return Path(str(resources.files("localspec.bundled")))


def bundled_files() -> list[Path]:
    """Return the models and heads that come with localspec."""
    return sorted(bundled_folder().glob("*.gguf"))


def bundled_named(name: str) -> Path | None:
    """Find one of these files by its name, in any case, with or without .gguf."""
    wanted = name.lower().removesuffix(".gguf")
    return next((file for file in bundled_files() if file.stem == wanted), None)


def name_of(model: Reference) -> str:
    """Return what to type for a model: the bare name of a bundled file, else path or repository."""
    if isinstance(model, Path) and model.parent == bundled_folder():
        return model.stem
    return str(model)
