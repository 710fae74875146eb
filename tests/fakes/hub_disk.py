"""huggingface_hub's cache on disk, filled as that library fills it, without a download."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

FIRST, SECOND = "1" * 40, "2" * 40


class HubDisk:
    """The cache in a folder. linked: files of revisions are links, as where the system has them."""

    def __init__(self, folder: Path, *, linked: bool = True) -> None:
        self.folder = folder
        self.linked = linked
        folder.mkdir(parents=True, exist_ok=True)

    def add(
        self,
        repository: str,
        files: Mapping[str, Path | bytes],
        commit: str = FIRST,
        ref: str | None = "main",
    ) -> Path:
        """Put files into a revision, and return its folder. ref: what names the revision."""
        snapshot = self.of(repository) / "snapshots" / commit
        for name, source in files.items():
            content = source if isinstance(source, bytes) else source.read_bytes()
            blob = self.of(repository) / "blobs" / hashlib.sha256(content).hexdigest()
            entry = snapshot / name
            for folder in (blob.parent, entry.parent):
                folder.mkdir(parents=True, exist_ok=True)
            blob.write_bytes(content)
            if self.linked:
                entry.symlink_to(os.path.relpath(blob, entry.parent))
            else:
                blob.replace(entry)
        if ref:
            named = self.of(repository) / "refs" / ref
            named.parent.mkdir(parents=True, exist_ok=True)
            named.write_text(commit)
        return snapshot

    def part(self, repository: str, blob: str, size: int, ending: str) -> Path:
        """The beginning of a file that would be called `blob`."""
        part = self.of(repository) / "blobs" / f"{blob}.{ending}"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(bytes(size))
        return part

    def of(self, repository: str) -> Path:
        """The folder of a repository."""
        return self.folder / f"models--{repository.replace('/', '--')}"

    def clear(self) -> None:
        shutil.rmtree(self.folder)


def write_split(stem: Path) -> list[Path]:
    """A tiny model in two parts, and their paths."""
    writer = gguf.GGUFWriter(stem.with_suffix(".gguf"), "llama", split_max_tensors=1)
    writer.add_context_length(64)
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "c"])
    writer.add_tensor("token_embd.weight", np.zeros((3, 32), np.float32))
    writer.add_tensor("output_norm.weight", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(stem.parent.glob(f"{stem.name}-0*.gguf"))
