"""Scaled rotations: the library's own, and what is refused or said of them."""

import math
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from fakes.tiny import write_tiny

from localspec.errors import InvalidValueError
from localspec.gguf.reader import Header, read_header
from localspec.llama.context_params import ContextParams
from localspec.llama.library_context import library_params
from localspec.llama.rope import UNSCALED, RopeScaling, has_rope
from localspec.loading.config import RuntimeConfig


def header(**own: object) -> Header:
    keys = {f"llama.{key.replace('__', '.')}": value for key, value in own.items()}
    return Header(3, {"general.architecture": "llama", **keys}, ())


PLAIN = header(context_length=32768, rope__freq_base=1e6)
YARNED: dict[str, Any] = {
    "context_length": 131072,
    "rope__freq_base": 1e6,
    "rope__scaling__type": "yarn",
    "rope__scaling__factor": 4.0,
    "rope__scaling__original_context_length": 32768,
}

LINEAR: dict[str, Any] = {
    "context_length": 8192,
    "rope__scaling__type": "linear",
    "rope__scaling__factor": 4.0,
}


@pytest.mark.parametrize(
    ("rope", "own", "tokens"),
    [
        (UNSCALED, {}, 32768),
        (RopeScaling("yarn", 4), {}, 131072),
        (RopeScaling(scale=2.5), {}, 81920),
        (RopeScaling("none", 4), {}, 32768),
        (RopeScaling("yarn"), {}, 32768),
        (RopeScaling("yarn", 4, yarn_orig_ctx=8192), {}, 32768),
        (UNSCALED, YARNED, 131072),
        (RopeScaling("none"), YARNED, 32768),
        (RopeScaling(scale=2), YARNED, 65536),
        (RopeScaling("linear"), YARNED, 131072),
        # Without yarn it has no effect.
        (RopeScaling(yarn_orig_ctx=512), {}, 32768),
        (RopeScaling(scale=4, yarn_orig_ctx=512), {}, 131072),
        # A scaled file that does not tell what its context is of.
        (UNSCALED, LINEAR, 8192),
        (RopeScaling(scale=4), LINEAR, 8192),
        (RopeScaling("linear"), LINEAR, 8192),
        (RopeScaling(scale=2), LINEAR, None),
        (RopeScaling("yarn", 4, yarn_orig_ctx=2048), LINEAR, 8192),
        # The factor of long rope is in tensors, and its context is what the file says.
        (RopeScaling(scale=2), {"rope__scaling__original_context_length": 4096}, 65536),
        (RopeScaling(scale=1000), {"context_length": 2**30}, 2**31 - 1),
        (RopeScaling("yarn", 4), {"context_length": None}, None),
    ],
)
def test_the_context_that_results(
    rope: RopeScaling, own: dict[str, object], tokens: int | None
) -> None:
    assert rope.context(header(**{"context_length": 32768, **own})) == tokens


@pytest.mark.parametrize("field", ["rope_scale", "rope_freq_base", "draft_rope_scale"])
@pytest.mark.parametrize("value", [0, -1, 0.5, math.nan, math.inf, 1e13])
def test_numbers_that_scale_nothing_are_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidValueError, match=rf"^{field} is {value}; it must be "):
        RuntimeConfig.of(**{field: value})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rope_scaling": "ntk"}, "rope_scaling is 'ntk'; it must be one of none, linear, yarn"),
        ({"rope_scaling": "longrope"}, "rope_scaling is longrope, whose factors are in"),
        ({"yarn_orig_ctx": 1}, "yarn_orig_ctx is 1; it must be at least 2"),
        ({"yarn_orig_ctx": 2.5}, "yarn_orig_ctx is 2.5, a float; it must be a whole number"),
    ],
)
def test_what_there_is_not_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValueError, match=f"^{why}"):
        RuntimeConfig.of(**options)


def test_the_library_gets_what_its_own_programs_give_it() -> None:
    def params(rope: RopeScaling) -> tuple[int, float, float, int]:
        found = library_params(ContextParams(64, rope=rope))
        return (
            found.rope_scaling_type,
            found.rope_freq_scale,
            found.rope_freq_base,
            found.yarn_orig_ctx,
        )

    default = llama_cpp.llama_context_default_params()
    assert params(UNSCALED) == (
        default.rope_scaling_type,
        default.rope_freq_scale,
        default.rope_freq_base,
        default.yarn_orig_ctx,
    )
    yarn = RopeScaling("yarn", 4, freq_base=5e5, yarn_orig_ctx=32768)
    assert params(yarn) == (llama_cpp.LLAMA_ROPE_SCALING_TYPE_YARN, 0.25, 5e5, 32768)
    assert params(RopeScaling("none"))[0] == llama_cpp.LLAMA_ROPE_SCALING_TYPE_NONE


YARN = RopeScaling("yarn", 4)


@pytest.mark.parametrize(
    ("drafter", "scale", "expected"),
    [
        ({}, None, YARN),
        ({"context_length": 8192}, None, UNSCALED),
        ({"context_length": 131072}, None, UNSCALED),
        ({"rope__freq_base": 1e4}, None, UNSCALED),
        # The same model as its target, but for what the file of one of them says already.
        (YARNED, None, YARN),
        ({"context_length": 8192}, 16.0, RopeScaling("yarn", 16.0)),
        ({}, 1.0, RopeScaling("yarn", 1.0)),
    ],
)
def test_a_drafter_of_the_family_is_scaled_alike(
    drafter: dict[str, object], scale: float | None, expected: RopeScaling
) -> None:
    own = header(**{"context_length": 32768, "rope__freq_base": 1e6, **drafter})
    assert YARN.for_drafter(PLAIN, own, scale) == expected


def test_a_named_scale_leaves_the_other_options_of_the_family() -> None:
    all_named = RopeScaling("yarn", 8, freq_base=2e4, yarn_orig_ctx=1024)
    own = RopeScaling("yarn", 4, freq_base=2e4, yarn_orig_ctx=1024)
    assert all_named.for_drafter(PLAIN, PLAIN, 4) == own
    # By the file's own method, as its target.
    assert RopeScaling(scale=2).for_drafter(PLAIN, PLAIN, 4) == RopeScaling(scale=4)


def test_a_drafter_of_a_target_whose_context_was_named() -> None:
    """Files of one family may say 131072 for the large model, and 32768 for the small one."""
    large = header(context_length=131072, rope__freq_base=1e6)
    assert YARN.for_drafter(large, PLAIN) == UNSCALED
    named = RopeScaling("yarn", 4, yarn_orig_ctx=32768)
    assert named.for_drafter(large, PLAIN) == named
    assert named.for_drafter(large, large) == named


def test_files_without_rotations(tmp_path: Path) -> None:
    assert has_rope(read_header(write_tiny(tmp_path / "llama.gguf", "llama")))
    assert not has_rope(read_header(write_tiny(tmp_path / "mamba.gguf", "mamba")))
