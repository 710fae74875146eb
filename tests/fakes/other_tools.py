"""Other tools' models on disk: Ollama's store, and folders of GGUF files."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LAYER = "application/vnd.ollama.image."


class OllamaStore:
    """The folder that OLLAMA_MODELS names, filled as Ollama fills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "blobs").mkdir(parents=True)

    def blob(self, content: bytes | Path) -> str:
        """Put a layer there, and return its digest."""
        content = content.read_bytes() if isinstance(content, Path) else content
        digest = hashlib.sha256(content).hexdigest()
        self.path_of(digest).write_bytes(content)
        return f"sha256:{digest}"

    def path_of(self, digest: str) -> Path:
        return self.folder / "blobs" / f"sha256-{digest.removeprefix('sha256:')}"

    def manifest(self, layers: Mapping[str, bytes | Path], quant: str = "") -> dict[str, Any]:
        """The manifest of layers by their kind. quant: what Ollama says of the weights."""
        listed = [
            {"mediaType": LAYER + kind, "digest": self.blob(content), "size": 1}
            for kind, content in layers.items()
        ]
        config = {"model_format": "gguf", "file_type": quant}
        return {
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {"digest": self.blob(json.dumps(config).encode()), "size": 1},
            "layers": listed,
        }

    def add(
        self, name: str, layers: Mapping[str, bytes | Path] | None = None, **options: str
    ) -> Path:
        """A tag with its layers. name: HOST/NAMESPACE/MODEL:TAG, or MODEL:TAG of the library."""
        return self.write(name, json.dumps(self.manifest(layers or {}, **options)))

    def write(self, name: str, text: str, root: str = "manifests") -> Path:
        """A manifest, whatever it says."""
        whole = name if "/" in name else f"registry.ollama.ai/library/{name}"
        path = self.folder / root / whole.replace(":", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


def fill(folder: Path, files: Mapping[str, Path | bytes]) -> Path:
    """Put files into a folder; their names may have folders of their own."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    return folder
