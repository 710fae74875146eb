"""Collections: the files that a tool keeps together, as a repository does, and the models in them.

Every tool's models are found as collections, and the links to them are read back as collections,
so that a model has the same name before it is imported and after.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from localspec.gguf.files import ModelFiles, group_files, group_sidecars

OLLAMA, LM_STUDIO, LLAMA_CPP, FOLDER = "ollama", "lmstudio", "llama.cpp", "folder"
TOOLS = (OLLAMA, LM_STUDIO, LLAMA_CPP, FOLDER)
# How the name of a draft model begins that Ollama keeps with its target.
DRAFT = "draft-"
# The folders by which a tool tells its collections apart: user/repo, or the name of a folder.
_DEPTHS = {LM_STUDIO: 2, LLAMA_CPP: 2, FOLDER: 1}


@dataclass(frozen=True, slots=True)
class Collection:
    """Files that a tool keeps together: a tag of Ollama, or a repository.

    folders: what the tool calls the collection, as folders. files: by the names that they have in
    the collection, in folders of it too. problems: why something in it cannot be used, by its name.
    """

    tool: str
    folders: tuple[str, ...]
    files: Mapping[str, Path] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """What the tool calls it: name:tag in Ollama, else user/repo or a folder."""
        if self.tool == OLLAMA:
            return f"{'/'.join(self.folders[:-1])}:{self.folders[-1]}"
        return "/".join(self.folders)

    @property
    def repository(self) -> str | None:
        """The repository of the Hub that the files are from, as far as their folders tell."""
        names = self.folders[:-1] if self.tool == OLLAMA else self.folders
        if self.tool == OLLAMA and names[0] in ("hf.co", "huggingface.co"):
            names = names[1:]
        elif self.tool not in (LM_STUDIO, LLAMA_CPP):
            return None
        return "/".join(names) if len(names) == 2 else None

    def name_of(self, part: str = "") -> str:
        """Return how a user names something in the collection."""
        return ":".join(filter(None, (self.tool, self.id, part)))

    def models(self) -> Mapping[str, ModelFiles]:
        """Return the models and sidecars in the collection by the names to use."""
        models, sidecars = group_files(self.files), group_sidecars(self.files)
        quants = [each.quant for each in models]
        found: dict[str, ModelFiles] = {}
        for each in models:
            if self.tool == OLLAMA:
                part = each.first if each.first.startswith(DRAFT) else ""
            else:
                one = self.tool != FOLDER and self.id and quants.count(each.quant) == 1
                part = (one and each.quant) or each.first
            found[self.name_of(part)] = each
        return found | {self.name_of(each.first): each for each in sidecars}


def folders_of(tool: str, file: str) -> tuple[tuple[str, ...], str]:
    """Split the path of a file below a tool's folder: its collection, its name in that."""
    *above, name = file.split("/")
    depth = _DEPTHS.get(tool, len(above))
    depth = min(depth, len(above))
    return tuple(above[:depth]), "/".join([*above[depth:], name])
