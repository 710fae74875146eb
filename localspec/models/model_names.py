"""Model names: those that a user may type, to complete the beginning of one."""

from localspec.errors import LocalspecError


def model_names() -> list[tuple[str, str | None]]:
    """Return the names of all pairs and of the models on this disk; pairs have a note.

    Empty where they cannot be read: the user is still typing, and the command explains the error.
    """
    try:
        from localspec.hub import store
        from localspec.imports import links
        from localspec.models import registry
        from localspec.models.bundled_files import bundled_files

        pairs = [(pair.name, pair.note) for pair in registry.pairs().values()]
        bundled = [(file.stem, None) for file in bundled_files()]
        # Other files outside of the Hub's cache are named by their paths.
        stored = [(model.name, None) for model in (*store.models(), *links.imported())]
    except (LocalspecError, ImportError, OSError, ValueError):
        return []
    return [*pairs, *bundled, *stored]
