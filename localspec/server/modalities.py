"""Modalities: what models read besides text, as clients ask before they send an image."""

from contextlib import suppress
from dataclasses import dataclass

from localspec.errors import LocalspecError
from localspec.gguf.projectors import check_projector, projector_beside
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
    """What a model reads. Of one that is not loaded, what the mmproj file beside it says."""
    if service := catalog.service_of(model):
        projector = service.engine.model.projector
        return Modalities(projector.reads_images, projector.reads_sounds) if projector else _TEXT
    with suppress(LocalspecError, OSError):
        if path := projector_beside(model.path):
            file = check_projector(path)
            return Modalities(file.images, file.sounds)
    return _TEXT
