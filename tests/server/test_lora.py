"""LoRA adapters of a server, as llama-server tells them."""

from pathlib import Path
from typing import Any

import gguf
import pytest
from fakes.command_line import localspec as command
from fakes.lora import write_lora
from fakes.served import serving, wait_for
from fakes.tiny import tiny_model

import localspec

BODY: dict[str, Any] = {"prompt": "an br", "max_tokens": 12, "seed": 3, "ignore_eos": True}
OPTIONS = ("--threads", "1", "--ctx", "256", "--draft", "suffix", "--parallel", "2")


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    def named(writer: gguf.GGUFWriter) -> None:
        writer.add_string("adapter.lora.task_name", "shells")

    return write_lora(tmp_path / "style.gguf", tiny_model("llama"), change=named)


def test_a_server_with_an_adapter(adapter: Path, tmp_path: Path) -> None:
    target, home = tiny_model("llama"), str(tmp_path / "home")
    settings: dict[str, Any] = {"max_tokens": 12, "seed": 3, "ignore_eos": True}
    options: dict[str, Any] = {"threads": 1, "context": 256}
    with localspec.load(target, "none", **options, lora=f"{adapter}:0.5") as engine:
        expected = engine.generate("an br", **settings).text
    with localspec.load(target, "none", **options) as engine:
        assert engine.generate("an br", **settings).text != expected
    arguments = (str(target), *OPTIONS, "--keep", "--lora", f"{adapter}:0.5")
    for _ in range(2):  # the second one finds what the first one has kept
        with serving(*arguments, LOCALSPEC_HOME=home) as served:
            assert served.get("/lora-adapters").json() == [
                {
                    "id": 0,
                    "path": "style.gguf",
                    "scale": 0.5,
                    "task_name": "shells",
                    "prompt_prefix": "",
                }
            ]
            notes = served.get("/props").json()["localspec"]["notes"]
            assert any(note.startswith("LoRA adapter style.gguf, scale 0.5") for note in notes)
            for _ in range(2):
                answer = served.post("/v1/completions", {**BODY, "lora": []})
                assert answer.json()["choices"][0]["text"] == expected, answer.text
            for path, body in (
                ("/v1/completions", {**BODY, "lora": [{"id": 0, "scale": 1.0}]}),
                ("/lora-adapters", [{"id": 0, "scale": 1.0}]),
            ):
                refused = served.post(path, body)
                assert refused.status_code == 400
                assert "--lora, the same for all texts" in refused.json()["error"]["message"]
            assert served.end() == 0
    # What was kept with the adapter is nothing for the model without it.
    with serving(str(target), *OPTIONS, "--keep", LOCALSPEC_HOME=home) as served:
        assert served.get("/lora-adapters").json() == []
        answer = served.post("/v1/completions", BODY)
        assert answer.json()["choices"][0]["text"] != expected


def test_they_are_told_while_the_model_is_unloaded(adapter: Path) -> None:
    options = (*OPTIONS, "--lora", f"{adapter}:0.5", "--unload-after", "0.005")
    with serving(str(tiny_model("llama")), *options) as served:

        def is_unloaded() -> bool:
            return served.get("/props").json()["total_slots"] == 0

        served.post("/v1/completions", BODY)
        wait_for(is_unloaded)
        [told] = served.get("/lora-adapters").json()
        assert (told["path"], told["scale"]) == ("style.gguf", 0.5)
        assert is_unloaded()


def test_adapters_are_of_one_model(adapter: Path) -> None:
    models = str(tiny_model("llama")), str(tiny_model("qwen3"))
    done = command("serve", *models, "--lora", str(adapter), "--port", "18431")
    assert done.code == 2 and "lora is of one model, and 2 are named; leave it out" in done.err
