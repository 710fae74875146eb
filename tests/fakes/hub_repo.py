"""A repository of the fake Hub: files of this disk, committed one state after another."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

# As .gitattributes of model repositories have it.
_LFS = (".gguf", ".safetensors", ".bin")


@dataclass(frozen=True)
class File:
    """A file as it was when it was committed.

    source: where its bytes are, which must stay as they are; or how many it is said to have, of a
    file too large for any disk.
    """

    name: str
    source: Path | int

    @cached_property
    def size(self) -> int:
        return self.source if isinstance(self.source, int) else self.source.stat().st_size

    @cached_property
    def content(self) -> bytes:
        return b"" if isinstance(self.source, int) else self.source.read_bytes()

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def lfs(self) -> bool:
        return self.name.endswith(_LFS)

    @property
    def git_id(self) -> str:
        """What git calls it: of a file in LFS, its pointer."""
        content = self.sha256.encode() if self.lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    def sibling(self) -> dict[str, Any]:
        """As model information with `blobs=true` lists it."""
        lfs = {"sha256": self.sha256, "size": self.size, "pointerSize": 135}
        about = {"rfilename": self.name, "size": self.size, "blobId": self.git_id}
        return {**about, "lfs": lfs} if self.lfs else about

    def entry(self) -> dict[str, Any]:
        """As a tree lists it."""
        lfs = {"oid": self.sha256, "size": self.size, "pointerSize": 135}
        about = {"type": "file", "path": self.name, "size": self.size, "oid": self.git_id}
        return {**about, "lfs": lfs} if self.lfs else about


_numbers = count(1)


class Repo:
    """What a repository holds, and who may see it.

    gated: everybody sees what files there are, and only `token` fetches them. private: without
    `token` it does not exist. disabled: everybody is refused.
    """

    def __init__(
        self,
        files: Mapping[str, Path | int],
        *,
        gated: bool = False,
        private: bool = False,
        token: str | None = None,
    ) -> None:
        # It stays when the repository is renamed.
        self.identity = f"{next(_numbers):024x}"
        self.gated = gated
        self.private = private
        self.disabled = False
        self.token = token
        self.commits: dict[str, dict[str, File]] = {}
        self.push(files)

    def push(self, files: Mapping[str, Path | int]) -> str:
        """A new state of all files, which is `main` from now on; its commit."""
        state = {name: File(name, files[name]) for name in sorted(files)}
        history = [*self.commits, *(f"{file.name} {file.sha256}" for file in state.values())]
        self.main = hashlib.sha1("\n".join(history).encode()).hexdigest()
        self.commits[self.main] = state
        return self.main

    def commit(self, revision: str) -> str | None:
        """The commit that a branch or a commit names, None if it names none."""
        commit = self.main if revision == "main" else revision
        return commit if commit in self.commits else None
