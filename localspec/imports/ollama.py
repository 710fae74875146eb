"""Ollama's models on this disk: manifests, one per tag, and blobs, named by their sha256.

`manifests/HOST/NAMESPACE/MODEL/TAG` is JSON that lists the layers of a model; newer versions have
`manifests-v2`, and lists of manifests of which each is for one runner. A layer is
`blobs/sha256-HASH`: weights in GGUF, a drafter, an adapter, an image encoder, or texts.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError
from localspec.gguf.files import SIDECAR_KINDS, ModelFiles
from localspec.gguf.heads import kind_of
from localspec.gguf.reader import read_header
from localspec.imports.collection import DRAFT, OLLAMA, Collection
from localspec.utils.format import printable
from localspec.utils.stored_json import DamagedFileError, read_stored

_MANIFESTS = ("manifests-v2", "manifests")
_BLOBS = "blobs"
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_LAYER = "application/vnd.ollama.image."
# Runners of a list of manifests whose files llama.cpp reads, the best first.
_RUNNERS = ("llamacpp", "ollama", "")
_LEFT_OUT = {
    "adapter": "is an adapter, not a model; only the model that it changes can be imported",
}
# The name of an image or audio encoder, which is that of its tag's model.
_PROJECTOR = "mmproj.gguf"
_NOT_GGUF = "is no GGUF file, but tensors for another runner"
_NO_FILE = "has no weights on this disk; it may run in a cloud"
_SPLIT = "lies in several files that Ollama has not joined"


class _BadManifestError(Exception):
    """A manifest says something that cannot be."""


def is_ollama(folder: Path) -> bool:
    """Whether a folder is that of Ollama's models."""
    manifests = [folder / name for name in _MANIFESTS]
    return os.path.isdir(folder / _BLOBS) and any(map(os.path.isdir, manifests))


def ollama_collections(folder: Path) -> list[Collection]:
    """Return a collection per tag, by name. folder: of Ollama's models (OLLAMA_MODELS)."""
    found: dict[tuple[str, ...], Path] = {}
    for root in (folder / name for name in _MANIFESTS):
        for path in sorted(root.glob("*/*/*/*")):
            names = path.relative_to(root).parts
            if not path.name.startswith(".") and not os.path.isdir(path):
                found.setdefault(_shortened(names), path)
    return [_collection(folder / _BLOBS, names, found[names]) for names in sorted(found)]


def _shortened(names: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out what Ollama's own names leave out: its registry, and the namespace `library`."""
    host, namespace, *rest = names
    if host != "registry.ollama.ai":
        return names
    return tuple(rest) if namespace == "library" else (namespace, *rest)


def _collection(blobs: Path, names: tuple[str, ...], manifest: Path) -> Collection:
    files: dict[str, Path] = {}
    problems: dict[str, str] = {}
    empty = Collection(OLLAMA, names)
    try:
        content = _for_llama_cpp(blobs, _read(manifest))
        layers = [*_layers(blobs, content)]
    except _BadManifestError as error:
        return Collection(OLLAMA, names, problems={empty.name_of(): str(error)})
    stem = "-".join([names[-2], names[-1]])
    weights = [blob for kind, blob in layers if kind == "model"]
    if len(weights) != 1:
        tensors = any(kind == "tensor" for kind, _ in layers)
        several = _SPLIT if weights else _NO_FILE
        problems[empty.name_of()] = _NOT_GGUF if tensors else several
    for kind, blob in layers:
        if kind in _LEFT_OUT:
            problems[empty.name_of(kind)] = _LEFT_OUT[kind]
        elif kind in ("model", "draft", "projector") and not os.path.isfile(blob):
            what = "" if kind == "model" else kind
            problems[empty.name_of(what)] = (
                f"has lost its file {_BLOBS}/{blob.name}; ollama pull {empty.id} fetches it again"
            )
        elif kind == "model" and len(weights) == 1:
            files[_file_name(stem, blobs, content)] = blob
        elif kind == "draft":
            files[_draft_name(stem, blob)] = blob
        elif kind == "projector":
            files[_PROJECTOR] = blob
    return Collection(OLLAMA, names, files, problems)


def _read(manifest: Path) -> Any:
    try:
        return read_stored(manifest)
    except OSError as error:
        raise _BadManifestError(
            f"has a manifest that cannot be read ({error.strerror or error})"
        ) from error
    except DamagedFileError as error:
        raise _BadManifestError("has a broken manifest; ollama pull fetches it again") from error


def _for_llama_cpp(blobs: Path, manifest: Any) -> Mapping[str, Any]:
    """Return the manifest itself; of a list, the one whose files llama.cpp reads."""
    if not isinstance(manifest, dict):
        raise _BadManifestError("has a manifest that is no object")
    children = manifest.get("manifests")
    if not isinstance(children, list):
        return manifest
    known = [child for child in children if isinstance(child, dict)]
    for runner in _RUNNERS:
        for child in known:
            if child.get("runner", "") == runner:
                whole = child if "layers" in child else _read(_blob(blobs, child.get("digest")))
                return whole if isinstance(whole, dict) else {}
    raise _BadManifestError("has files for other runners only, and none for llama.cpp")


def _layers(blobs: Path, manifest: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield the kind and the blob of every layer."""
    layers = manifest.get("layers")
    if not isinstance(layers, list) or not all(isinstance(each, dict) for each in layers):
        raise _BadManifestError("has a manifest without layers")
    for layer in layers:
        kind = layer.get("mediaType")
        if isinstance(kind, str) and kind.startswith(_LAYER):
            yield kind.removeprefix(_LAYER), _blob(blobs, layer.get("digest"))


def _blob(blobs: Path, digest: Any) -> Path:
    """Return the path of a blob, which may not exist; it is never outside of the folder."""
    found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if found is None:
        shown = printable(str(digest))[:80]
        raise _BadManifestError(f"has a manifest that names {shown!r}, which is no digest")
    return blobs / f"sha256-{found[1].lower()}"


def _file_name(stem: str, blobs: Path, manifest: Mapping[str, Any]) -> str:
    """Return the name for a link: of the model and the tag, and its quantisation if it is known."""
    if ModelFiles((f"{stem}.gguf",)).quant is None:
        try:
            quant = str(_read(_blob(blobs, manifest["config"]["digest"]))["file_type"])
        except (_BadManifestError, KeyError, TypeError):
            quant = ""
        if ModelFiles((f"{quant}.gguf",)).quant == quant:
            return f"{stem}-{quant}.gguf"
    return f"{stem}.gguf"


def _draft_name(stem: str, blob: Path) -> str:
    """Return the name for a link to a drafter: that of a sidecar, where it is a head."""
    try:
        kind = kind_of(read_header(blob)) or ""
    except LocalspecError:
        kind = ""
    prefix = next((f"{each}-" for each in SIDECAR_KINDS if kind.startswith(each)), DRAFT)
    return f"{prefix}{stem}.gguf"
