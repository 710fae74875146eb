"""Sampler settings for llama.cpp's programs, read back by our server, which takes its members."""

import pytest

from localspec.bench.peer_sampling import command_words
from localspec.sampling.params import SamplingParams
from localspec.sampling.request_members import request_members
from localspec.server.fields import Fields
from localspec.server.options import settings_of

SETTINGS = {
    "defaults": SamplingParams(),
    "dry": SamplingParams(dry_multiplier=0.8, dry_base=2, dry_penalty_last_n=-1),
    "no breakers": SamplingParams(dry_multiplier=0.8, dry_sequence_breakers=()),
    "xtc": SamplingParams(xtc_probability=0.5, xtc_threshold=0.2),
    "by the spread": SamplingParams(top_n_sigma=1.5, dynatemp_range=0.4, dynatemp_exponent=2),
    "mirostat": SamplingParams(mirostat=2, mirostat_tau=3, mirostat_eta=0.2),
    "adaptive": SamplingParams(adaptive_target=0.5, adaptive_decay=0.8),
    "adaptive, at 0": SamplingParams(adaptive_target=0),
    "others": SamplingParams(
        temperature=0, typical_p=0.5, repeat_penalty=1.2, presence_penalty=0.1, penalty_window=-1
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_request_has_the_settings(name: str) -> None:
    params = SETTINGS[name]
    members = request_members(params)
    read = settings_of(Fields(members), {}, lambda _: []).params({})
    if name == "no breakers":
        # llama-server takes no empty list, so that it has its own.
        assert "dry_sequence_breakers" not in members
        return
    for field in SamplingParams.__slots__:
        given, found = getattr(params, field), getattr(read, field)
        assert list(given) == list(found) if "breakers" in field else given == found, field


def test_a_command_line_has_the_settings_in_llama_cpps_options() -> None:
    words = command_words(SETTINGS["others"], 512)
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options == {
        "--temp": "0",
        "--top-k": "40",
        "--top-p": "0.95",
        "--min-p": "0.05",
        "--typical": "0.5",
        "--repeat-penalty": "1.2",
        "--frequency-penalty": "0.0",
        "--presence-penalty": "0.1",
        "--repeat-last-n": "512",
        "--xtc-probability": "0.0",
        "--xtc-threshold": "0.1",
        "--mirostat": "0",
    }
    xtc = command_words(SETTINGS["xtc"], 512)
    assert xtc[-6:-2] == ["--xtc-probability", "0.5", "--xtc-threshold", "0.2"]
    mirostat = command_words(SETTINGS["mirostat"], 512)
    assert mirostat[-6:] == [
        *("--mirostat", "2"),
        *("--mirostat-ent", "3"),
        *("--mirostat-lr", "0.2"),
    ]
    adaptive = command_words(SETTINGS["adaptive"], 512)
    assert adaptive[-6:] == [
        *("--adaptive-target", "0.5"),
        *("--adaptive-decay", "0.8"),
        "--samplers",
        "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature;adaptive_p",
    ]
    spread = command_words(SETTINGS["by the spread"], 512)
    assert spread[-6:] == [
        *("--dynatemp-range", "0.4"),
        *("--dynatemp-exp", "2"),
        *("--top-n-sigma", "1.5"),
    ]
    dry = command_words(SETTINGS["dry"], 512)
    assert dry[dry.index("--dry-penalty-last-n") + 1] == "512"
    assert [dry[at + 1] for at, word in enumerate(dry) if word == "--dry-sequence-breaker"] == [
        "\n",
        ":",
        '"',
        "*",
    ]
    none = command_words(SETTINGS["no breakers"], 512)
    assert none[-2:] == ["--dry-sequence-breaker", "none"]
