"""What a projector takes, against what llama.cpp says when it makes its buffers."""

import re
from pathlib import Path

import pytest
from fakes.projectors import KINDS, tiny_projector, write_ears

from localspec.gguf.projectors import ProjectorFile, check_projector
from localspec.gguf.reader import Header
from localspec.llama import library
from localspec.llama.media import mtmd_library
from localspec.memory.projector_memory import projector_bytes

_MIB = 2**20


def file_of(**vision: int | str) -> ProjectorFile:
    values = {f"clip.vision.{key}": value for key, value in vision.items() if key != "kind"}
    metadata: dict[str, object] = {
        "general.architecture": "clip",
        "clip.projector_type": vision["kind"],
        **values,
    }
    return ProjectorFile(Path("mmproj.gguf"), True, False, Header(3, metadata, ()))


@pytest.mark.parametrize("family", KINDS)
def test_no_image_takes_more(family: str) -> None:
    """Buffers for the image that llama.cpp tries first, which is not the largest for all."""
    path, mtmd = tiny_projector(family), mtmd_library()
    params = mtmd.mtmd_context_params_default()
    params.use_gpu, params.warmup = False, True
    with library.captured_log() as lines:
        mtmd.mtmd_free(mtmd.mtmd_init_from_file(bytes(path), None, params))
    taken = [float(each[1]) for line in lines if (each := re.search(r"size = +(.+) MiB", line))]
    assert taken
    weights = sum(tensor.size for tensor in check_projector(path).header.tensors)
    assert projector_bytes(check_projector(path)) - weights > taken[-1] * _MIB


@pytest.mark.parametrize(
    ("file", "megabytes"),
    [
        # 64 x 64 patches; llama.cpp takes 121 MiB.
        (dict(kind="gemma3", image_size=896, patch_size=14), 139),
        # 4,096 rows of 2 x 2 patches; llama.cpp takes 248 MiB for 8,464 patches, 480 for these.
        (dict(kind="qwen3vl_merger", image_size=768, patch_size=16, spatial_merge_size=2), 557),
        # A quarter of these pixels, as the file says.
        (dict(kind="qwen3vl_merger", patch_size=16, image_max_pixels=4096 * 256), 139),
        # Which patch sees which: 16,384 x 16,384 numbers.
        (dict(kind="qwen2.5vl_merger", patch_size=14, n_wa_pattern=8), 557 + 1536),
        (dict(kind="pixtral", patch_size=16, spatial_merge_size=2), 139),
        (dict(kind="gemma4v", patch_size=16), 342),
    ],
)
def test_projectors_of_real_models(file: dict[str, int | str], megabytes: int) -> None:
    file |= {"embedding_length": 1152, "feed_forward_length": 4304}
    assert projector_bytes(file_of(**file)) // _MIB == megabytes


@pytest.mark.parametrize("number", [0, -7, 2**32 - 1])
def test_no_number_of_a_header_makes_it_less_than_nothing(number: int) -> None:
    keys = ("image_size", "patch_size", "image_max_pixels", "embedding_length")
    for kind in ("gemma3", "qwen3vl_merger"):
        assert projector_bytes(file_of(kind=kind, **dict.fromkeys(keys, number))) >= 0


def test_sounds_take_buffers_too(tmp_path: Path) -> None:
    ears = check_projector(write_ears(tmp_path / "mmproj-ears.gguf"))
    weights = sum(tensor.size for tensor in ears.header.tensors)
    assert projector_bytes(ears) == weights + 3000 * 4 * (4 * 32 + 48)
