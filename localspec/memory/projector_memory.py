"""Projector memory: the bytes that a file which reads images (mmproj) takes where it computes.

llama.cpp makes its buffers when it encodes the first image, and larger ones for a larger image, so
this counts the largest that the file is for.
"""

from localspec.gguf.projectors import ProjectorFile
from localspec.gguf.reader import Header

# The most rows that llama.cpp gives an image (clip.cpp, `set_limit_image_tokens`), and the patches
# along each side of a row, by the kind of projector; where the file says it, that counts.
_MOST_ROWS = {
    **dict.fromkeys(("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger"), (4096, 2)),
    **dict.fromkeys(("qwen2.5o", "ling3vl", "glm4v", "kimik25", "muse-glimmer"), (4096, 2)),
    "kimivl": (1024, 2),
    "pixtral": (1024, 1),
    "gemma4v": (1120, 3),
    "hunyuanvl": (16384, 2),
    "lfm2": (256, 2),
    "minimax_m3": (576, 2),
}
_MERGED_KEYS = ("vision.spatial_merge_size", "vision.projector.scale_factor")
# Half a minute of sound, which encoders read at once, in steps of 10 ms.
_SOUND_STEPS = 3000
_FLOAT, _MASK = 4, 6
# Its three colours, in two layouts; encoders need more only where they are tiny.
_FLOATS_PER_PIXEL = 5


def projector_bytes(file: ProjectorFile) -> int:
    """The bytes of its weights, and of its buffers for the largest image, or half a minute."""
    header = file.header
    size = sum(tensor.size for tensor in header.tensors)
    if file.images:
        patches, patch = _most_patches(header), _number(header, "vision.patch_size") or 1
        pixels = _FLOATS_PER_PIXEL * patch**2 * _FLOAT
        size += patches * max(_bytes_per_step(header, "vision"), pixels)
        if _number(header, "vision.n_wa_pattern"):
            # Of attention within windows: which patches see which, in two precisions.
            size += patches**2 * _MASK
    if file.sounds:
        size += _SOUND_STEPS * _bytes_per_step(header, "audio")
    return size


def _bytes_per_step(header: Header, kind: str) -> int:
    """The bytes of buffers for a patch of an image, or a step of a sound.

    Measured of four kinds of projectors: between 0.96 and 1.08 of (3 x width + hidden) floats.
    """
    width, hidden = (
        _number(header, f"{kind}.{key}") for key in ("embedding_length", "feed_forward_length")
    )
    return _FLOAT * (4 * width + hidden)


def _most_patches(header: Header) -> int:
    """How many patches the largest image has that is encoded at once."""
    patch = _number(header, "vision.patch_size") or 1
    if pixels := _number(header, "vision.image_max_pixels"):
        return pixels // patch**2
    kinds = (header.metadata.get(f"clip.{key}projector_type") for key in ("", "vision."))
    if known := _MOST_ROWS.get(str(next(filter(None, kinds), None))):
        rows, usual = known
        merged = next(filter(None, (_number(header, key) for key in _MERGED_KEYS)), usual)
        return rows * merged**2
    return (_number(header, "vision.image_size") // patch) ** 2


def _number(header: Header, key: str) -> int:
    """A number of the header; 0 where there is none, or one below it."""
    return max(0, header.number(key) or 0)
