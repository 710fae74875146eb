"""Keys and values of types of their own: texts, memory, and what cannot be."""

from dataclasses import asdict
from typing import Any

import pytest
from fakes.tiny import HEAD, tiny_model

import localspec
from localspec.cli.settings import SETTINGS
from localspec.engine.audit import Recorded, audit
from localspec.errors import InvalidValueError
from localspec.gguf.facts import facts_of
from localspec.gguf.kv_types import KV_TYPES, is_quantised, kv_types, require_fits
from localspec.loading.config import RuntimeConfig
from localspec.memory.estimate import cache_bytes
from localspec.models import registry


def test_one_name_is_that_of_both() -> None:
    assert kv_types("q8_0") == kv_types("q8_0/q8_0") == (KV_TYPES["q8_0"],) * 2
    assert kv_types("q8_0/f16") == (KV_TYPES["q8_0"], KV_TYPES["f16"])
    assert RuntimeConfig(kv_type="q8_0/q8_0").kv_type == "q8_0"  # so that saved states fit
    assert is_quantised("f16/q4_0") and is_quantised("q4_0/f16") and not is_quantised("f32/bf16")


@pytest.mark.parametrize("wrong", ["", "/", "q8_0/", "f16/q8_0/f16", "q8", "F16"])
def test_other_names_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidValueError, match=r"choose one of f32, f16.* as q8_0/f16"):
        RuntimeConfig(kv_type=wrong)


@pytest.mark.parametrize("setting", ["kv_type", "drafter_kv_type"])
def test_errors_name_the_setting_that_is_wrong(setting: str) -> None:
    options: Any = {setting: "f16/x"}
    with pytest.raises(InvalidValueError, match=f"^{setting} is 'f16/x'; choose"):
        RuntimeConfig(**options)
    options = {setting: "f16/q8_0", "flash_attention": False}
    with pytest.raises(InvalidValueError, match=f"^{setting} f16/q8_0 .* turns it off; use f16$"):
        RuntimeConfig(**options)
    header = facts_of(tiny_model("llama")).header
    with pytest.raises(InvalidValueError, match=f"^{setting} is q8_0, and the keys of tiny.gguf"):
        require_fits("q8_0", header, "tiny.gguf", setting)


def test_only_quantised_values_need_flash_attention() -> None:
    RuntimeConfig(kv_type="q8_0/f16", flash_attention=False)
    for refused in ("q8_0", "f16/q8_0"):
        with pytest.raises(InvalidValueError, match="needs flash attention for its values"):
            RuntimeConfig(drafter_kv_type=refused, flash_attention=False)
    for refused in ("q8_0/f16", "f16/q8_0"):
        with pytest.raises(InvalidValueError, match="reproducible turns it off"):
            RuntimeConfig(kv_type=refused, reproducible=True)


def test_memory_is_the_sum_of_both() -> None:
    header = facts_of(registry.bundled().target).header
    both = {each: cache_bytes(header, 1024, each) or 0 for each in KV_TYPES}
    for keys in KV_TYPES:
        for values in KV_TYPES:
            found = cache_bytes(header, 1024, f"{keys}/{values}")
            assert found == (both[keys] + both[values]) // 2


@pytest.mark.parametrize(
    ("kv_type", "part"),
    [("q8_0", "keys"), ("q8_0/f16", "keys"), ("f16/q4_0", "values")],
)
def test_heads_that_no_block_divides_are_refused_before_a_load(kv_type: str, part: str) -> None:
    path = tiny_model("llama")
    said = f"the {part} of {path.name} have {HEAD} numbers per head, which q._0 cannot hold"
    with pytest.raises(InvalidValueError, match=said):
        localspec.load(path, draft="none", threads=1, kv_type=kv_type)
    with pytest.raises(InvalidValueError, match=said):
        localspec.load(path, draft="none", threads=1, kv_type=kv_type, flash_attention=None)


@pytest.mark.parametrize(
    ("kv_type", "flash"),
    [("q8_0/f16", None), ("q8_0/q4_0", None), ("f16/q8_0", None), ("q8_0/f16", False)],
)
def test_drafts_change_no_text_with_them(kv_type: str, flash: bool | None, own_cache: None) -> None:
    settings: dict[str, Any] = {"max_tokens": 40, "seed": 3, "ignore_eos": True, "logprobs": True}
    options: dict[str, Any] = {"threads": 1, "flash_attention": flash}
    options |= {"kv_type": kv_type, "drafter_kv_type": kv_type}
    with localspec.load(**options) as engine:
        stream = engine.stream("list all files", depth=4, **settings)
        result = stream.result()
        recipe = engine.recipe(stream)
        assert result.stats.accepted > 0
        assert asdict(recipe)["kv_type"] == kv_type
        recorded = Recorded(recipe, result.token_ids, result.origins, result.seed, result.rule)
        assert not audit(engine, recorded).has_bug
        assert engine.slots.own.loaded.runtime.kv_type == kv_type


def test_settings_take_two() -> None:
    setting = SETTINGS["kv_type"]
    assert setting.parsed("q8_0/f16", "here") == "q8_0/f16"
    for wrong in ("q8_0/x", "f16/f16/f16"):
        with pytest.raises(InvalidValueError, match="or two of them as q8_0/f16"):
            setting.parsed(wrong, "here")
