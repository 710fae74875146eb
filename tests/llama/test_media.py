"""Images in a text's cache: the library's own loop is the oracle, to the last bit."""

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from fakes.failing_device import device_fails
from fakes.projectors import (
    KINDS,
    photo,
    picture,
    seeing_model,
    sound,
    tiny_projector,
    write_ears,
    write_mosaic,
    write_projector,
)
from fakes.tiny import tiny_folder
from numpy.typing import NDArray

from localspec.errors import InvalidValueError, LocalspecError, ModelLoadError
from localspec.llama import library, media, prepared_media
from localspec.llama.context import Context, single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.devices import processor_pointers
from localspec.llama.library_context import library_params, new_context
from localspec.llama.media import Encoded, Projector, encoded, mtmd_library
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.llama.sequence import KVSequence
from localspec.speculation.passes import Pass
from localspec.utils.media import (
    MediaToken,
    has_media,
    outside_media,
    words_before_media,
    words_of,
)
from localspec.utils.media_file import image_size

PARAMS = ContextParams(400, flash_attention=False, kv_type="f32")
TWO_TEXTS = ContextParams(300, flash_attention=False, kv_type="f32", texts=2)
WORDS = ("Look at ab ", " and at cd ", " then say ef")
# Of several sizes: some models make more rows of a larger image.
IMAGES = (picture(64, 48, seed=1), picture(200, 90, seed=2))


class Eyes:
    """A tiny model of one family with its projector, or another that is made for passes of rows."""

    def __init__(self, family: str, projector: Path | None = None, rows: int = 512) -> None:
        self.family = family
        self.model = Model(seeing_model(family), ON_PROCESSOR)
        self.projector = Projector(projector or tiny_projector(family), self.model, 1, rows)

    def text(self, *images: bytes) -> list[int]:
        """Words, and an image behind each part of them but the last."""
        tokens = self.model.tokenize(WORDS[0])
        for image, words in zip(images, WORDS[1:], strict=False):
            tokens += self.projector.tokens(image)
            tokens += self.model.tokenize(words, add_special=False)
        return tokens

    def new_text(self, params: ContextParams = PARAMS) -> KVSequence:
        return single_sequence(self.model, params)

    def of_library(
        self, *images: bytes, params: ContextParams = PARAMS
    ) -> tuple[NDArray[np.float32], int]:
        """The logits behind the same text by the library's own loop, and the next position."""
        mtmd, context = mtmd_library(), self.projector._handle
        marker = mtmd.mtmd_get_marker(context)
        text = marker.join(words.encode() for words in WORDS[: len(images) + 1])
        bitmaps = (mtmd.mtmd_bitmap_p_ctypes * len(images))()
        for number, image in enumerate(images):
            buffer = (ctypes.c_uint8 * len(image)).from_buffer_copy(image)
            bitmaps[number] = mtmd.mtmd_helper_bitmap_init_from_buf(
                context, buffer, len(image), False
            )
        chunks, position = mtmd.mtmd_input_chunks_init(), ctypes.c_int32()
        given = mtmd.mtmd_input_text(text, len(text), True, True)
        assert not mtmd.mtmd_tokenize(context, chunks, ctypes.byref(given), bitmaps, len(images))
        handle = new_context(self.model, library_params(params))
        size = params.ubatch or 512
        status = mtmd.mtmd_helper_eval_chunks(
            context, handle, chunks, 0, 0, size, True, ctypes.byref(position)
        )
        assert not status
        row = llama_cpp.llama_get_logits_ith(handle, -1)
        logits = np.ctypeslib.as_array(row, (self.model.n_vocab,)).copy()
        llama_cpp.llama_free(handle)
        mtmd.mtmd_input_chunks_free(chunks)
        for bitmap in bitmaps:
            mtmd.mtmd_bitmap_free(bitmap)
        return logits, position.value

    def close(self) -> None:
        self.projector.close()
        self.model.close()


@pytest.fixture(scope="module", params=KINDS)
def eyes(request: pytest.FixtureRequest) -> Iterator[Eyes]:
    made = Eyes(request.param)
    yield made
    made.close()


def logits_of(text: KVSequence, tokens: Sequence[int]) -> NDArray[np.float32]:
    """The logits behind the tokens, which become the text."""
    text.set_tokens(tokens[:-1])
    return text.extend(tokens[-1:]).copy()


def rows_of(eyes: Eyes, image: bytes) -> list[int]:
    return [token for token in eyes.projector.tokens(image) if token < 0]


@pytest.mark.parametrize("images", [IMAGES[:1], IMAGES[1:], IMAGES])
def test_logits_are_those_of_the_librarys_own_loop(eyes: Eyes, images: Sequence[bytes]) -> None:
    expected, position = eyes.of_library(*images)
    with eyes.new_text() as text:
        assert np.array_equal(text.extend(eyes.text(*images)), expected)
        assert text.memory.position == position


def test_other_images_give_other_logits(eyes: Eyes) -> None:
    with eyes.new_text() as text:
        found = [logits_of(text, [*rows_of(eyes, image), 5]) for image in IMAGES]
    assert not np.allclose(*found, atol=1e-3)


def test_an_image_has_the_same_tokens_each_time_and_others_have_none_of_them(eyes: Eyes) -> None:
    first, second = (eyes.projector.tokens(image) for image in IMAGES)
    rows = [{token for token in each if token < 0} for each in (first, second)]
    assert eyes.projector.tokens(IMAGES[0]) == first
    assert rows[0] and not rows[0] & rows[1]
    # Where one of them is another's by chance, the next is not: the text ends before that image.
    assert [len(each) for each in rows] == [len(rows_of(eyes, image)) for image in IMAGES]
    for _ in range(9):  # until the first is kept no longer
        eyes.projector.tokens(picture(seed=_ + 10))
    assert eyes.projector.tokens(IMAGES[0]) == first


def test_many_images_are_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a text that waits for them, and where a text still has them."""
    eyes, calls = Eyes("llama"), list[int]()
    images = [picture(seed=seed) for seed in range(12)]
    prepares = mtmd_library().mtmd_tokenize

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return prepares(*arguments)

    monkeypatch.setattr(mtmd_library(), "mtmd_tokenize", counted)
    for image in images:
        eyes.projector.prepare(image)
    texts = [eyes.projector.tokens(image) for image in images]
    assert len(calls) == 12
    for image, text in zip(images, texts, strict=True):
        again = eyes.projector.tokens(image)
        assert again == text
        assert {each.media for each in again if isinstance(each, MediaToken)} == {
            each.media for each in text if isinstance(each, MediaToken)
        }
    assert len(calls) == 12
    del texts, text, again
    for image in images:
        eyes.projector.tokens(image)
    assert 12 < len(calls) <= 24, "some are kept without a text, and not all"
    calls.clear()
    for seed in range(100, 140):
        eyes.projector.prepare(picture(seed=seed))
    for seed in range(100, 140):
        eyes.projector.tokens(picture(seed=seed))
    assert 40 < len(calls) <= 80, "what no text ever asks for is not kept for ever"
    eyes.close()


def test_a_cut_within_an_image_leaves_none_of_it(eyes: Eyes) -> None:
    tokens = eyes.text(*IMAGES)
    places = [at for at, token in enumerate(tokens) if token < 0]
    with eyes.new_text() as text, eyes.new_text() as fresh:
        text.extend(tokens)
        for length in (*reversed(places), 2):
            left = text.truncate(length)
            assert left <= length
            assert not isinstance(tokens[left], MediaToken) or tokens[left].place == 0
            assert text.tokens == tokens[:left]
            fresh.set_tokens(tokens[:left])
            assert text.memory.position == fresh.memory.position
        assert np.array_equal(logits_of(text, tokens), logits_of(fresh, tokens))


@pytest.mark.parametrize("cut", [None, 0.3, 0.6, 0.9])
def test_a_copy_goes_on_as_the_text_itself(eyes: Eyes, cut: float | None) -> None:
    tokens = eyes.text(*IMAGES)
    length = len(tokens) if cut is None else outside_media(tokens, int(cut * len(tokens)))
    with eyes.new_text() as text, eyes.new_text() as other:
        text.set_tokens(tokens[:length])
        assert other.restore(text.state())
        assert other.memory.position == text.memory.position
        more = [*tokens[length:], 5, 6, 7]
        # Behind a sliding window a copy is loaded into other cells, in whose order attention adds.
        reach = 1e-4 if eyes.model.sliding_window else 0.0
        assert np.abs(other.extend(more).copy() - text.extend(more)).max() <= reach
        assert other.memory.position == text.memory.position


@pytest.mark.parametrize("more", [0, 40])
def test_a_text_takes_the_beginning_of_another_with_its_images(eyes: Eyes, more: int) -> None:
    """The whole of another text, or what it was at a mark."""
    tokens = [*eyes.text(*IMAGES), *range(5, 45)]
    context = Context(eyes.model, TWO_TEXTS)
    with context.new_sequence() as text, context.new_sequence() as other, eyes.new_text() as fresh:
        text.extend(tokens)
        text.mark()
        text.set_tokens([*tokens, *range(50, 50 + more)])
        held = other.take_prefix([*tokens, 8])
        assert held == len(tokens)
        assert np.allclose(other.extend([8]), logits_of(fresh, [*tokens, 8]), atol=1e-5)
        assert other.memory.position == fresh.memory.position


@pytest.mark.parametrize("family", ["llama", "qwen2vl", "qwen35"])
def test_what_a_text_takes_of_an_image_is_what_it_can_go_on_from(family: str) -> None:
    """Another text has read some rows of an image, may have a mark there, and reads the others."""
    eyes = Eyes(family)
    tokens = [*range(5, 45), *eyes.text(IMAGES[1])]
    begin = words_before_media(tokens)
    context = Context(eyes.model, TWO_TEXTS)
    with context.new_sequence() as text, context.new_sequence() as other, eyes.new_text() as fresh:
        expected = logits_of(fresh, tokens)
        text.extend(tokens[:begin])
        text.mark()
        text.extend(tokens[begin : begin + 3])
        assert other.take_prefix(tokens) == begin + (0 if family == "qwen2vl" else 3)
        assert np.allclose(logits_of(other, tokens), expected, atol=1e-5)
        other.truncate(0)
        assert other.share(text, begin + 3) == (family == "llama")
        assert np.allclose(logits_of(other, tokens), expected, atol=1e-5)
        text.mark()
        text.extend([*tokens[begin + 3 :], 7])
        other.truncate(0)
        assert other.take_prefix(tokens) == (begin if family == "qwen35" else len(tokens))
        assert np.allclose(logits_of(other, tokens), expected, atol=1e-5)
    eyes.close()


@pytest.mark.parametrize(("least", "is_uniform"), [(1, False), (32, False), (2, True)])
def test_padded_and_uniform_passes(eyes: Eyes, least: int, is_uniform: bool) -> None:
    """An image has passes as wide as it needs, and none of its rows is padding."""
    tokens = eyes.text(*IMAGES)
    expected, position = eyes.of_library(*IMAGES)
    with eyes.new_text() as text:
        text.set_width(least, is_uniform=is_uniform)
        text.padded = lambda rows: rows + 1
        for cut in (0, words_before_media(tokens), len(tokens) - 3):
            text.truncate(cut)
            assert np.allclose(text.extend(tokens[len(text.tokens) :]), expected, atol=1e-4)
            assert text.memory.position == position
        with device_fails(1, later=True) as left:
            found = text.extend([5]).copy()
        assert not left
        with eyes.new_text() as fresh:
            assert np.allclose(found, logits_of(fresh, [*tokens, 5]), atol=1e-4)


@contextmanager
def one_pass_fails(text: KVSequence, after: int) -> Iterator[None]:
    """The library refuses one pass of a text, after some that it computes."""
    run, left = text.context._run_batch, [*range(after)]

    def failing() -> int:
        if left:
            left.pop()
            return run()
        return 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text.context, "_run_batch", failing)
        yield


@pytest.mark.parametrize("family", ["llama", "qwen2vl", "qwen35"])
def test_an_image_of_more_rows_than_a_pass_is_read_in_parts(family: str) -> None:
    """Also where it is stopped between them, or where the device fails in one of them."""
    kind, side = KINDS[family], 168
    params = ContextParams(400, flash_attention=False, kv_type="f32", ubatch=64)
    path = write_projector(tiny_folder() / f"mmproj-{family}-{side}.gguf", kind, side=side)
    eyes, image = Eyes(family, path, 64), picture(430, 420)
    tokens = eyes.text(image)
    assert sum(token < 0 for token in tokens) > 2 * 64
    expected, position = eyes.of_library(image, params=params)
    begin = next(at for at, token in enumerate(tokens) if token < 0)
    with eyes.new_text(params) as text:
        assert np.array_equal(text.extend(tokens), expected)
        assert text.memory.position == position
        for stop in (begin + 64, begin + 128):
            text.truncate(0)
            text.extend(tokens[:stop])
            assert (text.truncate(stop), len(text.tokens)) == (stop, stop)
            with eyes.new_text(params) as other:
                assert other.restore(text.state())
                assert np.array_equal(other.extend(tokens[stop:]), expected)
            assert np.array_equal(text.extend(tokens[stop:]), expected)
        for after in range(4):
            text.truncate(0)
            with one_pass_fails(text, after), pytest.raises(LocalspecError, match="status 1"):
                text.extend(tokens)
            assert np.array_equal(text.extend(tokens[len(text.tokens) :]), expected)
            assert text.memory.position == position
            text.truncate(0)
            with device_fails(1, later=True, after=after) as left:
                found = text.extend(tokens).copy()
            assert not left
            assert np.array_equal(found, expected)
            assert text.memory.position == position
    eyes.close()


def test_an_encoding_that_fails_leaves_nothing_behind(
    eyes: Eyes, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = eyes.text(*IMAGES)
    with eyes.new_text() as text, eyes.new_text() as fresh:
        for _ in range(2):
            with monkeypatch.context() as patch, pytest.raises(LocalspecError, match="not now"):
                patch.setattr(Encoded, "rows", not_now)
                text.extend(tokens[len(text.tokens) :])
            text.truncate(len(text.tokens))
        assert np.array_equal(text.extend(tokens[len(text.tokens) :]), fresh.extend(tokens))
        assert text.memory.position == fresh.memory.position


def not_now(_media: Encoded) -> NDArray[np.float32]:
    raise LocalspecError("not now")


def test_an_image_that_is_one_pass_says_which_pass_it_needs() -> None:
    path = write_projector(tiny_folder() / "mmproj-gemma3-448.gguf", "gemma3", side=448)
    with Model(seeing_model("gemma3"), ON_PROCESSOR) as model:
        narrow = Projector(path, model, 1, 64)
        with narrow, pytest.raises(InvalidValueError, match=r"has 256 rows, .*; raise ubatch"):
            narrow.tokens(picture())
        with Projector(path, model, 1, 256) as projector:
            assert sum(token < 0 for token in projector.tokens(picture())) == 256


@pytest.mark.parametrize("most", [128, 300])
def test_an_image_that_is_one_pass_is_made_small_enough_for_it(most: int) -> None:
    eyes = Eyes("gemma3", write_mosaic(tiny_folder() / "mmproj-mosaic.gguf"), most)
    image = picture(900, 800)
    assert most / 2 < len(rows_of(eyes, image)) <= most
    expected, _ = eyes.of_library(image)
    with eyes.new_text() as text:
        assert np.array_equal(text.extend(eyes.text(image)), expected)
    eyes.close()


@pytest.mark.parametrize("rate", [16000, 8000, 44100])
def test_sounds_are_heard_as_the_librarys_own_loop_hears_them(rate: int) -> None:
    eyes = Eyes("llama", write_ears(tiny_folder() / "mmproj-ears.gguf"))
    sounds = [sound(0.5, rate, 440.0), sound(0.9, rate, 600.0)]
    assert (eyes.projector.reads_images, eyes.projector.reads_sounds) == (False, True)
    found = []
    with eyes.new_text() as text:
        for given in (sounds[:1], sounds[1:], sounds):
            expected, position = eyes.of_library(*given)
            text.truncate(0)
            found.append(text.extend(eyes.text(*given)).copy())
            assert np.array_equal(found[-1], expected)
            assert text.memory.position == position
    assert not np.allclose(found[0], found[1], atol=1e-3)
    with pytest.raises(InvalidValueError, match="sees nothing"):
        eyes.projector.tokens(picture())
    eyes.close()


def test_two_images_without_a_word_between_them(eyes: Eyes) -> None:
    rows = [rows_of(eyes, image) for image in IMAGES]
    both = [5, *rows[0], *rows[1], 6]
    with eyes.new_text() as text, eyes.new_text() as other:
        found = text.extend(both).copy()
        for part in ([5], rows[0], rows[1], [6]):
            last = other.extend(part)
        assert np.array_equal(found, last)


def test_an_image_shares_no_decode(eyes: Eyes) -> None:
    context = Context(eyes.model, TWO_TEXTS)
    rows = rows_of(eyes, IMAGES[0])
    with context.new_sequence() as text, context.new_sequence() as other:
        passes = [Pass(text, rows), Pass(other, [5])]
        assert not context.fits(passes)
        assert context.fits(passes[:1]) and context.fits(passes[1:])
        with pytest.raises(LocalspecError, match="an image is read by a decode of its own"):
            context.decode(passes)
        assert not text.tokens and not other.tokens


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"no image", "no JPEG, PNG, GIF or BMP"),
        (b"", "no JPEG, PNG, GIF or BMP"),
        (picture()[:60], "cannot be read"),
        (picture()[:16] + b"\0\0\xff\xff" * 2 + picture()[24:], "65535 x 65535 pixels"),
        (picture()[:16] + bytes(8) + picture()[24:], "0 x 0 pixels"),
        (b"RIFF\0\0\0\0WAVEfmt ", "hears nothing"),
        (b"\xff\xd8\xff\xe0", "no JPEG, PNG"),
    ],
)
def test_files_that_cannot_be_read_are_refused(eyes: Eyes, data: bytes, told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        eyes.projector.tokens(data)


# By orientation: where EXIF shows the pixel of a row and a column, of R rows and C columns.
SHOWN: dict[int, Callable[[int, int, int, int], tuple[int, int]]] = {
    1: lambda row, column, rows, columns: (row, column),
    2: lambda row, column, rows, columns: (row, columns - 1 - column),
    3: lambda row, column, rows, columns: (rows - 1 - row, columns - 1 - column),
    4: lambda row, column, rows, columns: (rows - 1 - row, column),
    5: lambda row, column, rows, columns: (column, row),
    6: lambda row, column, rows, columns: (column, rows - 1 - row),
    7: lambda row, column, rows, columns: (columns - 1 - column, rows - 1 - row),
    8: lambda row, column, rows, columns: (columns - 1 - column, row),
}


@pytest.mark.parametrize("turned", SHOWN)
@pytest.mark.parametrize("order", "<>")
def test_photos_are_read_as_they_are_shown(eyes: Eyes, turned: int, order: str) -> None:
    held = np.random.default_rng(3).integers(-100, 100, (6, 9))
    shown = np.zeros(held.shape if turned < 5 else held.shape[::-1], int)
    for (row, column), grey in np.ndenumerate(held):
        shown[SHOWN[turned](row, column, *held.shape)] = grey
    file = photo(held, turned=turned, order=order)
    assert image_size(file) == (8 * shown.shape[1], 8 * shown.shape[0])
    found, expected = (
        np.vstack([encoded(row).rows()[row.place] for row in rows_of(eyes, data)])
        for data in (file, photo(shown))
    )
    assert found.tobytes() == expected.tobytes()


def test_no_program_is_started_for_what_cannot_be_read(
    eyes: Eyes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library would try a damaged image as a video, with the ffmpeg that it finds."""
    told = tmp_path / "told"
    for name in ("ffmpeg", "ffprobe"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >> {told}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for data in (picture()[:60], picture()[:40] + bytes(400), b"\xff\xd8" + bytes(9)):
        with pytest.raises(InvalidValueError):
            eyes.projector.tokens(data)
    assert not told.exists()


def test_a_file_that_is_too_large_is_refused(eyes: Eyes) -> None:
    with pytest.raises(InvalidValueError, match=r"images and sounds may have 64\.0 MB"):
        eyes.projector.tokens(picture() + bytes(64 * 2**20))


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (3, 2)])
def test_the_smallest_images(eyes: Eyes, size: tuple[int, int]) -> None:
    """They are read, or refused in a line: the process goes on."""
    with eyes.new_text() as text:
        try:
            text.extend([5, *eyes.projector.tokens(picture(*size)), 6])
        except InvalidValueError as error:
            assert "cannot be read" in str(error)


def test_a_projector_of_another_model_is_refused(eyes: Eyes) -> None:
    path = write_projector(tiny_folder() / "mmproj-wide.gguf", KINDS[eyes.family], width=48)
    with pytest.raises(ModelLoadError, match="made for this model"):
        Projector(path, eyes.model, 1, 512)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a GPU, which is the processor."""
    (pointer, *_) = processor_pointers()
    monkeypatch.setattr(media, "gpu_pointers", lambda: {"GPU0": pointer})
    return "GPU0"


@pytest.mark.parametrize("function", ["mtmd_init_from_file", "mtmd_encode_chunk"])
def test_a_gpu_without_memory_is_left(
    function: str, gpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    eyes, library_, calls = Eyes("gemma3"), mtmd_library(), list[int]()
    expected = encoded_rows(eyes.projector, IMAGES[0])
    works = getattr(library_, function)

    def fails_once(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            return works(*arguments)
        library._capture(4, b"ggml_gallocr: failed to allocate GPU0 buffer of size 5\n", None)
        return 1 if function == "mtmd_encode_chunk" else None

    monkeypatch.setattr(library_, function, fails_once)
    projector = Projector(tiny_projector("gemma3"), eyes.model, 1, 512, gpu)
    assert np.array_equal(encoded_rows(projector, IMAGES[0]), expected)
    assert projector.lack == "found no memory on GPU0"
    assert len(calls) > 1
    projector.close()
    eyes.close()


def test_what_else_fails_on_a_gpu_fails(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    eyes = Eyes("llama")
    projector = Projector(tiny_projector("llama"), eyes.model, 1, 512, gpu)
    assert encoded_rows(projector, IMAGES[0]).any()
    monkeypatch.setattr(mtmd_library(), "mtmd_encode_chunk", lambda *_: 1)
    with pytest.raises(LocalspecError, match="could not read a file"):
        encoded_rows(projector, IMAGES[1])
    assert projector.lack is None
    projector.close()
    eyes.close()


def encoded_rows(projector: Projector, image: bytes) -> NDArray[np.float32]:
    (first, *_) = [token for token in projector.tokens(image) if isinstance(token, MediaToken)]
    assert isinstance(first.media, Encoded)
    return first.media.rows()


def test_a_closed_projector_says_so() -> None:
    eyes = Eyes("llama")
    kept = eyes.text(IMAGES[0])
    eyes.projector.close()
    with eyes.new_text() as text, pytest.raises(LocalspecError, match="was closed"):
        text.extend(kept)
    with pytest.raises(LocalspecError, match="was closed"):
        eyes.projector.tokens(IMAGES[0])
    eyes.close()


def test_words_and_images() -> None:
    class Three:
        count = positions = 3

    image: Any = [MediaToken(-5 - place, Three(), place) for place in range(3)]
    tokens = [1, 2, *image, 3]
    assert has_media(tokens) and not has_media(tokens[:2]) and not has_media([])
    assert words_of(tokens) == [1, 2, 3]
    cuts = [outside_media(tokens, n) for n in range(7)]
    assert cuts == [0, 1, 2, 2, 2, 5, 6]


def test_what_waits_for_a_text_is_bounded(eyes: Eyes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may send many large images to what makes no text of them."""
    images = [picture(200, 90, seed=seed) for seed in range(6)]
    rows = len(eyes.projector.tokens(images[0]))
    kept = eyes.projector._prepared
    monkeypatch.setattr(prepared_media, "_MOST_KEPT_ROWS", 3 * rows)
    for image in images:
        eyes.projector.prepare(image)
    assert len(kept._tokens) == len(kept._waiting) == 3
    monkeypatch.setattr(prepared_media, "_MOST_KEPT_ROWS", 1)
    eyes.projector.prepare(images[0])
    assert len(kept._tokens) == 1
