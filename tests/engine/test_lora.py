"""LoRA adapters: the text is that of the merged model, whatever drafts and whoever is beside."""

from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import pytest
from fakes.drafter_kinds import EXACT
from fakes.lora import ATTENTION, MATRICES, write_lora, write_merged
from fakes.numpy_llama import NumpyLlama
from fakes.tiny import TURNS, write_tiny

import localspec
from localspec.conversation.session import Session
from localspec.engine.audit import Recorded, audit
from localspec.engine.engine import Engine
from localspec.engine.recipe import Recipe
from localspec.engine.state_store import StateStore
from localspec.errors import InvalidValueError, ModelLoadError
from localspec.generation_config import GenerationConfig
from localspec.llama import batch_invariance
from localspec.loading import equal_digits, thread_change
from localspec.loading.config import RuntimeConfig
from localspec.memory.memory_plan import best_plan
from localspec.sampling.filters import BrokenLogitsError
from localspec.speculation.passes import Pass

GREEDY: dict[str, Any] = {"max_tokens": 40, "temperature": 0, "seed": 1, "ignore_eos": True}
SAMPLED = {**GREEDY, "temperature": 0.8}
PROMPT = [1, *(5 + 7 * n % 250 for n in range(30))]
EXPERTS = (*ATTENTION, "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
CHANGED = {
    "qwen3moe": EXPERTS,
    "mamba": ("ssm_in", "ssm_x", "ssm_dt", "ssm_out", "output"),
    "llama": (*MATRICES, "token_embd"),
}


class Files:
    """A tiny target of a family, an adapter, and the model that the adapter at a scale makes."""

    def __init__(self, folder: Path, family: str = "llama", scale: float = 0.5) -> None:
        self.target = write_tiny(folder / f"{family}.gguf", family, quantised=False, template=TURNS)
        changed = CHANGED.get(family, MATRICES)
        self.adapter = write_lora(folder / "adapter.gguf", self.target, matrices=changed)
        self.merged = write_merged(folder / "merged.gguf", self.target, (self.adapter, scale))
        self.lora = f"{self.adapter}:{scale}"

    def load(self, draft: Any = "none", **options: Any) -> Engine:
        return localspec.load(self.target, draft, **{**EXACT, "lora": self.lora, **options})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("lora"))


def ids(engine: Engine, **options: Any) -> list[int]:
    return engine.generate(PROMPT, **options).token_ids


def logits(engine: Engine, tokens: list[int]) -> Any:
    with engine.slots.own.new_context(GenerationConfig()) as text:
        [scores] = text.context.decode([Pass(text, tokens, wanted=len(tokens))])
        return np.array(scores.logits[: len(tokens)])


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt2", "qwen35", *CHANGED])
def test_the_text_is_that_of_the_merged_model(family: str, tmp_path: Path) -> None:
    files = Files(tmp_path, family)
    with localspec.load(files.merged, "none", **EXACT) as merged:
        expected = [ids(merged, **each) for each in (GREEDY, SAMPLED)]
    with localspec.load(files.target, "none", **EXACT) as base:
        assert ids(base, **GREEDY) != expected[0]
    for draft in ("none", "suffix", str(files.target)):
        with files.load(draft) as engine:
            assert [ids(engine, **each) for each in (GREEDY, SAMPLED)] == expected
            assert (
                ids(engine, depth=3 if engine.drafter_set.drafters else None, **GREEDY)
                == (expected[0])
            )
            [note] = [note for note in engine.notes if "LoRA" in note]
            assert note.startswith("LoRA adapter adapter.gguf, scale 0.5: rank 4, ")
            assert not any("changes count" in each for each in engine.notes)


def test_the_logits_are_those_of_the_merged_model(files: Files) -> None:
    oracle = NumpyLlama(files.merged).logits(PROMPT)
    with files.load() as engine, localspec.load(files.target, "none", **EXACT) as base:
        assert np.abs(logits(engine, PROMPT) - oracle).max() < 1e-3
        assert np.abs(logits(base, PROMPT) - oracle).max() > 0.1


def test_the_binding_has_the_same_text(files: Files) -> None:
    other = llama_cpp.Llama(
        str(files.target),
        lora_path=str(files.adapter),
        lora_scale=0.5,
        n_ctx=256,
        n_threads=1,
        n_threads_batch=1,
        flash_attn=False,
        type_k=0,
        type_v=0,
        verbose=False,
    )
    tokens = [*islice(other.generate(PROMPT, temp=0, repeat_penalty=1), 40)]
    other.close()
    with files.load("suffix") as engine:
        assert ids(engine, **GREEDY) == tokens


def test_two_adapters_are_added(files: Files, tmp_path: Path) -> None:
    more = write_lora(
        tmp_path / "more.gguf", files.target, seed=7, alpha=None, size=0.2, kind="F16"
    )
    both = (files.adapter, 0.5), (more, -1.0)
    merged = write_merged(tmp_path / "both.gguf", files.target, *both)
    with localspec.load(merged, "none", **EXACT) as engine:
        expected = ids(engine, **GREEDY)
    with files.load("suffix", lora=[files.lora, f"{more}:-1"]) as engine:
        assert ids(engine, **GREEDY) == expected
        assert sum("LoRA" in note for note in engine.notes) == 2
    with files.load("none") as engine:
        assert ids(engine, **GREEDY) != expected


def test_beside_others_and_reproducible(files: Files) -> None:
    prompts = [PROMPT, PROMPT[::-1], [*PROMPT, 9, 9, 9]]
    with files.load("suffix", texts=4, flash_attention=None, kv_type="f16") as engine:
        alone = [engine.generate(each, **SAMPLED).token_ids for each in prompts]
        beside = [engine.stream(each, **SAMPLED) for each in prompts]
        assert [each.result().token_ids for each in beside] == alone
    options: dict[str, Any] = {"reproducible": True, "kv_type": "f16", "flash_attention": None}
    with files.load("none", **options) as plain, files.load("suffix", **options) as engine:
        for each in prompts:
            expected = plain.generate(each, **SAMPLED).token_ids
            for depth in (1, 5, None):
                assert engine.generate(each, depth=depth, **SAMPLED).token_ids == expected


def test_no_reproducible_pass_has_one_row_whatever_the_search_finds(
    files: Files, own_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter of floats gives one row other digits, which few tokens may not show."""
    monkeypatch.setattr(batch_invariance, "_give_equal_logits", lambda *_: True)
    with files.load("suffix", reproducible=True) as engine:
        for depth in (0, 1, 3, None):
            settings = GenerationConfig.of(depth=depth)
            width = engine.slots.own.reproducible_width(settings)
            assert width and width.least_rows == 2
        result = engine.generate(PROMPT, depth=0, **GREEDY)
        assert min(result.stats.widths) == 2


def test_a_context_that_is_made_anew_has_them(files: Files) -> None:
    """Also where room for further texts makes new caches."""
    with files.load("none") as engine:
        expected = ids(engine, **GREEDY)
        engine.slots.own.target.context.renew()
        assert ids(engine, **GREEDY) == expected
        second = engine.stream(PROMPT, **GREEDY)
        third = engine.stream(PROMPT, **GREEDY)
        assert second.result().token_ids == third.result().token_ids == expected


def test_another_target_has_none(files: Files) -> None:
    with localspec.load(files.merged, "none", **EXACT) as merged:
        expected = ids(merged, **GREEDY)
    with files.load("none") as engine:
        engine.switch(draft="suffix")
        assert engine.model.loras and any("LoRA" in note for note in engine.notes)
        engine.switch(model=files.merged)
        assert not engine.model.loras and not any("LoRA" in note for note in engine.notes)
        assert ids(engine, **GREEDY) == expected


def test_what_is_measured_is_kept_for_these_adapters(files: Files, own_cache: None) -> None:
    plain = RuntimeConfig.of(threads=1, context=256)
    changed, half = (
        RuntimeConfig.of(threads=1, context=256, lora=f"{files.adapter}:{scale}")
        for scale in (1, 0.5)
    )
    keys = [each.costs_depend_on for each in (plain, changed, half)]
    assert "loras" not in keys[0] and keys[0] != keys[1] != keys[2]
    with localspec.load(files.target, "suffix", threads=1, context=256, lora=files.adapter) as one:
        one.generate(PROMPT * 2, **GREEDY)
    assert equal_digits.remembered(files.target, changed)
    for other in (plain, half):
        assert not equal_digits.remembered(files.target, other)


def test_what_is_measured_after_its_file_is_gone_is_kept_for_it(
    files: Files, tmp_path: Path, own_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the adapter is trained again."""
    adapter = tmp_path / "a.gguf"
    adapter.write_bytes(files.adapter.read_bytes())
    monkeypatch.setattr(
        thread_change,
        "quicker_threads",
        lambda _target, usual, _busy: (replace(usual, most_threads=1), "fewer"),
    )
    with files.load("suffix", threads=None, lora=adapter) as engine:
        loaded = engine.slots.own.loaded
        key = loaded.runtime.costs_depend_on
        adapter.unlink()
        for _ in range(2):
            assert loaded.runtime.costs_depend_on == key
            loaded.keep_costs(50)
            change = thread_change.thread_change(loaded, 1.0)
            assert change and change.digits and change.digits.groups[0] == (1,)
            adapter.write_bytes(b"another")


def test_a_saved_text_is_continued_only_with_its_adapters(files: Files, tmp_path: Path) -> None:
    store = StateStore(tmp_path / "states")
    options: dict[str, Any] = {"context": 256, "threads": 1}
    own = {"lora": files.lora}
    # The file may be another of the same contents.
    moved = tmp_path / "moved.gguf"
    moved.write_bytes(files.adapter.read_bytes())

    def loads(**lora: Any) -> str | None:
        with (
            localspec.load(files.target, str(files.target), **options, **lora) as engine,
            Session(engine) as session,
        ):
            return session.load_state("a", store)

    for saved, others in ((own, {}), ({}, own), (own, {"lora": files.adapter})):
        with (
            localspec.load(files.target, str(files.target), **options, **saved) as engine,
            Session(engine) as session,
        ):
            list(session.send("an br", max_tokens=8))
            assert session.save_state("a", store) is None
        assert loads(**saved) is None
        assert "adapters" in str(loads(**others))
    with (
        localspec.load(files.target, "none", **options, **own) as engine,
        Session(engine) as session,
    ):
        list(session.send("an br", max_tokens=8))
        session.save_state("b", store)
    with (
        localspec.load(files.target, "none", **options, lora=f"{moved}:0.5") as engine,
        Session(engine) as session,
    ):
        assert session.load_state("b", store) is None


def test_an_answer_is_continued_only_with_its_adapters(files: Files) -> None:
    options: dict[str, Any] = {"context": 256, "threads": 1}
    with (
        localspec.load(files.target, "none", **options, lora=files.lora) as engine,
        Session(engine, max_tokens=4) as session,
    ):
        list(session.send("an br"))
        talk = session.conversation
        list(session.continue_answer())
    with (
        localspec.load(files.target, "none", **options) as engine,
        Session(engine, conversation=talk, max_tokens=4) as session,
        pytest.raises(InvalidValueError, match="lora"),
    ):
        list(session.continue_answer())


def test_an_audit_has_the_adapters_of_the_text(files: Files) -> None:
    with files.load("suffix") as engine:
        running = engine.stream(PROMPT, **SAMPLED)
        result = running.result()
        recipe = engine.recipe(running)
    assert [each["scale"] for each in recipe.adapters] == [0.5]
    assert Recipe.read(asdict(recipe)) == recipe
    recorded = Recorded(recipe, result.token_ids, result.origins, result.seed, result.rule)
    with files.load("none") as engine:
        recipe.require_same_adapters(engine.model.adapters)
        assert not audit(engine, recorded).divergences
    for other in ((), files.adapter, [files.lora, files.adapter]):
        with files.load("none", lora=other) as engine:
            with pytest.raises(InvalidValueError, match="name the same files, at the same scales"):
                recipe.require_same_adapters(engine.model.adapters)
            assert audit(engine, recorded).has_bug
    for wrong in (None, [{}], [{"fingerprint": 5, "scale": 1.0}], [{"fingerprint": "a"}]):
        with pytest.raises(InvalidValueError, match="its adapters is"):
            Recipe.read({**asdict(recipe), "adapters": wrong})


def test_changes_that_do_not_count_are_told(files: Files, tmp_path: Path) -> None:
    """llama.cpp loads them, and computes without them."""
    vector = [
        ("output_norm.weight.lora_a", np.ones((4, 32), np.float32)),
        ("output_norm.weight.lora_b", np.ones((1, 4), np.float32)),
    ]
    path = write_lora(tmp_path / "a.gguf", files.target, matrices=("attn_q",), more=vector)
    with files.load("none", lora=path) as engine:
        [note] = [note for note in engine.notes if "changes count" in note]
        assert note.startswith("a.gguf: only 2 of 3 changes count: llama.cpp computes the other")


def test_its_bytes_are_planned(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = dict[str, int]()

    def noted(request: Any, free: Any = None) -> Any:
        plan = best_plan(request, free)
        needed["now"] = plan.needed
        return plan

    monkeypatch.setattr("localspec.memory.memory_plan.best_plan", noted)
    with files.load("none", lora=()):
        without = needed["now"]
    with files.load("none"):
        tensors = needed["now"] - without
    reader = gguf.GGUFReader(files.adapter)
    assert tensors == sum(int(each.n_bytes) for each in reader.tensors)


def test_scores_that_are_no_numbers_name_the_adapters(files: Files, tmp_path: Path) -> None:
    huge = write_lora(tmp_path / "huge.gguf", files.target, size=1e18)
    said = r"contain nan; .*, or lora adapter\.gguf:0\.5 and huge\.gguf:1000 changes it too much"
    with files.load("suffix", lora=[files.lora, f"{huge}:1000"]) as engine:
        for options in ({}, {"prompt_logprobs": True}):
            with pytest.raises(BrokenLogitsError, match=said):
                engine.generate(PROMPT, **GREEDY, **options)


def test_errors_end_nothing(files: Files, tmp_path: Path) -> None:
    other = Files(tmp_path, "qwen3")
    with pytest.raises(ModelLoadError, match="it was made for another model"):
        files.load("none", lora=other.adapter)
    with pytest.raises(InvalidValueError, match="lora"):
        files.load("none", lora=5)
    with files.load("none") as engine:
        assert ids(engine, **GREEDY)
