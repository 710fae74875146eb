"""Lazy projector: the file that reads images for a model is loaded with the first image."""

from collections.abc import Mapping
from threading import Lock

from localspec.gguf.projectors import ProjectorFile
from localspec.llama.devices import names_of
from localspec.llama.media import Projector
from localspec.llama.model import Model
from localspec.loading.projector_check import require_usable
from localspec.memory.available import GPU_RESERVE, Shortage, free_memory
from localspec.memory.projector_memory import projector_bytes
from localspec.utils.closing import Closing
from localspec.utils.option_names import option
from localspec.utils.progress import report_progress


class LazyProjector(Closing):
    """A projector that is loaded when it is first needed: most texts have no images.

    threads: CPU threads. most_rows: the most rows of a pass of the model. planned_gpu: where the
    memory plan has left room for it. is_asked: whether nothing else may take that room.

    It is on the GPU of the model's that has the most memory free, if it fits there by then.
    """

    def __init__(
        self,
        file: ProjectorFile,
        model: Model,
        threads: int,
        most_rows: int,
        *,
        planned_gpu: str | None = None,
        is_asked: bool = False,
    ) -> None:
        self.file = file
        self._model, self._threads, self._most_rows = model, threads, most_rows
        self._planned_gpu, self._is_asked = planned_gpu, is_asked
        self._lock = Lock()
        self._loaded: Projector | None = None
        self._shortage: Shortage | None = None

    @property
    def reads_images(self) -> bool:
        """Whether it is for images."""
        return self.file.images

    @property
    def reads_sounds(self) -> bool:
        """Whether it is for sounds."""
        return self.file.sounds

    @property
    def reserved(self) -> Mapping[str, int]:
        """As in MediaReader."""
        if self._loaded or not (self._planned_gpu and self._is_asked):
            return {}
        return {self._planned_gpu: projector_bytes(self.file)}

    @property
    def note(self) -> str | None:
        """As in MediaReader."""
        lack = self._shortage or (self._loaded and self._loaded.lack)
        if not lack:
            return None
        room = f"a smaller {option('context')} or {option('gpu_layers')} makes room"
        if not self._is_asked:
            room = f"{option('mmproj')} {self.file.path} keeps room for it"
        name = self.file.path.name
        return f"{name} is on the processor, where images take longer: it {lack}; {room}"

    def tokens(self, data: bytes) -> list[int]:
        """As in MediaReader. Raises ModelLoadError, too, if it cannot be loaded."""
        return self._projector().tokens(data)

    def prepare(self, data: bytes) -> None:
        """As in MediaReader, and `tokens`."""
        self._projector().prepare(data)

    def _projector(self) -> Projector:
        with self._lock:
            if self._loaded is None:
                require_usable(self.file)
                gpu = self._gpu()
                report_progress(f"loading {self.file.path.name}")
                self._loaded = Projector(
                    self.file.path, self._model, self._threads, self._most_rows, gpu
                )
            return self._loaded

    def _gpu(self) -> str | None:
        """The GPU that it is put on; None for the processor."""
        placement = self._model.placement
        if not self._model.is_offloaded:
            return None
        free = free_memory(placement)
        gpu = free.freest_gpu([self._planned_gpu] if self._planned_gpu else names_of(placement))
        if gpu is None or gpu in free.unified:
            return gpu
        # The driver has taken by now what the plan left for it.
        room = free.by_device[gpu] + (GPU_RESERVE if self._planned_gpu else 0)
        shortage = Shortage(gpu, projector_bytes(self.file), room)
        self._shortage = shortage if shortage.needed > room else None
        return None if self._shortage else gpu

    def close(self) -> None:
        """Free it."""
        with self._lock:
            if self._loaded:
                self._loaded.close()
