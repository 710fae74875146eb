"""Broken models and heads by the hundred: each is refused in one line, or survived."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from fakes import families
from fakes.broken_gguf import broken
from fakes.gguf_document import parse
from fakes.stateful import examples
from fakes.tiny import FAMILIES, write_tiny

from localspec.errors import ModelLoadError
from localspec.gguf.check import check_generative

if sys.platform == "win32":
    pytest.skip("needs limits of memory", allow_module_level=True)

from fakes.broken_heads import BrokenHeads
from fakes.loader import Loader
from fuzz.campaign import Campaign
from fuzz.numbers import numbers

# A quick look unless .ci/run asks for more examples.
FILES, HEADS = min(2000, 30 * examples(20)), min(500, examples(26))


@pytest.fixture
def loader() -> Iterator[Loader]:
    loader = Loader()
    yield loader
    loader.close()


def refusal(path: Path) -> str | None:
    """What the checks say; nothing else may come out of them."""
    try:
        check_generative(path)
    except ModelLoadError as error:
        return str(error)
    return None


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tiny_models_are_sound(family: str, tmp_path: Path, loader: Loader) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", family)
    assert refusal(path) is None
    assert loader.load(path) == ["decoded", "decoded"]
    path.write_bytes(parse(path).assembled())
    assert loader.load(path) == ["decoded", "decoded"]


def test_a_model_with_another_number_is_refused_or_survived() -> None:
    with numbers() as case:
        campaign = Campaign().run(case, range(0, 1840, 37))
    assert not campaign.faults, campaign.report()
    assert {*campaign.ends} == {"refused", "not loaded", "decoded"}, campaign.ends


@pytest.mark.slow
def test_a_broken_model_is_refused_or_survived(tmp_path: Path, loader: Loader) -> None:
    documents = [parse(write_tiny(tmp_path / f"{family}.gguf", family)) for family in FAMILIES]
    documents += [parse(families.target(family)) for family in ("gemma4", "gpt-oss", "phi3")]
    path = tmp_path / "broken.gguf"
    ends, fatal = Counter[str](), {}
    for number in range(FILES):
        path.write_bytes(broken(documents[number % len(documents)], Random(number)))
        message = refusal(path)
        if message is not None:
            assert message.isprintable()
            assert path.name in message
            assert len(message) < len(str(path)) + 300
            ends["refused"] += 1
            continue
        try:
            answers = loader.load(path)
        except AssertionError as error:
            fatal[number] = str(error)
            continue
        ends["decoded" if answers == ["decoded"] * 2 else "not loaded"] += 1
        if any("alloc" in answer for answer in answers):
            fatal[number] = f"asks for too much memory: {answers}"
    assert fatal == {}
    # The damage is neither harmless nor so coarse that nothing reaches the library.
    assert min(ends[end] for end in ("refused", "not loaded", "decoded")) > 0.07 * FILES, ends


@pytest.mark.slow
def test_a_broken_head_is_refused_in_one_line_or_drafts(tmp_path: Path) -> None:
    heads = BrokenHeads(tmp_path)
    heads.run(HEADS)
    heads.close()
    assert heads.wrong == {}
    assert min(heads.ends[end] for end in ("drafted", "refused")) > 0.15 * HEADS, heads.ends
