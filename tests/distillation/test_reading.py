"""Reading: training sees the rows that drafting sees, and the texts that the target writes."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from fakes.cut_target import LAYERS, letters, write_cut_target
from numpy.typing import NDArray

import localspec
from localspec.distillation import texts
from localspec.distillation.material import Material, TextSource
from localspec.distillation.reading import ReadText, TargetReader
from localspec.distillation.texts import Stopped, Text, tokenized
from localspec.distillation.work_folder import WorkFolder
from localspec.engine.engine import Engine
from localspec.errors import InvalidValueError
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Evaluated, Limit, Outcome, Traits
from localspec.speculation.passes import OUTPUT, Passes

RUNTIME = {"threads": 1, "context": 512, "gpu_layers": 0}
ANSWER = 24
READ = (0, 1, LAYERS - 1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(texts, "ANSWER", ANSWER)


class Recorder:
    """A drafter that proposes wrong and right tokens, and keeps every row that it is given."""

    name = "recorder"
    traits = Traits(reads_hidden=READ)

    def __init__(self) -> None:
        self.rows: dict[int, dict[int, NDArray[np.float32]]] = {}
        self.text: list[int] = []

    def held(self, tokens: Sequence[int]) -> int:
        return 0

    def begin(self, tokens: Sequence[int]) -> None:
        self.text = list(tokens)

    def observe(self, outcome: Outcome) -> None:
        self.text += outcome.tokens

    def read(self, evaluated: Evaluated) -> Passes[None]:
        for layer, rows in evaluated.hidden.items():
            own = self.rows.setdefault(layer, {})
            for number, row in enumerate(rows[-len(evaluated.tokens) :]):
                own[evaluated.start + number] = row.copy()
        return
        yield

    def passes(self, limit: Limit) -> Passes[Draft]:
        return Draft([token % 200 for token in self.text[-2:]][: limit.depth])
        yield


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("quantised", [False, True])
def test_rows_of_training_are_those_of_drafting(
    family: str, quantised: bool, tmp_path: Path
) -> None:
    target = write_cut_target(tmp_path / "target.gguf", family, quantised=quantised)
    recorder = Recorder()
    with localspec.load(target, draft=recorder, **RUNTIME) as engine:
        prompt = engine.tokenize("anbt drcs")
        written = engine.generate(prompt, max_tokens=90, seed=4, depth=2, ignore_eos=True)
    tokens = (*prompt, *written.token_ids)
    text = Text(tokens, len(prompt))
    options = {"n_ctx": 512, "threads": 1, "flash_attention": None}
    with Model(target) as model, single_sequence(model, ContextParams(**options)) as sequence:
        read = TargetReader(sequence, READ).read(text)
        again = TargetReader(sequence, READ).read(text)
    assert len(recorder.rows[1]) > 90
    for layer in READ:
        drafting = recorder.rows[layer]
        expected = np.array([drafting[place] for place in sorted(drafting)])
        found = read.hidden[layer][sorted(drafting)]
        # A pass of one row and one of many round differently; where a cell of the cache is rounded
        # to the other half float by that, more. A row of another token differs by far more still.
        np.testing.assert_allclose(found, expected, atol=2e-4 * np.abs(expected).max())
        np.testing.assert_array_equal(read.hidden[layer], again.hidden[layer])


def test_distributions_are_those_that_the_answer_was_drawn_from(tmp_path: Path) -> None:
    target = write_cut_target(tmp_path / "target.gguf")
    with localspec.load(target, draft="none", **RUNTIME) as engine:
        prompt = engine.tokenize("anbt " * 20)
        options = {"max_tokens": 70, "seed": 4, "temperature": 1.0, "ignore_eos": True}
        written = engine.generate(prompt, logprobs=True, **options)
        reader = TargetReader(engine.slots.own.target, (OUTPUT,))
        text = Text((*prompt, *written.token_ids), len(prompt))
        read = reader.read(text)
    assert len(read.top) == text.answer + 1 and written.logprobs
    assert read.hidden[OUTPUT].shape == (len(text.tokens), 64)
    for place, token in enumerate(written.token_ids):
        ids = read.top.ids[place].tolist()
        if token in ids:
            own = read.top.log_probs[place][ids.index(token)]
            assert own == pytest.approx(written.logprobs[place], abs=0.05)
    assert sum(token in read.top.ids[n] for n, token in enumerate(written.token_ids)) > 50


@pytest.fixture
def material(tmp_path: Path) -> Iterator[Material]:
    target = write_cut_target(tmp_path / "target.gguf")
    with opened(target) as made:
        yield made


def opened(
    target: Path,
    said: list[str] | None = None,
    prompts: Sequence[str] = tuple(letters(40)),
    seed: int | None = None,
    **runtime: int,
) -> Material:
    source = TextSource(target, lambda _: prompts, seed, {**RUNTIME, **runtime})
    return Material(source, (1,), ([] if said is None else said).append, threading.Event())


def test_waves_are_kept_and_written_again_if_damaged(
    material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = material.wave(0)
    assert len(first) == 32 and all(0 < each.answer <= ANSWER for each in first)
    assert len({each.tokens[: each.prompt] for each in first}) == 32
    assert material.writing() > 0
    folder: WorkFolder = material._writer.folder

    def no_engine(_self: Engine, *_args: object, **_options: object) -> None:
        raise AssertionError("the wave is here")

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "generate", no_engine)
        assert material.wave(0) == first
    file = folder.path / "texts-00000"
    file.write_bytes(file.read_bytes()[:-9])
    assert len(material.wave(0)) == 32


def test_held_out_prompts_are_never_trained_on(material: Material) -> None:
    held = {tuple(each) for each in material.held_out}
    assert len(held) == 4 and len(material.prompts) == 36
    assert not held & {tuple(each) for each in material.prompts}
    asked = {each.tokens[: each.prompt] for n in range(3) for each in material.wave(n)}
    assert asked and not asked & held
    assert {each.tokens[: each.prompt] for each in material.held_out_texts()} == held


@pytest.mark.slow
def test_the_same_seed_gives_the_same_texts(tmp_path: Path) -> None:
    target = write_cut_target(tmp_path / "target.gguf", quantised=True)
    found = []
    for _ in range(2):
        with opened(target, seed=7) as material:
            found.append([material.wave(0), material.wave(1)])
            for number in range(2):
                material._writer.folder.delete(f"texts-{number:05}")
    assert found[0] == found[1] and found[0][0] != found[0][1]


def test_texts_of_a_seed_are_of_one_way_to_run(tmp_path: Path) -> None:
    """With a seed, which threads and devices write decides digits: no other texts are those."""
    target = write_cut_target(tmp_path / "target.gguf")
    ways = [(None, {}), (None, {"threads": 2}), (1, {}), (1, {"threads": 2}), (1, {})]
    made = [opened(target, seed=seed, **runtime) for seed, runtime in ways]
    for each in made:
        each.close()
    for found in ([each._writer.folder.path for each in made], [str(each.key) for each in made]):
        assert found[0] == found[1] and found[2] == found[4]
        assert len(set(found)) == 3


def test_stopping_keeps_whole_waves(material: Material) -> None:
    material.wave(0)
    material._cancel.set()
    with pytest.raises(Stopped):
        material.wave(1)
    with pytest.raises(Stopped):
        material.read(material.wave(0))
    assert material._writer.kept(1) is None and material._writer.kept(0)


def test_reading_that_was_stopped_goes_on_where_it_was(
    material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read, texts = WorkFolder(["a training"]), TargetReader.read, list[Text]()

    def noted(self: TargetReader, text: Text, stopped: Callable[[], bool]) -> ReadText:
        texts.append(text)
        if len(texts) == 5 and turns.pop():
            material._cancel.set()
        return read(self, text, stopped)

    whole = material.read(material.wave(0)).to_bytes()
    monkeypatch.setattr(TargetReader, "read", noted)
    for most, kept in ((1, 0), (1 << 30, 4)):  # on a disk without room, and on another one
        texts.clear()
        turns = [False, True]
        rows = material.rows(folder, 1, most, material.read)
        with pytest.raises(Stopped):
            rows.shard(0)
        assert rows.missing == [0]
        material._cancel.clear()
        texts.clear()
        assert material.rows(folder, 1, most, material.read).shard(0).to_bytes() == whole
        assert texts == material.wave(0)[kept:]
    assert [each.name for each in folder.path.iterdir()] == ["rows-00000"]


def test_shards_have_the_layers_that_were_asked_for(material: Material) -> None:
    some = material.wave(0)[:3]
    shard = material.read(some)
    tokens = sum(len(each.tokens) for each in some)
    assert list(shard.hidden) == [1] and shard.hidden[1].rows.shape == (tokens, 64)
    assert len(shard.top) == sum(each.answer + 1 for each in some)
    sample, seconds = material.sample()
    assert len(sample.texts) == 16 and seconds > 0


def test_too_little_text(tmp_path: Path) -> None:
    target = write_cut_target(tmp_path / "target.gguf")
    with pytest.raises(InvalidValueError, match=r"there are 3 different prompts.* needs 16"):
        opened(target, prompts=["anbt", "anbr", "anbs", "anbt"])
    with pytest.raises(InvalidValueError, match=r"there is 1 prompt, and a training needs 16"):
        opened(target, prompts=["anbt"])
    with pytest.raises(InvalidValueError, match="no prompt leaves room"):
        opened(target, prompts=["anbt" * 900])


def test_a_language_that_the_tokenizer_shreds(tmp_path: Path) -> None:
    target, said = write_cut_target(tmp_path / "target.gguf"), list[str]()
    opened(target, said, ["日本語" * number for number in range(1, 30)]).close()
    assert len(said) == 1 and "tokens per letter" in said[0]
    said.clear()
    opened(target, said, ["ancs" * number for number in range(1, 30)]).close()
    assert not said


def test_doubles_are_asked_once(tmp_path: Path) -> None:
    target = write_cut_target(tmp_path / "target.gguf")
    with localspec.load(target, draft="none", **RUNTIME) as engine:
        assert len(tokenized(engine, ["anbt", "anbr", "anbt", "anbt" * 900])) == 2
