"""Texts kept from one engine to the next: only when asked for, and gone when told to."""

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.indexed import indexed
from fakes.past_texts import add, loaded
from fakes.pycode import load

from localspec.conversation.session import Session
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix_store import default_folder
from localspec.engine.state_store import StateStore

PROMPT = "class Reader:\n    def read(self"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))


def generate(*, remember: bool, seed: int = 3) -> tuple[list[int], int]:
    """The token ids, and how many of them a draft of depth 8 got right."""
    with load(draft="suffix", threads=1, flash_attention=True, remember=remember) as engine:
        result = engine.generate(PROMPT, max_tokens=40, seed=seed, depth=8)
    return result.token_ids, result.stats.accepted


def test_what_was_kept_is_copied_from_and_changes_nothing() -> None:
    first, accepted = generate(remember=True)
    again, accepted_again = generate(remember=True)
    assert again == first
    assert accepted_again > 30 > accepted
    # Who does not ask gets none of it.
    assert generate(remember=False) == (first, accepted)


def test_nothing_is_kept_unless_asked_for() -> None:
    generate(remember=False)
    assert not default_folder().exists()


def test_nothing_is_kept_where_nothing_drafts() -> None:
    with load(draft="none", threads=1, remember=True) as engine:
        engine.generate("def f(", max_tokens=4)
    assert not default_folder().exists()


def test_each_text_of_an_engine_is_kept() -> None:
    with load(draft="suffix", threads=1, remember=True) as engine:
        for prompt in ("def f(", "class A:"):
            engine.generate(prompt, max_tokens=8)
        earlier = engine.drafter_set.earlier
        assert earlier and earlier.store
    starts = [text[:3] for text in loaded(earlier.store)]
    assert len(starts) == 2 and starts[0] != starts[1]


def accepted_beside(asked: list[str]) -> list[int]:
    """How many tokens of each text copies got right, each written in a slot of its own."""
    with load(draft="suffix", threads=1, flash_attention=True, texts=len(asked)) as engine:
        sessions = [Session(engine, max_tokens=40, seed=3) for _ in asked]
        answers = []
        for session, prompt in zip(sessions, asked, strict=True):
            answers.append(session.send(prompt, depth=8))
            answers[-1].result()
        for session in sessions:
            session.close()
        alone = [
            engine.generate([{"role": "user", "content": prompt}], max_tokens=40, seed=3, depth=0)
            for prompt in asked
        ]
    assert [each.result().content for each in answers] == [each.text for each in alone]
    return [each.stats.accepted for each in answers]


def test_a_text_copies_from_those_that_ended_beside_it() -> None:
    same, other = "def read(path):", "class Matrix:\n    def"
    first, again = accepted_beside([same, same])
    assert again > 30 > first
    _, different = accepted_beside([other, same])
    assert different < 30


ASKED = ["class Reader:", "def read(path):", "import json\n", "class Matrix:\n    def"]


def drafted_after_others(monkeypatch: pytest.MonkeyPatch, *, drawn: bool) -> tuple[int, int]:
    """How many tokens were drafted, and right, in slots that answer what others have answered.

    drawn: what the tokens of the others were drawn from is known.
    """
    if not drawn:
        add = EarlierTexts.add
        monkeypatch.setattr(EarlierTexts, "add", lambda self, text, _: add(self, text))
    options = {"max_tokens": 60, "temperature": 0.8}
    texts = 2 * len(ASKED)
    with load(draft="suffix", threads=1, flash_attention=True, texts=texts) as engine:
        sessions = [Session(engine, seed=seed, **options) for seed in (3, 4) for _ in ASKED]
        answers = []
        for session, prompt in zip(sessions, 2 * ASKED, strict=True):
            answers.append(session.send(prompt, depth=8))
            answers[-1].result()
        for session in sessions:
            session.close()
        earlier = engine.drafter_set.earlier
        assert earlier
        require_known(earlier, drawn=drawn)
        alone = [
            engine.generate([{"role": "user", "content": prompt}], seed=4, depth=0, **options)
            for prompt in ASKED
        ]
    answers = answers[len(ASKED) :]
    assert [each.result().content for each in answers] == [each.text for each in alone]
    return sum(each.stats.drafted for each in answers), sum(each.stats.accepted for each in answers)


def require_known(earlier: EarlierTexts, *, drawn: bool) -> None:
    """A token is nearly always one of those that were likely where it was drawn."""
    texts, drawn_from = earlier.up_to_date()
    found = [(token, drawn_from.choice_at(place)) for place, token in enumerate(texts.tokens)]
    inside = [token in choice.ids for token, choice in found if choice]
    assert sum(inside) > 0.9 * len(inside) if drawn else not inside
    assert not drawn or len(inside) > 100


def test_what_is_copied_from_another_slot_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    drafted, accepted = drafted_after_others(monkeypatch, drawn=True)
    assert 0 < accepted < drafted
    _, copied = drafted_after_others(monkeypatch, drawn=False)
    assert accepted > copied


def written_in_runs(*, drawn: bool) -> tuple[list[str], int]:
    """Texts of a second run, and how many tokens were right that were copied from the first one.

    drawn: what the tokens of the first run were drawn from is on the disk.
    """
    for seed in (3, 4):
        with load(draft="suffix", threads=1, flash_attention=True, remember=True) as engine:
            results = [
                engine.generate(prompt, seed=seed, depth=8, max_tokens=60, temperature=0.8)
                for prompt in ASKED
            ]
            earlier = engine.drafter_set.earlier
            assert earlier and earlier.store
            if seed == 4:
                require_known(earlier, drawn=drawn)
        if not drawn:
            texts = loaded(earlier.store)
            earlier.store.clear()
            add(earlier.store, *texts)
    return [each.text for each in results], sum(each.stats.accepted for each in results)


def test_what_is_copied_from_an_earlier_run_is_drawn_anew() -> None:
    texts, accepted = written_in_runs(drawn=True)
    default_folder().rename(default_folder().with_name("first"))
    same, copied = written_in_runs(drawn=False)
    assert accepted > copied > 0
    with load(draft="suffix", threads=1, flash_attention=True) as engine:
        alone = [
            engine.generate(prompt, seed=4, depth=0, max_tokens=60, temperature=0.8).text
            for prompt in ASKED
        ]
    assert texts == same == alone


def test_a_text_that_nobody_copies_from_is_not_put_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    added = list[object]()
    monkeypatch.setattr(EarlierTexts, "add", lambda _, *text: added.append(text))
    with load(draft="suffix", threads=1) as engine:
        engine.generate(PROMPT, max_tokens=4)
        assert not added
        sessions = [Session(engine, max_tokens=4) for _ in range(2)]
        sessions[0].send(PROMPT).result()
        assert added
        for session in sessions:
            session.close()


def test_texts_of_one_call_copy_from_each_other() -> None:
    """Each has a slot that is made for it. Their texts do not depend on their company."""
    with load(draft="suffix", threads=1, reproducible=True) as engine:
        options = {"max_tokens": 40, "seed": 3, "depth": 8}
        engine.generate([PROMPT, "class A:"], **options)
        again = engine.generate(["class B:", PROMPT], **options)[1]
    assert again.stats.accepted > 30


def test_earlier_texts_are_copied_from_the_latest_that_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("localspec.loading.copy_sources.KEPT_TOKENS", 12)
    texts = ["one two three four five six", "class Reader:", "def f(x):"]
    with load(draft="suffix", threads=1, earlier_texts=texts) as engine:
        assert engine.drafter_set.earlier
        kept = [engine.detokenize(tokens) for tokens in indexed(engine.drafter_set.earlier)]
    assert [each.strip() for each in kept[1:]] == texts[1:]
    assert texts[0].endswith(kept[0].strip()) and 0 < len(kept[0]) < len(texts[0])


def test_forget_deletes_all_of_it() -> None:
    generate(remember=True)
    with load(threads=1) as engine, Session(engine, max_tokens=4) as session:
        session.send(PROMPT).result()
        assert session.save_state("mine") is None
    states = StateStore().folder
    assert list(states.glob("*.state"))
    assert list(default_folder().glob("*.tokens"))
    done = subprocess.run(
        [sys.executable, "-m", "localspec", "forget"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "" and done.stderr.startswith("localspec: all stored texts in ")
    assert f"{default_folder()} " in done.stderr and str(states) in done.stderr
    assert not list(states.iterdir())
    assert not list(default_folder().glob("*.tokens"))


def test_a_cache_that_cannot_be_written_is_said_and_harmless(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with load(draft="suffix", threads=1, remember=True) as engine:
        engine.generate(PROMPT, max_tokens=8)
        earlier = engine.drafter_set.earlier
        assert earlier
    assert earlier.problem
    assert "past texts cannot be stored" in earlier.problem
