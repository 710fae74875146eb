"""Room for another text: what is planned fits, what does not fit is said, the others go on."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import llama_cpp
import pytest
from fakes import architectures
from fakes.pycode import load as load_pycode
from fakes.tiny import write_tiny

import localspec
from localspec import Engine, Session
from localspec.conversation.events import Notice
from localspec.errors import InvalidValueError, ModelLoadError
from localspec.gguf.check import check_generative
from localspec.gguf.reader import Header
from localspec.llama.context import Context
from localspec.llama.context_params import ContextParams
from localspec.llama.dry_run import ContextMemory, DryModel
from localspec.llama.kv_cache import KVCache
from localspec.llama.placement import ON_PROCESSOR
from localspec.loading import places
from localspec.loading.config import RuntimeConfig
from localspec.loading.load_plan import never_shares
from localspec.memory.available import HOST, FreeMemory
from localspec.memory.context_sizes import ContextSizes
from localspec.utils.format import format_bytes

N_CTX, MIB = 256, 2**20
Load = Callable[..., Engine]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("models") / "llama.gguf", "llama", quantised=False)


@pytest.fixture
def load(path: Path) -> Iterator[Load]:
    with ExitStack() as undo:

        def fresh(**options: Any) -> Engine:
            given = {"draft": "none", "context": N_CTX, "threads": 1, **options}
            return undo.enter_context(load_pycode(path, **given))

        yield fresh


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The free memory that is planned with."""
    found = {HOST: 2**40}
    monkeypatch.setattr(places, "free_memory", lambda *_: FreeMemory(dict(found)))
    return found


def needed(path: Path, texts: int) -> int:
    sizes = ContextSizes(path, check_generative(path), ON_PROCESSOR)
    with closing(sizes):
        found = sizes.bytes_by_device(ContextParams(N_CTX, texts=texts))
    assert found is not None
    return found.total()


def contexts(sessions: list[Session]) -> list[Context]:
    return [session._slot.target.context for session in sessions]


def opened(engine: Engine, undo: ExitStack, count: int) -> list[Session]:
    options = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
    return [undo.enter_context(Session(engine, **options)) for _ in range(count)]  # type: ignore[arg-type]


def test_a_cache_grows_by_doubling(load: Load) -> None:
    with ExitStack() as undo:
        sessions = opened(load(), undo, 5)
        assert len(set(contexts(sessions))) == 1
        assert contexts(sessions)[0].params.texts == 8


@pytest.mark.parametrize("draft", ["none", "auto"])
def test_a_cache_for_as_many_texts_as_are_meant_never_grows(
    draft: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, settings = ["List files by size", "def f", "a b a b"], {"max_tokens": 20, "seed": 3}
    with localspec.load(draft=draft, context=N_CTX, threads=1) as alone:
        expected = [alone.generate(each, **settings).token_ids for each in prompts]
    monkeypatch.setattr(KVCache, "resize", Mock(side_effect=AssertionError("it grows")))
    with localspec.load(draft=draft, context=N_CTX, threads=1, texts=3) as engine:
        drafting = engine.drafter_set.sequences.values()
        assert [each.context.params.texts for each in (engine.slots.own.target, *drafting)] == [
            3
        ] * (1 + len(engine.drafter_set.sequences))
        found = [each.token_ids for each in engine.generate(prompts, **settings)]
        shared = {id(slot.target.context) for slot in engine.slots.all}
    assert found == expected
    assert len(shared) == 1


def test_a_head_has_room_for_as_many_texts_as_its_target() -> None:
    head = Path(__file__).parents[1] / "trained" / "eagle3-terminal-9m-q8_0.gguf"
    with localspec.load(draft=str(head), context=N_CTX, threads=1, texts=3) as engine:
        (sequence,) = engine.drafter_set.sequences.values()
        assert sequence.context.params.texts == engine.slots.own.target.context.params.texts == 3


@pytest.mark.parametrize("options", [{"reproducible": True}, {"flash_attention": False}])
def test_texts_that_share_no_cache_get_no_room_in_one(options: dict[str, Any]) -> None:
    with localspec.load(draft="none", context=N_CTX, threads=1, texts=3, **options) as engine:
        assert engine.slots.own.target.context.params.texts == 1


@pytest.mark.parametrize("texts", [0, 1025])
def test_a_number_of_texts_that_makes_no_sense(texts: int) -> None:
    with pytest.raises(InvalidValueError, match=f"texts is {texts}; it must be"):
        localspec.load(texts=texts)


def test_by_one_where_twice_does_not_fit(
    load: Load, path: Path, free: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as undo:
        engine = load()
        sessions = opened(engine, undo, 2)
        free[HOST] = needed(path, 4) - 1
        sessions += opened(engine, undo, 1)
        assert len(set(contexts(sessions))) == 1
        assert contexts(sessions)[0].params.texts == 3


def test_then_it_has_a_cache_of_its_own_and_that_is_said(
    load: Load, path: Path, free: dict[str, int]
) -> None:
    with ExitStack() as undo:
        engine = load()
        (first,) = opened(engine, undo, 1)
        answer = iter(first.send("an"))
        before = [next(answer) for _ in range(4)]
        free[HOST] = needed(path, 2) - 1
        (second,) = opened(engine, undo, 1)
        assert contexts([first])[0] is not contexts([second])[0]
        figures = f"{format_bytes(needed(path, 2))}, and {format_bytes(free[HOST])} are free"
        (note,) = engine.notes
        assert figures in note
        notices = [event.line for event in second.send("bn") if isinstance(event, Notice)]
        assert notices == [note]
        # It is said once.
        assert not [event for event in second.send("bn") if isinstance(event, Notice)]
        events = [*before, *answer]
        assert not [event for event in events if isinstance(event, Notice)]
        assert len(first.turns[-1].written) > 1


def test_then_it_is_refused_with_the_figures_and_the_others_go_on(
    load: Load, path: Path, free: dict[str, int]
) -> None:
    with ExitStack() as undo:
        engine = load()
        expected = said(engine)
        (first,) = opened(engine, undo, 1)
        answer = iter(first.send("an"))
        next(answer)
        free[HOST] = needed(path, 1) - 1
        context = contexts([first])[0]
        with pytest.raises(ModelLoadError, match=r"no room for another text.*are free; close"):
            Session(engine)
        assert contexts([first])[0] is context and len(context.sequences) == 1
        for _ in answer:
            pass
        assert first.turns[-1].written == expected
        free[HOST] = 2**40
        assert contexts(opened(engine, undo, 1)) == [context]


def said(engine: Engine) -> str:
    with Session(engine, temperature=0, max_tokens=12, ignore_eos=True) as session:
        return session.send("an").result().written


@pytest.mark.parametrize("largest", [2, 1, 0])
def test_a_library_that_refuses_contexts(
    load: Load, path: Path, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the plan said: the library has the last word. largest: texts that it accepts."""
    init = llama_cpp.llama_init_from_model
    with ExitStack() as undo:
        engine = load()
        expected = said(engine)
        sessions = opened(engine, undo, 2)
        handle = engine.model.handle

        def refusing(model: Any, params: Any) -> Any:
            return None if model is handle and params.n_seq_max > largest else init(model, params)

        monkeypatch.setattr(llama_cpp, "llama_init_from_model", refusing)
        answers = [session.send("an") for session in sessions]
        for answer in answers:
            next(iter(answer))
        if largest:
            sessions += opened(engine, undo, 1)
            assert len(set(contexts(sessions))) == 2
            assert any("could not be made" in note for note in engine.notes)
        else:
            with pytest.raises(ModelLoadError, match=r"would need .* are free.*close another"):
                Session(engine)
        for answer in answers:
            for _ in answer:
                pass
        assert [session.turns[-1].written for session in sessions[:2]] == [expected] * 2


def test_reproducible_texts_run_one_after_the_other_and_that_is_said(load: Load) -> None:
    with ExitStack() as undo:
        engine = load(reproducible=True)
        assert engine.notes == ()
        sessions = opened(engine, undo, 3)
        assert len(set(contexts(sessions))) == 3
        (note,) = engine.notes
        assert "one after the other" in note
        for session, lines in zip(sessions, ([], [note], [note]), strict=True):
            events = session.send("an")
            assert [each.line for each in events if isinstance(each, Notice)] == lines


@pytest.mark.parametrize("arch", ["arwkv7", "plamo2"])
def test_texts_that_the_library_would_mix_have_caches_of_their_own(
    arch: str, tmp_path: Path
) -> None:
    model = architectures.write(arch, tmp_path / f"{arch}.gguf")
    with (
        load_pycode(model, "none", context=N_CTX, threads=1, texts=3) as engine,
        ExitStack() as undo,
    ):
        assert engine.notes == ()
        sessions = opened(engine, undo, 3)
        assert [each.params.texts for each in contexts(sessions)] == [1] * 3
        (note,) = engine.notes
        assert "a cache of its own" in note
        assert f"several texts of {arch} models wrongly" in note


def test_drafters_whose_texts_would_be_mixed_have_caches_of_their_own(
    path: Path, tmp_path: Path
) -> None:
    """Else a decode without the first text of the cache ended the process."""
    drafter = architectures.write("plamo2", tmp_path / "plamo2.gguf")
    with (
        load_pycode(path, drafter, context=N_CTX, threads=1, texts=3) as engine,
        ExitStack() as undo,
    ):
        opened(engine, undo, 3)
        caches = [each.loaded.drafter_set.sequences["plamo2"].context for each in engine.slots.all]
        assert [each.params.texts for each in caches] == [1] * 3
        assert len(set(caches)) == 3


@pytest.mark.parametrize("arch", ["arwkv7", "plamo2", "rwkv6qwen2", "rwkv6"])
def test_why_texts_of_an_architecture_share_no_decode(arch: str) -> None:
    why = never_shares(RuntimeConfig(), Header(3, {"general.architecture": arch}, ()))
    assert (why is None) is (arch == "rwkv6")


def test_what_is_lacking_on_a_gpu_is_named(
    load: Load, free: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_gpu(_dry: DryModel, params: ContextParams) -> ContextMemory:
        return ContextMemory({"CUDA0": 100 * MIB * params.texts}, {"CUDA0": MIB, HOST: MIB})

    monkeypatch.setattr(DryModel, "context_memory", on_gpu)
    free["CUDA0"] = 401 * MIB
    with ExitStack() as undo:
        engine = load()
        sessions = opened(engine, undo, 3)
        assert [each.params.texts for each in contexts(sessions)] == [4] * 3
        sessions += opened(engine, undo, 1)
        free["CUDA0"] = 150 * MIB
        sessions += opened(engine, undo, 1)
        assert contexts(sessions)[-1].params.texts == 1
        (note,) = engine.notes
        lacking = f"{format_bytes(801 * MIB)} on CUDA0, and {format_bytes(150 * MIB)} are free"
        assert note.endswith(f"would need {lacking}")
        free["CUDA0"] = 100 * MIB
        with pytest.raises(ModelLoadError, match=f"need {format_bytes(101 * MIB)} on CUDA0, and"):
            Session(engine)
