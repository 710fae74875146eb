"""Audit: a true text passes, a touched one is a bug, floats are told from bugs."""

import dataclasses
import json
import math
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pytest
from fakes.known_text import Knows
from fakes.prompts import PROMPTS
from fakes.pycode import load

from localspec.control.fixed_depth import FixedDepth
from localspec.engine import audit as audit_module
from localspec.engine import recipe as recipe_module
from localspec.engine.audit import AuditReport, Recorded, audit
from localspec.engine.engine import Engine
from localspec.engine.generation import Generation, Result
from localspec.engine.recipe import Recipe, _options
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.llama.context_params import ContextParams
from localspec.llama.devices import Device
from localspec.llama.placement import Placement
from localspec.loading import fingerprints
from localspec.loading.config import RuntimeConfig
from localspec.speculation.passes import Scores


@pytest.fixture(scope="module")
def engine():  # type: ignore[no-untyped-def]
    with load(threads=1, flash_attention=True, context=512) as engine:
        yield engine


def recorded(engine: Engine, prompt: str | list[int], **options: object) -> Recorded:
    """What 48 tokens leave behind, three drafted at a time if nothing else is asked for."""
    options = {"max_tokens": 48, "depth": 3, **options}
    running = engine.stream(prompt, **options)  # type: ignore[arg-type]
    result = running.result()
    recipe = engine.recipe(running)
    return Recorded(recipe, result.token_ids, result.origins, result.seed, result.rule)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 0.8},
        {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "depth": 7},
        {"repeat_penalty": 1.3, "penalty_window": -1},
        {"logit_bias": {269: -4.0, 30: float("-inf")}},
        {"min_tokens": 48},
        {"ignore_eos": True},
        {"rule": "token"},
        {"rule": "block", "depth": 5},
        {"temperature": 0.8, "depth": None},
        {"rule": "block", "depth": None},
    ],
    ids=str,
)
def test_a_true_text_passes(engine: Engine, options: dict[str, object]) -> None:
    for seed in range(3):
        report = audit(engine, recorded(engine, PROMPTS[seed], seed=seed, **options))
        assert report.tokens > 0
        assert report.divergences == []
        # One thread and flash attention: no width changes a bit.
        assert report.largest_difference == 0


@pytest.mark.parametrize("options", [{"reproducible": True}, {"flash_attention": False}], ids=str)
def test_a_text_is_scored_as_it_was_made(options: dict[str, bool]) -> None:
    with load(threads=1, context=700, **options) as other:
        for depth in (3, None):
            text = recorded(other, PROMPTS[0] * 12, seed=1, ignore_eos=True, depth=depth)
            report = audit(other, text)
            assert not report.has_bug
            if "reproducible" in options:
                assert (report.divergences, report.largest_difference) == ([], 0)
            elif depth:
                assert report.largest_difference > 0


def touched(original: Recorded, index: int, token: int) -> Recorded:
    ids = list(original.token_ids)
    ids[index] = token
    return dataclasses.replace(original, token_ids=ids)


@pytest.mark.parametrize("index", [0, 1, 10, 47])
def test_a_touched_token_is_a_bug(engine: Engine, index: int) -> None:
    original = recorded(engine, PROMPTS[0], seed=1, ignore_eos=True)
    report = audit(engine, touched(original, index, original.token_ids[index] + 1))
    assert report.has_bug
    first = report.divergences[0]
    assert (first.index, first.verdict) == (index, "BUG")
    assert first.plain == original.token_ids[index]


def test_another_seed_is_a_bug(engine: Engine) -> None:
    original = recorded(engine, PROMPTS[1], seed=1)
    assert audit(engine, dataclasses.replace(original, seed=2)).has_bug


def test_an_impossible_token_is_a_bug_under_any_rule(engine: Engine) -> None:
    original = recorded(engine, PROMPTS[0], seed=1, rule="block", top_k=2)
    report = audit(engine, touched(original, 5, 4000))
    assert [each.verdict for each in report.divergences][:1] == ["BUG"]
    assert not report.same_text


class Shaky:
    """A context whose logits depend on the width of the pass, as on many GPUs.

    order: of the cells, on which they depend too.
    """

    params = ContextParams(256)

    def __init__(self, context, size: float, order: int = 0) -> None:  # type: ignore[no-untyped-def]
        self._context = context
        self._size = size
        self._order = order

    def __getattr__(self, name: str) -> object:
        return getattr(self._context, name)

    def __enter__(self) -> "Shaky":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._context.close()

    @property
    def context(self) -> "Shaky":
        return self

    def score(self, pending, draft):  # type: ignore[no-untyped-def]
        return self._shaken(self._context.score(pending, draft))

    def decode(self, passes):  # type: ignore[no-untyped-def]
        (one,) = passes
        mine = dataclasses.replace(one, sequence=self._context)
        return [self._shaken(*self._context.context.decode([mine]))]

    def _shaken(self, scores: Scores) -> Scores:
        rows = scores.logits
        # The audit drafts what generating padded: in both the pass is as wide.
        noise = np.random.default_rng([len(self._context.tokens), scores.width, self._order])
        shaken = rows + (noise.normal(size=rows.shape) * self._size).astype(np.float32)
        return Scores(shaken, scores.padding)


class Padded(FixedDepth):
    """Pads a pass of 1, 2, 3 or 4 rows to 1, 3, 5 or 7."""

    def padded(self, rows: int) -> int:
        return 2 * rows - 1


def shaken(
    engine: Engine,
    size: float,
    monkeypatch: pytest.MonkeyPatch,
    *,
    padded: bool = False,
    order: int = 0,
    touch: Callable[[Recorded], Recorded] = lambda text: text,
    **options: object,
) -> list[AuditReport]:
    """Texts generated on shaky logits, audited on logits as shaky.

    padded: passes are of 1, 3, 5 or 7 rows. order: of the audit's cells; those of the texts are in
    order 0. touch: changes each text before it is audited. options: of the texts; greedy without.
    """
    if padded:
        policy = Padded(engine.drafter_set.drafters, 3)
        policies: Any = engine.slots.own.loaded.policies
        monkeypatch.setattr(policies, "policy", lambda *_args, **_options: policy)
    shaky: Any = Shaky(engine.slots.own.target, size)
    monkeypatch.setattr(
        engine.slots.own, "loaded", dataclasses.replace(engine.slots.own.loaded, target=shaky)
    )
    new_context: Callable[..., object] = engine.slots.own.new_context
    monkeypatch.setattr(
        engine.slots.own, "new_context", lambda *each: Shaky(new_context(*each), size, order)
    )
    options = {"temperature": 0, **options}
    return [
        audit(engine, touch(recorded(engine, prompt, seed=5, ignore_eos=True, **options)))
        for prompt in PROMPTS
    ]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("size", [0.05, 0.3])
def test_differences_of_floats_are_numeric(
    engine: Engine, size: float, monkeypatch: pytest.MonkeyPatch, *, padded: bool
) -> None:
    reports = shaken(engine, size, monkeypatch, padded=padded)
    for report in reports:
        assert report.largest_difference > size
        assert not report.has_bug
    if size == 0.3:
        assert any(report.divergences for report in reports)


FILTERS = [
    {"top_k": 3, "top_p": 1.0, "min_p": 0.0},
    {"top_k": 0, "top_p": 0.7, "min_p": 0.0},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.5},
]


@pytest.mark.parametrize("rule", ["coupled", "token"])
@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_near_tie_with_what_a_filter_removes_is_numeric(
    engine: Engine, filters: dict[str, Any], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = shaken(engine, 0.3, monkeypatch, order=1, temperature=3.0, rule=rule, **filters)
    assert not any(report.has_bug for report in reports)
    assert any(math.isinf(each.gap) for report in reports for each in report.divergences)


@pytest.mark.parametrize("rule", ["coupled", "token"])
@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_token_far_behind_a_filter_is_a_bug(
    engine: Engine, filters: dict[str, Any], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is drawn under `token` depends on what is drafted; this one never follows anything.
    never = engine.model.bos
    for report in shaken(
        engine,
        0.05,
        monkeypatch,
        touch=lambda text: touched(text, 5, never),
        temperature=1.5,
        rule=rule,
        **filters,
    ):
        assert (5, "BUG") in [(each.index, each.verdict) for each in report.divergences]


def test_a_text_of_another_seed_keeps_few_rows(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a large vocabulary take a megabyte for each token."""
    monkeypatch.setattr(audit_module, "_MOST_ROWS", 3)
    original = recorded(engine, PROMPTS[1], seed=1, temperature=1.5)
    report = audit(engine, dataclasses.replace(original, seed=2))
    indices = [each.index for each in report.divergences]
    assert len(indices) > 10
    assert indices == sorted(set(indices))
    assert {each.verdict for each in report.divergences} == {"BUG"}


def test_another_model_or_version_is_refused(engine: Engine, drafter_path) -> None:  # type: ignore[no-untyped-def]
    recipe = recorded(engine, PROMPTS[0], seed=1).recipe
    recipe.require_same_model(engine.model.path)
    with pytest.raises(InvalidValueError, match="is another model than the one"):
        recipe.require_same_model(drafter_path)
    older = dataclasses.replace(recipe, versions={**recipe.versions, "localspec": "0.0.1"})
    with pytest.raises(InvalidValueError, match=r"made with localspec 0\.0\.1"):
        older.require_same_model(engine.model.path)
    with pytest.raises(InvalidValueError, match="not a recipe"):
        Recipe.read({"depth": 3})
    for rows in (None, "", ["a"]):
        with pytest.raises(InvalidValueError, match="its decode_rows is"):
            Recipe.read({**dataclasses.asdict(recipe), "decode_rows": rows})
    assert Recipe.read(dataclasses.asdict(recipe)) == recipe


def test_a_text_of_other_gpus_is_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recorded(engine, PROMPTS[0], seed=1).recipe
    everywhere, in_part, elsewhere = Placement(), Placement(4), Placement(0)
    few_experts, no_experts = Placement(cpu_moe=3), Placement(4, cpu_moe=-1)
    found = [Device("Vulkan0", "a GPU", "gpu", 1, 2), Device("CPU", "a CPU", "cpu", 1, 2)]
    monkeypatch.setattr(fingerprints, "devices", lambda: found)
    monkeypatch.setattr(fingerprints, "usual_gpus", lambda: ["Vulkan0"])
    monkeypatch.setattr(fingerprints, "can_offload", lambda: True)
    all_places = (everywhere, in_part, elsewhere, few_experts, no_experts)
    places = [fingerprints.gpus(each) for each in all_places]
    assert places == [
        ["Vulkan0 (a GPU)"],
        ["4 layers", "Vulkan0 (a GPU)"],
        [],
        ["without 3 layers of experts", "Vulkan0 (a GPU)"],
        ["4 layers", "no experts", "Vulkan0 (a GPU)"],
    ]
    for gpus, fitting in zip(places, all_places, strict=True):
        there = dataclasses.replace(recipe, gpus=gpus)
        there.require_same_gpus(fitting)
        for other in {*all_places} - {fitting}:
            with pytest.raises(InvalidValueError, match=r"computed on .*cpu_moe choose"):
                there.require_same_gpus(other)


@pytest.mark.parametrize(
    "placement",
    [
        Placement(),
        Placement(12),
        Placement(0),
        Placement(devices=()),
        Placement(-1, ("CUDA1", "CUDA0"), (), "layer", (3.0, 1.0), 2),
    ],
)
def test_a_record_puts_the_target_where_it_was(
    placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through JSON, and as options of `load`."""
    monkeypatch.setattr(recipe_module, "usual_gpus", lambda: ["CUDA0"])
    said = json.loads(json.dumps(_options(placement)))
    assert RuntimeConfig.of(**said).placement == placement
    assert _options(dataclasses.replace(placement, rpc=("127.0.0.1:1",))) is None


@pytest.mark.parametrize(
    ("usual", "unfit", "device"),
    [([], {}, ["none"]), (["CUDA1"], {"CUDA0": "it is broken"}, ["CUDA1"]), (["CUDA0"], {}, None)],
)
def test_a_record_names_the_gpus_where_not_all_were_used(
    usual: list[str],
    unfit: dict[str, str],
    device: list[str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recipe_module, "usual_gpus", lambda: usual)
    monkeypatch.setattr(recipe_module.unfit_gpus, "_reasons", unfit)
    said = _options(Placement())
    assert said is not None and said["device"] == device


def test_a_record_with_a_wrong_placement_is_refused(engine: Engine) -> None:
    recipe = recorded(engine, PROMPTS[0], seed=1).recipe
    right = _options(Placement())
    assert right is not None
    for wrong in (
        *({"gpu_layers": "all"}, {"layers": 3}, {"device": 5}, {"device": [5]}),
        # Nobody's record names a machine to compute on.
        *({"rpc": ["10.0.0.1:1"]}, {"device": ["10.0.0.1:1"]}, {"kv_type": "f16"}),
        *({"tensor_split": ["x"]}, {"gpu_layers": -7}),
    ):
        record = {**dataclasses.asdict(recipe), "placement": {**right, **wrong}}
        with pytest.raises(InvalidValueError):
            Recipe.read(record)
    with pytest.raises(InvalidValueError, match="its placement is 'here'"):
        Recipe.read({**dataclasses.asdict(recipe), "placement": "here"})


def test_steps_are_read_off_the_origins_and_widths() -> None:
    """The last step was cut short; where a record says too little, its tokens count."""
    recipe = dataclasses.make_dataclass("R", ["decode_rows"])
    text = Recorded(
        recipe([4, 1, 8, 2]),
        [1, 2, 3, 4, 5, 6, 7],
        ["d", "corrected", "plain", "d", "d", "bonus", "d"],
        0,
        "coupled",
    )
    assert list(audit_module._recorded_steps(text)) == [
        ([1, 2], 4),
        ([3], 1),
        ([4, 5, 6], 8),
        ([7], 2),
    ]
    short = dataclasses.replace(text, recipe=recipe([4, 1]))
    assert list(audit_module._recorded_steps(short)) == [
        ([1, 2], 4),
        ([3], 1),
        ([4, 5, 6], 3),
        ([7], 1),
    ]


def test_a_reproducible_text_that_fills_its_context() -> None:
    """Its passes are padded; the audit makes them as wide, and no wider."""
    options = {"threads": 1, "context": 130, "reproducible": True}
    with load(draft="none", **options) as engine:
        running = engine.stream("def f(", max_tokens=1000, seed=1, ignore_eos=True)
        result = running.result()
        assert result.stop_reason == "context"
        recorded = Recorded(
            engine.recipe(running), result.token_ids, result.origins, result.seed, result.rule
        )
        report = audit(engine, recorded)
    assert (report.tokens, report.divergences) == (len(result.token_ids), [])


@pytest.mark.slow
def test_a_text_of_drafted_trees_is_certified(engine: Engine) -> None:
    """Its cells lie in the order of the trees, so its last digits are others than a chain's."""
    options: dict[str, Any] = {"max_tokens": 48, "ignore_eos": True, "temperature": 1.5, "top_k": 0}
    parted = 0
    for seed in range(6):
        prompt = engine.model.tokenize(PROMPTS[seed % len(PROMPTS)])
        plain = engine.generate(prompt, seed=seed, depth=0, **options).token_ids
        drafter = Knows([*prompt, *plain], trees=True)
        with load(draft=drafter, threads=1, flash_attention=True, context=512) as other:
            text = recorded(other, prompt, seed=seed, **{**options, "depth": 6})
        parted += text.token_ids != plain
        report = audit(engine, text)
        assert not report.has_bug
        wrong = touched(text, 5, engine.model.bos)
        assert (5, "BUG") in [
            (each.index, each.verdict) for each in audit(engine, wrong).divergences
        ]
    assert parted


@pytest.mark.slow
def test_a_text_written_beside_others_is_certified() -> None:
    """Its cells lie in another order, so its last digits are others: that is no mistake."""
    options: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, "top_k": 0, "min_p": 0}
    with load(draft="suffix", context=256) as engine:
        slots = [engine.slots.open() for _ in range(3)]
        prompts = [engine.model.tokenize(f"def {name}(a, b):\n") for name in ("add", "sort", "cut")]
        runs: dict[tuple[int, int], tuple[Generation, Result]] = {}

        def write(number: int, seed: int) -> None:
            settings = GenerationConfig.of(seed=seed, top_p=1, temperature=0.8, **options)
            running = slots[number].start(prompts[number], settings)
            runs[number, seed] = running, running.result()

        for seed in range(4):
            threads = [Thread(target=write, args=(number, seed)) for number in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert any(running.stats.shared_steps for running, _ in runs.values())
        for running, result in runs.values():
            recipe = engine.recipe(running)
            record = Recorded(recipe, result.token_ids, result.origins, result.seed, result.rule)
            assert not audit(engine, record).has_bug
            wrong = [(token + 1) % 4096 for token in result.token_ids]
            assert recipe.shared_cache
            if running.stats.shared_steps:
                assert audit(engine, dataclasses.replace(record, token_ids=wrong)).has_bug
