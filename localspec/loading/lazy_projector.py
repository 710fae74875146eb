"""Lazy projector: the file that reads images for a model is loaded with the first image."""

from threading import Lock

from localspec.gguf.projectors import ProjectorFile
from localspec.llama.media import Projector
from localspec.llama.model import Model
from localspec.utils.closing import Closing
from localspec.utils.progress import report_progress


class LazyProjector(Closing):
    """A projector that is loaded when it is first needed: most texts have no images.

    threads: CPU threads. most_rows: the most rows of a pass of the model.
    """

    def __init__(self, file: ProjectorFile, model: Model, threads: int, most_rows: int) -> None:
        self.file = file
        self._model, self._threads, self._most_rows = model, threads, most_rows
        self._lock = Lock()
        self._loaded: Projector | None = None

    @property
    def reads_images(self) -> bool:
        """Whether it is for images."""
        return self.file.images

    @property
    def reads_sounds(self) -> bool:
        """Whether it is for sounds."""
        return self.file.sounds

    def tokens(self, data: bytes) -> list[int]:
        """As in MediaReader. Raises ModelLoadError, too, if it cannot be loaded."""
        with self._lock:
            if self._loaded is None:
                report_progress(f"loading {self.file.path.name}")
                self._loaded = Projector(
                    self.file.path, self._model, self._threads, self._most_rows
                )
            return self._loaded.tokens(data)

    def close(self) -> None:
        """Free it."""
        with self._lock:
            if self._loaded:
                self._loaded.close()
