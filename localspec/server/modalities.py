"""Modalities: what models read besides text, as clients ask before they send an image."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.models.projectors import find_projector
from localspec.server.catalog import Catalog, ServedModel


@dataclass(frozen=True, slots=True)
class Modalities:
    """Whether a model reads images, and sounds."""

    images: bool = False
    sounds: bool = False

    @property
    def names(self) -> list[str]:
        """The names of what it reads, as `architecture.input_modalities` has them."""
        return ["text", *["image"] * self.images, *["audio"] * self.sounds]


_TEXT = Modalities()


def modalities_of(model: ServedModel, catalog: Catalog) -> Modalities:
    """What a model reads. Of one that is not loaded, what its mmproj file says."""
    if service := catalog.service_of(model):
        projector = service.engine.model.projector
        return Modalities(projector.reads_images, projector.reads_sounds) if projector else _TEXT
    return modalities_on_disk(model.mmproj, model.path)


def modalities_on_disk(mmproj: str | None, path: Path) -> Modalities:
    """What the mmproj file of a model says. mmproj: as in EngineConfig. path: the model's."""
    with suppress(OSError):
        file, _ = find_projector(mmproj, path)
        if file:
            return Modalities(file.images, file.sounds)
    return _TEXT
