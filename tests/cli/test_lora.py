"""`--lora`: LoRA adapters on the command line, in records and in what is shown."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes.command_line import Run
from fakes.lora import write_lora, write_merged
from fakes.tiny import tiny_model

from localspec.cli.main import localspec

pytestmark = pytest.mark.usefixtures("bare_environment")
OPTIONS = ("-n", "12", "--seed", "1", "--ctx", "256", "--draft", "suffix", "--threads", "1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an adapter for a tiny model, which is the folder of the command."""
    target = tiny_model("llama")
    write_lora(tmp_path / "style.gguf", target, size=0.5)
    write_lora(tmp_path / "other.gguf", tiny_model("qwen3"))
    write_merged(tmp_path / "merged.gguf", target, (tmp_path / "style.gguf", 0.5))
    (tmp_path / "text.gguf").write_text("no model")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_text_and_its_audit(cli: Run, generate: Run, folder: Path) -> None:
    target = str(tiny_model("llama"))
    plain = generate("-m", target, *OPTIONS, "hi", "--json").record
    assert plain["model"]["adapters"] == plain["recipe"]["adapters"] == []
    done = generate("-m", target, *OPTIONS, "hi", "--json", "--lora", "style.gguf:0.5")
    assert (
        "localspec: LoRA adapter style.gguf, scale 0.5: rank 4, 15 matrices of architecture llama; "
        "in F32, so drafts may change near-ties (not with --reproducible)\n"
    ) in done.err
    record = done.record
    assert record["token_ids"] != plain["token_ids"]
    merged = generate("-m", str(folder / "merged.gguf"), *OPTIONS, "hi", "--json").record
    assert record["token_ids"] == merged["token_ids"]
    assert record["model"]["adapters"] == [{"file": str(folder / "style.gguf"), "scale": 0.5}]
    [adapter] = record["recipe"]["adapters"]
    assert adapter["scale"] == 0.5 and len(adapter["fingerprint"]) == 64
    # The adapter is the one in the record.
    (folder / "text.json").write_text(json.dumps(record))
    scored = cli("audit", "text.json")
    assert scored.code == 0 and scored.out.startswith("12 of 12 tokens are what the seed gives")
    (folder / "style.gguf").rename(folder / "moved.gguf")
    assert cli("audit", "text.json").code != 0
    scored = cli("audit", "text.json", "--lora", "moved.gguf:0.5")
    assert scored.code == 0 and scored.out.startswith("12 of 12 tokens are what the seed gives")
    for named in ("moved.gguf", "none"):
        wrong = cli("audit", "text.json", "--lora", named)
        assert wrong.code == 2 and "the text was made with 1 LoRA adapter (" in wrong.err
        assert "; name the same files, at the same scales, with --lora" in wrong.err
    record["model"]["adapters"] = [{"file": 5}]
    (folder / "text.json").write_text(json.dumps(record))
    wrong = cli("audit", "text.json")
    assert wrong.code == 2 and "its adapters are [{'file': 5}]" in wrong.err


@pytest.mark.parametrize(
    ("named", "code", "said"),
    [
        ("missing.gguf", 3, "there is no model file missing.gguf; check the path"),
        ("text.gguf", 5, "text.gguf is not a GGUF file, it begins with b'no m'"),
        ("merged.gguf", 5, "merged.gguf is no LoRA adapter (llama); llama.cpp's convert_lora_to"),
        ("adapter_model.safetensors", 5, "is an adapter in another format; llama.cpp's convert"),
        ("other.gguf", 5, "other.gguf is an adapter for models of architecture 'qwen3', and llama"),
        ("style.gguf:much", 2, "its scale 'much' is no number: write FILE:0.5, or FILE for 1"),
        ("", 2, "lora is ''; name an adapter: FILE, or FILE:SCALE"),
        (":0.5", 2, "lora is ':0.5'; name an adapter: FILE, or FILE:SCALE"),
        ("style.gguf:0", 2, "must be from -1000 to 1000 and not 0; leave the adapter out"),
    ],
)
def test_what_is_refused(generate: Run, folder: Path, named: str, code: int, said: str) -> None:
    done = generate("-m", str(tiny_model("llama")), *OPTIONS, "hi", "--lora", named)
    assert (done.code, said in done.err) == (code, True), done.err
    assert done.err.count("\n") == 1 and not done.out


def test_none_and_an_adapter_are_refused(generate: Run, folder: Path) -> None:
    for both in (("none", "style.gguf"), ("style.gguf", "none")):
        named = [word for each in both for word in ("--lora", each)]
        done = generate("-m", str(tiny_model("llama")), *OPTIONS, "hi", *named)
        assert done.code == 2 and not done.out
        assert "--lora none leaves adapters out; name no other beside it" in done.err


def test_an_adapter_in_the_place_of_a_model(cli: Run, folder: Path) -> None:
    for command in (("generate", "-m", "style.gguf", "hi"), ("pair", "style.gguf")):
        done = cli(*command)
        assert done.code == 5 and done.err.count("\n") == 1
        assert "style.gguf is an adapter, not a model; pass the model that it was" in done.err
    shown = cli("show", "style.gguf")
    line = "adapter       LoRA of rank 4, 15 matrices of architecture llama, alpha 8 (--lora)"
    assert shown.code == 0 and line in shown.out and "chat template" not in shown.out
    found = json.loads(cli("show", "style.gguf", "--json").out)["adapter"]
    assert (found["rank"], found["alpha"], len(found["matrices"])) == (4, 8.0, 15)
    assert json.loads(cli("show", str(tiny_model("llama")), "--json").out)["adapter"] is None


def test_a_plan_with_an_adapter_is_not_stored(cli: Run, folder: Path) -> None:
    prompts = folder / "prompts.txt"
    prompts.write_text("\n---\n".join(f"an br {n}" for n in range(4)))
    done = cli(
        *("plan", "-m", str(tiny_model("llama")), "--draft", "suffix", "--lora", "style.gguf:0.5"),
        *("--prompts", str(prompts), "--answers", "3", "--tokens", "16", "--ctx", "256"),
    )
    assert done.code == 0, done.err
    assert "not stored, as it holds only with lora style.gguf:0.5" in done.err


def test_a_benchmark_says_the_adapters(cli: Run, folder: Path) -> None:
    prompts = folder / "prompts.txt"
    prompts.write_text("an br")
    asked = ("--prompts", str(prompts), "--rounds", "1", "--tokens", "8", "--verify", "--json")
    done = cli("bench", "-m", str(tiny_model("llama")), "--lora", "style.gguf:0.5", *asked)
    assert done.code == 0, done.err
    assert json.loads(done.out)["conditions"]["adapters"] == ["style.gguf:0.5"]


def test_every_command_that_loads_a_target_has_it() -> None:
    runner = CliRunner()
    for command in ("generate", "chat", "serve", "bench", "plan", "audit"):
        assert "--lora FILE[:SCALE]|none" in runner.invoke(localspec, [command, "--help"]).output
