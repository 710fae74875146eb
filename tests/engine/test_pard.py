"""PARD models in the engine whose cache cannot be cut anywhere, or only near its end."""

from pathlib import Path

import pytest
from fakes.drafter_kinds import EXACT
from fakes.pard import MASK
from fakes.pycode import load
from fakes.tiny import N_VOCAB, write_tiny

from localspec.llama.rollback import Rollback


@pytest.mark.parametrize("family", ["mamba", "qwen35", "gemma3"])
def test_a_pard_model_with_a_running_state_or_a_window(tmp_path: Path, family: str) -> None:
    target = write_tiny(tmp_path / "target.gguf", family, quantised=False)
    pard = tmp_path / "pard.gguf"
    pard.write_bytes(target.read_bytes())
    with (
        load(target, draft="none", **EXACT) as plain,
        load(target, draft=f"pard={MASK}:{pard}", **EXACT) as engine,
    ):
        [drafter] = engine.drafter_set.sequences.values()
        assert (drafter.rollback is Rollback.PARTIAL) == (family == "gemma3")
        for seed, depth in enumerate((1, 2, 5, 9)):
            options = {"max_tokens": 30, "seed": seed, "temperature": 0.5, "ignore_eos": True}
            prompt = [1, *range(260, 260 + seed), 30]
            expected = plain.generate(prompt, **options)
            found = engine.generate(prompt, depth=depth, **options)
            assert found.token_ids == expected.token_ids
            # The first token of a draft is the target's own: both are the same model.
            assert found.stats.accepted >= found.stats.steps - 2
            assert max(found.token_ids) < N_VOCAB
