"""What slots have read is found again after a restart, and changes no text."""

import logging
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fakes import command_line
from fakes.served import Served, serving, wait_for
from fakes.tiny import tiny_model

import localspec
from localspec.engine import kept_store
from localspec.engine.kept_store import kept_folder
from localspec.generation_config import GenerationConfig
from localspec.server.kept_states import KeptStates
from localspec.server.slot_pool import SlotPool

SYSTEM = {"role": "system", "content": "You answer questions about the terminal. " * 4}
STARTS = ["How do I list files by size?", "How do I find large files?"]
MOMENTS = count(1.0)
SETTINGS: dict[str, Any] = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}


@contextmanager
def server(home: Path, *arguments: str) -> Iterator[Served]:
    """A server whose files lie in a folder of the test."""
    options = ("--threads", "1", "--ctx", "512", "--parallel", "2", *arguments)
    with serving(*options, LOCALSPEC_HOME=str(home)) as served:
        yield served


def ask(served: Served, messages: list[dict[str, str]], **options: Any) -> dict[str, Any]:
    """An answer, and how many tokens of its prompt were in a cache."""
    body = {"messages": messages, "temperature": 1, "seed": 5, "max_tokens": 12, **options}
    answer = served.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return {
        "text": found["choices"][0]["message"]["content"],
        "cached": found["usage"]["prompt_tokens_details"]["cached_tokens"],
        "prompt": found["usage"]["prompt_tokens"],
    }


def begin(served: Served) -> list[str]:
    return [ask(served, _begun(text))["text"] for text in STARTS]


def go_on(served: Served, first: list[str]) -> list[dict[str, Any]]:
    pairs = zip(STARTS, first, strict=True)
    return [
        ask(
            served,
            [
                *_begun(text),
                {"role": "assistant", "content": answer},
                {"role": "user", "content": "And then?"},
            ],
        )
        for text, answer in pairs
    ]


def _begun(text: str) -> list[dict[str, str]]:
    return [SYSTEM, {"role": "user", "content": text}]


@pytest.mark.slow
def test_conversations_go_on_after_a_restart(tmp_path: Path) -> None:
    """With the texts and the cached tokens that they have without one."""
    with server(tmp_path) as served:
        first = begin(served)
        expected = go_on(served, first)
        assert served.end() == 0
    folder = tmp_path / "cache" / "slots"
    assert not folder.exists()  # nobody asked for it
    with server(tmp_path, "--keep") as served:
        assert begin(served) == first
        assert served.end() == 0
        wait_for(lambda: any("tokens for the next start" in line for line in served.lines))
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with server(tmp_path, "--keep") as served:
        assert all(slot["n_cached"] > 50 for slot in served.get("/slots").json())
        assert go_on(served, first) == expected
        assert all(answer["cached"] > answer["prompt"] / 2 for answer in expected)
        assert sum("tokens of the last run" in line for line in served.lines) == 2
        # What was kept before is there after a kill too.
        served.end(signal.SIGKILL)
    with server(tmp_path, "--keep") as served:
        assert go_on(served, first) == expected
        assert served.end(signal.SIGINT) == 0


@pytest.mark.slow
def test_texts_of_the_last_run_are_copied_from(tmp_path: Path) -> None:
    """With `--remember`, whichever slot wrote them; the text is the same."""

    def asked(served: Served, seed: int = 1) -> tuple[str, int]:
        body = {"messages": _begun(STARTS[0]), "seed": seed, "max_tokens": 48, "temperature": 1}
        found = served.post("/v1/chat/completions", {**body, "ignore_eos": True}).json()
        timings = found["timings"]
        assert timings["predicted_n"] == 48
        return found["choices"][0]["message"]["content"], timings.get("draft_n_accepted", 0)

    drafting = ("--draft", "suffix", "--depth", "8")
    folder = tmp_path / "cache" / "past"
    with server(tmp_path, *drafting) as served:
        text, few = asked(served)
        assert served.end() == 0
    assert not folder.exists()
    with server(tmp_path, *drafting, "--remember") as served:
        assert asked(served, seed=2)[0] != text
        assert asked(served)[0] == text
        assert served.end() == 0
    [file] = folder.glob("*.tokens")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with server(tmp_path, *drafting, "--remember") as served:
        again, many = asked(served)
        assert again == text and many > 30 > few
        file.unlink()
        file.mkdir()
        asked(served, seed=3)
        assert served.end() == 0
        wait_for(lambda: any(f"{file.name} is no file" in line for line in served.lines))


@contextmanager
def slots(model: Path, folder: Path, number: int = 2, **options: Any) -> Iterator[SlotPool]:
    """The slots of an engine; `KeptStates` fills them before and saves them behind."""
    options = {"draft": "none", "threads": 1, "context": 512, **options}
    with localspec.load(model, **options) as engine:
        pool, kept = SlotPool(engine, number, 4), KeptStates(model, folder)
        kept.restore(pool.slots)
        yield pool
        kept.save(pool.slots)
        pool.close()


def write(pool: SlotPool, number: int, prompt: list[int]) -> tuple[list[int], int]:
    """The next tokens, written on a slot, and how many of the prompt were in its cache."""
    generation = pool.slots[number].slot.start(prompt, GenerationConfig.of(**SETTINGS))
    found = generation.result()
    pool.slots[number].used = next(MOMENTS)
    return found.token_ids, found.stats.prompt_tokens - found.stats.prompt_evaluated


@pytest.mark.parametrize("draft", ["none", "suffix", "model"])
@pytest.mark.parametrize("family", ["llama", "gemma3", "mamba", "qwen35"])
def test_every_kind_of_memory(tmp_path: Path, family: str, draft: str) -> None:
    model = tiny_model(family)
    chosen = model if draft == "model" else draft
    prompt = [1, *range(20, 140)]
    with localspec.load(model, "none", threads=1, context=512) as fresh:
        first = fresh.generate(prompt, **SETTINGS).token_ids
        further = [*prompt, *first, *range(40, 50)]
        second = fresh.generate(further, **SETTINGS).token_ids
    with slots(model, tmp_path, draft=chosen) as pool:
        assert write(pool, 1, prompt) == (first, 0)
    with slots(model, tmp_path, draft=chosen) as pool:
        # All but the last token, which was never evaluated.
        assert write(pool, 0, further) == (second, len(prompt) + 7)
    with slots(model, tmp_path, draft=chosen) as pool:
        # Where no cache can be cut, a mark was kept: where the first prompt ended.
        other = [*prompt, *range(150, 160)]
        assert write(pool, 0, other)[1] >= len(prompt) - 1


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "localspec.server"):
        yield caplog


def test_what_cannot_be_used_is_said_and_left_out(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    model, prompt = tiny_model("llama"), [1, *range(20, 140)]
    with slots(model, tmp_path) as pool:
        write(pool, 0, prompt)
    (path,) = tmp_path.glob("*.state")
    whole = path.read_bytes()
    with slots(model, tmp_path, kv_type="f32"):
        assert "a text of the last run has to be read again" in said.text
        assert "of another kv type" in said.text
    assert path.read_bytes() == whole  # an empty slot takes the place of nothing
    with slots(model, tmp_path, context=64):
        assert "it does not fit this context" in said.text
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    path.write_bytes(damaged)
    with slots(model, tmp_path) as pool:
        assert "the saved state is damaged" in said.text
        assert not list(tmp_path.glob("*.state"))
        assert write(pool, 0, prompt)[1] == 0
    with slots(tiny_model("qwen3"), tmp_path) as pool:
        assert not pool.slots[0].slot.target.tokens  # each model has its own


def test_those_used_last_are_kept_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    model = tiny_model("llama")
    prompts = [[1, *range(start, start + 60)] for start in (10, 80, 150)]
    with slots(model, tmp_path, 3) as pool:
        for number in (1, 0, 2):
            write(pool, number, prompts[number])
    (size,) = {path.stat().st_size for path in tmp_path.glob("*.state")}
    with slots(model, tmp_path, 2) as pool:
        held = [each.slot.target.tokens[:61] for each in pool.slots]
        assert held == [prompts[2], prompts[0]]
        # The order in which new texts take their places.
        assert pool.slots[1].used < pool.slots[0].used <= 0
    monkeypatch.setattr(kept_store, "_MOST_BYTES", int(1.5 * size))
    with slots(model, tmp_path, 2):
        pass
    with slots(model, tmp_path, 2) as pool:
        assert pool.slots[0].slot.target.tokens[:61] == prompts[2]
        assert not pool.slots[1].slot.target.tokens
    monkeypatch.setattr(kept_store, "_MOST_BYTES", size // 2)
    with slots(model, tmp_path, 2):
        pass
    assert "it was not saved" in said.text


def test_forget_deletes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    with slots(tiny_model("llama"), kept_folder()) as pool:
        write(pool, 0, [1, *range(20, 80)])
    assert list(kept_folder().iterdir())
    done = command_line.localspec("forget")
    assert done.code == 0 and "slots" in done.err
    assert not list(kept_folder().iterdir())
