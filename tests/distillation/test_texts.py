"""Texts: what the target answers, in waves that are functions of their number."""

import threading
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.cut_target import letters, write_cut_target

import localspec
from localspec.distillation import texts
from localspec.distillation.texts import Stopped, TextWriter, tokenized
from localspec.engine.generation import Generation


@pytest.fixture
def target_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    return write_cut_target(tmp_path / "target.gguf")


def loaded(target: Path) -> localspec.Engine:
    """The target, whose texts do not depend on their company."""
    return localspec.load(
        target, draft="none", threads=1, context=256, gpu_layers=0, reproducible=True
    )


def test_a_wave_has_both_temperatures_and_is_written_once(
    target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "ANSWER", 12)
    # The file's own is 0.8, too.
    monkeypatch.setattr(texts, "_WARM", 1.9)
    target, never = target_path, threading.Event()
    with loaded(target) as engine:
        prompts = tokenized(engine, letters(20))
        writer = TextWriter(lambda: engine, target, prompts, 5)
        waves = [writer.wave(number, never) for number in range(2)]
        for number, wave in enumerate(waves):
            assert [each.tokens[: each.prompt] for each in wave] == [*map(tuple, prompts)]
            for place, temperature in ((0, None), (19, 1.9)) if number == 0 else ((0, 1.9),):
                given = {} if temperature is None else {"temperature": temperature}
                alone = engine.generate(prompts[place], max_tokens=12, seed=5 + number, **given)
                assert wave[place].tokens[wave[place].prompt :] == tuple(alone.token_ids)
        stopped = threading.Event()
        stopped.set()
        with pytest.raises(Stopped):
            writer.wave(2, stopped)
    # What is here needs no engine.
    again = TextWriter(lambda: pytest.fail("loaded"), target, prompts, 5)
    assert [again.wave(number, never) for number in range(2)] == waves
    assert again.kept(2) is None and again.seconds_per_token(0) > 0


def test_a_prompt_that_is_answered_again_has_the_other_temperature(
    target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[int, bool]]()

    def noted(_engine: Any, prompt: Any, answer: Any, _stopped: Any, options: Any) -> None:
        asked.append((prompt[0], "temperature" in options))
        answer.tokens, answer.is_whole = [7], True

    monkeypatch.setattr(texts, "WAVE", 4)
    monkeypatch.setattr(texts, "_go_on", noted)
    engine: Any = SimpleNamespace(model=SimpleNamespace(end_tokens=[7]))
    for count in (4, 6, 8):  # of which the last is whole waves, an even number of them
        writer = TextWriter(lambda: engine, target_path, [[each] for each in range(count)], 5)
        asked.clear()
        for number in range(6):
            begun = len(asked)
            writer.wave(number, threading.Event())
            assert sum(warm for _, warm in asked[begun:]) == 2
        for prompt in range(count):
            turns = [warm for each, warm in asked if each == prompt]
            assert len(turns) > 2 and all(a != b for a, b in pairwise(turns))


def test_an_answer_that_was_stopped_goes_on_where_it_was(
    target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "ANSWER", 24)
    target, never = target_path, threading.Event()
    with loaded(target) as engine:
        prompts = tokenized(engine, letters(20))
        writer = TextWriter(lambda: engine, target, prompts, 5)
        whole = writer.wave(0, never)
        answers = writer.tokens
        assert answers == sum(each.answer for each in whole)
        writer.folder.delete("texts-00000")
        written, stream = list[tuple[int, int]](), localspec.Engine.stream

        def stopped_soon(self: localspec.Engine, prompt: list[int], **options: Any) -> Generation:
            written.append((len(prompt), options["max_tokens"]))
            running = stream(self, prompt, **options)
            if len(written) > 18:  # the others have at least begun
                cancel.set()
            return running

        monkeypatch.setattr(localspec.Engine, "stream", stopped_soon)
        cancel = threading.Event()
        with pytest.raises(Stopped):
            writer.wave(0, cancel)
        assert writer.kept(0) is None and 0 < writer.tokens < answers
        kept, before = writer.tokens, len(written)
        again = TextWriter(lambda: engine, target, prompts, 5)
        cancel = threading.Event()
        assert again.wave(0, never) == whole
        lengths = sum(len(each) for each in prompts)
        assert sum(24 - most for _, most in written[before:]) <= kept
        assert sum(length for length, _ in written[before:]) < lengths + kept
        assert again.tokens == answers
        assert [each.name for each in again.folder.path.iterdir()] == ["texts-00000"]
