"""What passes would take without flash attention, and the option that turns it off."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.command_line import localspec
from fakes.mamba import write_mamba
from fakes.pycode import PYCODE, load

from localspec.engine.engine import Engine
from localspec.errors import ModelLoadError
from localspec.forecast import without_flash as module
from localspec.forecast.without_flash import WIDTHS, without_flash
from localspec.llama import pass_timing
from localspec.llama.sequence import KVSequence
from localspec.loading.config import RuntimeConfig

TEXT = [3 + number % 200 for number in range(40)]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with load(draft="none", threads=1, context=256) as loaded:
        yield loaded


def test_without_over_with(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The times are those of both ways behind the text, and the ratio is not turned round."""
    asked: list[tuple[bool, int, int]] = []

    def seconds(sequence: KVSequence, rows: int) -> float:
        off = sequence.context.params.flash_attention is False
        asked.append((off, rows, len(sequence.tokens)))
        return (0.5 if off else 1.0) * rows if rows > 1 else 1.0

    for each in (module, pass_timing):
        monkeypatch.setattr(each, "seconds_of_pass", seconds)
    found = without_flash(engine, TEXT)
    assert found and found.tokens == len(TEXT)
    assert found.passes == {1: 1.0, 4: 0.5, 8: 0.5} and found.reading > 0
    assert {rows for _, rows, _ in asked} == {*WIDTHS}
    # The first passes of both are not counted, and the others are behind the text.
    assert [length for *_, length in asked[:2]] == [0, 0]
    assert {length for *_, length in asked[2:]} == {len(TEXT)}


def test_real_passes_are_measured_and_nothing_is_left(engine: Engine) -> None:
    before = engine.generate("import", max_tokens=8, seed=1).token_ids
    found = without_flash(engine, TEXT)
    assert found and found.passes.keys() == {*WIDTHS}
    assert all(0 < ratio < 1000 for ratio in (*found.passes.values(), found.reading))
    assert engine.generate("import", max_tokens=8, seed=1).token_ids == before


@pytest.mark.parametrize(
    "options",
    [
        {"flash_attention": False},
        {"flash_attention": True},
        {"reproducible": True},
        {"kv_type": "q8_0"},
    ],
)
def test_where_it_is_off_or_needed_nothing_is_compared(options: dict[str, Any]) -> None:
    with load(draft="none", threads=1, context=256, **options) as loaded:
        assert without_flash(loaded, TEXT) is None


def test_a_running_state_is_not_compared(tmp_path: Path) -> None:
    model = write_mamba(tmp_path / "mamba.gguf", PYCODE.target)
    with load(model, draft="none", threads=1, context=256) as loaded:
        assert without_flash(loaded, TEXT) is None


def test_no_room_for_the_caches(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: object, **_options: object) -> KVSequence:
        raise ModelLoadError("no room")

    monkeypatch.setattr(RuntimeConfig, "context_for", refused)
    assert without_flash(engine, TEXT) is None


# The option.


def test_a_text_without_it_has_it_in_its_recipe_and_is_audited() -> None:
    ask = ("generate", "-m", str(PYCODE.target), "--raw", "def f(x):", "-n", "12", "--seed", "3")
    done = localspec(*ask, "--draft", "suffix", "--flash-attn", "off", "--json")
    assert done.code == 0
    record = json.loads(done.out)
    assert record["recipe"]["flash_attention"] is False
    audited = localspec("audit", "-", stdin=done.out)
    assert audited.code == 0, audited.err
    plain = localspec(*ask, "--draft", "none", "--flash-attn", "off", "--json")
    assert json.loads(plain.out)["token_ids"] == record["token_ids"]


@pytest.mark.parametrize(
    ("option", "expected"), [((), None), (("on",), True), (("auto",), None), (("off",), False)]
)
def test_the_option_is_in_the_recipe(option: tuple[str, ...], expected: bool | None) -> None:
    given = ("--flash-attn", *option) if option else ()
    ask = ("generate", "-m", str(PYCODE.target), "--draft", "none", "--raw", "a", "-n", "1")
    done = localspec(*ask, "--json", *given)
    assert done.code == 0 and json.loads(done.out)["recipe"]["flash_attention"] is expected


def test_a_quantised_cache_needs_it() -> None:
    done = localspec("generate", "--flash-attn", "off", "--kv-type", "q8_0", "hi")
    assert done.code == 2
    said = "--kv-type q8_0 needs flash attention for its values, and --flash-attn off turns it off"
    assert said in done.err


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_FLASH_ATTN", "off")
    ask = ("generate", "-m", str(PYCODE.target), "--draft", "none", "--raw", "a", "-n", "1")
    assert json.loads(localspec(*ask, "--json").out)["recipe"]["flash_attention"] is False
    monkeypatch.setenv("LOCALSPEC_FLASH_ATTN", "perhaps")
    done = localspec(*ask)
    assert done.code == 2 and "LOCALSPEC_FLASH_ATTN is 'perhaps'" in done.err
