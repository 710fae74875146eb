"""Projector: turns images and sounds into rows for a model (an "mmproj" file beside it)."""

import ctypes
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, cast
from weakref import finalize

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError, LocalspecError, ModelLoadError
from localspec.llama import library
from localspec.llama.batch import SECTIONS
from localspec.llama.compute_thread import shielded
from localspec.llama.devices import gpu_pointers
from localspec.llama.model import Model
from localspec.llama.prepared_media import Part, PreparedMedia
from localspec.utils import lack_of_memory
from localspec.utils.closing import Closing
from localspec.utils.media import MediaToken
from localspec.utils.media_file import orientation, require_readable
from localspec.utils.option_names import option

# The most bytes of rows that are kept beside those of the last image: several texts may be reading
# images of several passes each, in turns.
_MOST_ROW_BYTES = 128 * 2**20
_TEXT, _IMAGE = 0, 1
# By the orientation of a photo: the steps down and across its pixels, once rows and columns have
# changed places in those from 5 on.
_MIRRORED = {2: (1, -1), 3: (-1, -1), 4: (-1, 1)}
_MIRRORED |= {5: (1, 1), 6: (1, -1), 7: (-1, -1), 8: (-1, 1)}


@cache
def mtmd_library() -> Any:
    """llama.cpp's library for images and sounds. Raises ModelLoadError where the build lacks it."""
    try:
        from llama_cpp import mtmd_cpp
    except (ImportError, OSError, RuntimeError, FileNotFoundError, AttributeError) as error:
        raise ModelLoadError(
            f"this llama-cpp-python was built without images ({error}); build it without "
            "-DLLAVA_BUILD=OFF"
        ) from error
    library.capture(mtmd_cpp.mtmd_helper_log_set)
    return mtmd_cpp


class Encoded:
    """An image or a sound, or one of the parts that a model cuts an image into.

    count: its rows. positions: as in Media. looks_ahead: whether each row attends to all others.
    """

    def __init__(self, projector: "Projector", chunk: Any, *, width: int) -> None:
        mtmd = mtmd_library()
        self.count = int(mtmd.mtmd_input_chunk_get_n_tokens(chunk))
        self.positions = int(mtmd.mtmd_input_chunk_get_n_pos(chunk))
        self.width = width
        self._projector = projector
        self._chunk = mtmd.mtmd_input_chunk_copy(chunk)
        self._free = finalize(self, mtmd.mtmd_input_chunk_free, self._chunk)
        self._free.atexit = False
        self.looks_ahead = projector.looks_ahead(self._chunk)
        self._is_image = mtmd.mtmd_input_chunk_get_type(chunk) == _IMAGE

    def rows(self) -> NDArray[np.float32]:
        """(count, width) what the model computes instead of embeddings of tokens.

        Computed now, but for the last images that were asked for. Raises LocalspecError if that
        fails.
        """
        return self._projector.rows(self, self._chunk)

    def sections(self, start: int) -> NDArray[np.int32] | None:
        """(sections, count) the positions of the rows of an image, where it has several for each.

        start: the position of the next token. None: they follow each other, as those of a text.
        """
        if not (self._projector.tells_rows_apart and self._is_image):
            return None
        mtmd = mtmd_library()
        found = (mtmd.mtmd_decoder_pos * self.count)()
        image = mtmd.mtmd_input_chunk_get_tokens_image(self._chunk)
        mtmd.mtmd_helper_image_get_decoder_pos(image, start, found)
        by_row = np.frombuffer(found, np.uint32).reshape(self.count, SECTIONS).astype(np.int32)
        # The library's structure is (time, x, y, z); rotations want (time, y, x, z).
        return np.ascontiguousarray(by_row[:, [0, 2, 1, 3]].T)


def encoded(token: MediaToken) -> Encoded:
    """What a token is a row of, which is one of this library."""
    return cast(Encoded, token.media)


class Projector(Closing):
    """The encoder of images and sounds of a model. Close it (or use `with`), before the model.

    path: the file (mmproj). threads: CPU threads. most_rows: of a pass of the model, which bounds
    images that are read in one pass. reads_images, reads_sounds: what it is for. tells_rows_apart:
    whether rows of an image have several positions each (M-RoPE). gpu: the name of the GPU that it
    computes on; None: the processor. lack: why it left the GPU, in words that follow its name; None
    if it did not.

    Raises ModelLoadError if it cannot be loaded, or is of another model.
    """

    def __init__(
        self, path: Path, model: Model, threads: int, most_rows: int, gpu: str | None = None
    ) -> None:
        mtmd = mtmd_library()
        self.path = path
        self._model, self._most_rows, self._lock = model, most_rows, Lock()
        self._prepared = PreparedMedia()
        # Those that were used last are at the end.
        self._rows: OrderedDict[Encoded, NDArray[np.float32]] = OrderedDict()
        self.lack: str | None = None
        self._gpu = gpu
        self._params = params = mtmd.mtmd_context_params_default()
        params.use_gpu, params.n_threads = gpu is not None, threads
        params.device = gpu_pointers()[gpu] if gpu else None
        params.print_timings = params.warmup = False
        self._handle: Any = self._load()
        if mtmd.mtmd_decode_use_non_causal(self._handle, None):
            # All rows of an image are in one pass then: images are made small enough for it.
            _free(self._handle)
            params.image_max_tokens = most_rows
            self._handle = self._load()
        self.reads_images = bool(mtmd.mtmd_support_vision(self._handle))
        self.reads_sounds = bool(mtmd.mtmd_support_audio(self._handle))
        self.tells_rows_apart = bool(mtmd.mtmd_decode_use_mrope(self._handle))
        self._width = int(llama_cpp.llama_model_n_embd_inp(model.handle))

    def _load(self) -> Any:
        library.clear_log()
        path, model = bytes(self.path), self._model
        init = partial(mtmd_library().mtmd_init_from_file, path, model.handle, self._params)
        if handle := shielded(init, free=_free):
            return handle
        if self._leaves_gpu():
            return self._load()
        raise ModelLoadError(
            f"{self.path.name} cannot be loaded for {self._model.path.name} "
            f"({library.first_error() or 'no reason given'}); take the mmproj file that was made "
            "for this model"
        )

    def _leaves_gpu(self) -> bool:
        """Whether a GPU had no memory for what failed: then the processor computes from now on."""
        if not (self._params.use_gpu and lack_of_memory.is_said_in(library.logged())):
            return False
        self._params.use_gpu, self._params.device = False, None
        self.lack = f"found no memory on {self._gpu}"
        return True

    def prepare(self, data: bytes) -> None:
        """Read an image or a sound, and keep it until its tokens are asked for.

        data: as of `tokens`, which raises the same.
        """
        with self._lock:
            self._prepared.tokens(data, self._parts_of, waits=True)

    def tokens(self, data: bytes) -> list[int]:
        """The tokens of an image or a sound, with those that begin and end it for the model.

        data: the contents of a file. Raises InvalidValueError if it cannot be read.
        """
        with self._lock:
            return self._prepared.tokens(data, self._parts_of, waits=False)

    def looks_ahead(self, chunk: Any) -> bool:
        """Whether the rows of a part attend to those behind them, too."""
        return bool(mtmd_library().mtmd_decode_use_non_causal(self._handle, chunk))

    def rows(self, media: Encoded, chunk: Any) -> NDArray[np.float32]:
        """As in Encoded; `chunk` is the library's."""
        mtmd = mtmd_library()
        with self._lock:
            if (known := self._rows.get(media)) is not None:
                self._rows.move_to_end(media)
                return known
            if self._handle is None:
                raise LocalspecError(f"{self.path.name} was closed; load the model again")
            if not self._encodes(chunk):
                raise LocalspecError(
                    f"{self.path.name} could not read a file "
                    f"({library.first_error() or 'no reason given'})"
                )
            pointer = mtmd.mtmd_get_output_embd(self._handle)
            found = np.ctypeslib.as_array(pointer, (media.count, self._width)).copy()
            self._rows[media] = found
            while len(self._rows) > 1 and self._row_bytes > _MOST_ROW_BYTES:
                self._rows.popitem(last=False)
            return found

    def _encodes(self, chunk: Any) -> bool:
        """Whether a part was read, on the processor if need be."""
        mtmd = mtmd_library()
        library.clear_log()
        if not mtmd.mtmd_encode_chunk(self._handle, chunk):
            return True
        if not self._leaves_gpu():
            return False
        _free(self._handle)
        self._handle = None
        self._handle = self._load()
        return not mtmd.mtmd_encode_chunk(self._handle, chunk)

    @property
    def _row_bytes(self) -> int:
        return sum(each.nbytes for each in self._rows.values())

    def close(self) -> None:
        """Free it."""
        with self._lock:
            self._prepared.clear()
            self._rows.clear()
            handle, self._handle = self._handle, None
            _free(handle)

    def _parts_of(self, data: bytes) -> Iterator[Part]:
        """The parts of an image or a sound, and the tokens around them."""
        if self._handle is None:
            raise LocalspecError(f"{self.path.name} was closed; load the model again")
        require_readable(data, images=self.reads_images, sounds=self.reads_sounds)
        mtmd = mtmd_library()
        with self._chunks(data) as chunks:
            for number in range(mtmd.mtmd_input_chunks_size(chunks)):
                chunk = mtmd.mtmd_input_chunks_get(chunks, number)
                if mtmd.mtmd_input_chunk_get_type(chunk) == _TEXT:
                    count = ctypes.c_size_t()
                    found = mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
                    yield [*found[: count.value]]
                    continue
                media = Encoded(self, chunk, width=self._width)
                if media.looks_ahead and media.count > self._most_rows:
                    raise InvalidValueError(
                        f"the image has {media.count} rows, which this model reads in one pass, "
                        f"and passes have {self._most_rows} at most; raise {option('ubatch')}"
                    )
                yield media

    @contextmanager
    def _chunks(self, data: bytes) -> Iterator[Any]:
        """The library's parts of an image or a sound, with the tokens around them."""
        mtmd, marker = mtmd_library(), mtmd_library().mtmd_get_marker(self._handle)
        buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        library.clear_log()
        # What it cannot read, the library would otherwise hand to ffmpeg, a program of any version.
        options = mtmd.mtmd_helper_init_opt_default()
        options.video_params.ffmpeg_bin_dir = os.devnull.encode()
        bitmap = mtmd.mtmd_helper_bitmap_init_from_buf(
            self._handle, buffer, len(data), False, options
        )
        if bitmap and (turned := orientation(data)) > 1:
            bitmap = _upright(bitmap, turned)
        if not bitmap:
            raise _unreadable("it may be damaged")
        chunks = mtmd.mtmd_input_chunks_init()
        try:
            text = mtmd.mtmd_input_text(marker, len(marker), False, True)
            bitmaps = (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap)
            if mtmd.mtmd_tokenize(self._handle, chunks, ctypes.byref(text), bitmaps, 1):
                raise _unreadable(library.first_error() or "no reason given")
            yield chunks
        finally:
            mtmd.mtmd_input_chunks_free(chunks)
            mtmd.mtmd_bitmap_free(bitmap)


def _free(handle: Any) -> None:
    if handle:
        shielded(partial(mtmd_library().mtmd_free, handle))


def _upright(bitmap: Any, turned: int) -> Any:
    """A photo as it is shown, in the place of one whose pixels are as the camera held it.

    turned: as of `orientation`. The library does not look at that; what models were trained on was
    turned.
    """
    mtmd = mtmd_library()
    shape = mtmd.mtmd_bitmap_get_ny(bitmap), mtmd.mtmd_bitmap_get_nx(bitmap), 3
    pixels = np.ctypeslib.as_array(mtmd.mtmd_bitmap_get_data(bitmap), shape)
    if turned > 4:
        pixels = pixels.swapaxes(0, 1)
    down, across = _MIRRORED[turned]
    pixels = np.ascontiguousarray(pixels[::down, ::across])
    data = pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    upright = mtmd.mtmd_bitmap_init(pixels.shape[1], pixels.shape[0], data)
    mtmd.mtmd_bitmap_free(bitmap)
    return upright


def _unreadable(reason: str) -> InvalidValueError:
    return InvalidValueError(f"an image or a sound cannot be read ({reason}); give another file")
