"""Heads that draft blocks as drafters of the engine: what other kinds do not have."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.dflash import KINDS, SHAPES, write_block_head
from fakes.drafter_kinds import EXACT, PROMPT
from fakes.eagle3 import write_target
from fakes.pycode import load
from fakes.tiny import write_tiny

from localspec.control.explanation import Explanation
from localspec.engine.engine import Engine
from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.llama.context import Context
from localspec.speculation.passes import Pass, Scores


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The target, and heads by their kind."""
    folder: Path = tmp_path_factory.mktemp("blocks")
    heads = {
        kind: write_block_head(folder / f"{kind.replace(' ', '-')}.gguf", shape)
        for kind, (shape, _) in KINDS.items()
    }
    return {"target": write_target(folder / "target.gguf"), **heads}


@pytest.fixture(scope="module")
def plain(files: dict[str, Path]) -> Iterator[Engine]:
    with load(files["target"], draft="none", **EXACT) as engine:
        yield engine


@pytest.fixture(scope="module", params=[kind for kind in KINDS if "scaled" not in kind])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared_engine(files: dict[str, Path], kind: str) -> Iterator[Engine]:
    with load(files["target"], draft=files[kind], **EXACT) as engine:
        yield engine


def test_sections_and_none_draft_the_same(files: dict[str, Path], tmp_path: Path) -> None:
    """For text, all sections have the same position."""
    made: list[list[int]] = []
    for name in ("own matrices", "sections"):
        shape = replace(SHAPES["own matrices"], sections=name == "sections")
        head = write_block_head(tmp_path / f"{name}.gguf", shape)
        with load(files["target"], draft=head, **EXACT) as engine:
            found = engine.generate(PROMPT, max_tokens=40, temperature=1, seed=1, depth=8)
            made.append([found.stats.drafted, found.stats.accepted, *found.token_ids])
    assert made[0] == made[1]


def test_drafts_go_on_to_the_end_of_the_context(shared_engine: Engine, plain: Engine) -> None:
    prompt = [1, *(3 + i % 200 for i in range(219))]
    options = {"max_tokens": 100, "temperature": 0, "ignore_eos": True}
    expected = plain.generate(prompt, **options)
    found = shared_engine.generate(prompt, depth=8, **options)
    assert found.token_ids == expected.token_ids
    assert len(prompt) + len(found.token_ids) >= 255


def test_a_draft_costs_one_pass_at_any_depth(
    shared_engine: Engine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [sequence] = shared_engine.drafter_set.sequences.values()
    widths, usual = list[int](), Context.decode

    def counted(self: Context, passes: Sequence[Pass]) -> list[Scores]:
        widths.append(len(passes[0]))
        return usual(self, passes)

    monkeypatch.setattr(Context, "decode", counted)
    [measured] = shared_engine.drafter_set.measured.values()
    seconds = measured.seconds()
    assert seconds.further == 0.0 < seconds.reading < seconds.first
    # Blocks, and chunks of a text; no pass of single tokens.
    assert min(widths) == sequence.context.block_size
    assert not sequence.tokens


def test_auto_chooses_no_depth_beyond_a_block(
    files: dict[str, Path], kind: str, plain: Engine
) -> None:
    with load(files["target"], draft=files[kind], **EXACT) as engine:
        options = {"max_tokens": 120, "temperature": 1, "seed": 2, "ignore_eos": True}
        explained: list[Explanation] = []
        found = engine.generate(PROMPT, explain=explained.append, **options)
        assert found.token_ids == plain.generate(PROMPT, **options).token_ids
        assert {each.drafter for each in explained} <= {None, files[kind].stem}
        [drafter] = engine.drafter_set.drafters
        assert max(each.depth for each in explained) <= (drafter.traits.deepest or 0)


# What is refused.


@pytest.mark.parametrize("family", ["gpt2", "gemma3", "mamba"])
def test_a_target_without_hidden_states_is_refused_in_words(tmp_path: Path, family: str) -> None:
    target = write_tiny(tmp_path / "target.gguf", family)
    head = write_block_head(tmp_path / "head.gguf", reads=(0, 1, 1), family=family)
    with pytest.raises(DrafterMismatchError, match=r"head\.gguf cannot draft for target\.gguf"):
        load(target, draft=head, **EXACT)


def test_a_head_for_another_vocabulary_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    head = write_block_head(tmp_path / "head.gguf", family="qwen35")
    with pytest.raises(DrafterMismatchError, match="vocabulary"):
        load(files["target"], draft=head, **EXACT)


def test_a_head_is_no_target(files: dict[str, Path], kind: str) -> None:
    with pytest.raises(ModelLoadError, match="draft head"):
        load(files[kind], **EXACT)
