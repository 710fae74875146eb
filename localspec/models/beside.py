"""Beside a target: where the files lie that were made for it."""

import os
from pathlib import Path

from localspec.gguf.files import gguf_files, sidecar_kind
from localspec.hub import store
from localspec.imports import links


def files_beside(target: Path) -> tuple[Path, list[str]]:
    """Return the folder of a target's sidecars and projectors, and the files in it by their paths.

    That of its repository or import, else the one that it lies in.
    """
    path = target.absolute()
    if store.repository_of(path):
        snapshots = store.folder_of(store.repository_of(path) or "") / "snapshots"
        if path.is_relative_to(snapshots):
            root = snapshots / path.relative_to(snapshots).parts[0]
            return root, gguf_files(root)
    if imported := links.root_of(path):
        return imported, gguf_files(imported)
    root = path.parent
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
        folders = [each.name for each in entries if each.is_dir() and sidecar_kind(f"{each.name}/")]
        inside = [f"{folder}/{name}" for folder in folders for name in os.listdir(root / folder)]
    except OSError:
        return root, []
    files = [*(each.name for each in entries), *inside]
    return root, [each for each in files if os.path.isfile(root / each)]
