"""An EAGLE-3 head as a drafter of the engine: the same text, and the drafts of the numpy oracle."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from fakes.eagle3 import LIKELY, SHAPES, Eagle3Oracle, write_head, write_target
from fakes.tiny import write_tiny

from localspec.drafters.eagle3 import Eagle3
from localspec.engine.engine import Engine, load
from localspec.engine.state_store import StateStore
from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.generation_config import GenerationConfig
from localspec.llama import hidden_states, library
from localspec.llama.context import Context
from localspec.llama.rollback import Rollback
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Pass, Passes, Scores

OPTIONS = {"threads": 1, "flash_attention": False, "context": 256, "gpu_layers": 0}
EXACT = {**OPTIONS, "kv_type": "f32", "drafter_kv_type": "f32"}
PROMPT = [1, 259, 30, 266, 271, 90, 275, 40, 262]
TEXTS = ([1, 259, 30, 266, 271, 90, 275, 40, 262], [1, 50], [1, *range(100, 160)], [1, *LIKELY])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The target, and heads by their shape."""
    folder: Path = tmp_path_factory.mktemp("eagle3")
    heads = {
        shape: write_head(folder / f"{shape.replace(' ', '-')}.gguf", SHAPES[shape])
        for shape in SHAPES
    }
    return {"target": write_target(folder / "target.gguf"), **heads}


@pytest.fixture(scope="module")
def plain(files: dict[str, Path]) -> Iterator[Engine]:
    with load(files["target"], draft="none", **EXACT) as engine:
        yield engine


@pytest.fixture
def engine(files: dict[str, Path]) -> Iterator[Engine]:
    with load(files["target"], draft=files["own"], **EXACT) as engine:
        yield engine


@pytest.fixture
def drafts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], list[int]]]:
    """Each draft that heads made: the text before it, and its tokens."""
    made: list[tuple[list[int], list[int]]] = []
    usual = Eagle3.passes

    def recorded(self: Eagle3, limit: Limit) -> Passes[Draft]:
        draft = yield from usual(self, limit)
        made.append((list(self._text), [int(token) for token in draft.tokens]))
        return draft

    monkeypatch.setattr(Eagle3, "passes", recorded)
    return made


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("temperature", [0, 1])
def test_the_text_is_that_of_plain_decoding(
    files: dict[str, Path], plain: Engine, shape: str, temperature: float
) -> None:
    drafted = accepted = 0
    with load(files["target"], draft=files[shape], **EXACT) as engine:
        assert engine.drafter_set.names == [files[shape].stem]
        for seed, depth in enumerate((1, 2, 4, 7)):
            options = {"max_tokens": 40, "temperature": temperature, "seed": seed}
            expected = plain.generate(PROMPT, ignore_eos=True, **options)
            found = engine.generate(PROMPT, ignore_eos=True, depth=depth, **options)
            assert found.token_ids == expected.token_ids
            drafted += found.stats.drafted
            accepted += found.stats.accepted
    assert accepted < drafted
    assert accepted or not temperature


@pytest.mark.parametrize("shape", SHAPES)
def test_the_drafts_are_those_of_the_oracle(
    files: dict[str, Path], drafts: list[tuple[list[int], list[int]]], shape: str
) -> None:
    oracle = Eagle3Oracle(files["target"], files[shape])
    accepted: set[int] = set()
    with load(files["target"], draft=files[shape], **EXACT) as engine:
        for prompt in (PROMPT, [*PROMPT, *LIKELY], PROMPT, [1, 259, 40]):
            options = {"max_tokens": 30, "temperature": 0, "depth": 4, "ignore_eos": True}
            found = engine.generate(prompt, **options)
            accepted |= {found.stats.accepted}
    assert len(drafts) > 60
    for text, drafted in drafts:
        assert drafted
        assert drafted == oracle.draft(text, len(drafted))


def test_four_texts_at_once(
    files: dict[str, Path],
    drafts: list[tuple[list[int], list[int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual, together = Context.decode, list[int]()

    def slow(self: Context, passes: Sequence[Pass]) -> list[Scores]:
        time.sleep(0.002)  # as with a larger model: the other texts arrive meanwhile
        together.append(len(passes))
        return usual(self, passes)

    monkeypatch.setattr(Context, "decode", slow)
    # Texts share a cache only with flash attention.
    options = {**EXACT, "flash_attention": True}
    settings = GenerationConfig.of(temperature=0, max_tokens=40, depth=4, ignore_eos=True)
    with load(files["target"], draft="none", **options) as plain:
        expected = [
            plain.generate(text, temperature=0, max_tokens=40, ignore_eos=True).token_ids
            for text in TEXTS
        ]
    found: dict[int, list[int]] = {}
    with load(files["target"], draft=files["own"], **options) as engine:
        slots = [engine.open_slot() for _ in TEXTS]
        heads = [slot.loaded.drafter_set.sequences[files["own"].stem] for slot in slots]
        for sequences in ([slot.target for slot in slots], heads):
            assert len({id(sequence.context) for sequence in sequences}) == 1
        running = [slot.start(text, settings) for slot, text in zip(slots, TEXTS, strict=True)]

        def write(number: int) -> None:
            found[number] = running[number].result().token_ids

        threads = [threading.Thread(target=write, args=(number,)) for number in range(len(TEXTS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found[number] for number in range(len(TEXTS))] == expected
    assert max(together) > 1
    assert sum(each.stats.accepted for each in running) > 0
    oracle = Eagle3Oracle(files["target"], files["own"])
    for text, drafted in drafts:
        assert drafted == oracle.draft(text, len(drafted))


@pytest.mark.parametrize("draft", ["{head}", "{head},suffix"])
def test_a_hybrid_target(tmp_path: Path, draft: str) -> None:
    target = write_tiny(tmp_path / "target.gguf", "qwen35", quantised=False)
    head = write_head(tmp_path / "head.gguf", reads=(0, 1, 3), family="qwen35")
    prompt = [1, *range(260, 275), 30, 31, 32, 260, 261, 262]
    with (
        load(target, draft="none", **EXACT) as plain,
        load(target, draft=draft.format(head=head).split(","), **EXACT) as engine,
    ):
        assert engine.slot.target.rollback is Rollback.BOUNDED
        for seed, depth in enumerate((2, 8, 12)):
            options = {"max_tokens": 40, "seed": seed, "ignore_eos": True}
            expected = plain.generate(prompt, **options)
            assert engine.generate(prompt, depth=depth, **options).token_ids == expected.token_ids


def test_a_text_that_goes_on_is_read_once(engine: Engine) -> None:
    options = {"max_tokens": 20, "temperature": 0, "depth": 3, "ignore_eos": True}
    first = engine.generate(PROMPT, **options)
    longer = [*PROMPT, *first.token_ids, *LIKELY]
    second = engine.generate(longer, **options)
    assert second.stats.prompt_evaluated <= 1 + len(LIKELY)
    # Another answer to the same prompt reads nothing but the pending token.
    assert engine.generate(longer, **{**options, "seed": 3}).stats.prompt_evaluated == 1


def test_saved_caches_are_gone_on_with(
    files: dict[str, Path], engine: Engine, plain: Engine, tmp_path: Path
) -> None:
    options = {"max_tokens": 20, "temperature": 0, "depth": 3, "ignore_eos": True}
    store = StateStore(tmp_path / "states")
    first = engine.generate(PROMPT, **options)
    assert engine.slot.save("text", store) is None
    longer = [*PROMPT, *first.token_ids, *LIKELY]
    expected = plain.generate(longer, **{**options, "depth": None})
    with load(files["target"], draft=files["own"], **EXACT) as other:
        assert other.slot.load("text", store) is None
        found = other.generate(longer, **options)
    assert found.token_ids == expected.token_ids
    # The states of the last step's tokens were not saved.
    assert found.stats.prompt_evaluated <= 2 + 3 + len(LIKELY)
    assert found.stats.drafted


def test_drafters_are_exchanged(files: dict[str, Path], plain: Engine) -> None:
    options = {"max_tokens": 20, "temperature": 0, "depth": 3, "ignore_eos": True}
    expected = plain.generate(PROMPT, max_tokens=20, temperature=0, ignore_eos=True).token_ids
    with load(files["target"], draft="suffix", **EXACT) as engine:
        engine.generate(PROMPT, **options)
        for draft in (files["own"], "suffix", files["target's matrices"], "none"):
            engine.switch(draft=draft)
            found = engine.generate(PROMPT, **options)
            assert found.token_ids == expected
            assert (found.stats.drafted > 0) == (draft != "none")


def test_rejection_rules_keep_heads(engine: Engine) -> None:
    for rule in ("token", "block"):
        found = engine.generate(PROMPT, max_tokens=30, seed=1, depth=4, rule=rule, ignore_eos=True)
        assert found.stats.drafted
        assert found.rule == rule


# What is refused.


def test_a_layer_that_is_not_there_is_refused_by_name(
    files: dict[str, Path], tmp_path: Path
) -> None:
    head = write_head(tmp_path / "greedy-head.gguf", reads=(1, 2, 9))
    with pytest.raises(DrafterMismatchError) as refusal:
        load(files["target"], draft=head, **OPTIONS)
    assert "greedy-head.gguf reads hidden states of layer 9, and target.gguf has 5 layers" in str(
        refusal.value
    )


def test_rows_behind_the_last_layer_are_refused_where_there_are_none(
    files: dict[str, Path], tmp_path: Path
) -> None:
    head = write_head(tmp_path / "head.gguf", reads=(1, 2, 5))
    with pytest.raises(DrafterMismatchError, match="no rows behind the last layer"):
        load(files["target"], draft=head, **OPTIONS)


@pytest.mark.parametrize("family", ["gpt2", "gemma3", "mamba"])
def test_a_target_without_hidden_states_is_refused_in_words(tmp_path: Path, family: str) -> None:
    target = write_tiny(tmp_path / "target.gguf", family)
    head = write_head(tmp_path / "head.gguf", reads=(0, 1, 1), family=family)
    with pytest.raises(DrafterMismatchError, match=r"head\.gguf cannot draft for target\.gguf"):
        load(target, draft=head, **OPTIONS)


def test_a_head_for_another_vocabulary_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    head = write_head(tmp_path / "head.gguf", family="qwen35")
    with pytest.raises(DrafterMismatchError, match="vocabulary"):
        load(files["target"], draft=head, **OPTIONS)


def test_a_head_is_no_target(files: dict[str, Path]) -> None:
    with pytest.raises(ModelLoadError, match="draft head"):
        load(files["own"], **OPTIONS)


def test_a_build_without_hidden_states_is_said(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual: Callable[..., object] = library.symbol

    def lacking(name: str, *signature: object) -> object:
        return None if "layer_inp" in name else usual(name, *signature)

    monkeypatch.setattr(library, "symbol", lacking)
    hidden_states._function.cache_clear()
    try:
        with pytest.raises(ModelLoadError) as refusal:
            load(files["target"], draft=files["own"], **OPTIONS)
    finally:
        hidden_states._function.cache_clear()
    assert "hands out no hidden states" in str(refusal.value)
    assert "llama_set_embeddings_layer_inp" in str(refusal.value)
