"""What a GGUF recommends and nobody honours is said, and nothing else is."""

from pathlib import Path
from typing import Any

import gguf
import pytest
from fakes.tiny import write_tiny

import localspec
from localspec.sampling.recommended import left_out


def said(**keys: object) -> list[str]:
    return [*left_out({f"general.sampling.{key}": value for key, value in keys.items()})]


@pytest.mark.parametrize("mirostat", [0, "0", 1, 2, "2"])
def test_what_is_off_or_honoured_is_not_named(mirostat: object) -> None:
    assert said(mirostat=mirostat, mirostat_eta=0.1, xtc_probability=0.5, top_k=3) == []
    assert said() == []


@pytest.mark.parametrize("on", [{"xtc_probability": 0.5}, {"penalty_repeat": 1.1}])
def test_an_order_without_what_is_on_is_named(on: dict[str, float]) -> None:
    """llama.cpp would leave that sampler out."""
    order = "top_k;top_p;min_p;temperature"
    assert said(sequence=order) == []
    assert len(said(sequence=order, **on)) == 1
    assert said(sequence=f"penalties;{order.replace('temp', 'xtc;temp')}", **on) == []


@pytest.mark.parametrize(
    ("order", "named"),
    [
        ("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", False),
        ("top-k;top-p;min-p;temp", False),
        (" Top_K ;top_p; MIN_P;temperature ", False),
        ("top_k;top_k;top_p;min_p;temperature", True),
        ("temperature;top_k;top_p;min_p", True),
        ("top_k;top_p;temperature", True),
        ("", False),
    ],
)
def test_another_order_is_named(order: str, named: bool) -> None:
    assert [order in line for line in said(sequence=order)] == [True] * named
    assert said(sequence=order, mirostat=2) == [], order


def test_an_engine_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: None
) -> None:
    write_header = gguf.GGUFWriter.write_header_to_file

    def with_recommendations(writer: gguf.GGUFWriter, *path: Any) -> None:
        writer.add_string("general.sampling.sequence", "temperature;top_k")
        writer.add_float32("general.sampling.xtc_probability", 0.5)
        write_header(writer, *path)

    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", with_recommendations)
    write_tiny(tmp_path / "tiny.gguf", "llama")
    with localspec.load(tmp_path / "tiny.gguf", draft="none", threads=1) as engine:
        assert [note for note in engine.notes if "temperature;top_k" in note]
        greedy = {"temperature": 0, "max_tokens": 30, "ignore_eos": True, "xtc_threshold": 0.001}
        texts = [engine.generate("a", seed=seed, **greedy).token_ids for seed in (1, 2)]
        assert texts[0] != texts[1]
        off = [
            engine.generate("a", seed=seed, xtc_probability=0, **greedy).token_ids
            for seed in (1, 2)
        ]
        assert off[0] == off[1]
