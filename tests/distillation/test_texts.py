"""Texts: what the target answers, in waves that are functions of their number."""

import threading
from pathlib import Path

import pytest
from fakes.cut_target import letters, write_cut_target

import localspec
from localspec.distillation import texts
from localspec.distillation.texts import Stopped, TextWriter, tokenized


def test_a_wave_has_both_temperatures_and_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(texts, "ANSWER", 12)
    target, never = write_cut_target(tmp_path / "target.gguf"), threading.Event()
    with localspec.load(
        target, draft="none", threads=1, context=256, gpu_layers=0, reproducible=True
    ) as engine:
        prompts = tokenized(engine, letters(20))
        writer = TextWriter(lambda: engine, target, prompts, 5)
        waves = [writer.wave(number, never) for number in range(2)]
        for number, wave in enumerate(waves):
            assert [each.tokens[: each.prompt] for each in wave] == [*map(tuple, prompts)]
            for place, temperature in ((0, None), (19, 0.8)) if number == 0 else ((0, 0.8),):
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
