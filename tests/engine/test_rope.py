"""Contexts beyond those of training: the library's own texts, whatever drafts."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from fakes.drafter_kinds import EXACT, write_pair
from fakes.tiny import TURNS, write_tiny

import localspec
from localspec.conversation.session import Session
from localspec.engine.audit import Recorded, audit
from localspec.engine.recipe import Recipe
from localspec.engine.state_store import StateStore
from localspec.errors import InvalidValueError
from localspec.llama.library_context import new_context
from localspec.llama.model import Model

YARN: dict[str, Any] = {"rope_scaling": "yarn", "rope_scale": 4}
MADE_FOR = 128
OPTIONS: dict[str, Any] = {"threads": 1, "flash_attention": False, "kv_type": "f32"}
GREEDY: dict[str, Any] = {"max_tokens": 40, "temperature": 0, "seed": 1, "ignore_eos": True}
# More tokens than the models were made for.
LONG = [1, *(5 + 7 * n % 250 for n in range(300))]


def greedy(path: Path, count: int, **fields: Any) -> list[int]:
    """The library's plain loop, with these fields of its context's parameters."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 512, 1, 1
    params.flash_attn_type, params.type_k, params.type_v = 0, 0, 0
    for name, value in fields.items():
        setattr(params, name, value)
    tokens, fed = list[int](), LONG
    with Model(path) as model:
        handle, sampler = new_context(model, params), llama_cpp.llama_sampler_init_greedy()
        for _ in range(count):
            ids = (llama_cpp.llama_token * len(fed))(*fed)
            assert not llama_cpp.llama_decode(handle, llama_cpp.llama_batch_get_one(ids, len(fed)))
            tokens.append(llama_cpp.llama_sampler_sample(sampler, handle, -1))
            fed = tokens[-1:]
        llama_cpp.llama_sampler_free(sampler)
        llama_cpp.llama_free(handle)
    return tokens


def tiny(folder: Path, family: str = "llama", context: int = MADE_FOR) -> Path:
    return write_tiny(folder / f"{family}.gguf", family, context=context, quantised=False)


YARN_FIELDS = {"rope_scaling_type": llama_cpp.LLAMA_ROPE_SCALING_TYPE_YARN, "rope_freq_scale": 0.25}


@pytest.mark.parametrize(
    ("family", "options", "fields"),
    [
        *((family, YARN, YARN_FIELDS) for family in ("llama", "qwen3", "qwen35")),
        ("llama", {"rope_scale": 4}, {"rope_freq_scale": 0.25}),
        ("llama", {"rope_freq_base": 4e5}, {"rope_freq_base": 4e5}),
        ("llama", {**YARN, "yarn_orig_ctx": 100}, {**YARN_FIELDS, "yarn_orig_ctx": 100}),
    ],
)
def test_the_text_is_the_library_s_own(
    tmp_path: Path, family: str, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    path = tiny(tmp_path, family)
    expected = greedy(path, GREEDY["max_tokens"], **fields)
    assert greedy(path, GREEDY["max_tokens"]) != expected
    accepted = 0
    for draft in ("none", f"suffix,{path}"):
        with localspec.load(path, draft, context=400, **OPTIONS, **options) as engine:
            assert engine.context == 400
            found = engine.generate(LONG, depth=None if draft == "none" else 4, **GREEDY)
            assert list(found.token_ids) == expected, draft
            accepted += found.stats.accepted
    assert accepted


def test_a_drafter_of_the_family_gets_the_same(tmp_path: Path) -> None:
    path, drafter = tiny(tmp_path), str(tiny(tmp_path, "qwen3"))
    with localspec.load(path, drafter, context=400, **OPTIONS, **YARN) as engine:
        (member,) = engine.drafter_set.members
        rope = engine.slots.own.target.context.params.rope
        assert rope.options == YARN
        assert member.sequence and member.sequence.context.params.rope == rope
        assert not any("is not scaled" in note for note in engine.notes)
    with localspec.load(
        path, drafter, context=400, draft_rope_scale=2, **OPTIONS, **YARN
    ) as engine:
        (member,) = engine.drafter_set.members
        assert member.sequence
        assert member.sequence.context.params.rope.options == {**YARN, "rope_scale": 2}


def test_a_drafter_that_is_not_scaled_drafts_on_and_a_line_says_so(tmp_path: Path) -> None:
    target, drafter = tiny(tmp_path), str(tiny(tmp_path, "qwen3", context=100))
    with localspec.load(target, drafter, context=400, **OPTIONS, **YARN) as engine:
        (note,) = [note for note in engine.notes if "is not scaled with its target" in note]
        assert "; qwen3.gguf is not scaled" in note
        assert note.endswith("behind 100 tokens; draft_rope_scale=4 scales it")
        drafted = engine.generate(LONG, depth=3, **GREEDY)
    with localspec.load(target, "none", context=400, **OPTIONS, **YARN) as engine:
        assert engine.generate(LONG, **GREEDY).token_ids == drafted.token_ids


@pytest.mark.parametrize(
    ("kind", "family", "is_scaled"),
    [
        # Its file says another context than its target's.
        ("eagle3", "llama", False),
        ("dflash", "llama", False),
        ("mtp inside", "qwen35", True),
        ("mtp sidecar", "qwen35", True),
        ("mtp chained", "step35", True),
        ("assistant", "gemma4", True),
    ],
)
def test_heads_of_every_sort(kind: str, family: str, is_scaled: bool, tmp_path: Path) -> None:
    """Those inside the target, and those that read its cache, rotate as it does in any case."""
    pair = write_pair(kind, family, tmp_path)
    options = {**EXACT, **YARN, "context": 400}
    with localspec.load(pair.target, "none", **options) as engine:
        assert engine.context == 400
        expected = engine.generate(LONG, **GREEDY).token_ids
    with localspec.load(pair.target, pair.draft, **options) as engine:
        (member,) = engine.drafter_set.members
        assert member.sequence
        assert member.sequence.context.params.rope.options == (YARN if is_scaled else {})
        found = engine.generate(LONG, depth=3, **GREEDY)
    assert found.token_ids == expected


def test_a_saved_text_is_continued_only_with_its_rotations(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "turns.gguf", "llama", template=TURNS, quantised=False)
    store, drafter = StateStore(tmp_path / "states"), str(path)

    def loads(**options: Any) -> str | None:
        with (
            localspec.load(path, drafter, context=256, threads=1, **options) as engine,
            Session(engine) as session,
        ):
            return session.load_state("a", store)

    for saved, others in (({}, YARN), (YARN, {}), (YARN, {"rope_scale": 4})):
        with (
            localspec.load(path, drafter, context=256, threads=1, **saved) as engine,
            Session(engine) as session,
        ):
            list(session.send("an br", max_tokens=8))
            assert session.save_state("a", store) is None
        assert loads(**saved) is None
        assert "another rope scaling" in str(loads(**others))


def test_an_audit_has_the_rotations_of_the_text(tmp_path: Path) -> None:
    path = tiny(tmp_path)
    sampled = {**GREEDY, "temperature": 0.8}
    with localspec.load(path, "suffix", context=400, **OPTIONS, **YARN) as engine:
        running = engine.stream(LONG, **sampled)
        result = running.result()
        recipe = engine.recipe(running)
    assert recipe.rope == YARN
    assert Recipe.read(asdict(recipe)) == recipe
    recorded = Recorded(recipe, result.token_ids, result.origins, result.seed, result.rule)
    with localspec.load(path, "none", context=64, **OPTIONS, **recipe.rope) as engine:
        assert not audit(engine, recorded).divergences
    with localspec.load(path, "none", context=64, **OPTIONS) as engine:
        assert audit(engine, recorded).has_bug


@pytest.mark.parametrize(
    "rope", [[], {"rope_scale": "4"}, {"rope_scale": 0.1}, {"device": ["x"]}, None]
)
def test_records_of_others_name_nothing_else(rope: Any, tmp_path: Path) -> None:
    with localspec.load(tiny(tmp_path), "none", context=64, **OPTIONS) as engine:
        running = engine.stream([1, 5, 6], max_tokens=4)
        running.result()
        record = {**asdict(engine.recipe(running)), "rope": rope}
    with pytest.raises(InvalidValueError, match="rope"):
        Recipe.read(record)


def test_the_context_that_results_is_said(tmp_path: Path) -> None:
    path = tiny(tmp_path)

    def notes(**options: Any) -> tuple[int, str]:
        with localspec.load(path, "none", **OPTIONS, **options) as engine:
            return engine.context, "\n".join(engine.notes)

    assert notes() == (128, "")
    scaled = "rotations (RoPE) are scaled: yarn, 4 times 128 tokens"
    read = f"{scaled}; llama.gguf reads up to 512, and was made for 128"
    assert notes(**YARN) == (512, read)
    assert notes(**YARN, context=300) == (300, f"{read}; the context is 300: context sets it")
    assert notes(**YARN, context=600) == (
        512,
        "context 512: 600 is more than llama.gguf reads with rope_scaling yarn, rope_scale 4; "
        f"rope_scaling='yarn', rope_scale=5 reads more, less well\n{read}",
    )
    context, told = notes(context=256)
    assert context == 128
    assert told.endswith("; rope_scaling='yarn', rope_scale=2 reads more, less well")
    context, told = notes(context=256, rope_freq_base=80_000)
    assert context == 256
    assert told.endswith("scaled: base 80000; how many tokens llama.gguf then reads is not known")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rope_scaling": "none", "rope_scale": 2}, "rope_scale 2 has no effect: rope_scaling is"),
        ({"rope_scaling": "yarn"}, "rope_scaling yarn has no effect with rope_scale 1; try"),
        ({"yarn_orig_ctx": 64}, "yarn_orig_ctx 64 has no effect: rope_scaling is linear"),
    ],
)
def test_options_without_effect_are_said(
    options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with localspec.load(tiny(tmp_path), "none", **OPTIONS, **options) as engine:
        assert any(note.startswith(told) for note in engine.notes), engine.notes


def test_a_model_that_rotates_nothing(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "mamba.gguf", "mamba")
    with localspec.load(path, "none", threads=1, **YARN) as engine:
        (note,) = [note for note in engine.notes if "no effect" in note]
        assert note.startswith("rope_scaling yarn, rope_scale 4: no effect, as mamba.gguf says")


def test_the_chat_may_load_it_again_with_as_much_as_it_reads(tmp_path: Path) -> None:
    path = tiny(tmp_path)
    with localspec.load(path, "none", context=64, **OPTIONS) as engine:
        assert engine.slots.own.loaded.longest_context == MADE_FOR
    with localspec.load(path, "none", context=64, **OPTIONS, **YARN) as engine:
        assert engine.slots.own.loaded.longest_context == 4 * MADE_FOR
