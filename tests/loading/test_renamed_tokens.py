"""A draft model in whose vocabulary a special token has another name drafts by token ids."""

from pathlib import Path
from typing import Any

import pytest
from fakes.rewritten import rewritten

import localspec
from localspec.gguf.facts import facts_of
from localspec.gguf.vocabulary import HeaderVocabulary
from localspec.models import registry


@pytest.mark.parametrize("rule", ["coupled", "block"])
def test_it_drafts_by_ids_and_changes_nothing(tmp_path: Path, own_cache: None, rule: str) -> None:
    target, drafter = registry.bundled()
    vocabulary = HeaderVocabulary(facts_of(target).header)
    texts = map(vocabulary.token_text, range(5, vocabulary.n_vocab))
    special = next(i for i, text in enumerate(texts, 5) if text == b"<?>")
    renamed = tmp_path / "renamed.gguf"

    def tokens(known: list[str]) -> list[str]:
        return [*known[:special], "<|user|>", *known[special + 1 :]]

    rewritten(drafter, renamed, tokens=tokens)
    settings: dict[str, Any] = {"max_tokens": 40, "seed": 3, "depth": 4, "ignore_eos": True}
    results = []
    for each in (drafter, renamed):
        with localspec.load(target, draft=str(each), threads=1) as engine:
            assert not any("through text" in note for note in engine.notes)
            results.append(engine.generate("list all files", rule=rule, **settings))
    # The same drafts, so also under a rule that keeps only the distribution.
    assert results[0].token_ids == results[1].token_ids
    assert results[0].stats.accepted_per_position == results[1].stats.accepted_per_position
    assert results[1].stats.accepted > 0
