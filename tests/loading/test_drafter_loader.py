"""Which drafters a target gets, and the reason when it gets none."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llama_cpp
import pytest
from fakes.mamba import write_mamba
from fakes.pycode import load
from fakes.toy import Repeat

import localspec
from localspec.drafters.suffix import Suffix
from localspec.errors import (
    DrafterMismatchError,
    InvalidValueError,
    ModelLoadError,
    ModelNotFoundError,
)
from localspec.llama.model import Model
from localspec.loading.drafter_set import DrafterSet, SequenceDrafter
from localspec.loading.loaded_drafter import LoadedDrafter
from localspec.models import own_drafters, registry
from localspec.models.listed_drafter import ListedDrafter
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Traits
from localspec.speculation.passes import Passes


@pytest.fixture(scope="module")
def mamba(tmp_path_factory, target_path) -> Path:  # type: ignore[no-untyped-def]
    return write_mamba(tmp_path_factory.mktemp("models") / "mamba.gguf", target_path)


def drafters_of(draft: Any, model: Path | None = None) -> DrafterSet:
    """The drafter set for these options, already closed."""
    with load(model, draft, threads=1, context=64) as engine:
        return engine.drafter_set


def test_the_bundled_target_gets_its_own_drafter_too(drafter_path: Path) -> None:
    with load() as engine:
        assert engine.drafter_set.names == ["suffix", drafter_path.stem]
        assert engine.drafter_set.one_hot == ["suffix"]
        assert engine.drafter_set.model_paths == [drafter_path]
        assert engine.drafter_set.reason is None


def test_an_unknown_target_gets_suffix_and_the_reason(tmp_path: Path, target_path: Path) -> None:
    drafter_set = drafters_of("auto", Path(shutil.copy(target_path, tmp_path / "unknown.gguf")))
    assert drafter_set.names == ["suffix"]
    assert drafter_set.model_paths == []
    assert drafter_set.reason == "no drafter is known for unknown.gguf"


def test_the_reason_names_a_known_drafter_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target_path: Path
) -> None:
    """`auto` continues without the known drafter."""
    (tmp_path / "cut.gguf").write_bytes(target_path.read_bytes()[:10_000])
    bundled = registry.bundled()
    listed = ListedDrafter(file=tmp_path / "cut.gguf")
    pair = registry.Pair(name="cut", target=bundled.target, drafters=(listed,))
    monkeypatch.setattr(own_drafters, "pair_of", lambda _target: pair)
    drafter_set = drafters_of("auto")
    assert drafter_set.names == ["suffix"]
    assert drafter_set.reason is not None
    assert drafter_set.reason.startswith(f"{tmp_path / 'cut.gguf'} cannot be used: ")
    assert "is truncated" in drafter_set.reason


@pytest.mark.parametrize("draft", ["none", ["none"], ("none",)])
def test_none_is_none(draft: str | Sequence[str]) -> None:
    drafter_set = drafters_of(draft)
    assert drafter_set.drafters == ()
    assert drafter_set.sequences == {}
    assert drafter_set.reason == "drafting was turned off"


@pytest.mark.parametrize(
    ("draft", "names"),
    [
        ("suffix", ["suffix"]),
        ("lookup,ngram", ["lookup", "ngram"]),
        ("ngram,lookup", ["ngram", "lookup"]),
        # Cheap drafters come first, in any order of the names.
        ("{model},suffix", ["suffix", "{stem}"]),
        ("lookup,{model},ngram", ["lookup", "ngram", "{stem}"]),
        ("auto,lookup", ["lookup", "suffix", "{stem}"]),
        # A name given twice counts once.
        ("suffix,suffix", ["suffix"]),
        ("ngram,suffix,ngram", ["ngram", "suffix"]),
        ("auto,suffix", ["suffix", "{stem}"]),
        ("auto,auto", ["suffix", "{stem}"]),
    ],
)
def test_several_with_commas_or_as_a_list(drafter_path: Path, draft: str, names: list[str]) -> None:
    """Names and the path of a GGUF, with commas, as a list and as a nested list."""
    expected = [name.format(stem=drafter_path.stem) for name in names]
    written = draft.format(model=drafter_path)
    first, *others = written.split(",")
    for choices in (written, written.split(","), tuple(written.split(",")), [first, others]):
        drafter_set = drafters_of(choices)
        assert drafter_set.names == expected
        assert drafter_set.reason is None
        free = [name for name in expected if name != drafter_path.stem]
        assert drafter_set.one_hot == free
        assert (drafter_set.model_paths == [drafter_path]) is (drafter_path.stem in expected)


def test_a_named_model_replaces_the_known_one(target_path: Path) -> None:
    """`auto` adds no other draft model, at any position."""
    for choices in (["auto", target_path], [target_path, "auto"]):
        drafter_set = drafters_of(choices)
        assert drafter_set.names == ["suffix", target_path.stem]
        assert drafter_set.model_paths == [target_path]


def test_a_custom_drafter_among_others(drafter_path: Path) -> None:
    own = Repeat()
    drafter_set = drafters_of([own, "lookup", str(drafter_path)])
    assert drafter_set.names == ["lookup", "repeat", drafter_path.stem]
    assert drafter_set.drafters[1].drafter is own  # type: ignore[attr-defined]
    assert drafter_set.one_hot == ["lookup", "repeat"]


def test_a_custom_drafter_may_yield_passes() -> None:
    class Silent(Repeat):
        name = "silent"

        def passes(self, limit: Limit) -> Passes[Draft]:
            yield from ()
            return Draft([self.last] * limit.depth)

        def __getattribute__(self, member: str) -> Any:
            if member == "propose":
                raise AttributeError(member)
            return super().__getattribute__(member)

    with load(draft=Silent(), threads=1, context=128) as engine:
        result = engine.generate([7, 8, 9], max_tokens=6, depth=2, logit_bias={9: 1e3})
    assert result.origins == ["silent", "silent", "bonus"] * 2


def test_the_first_with_a_proposal_drafts(drafter_path: Path) -> None:
    """At a fixed depth, the model drafts until suffix has something to copy."""
    with load(draft=["lookup", Repeat()], threads=1, context=128) as engine:
        options = {"max_tokens": 9, "depth": 2, "logit_bias": {9: 1e3}}
        result = engine.generate([7, 8, 9], **options)  # type: ignore[arg-type]
    first, *others = [result.origins[i : i + 3] for i in range(0, 9, 3)]
    assert first == ["repeat", "repeat", "bonus"]
    assert others == [["lookup", "lookup", "bonus"]] * 2


@pytest.mark.parametrize("name", ["a,b.gguf", "suffix,lookup"])
def test_a_path_may_hold_a_comma(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drafter_path: Path, name: str
) -> None:
    """The path of an existing file is not split at commas, also within a list."""
    path = Path(shutil.copy(drafter_path, tmp_path / name))
    for choices in (str(path), path, [str(path)]):
        assert drafters_of(choices).names == [path.stem]
    assert drafters_of(["ngram", str(path)]).names == ["ngram", path.stem]
    monkeypatch.chdir(tmp_path)
    drafter_set = drafters_of(name)
    assert drafter_set.names == [path.stem]
    assert drafter_set.model_paths == [Path(name)]


def test_two_models_draft(drafter_path: Path, target_path: Path) -> None:
    """Each has its own cache; at a fixed depth the first one drafts."""
    for draft in (f"{drafter_path},{target_path}", [drafter_path, "suffix", target_path]):
        with load(draft=draft, threads=1, context=128) as engine:
            drafter_set = engine.drafter_set
            assert drafter_set.model_paths == [drafter_path, target_path]
            assert len({*map(id, drafter_set.sequences.values())}) == 2
            first = engine.generate("def f(x):", max_tokens=12, depth=2, seed=1)
            auto = engine.generate("def f(x):", max_tokens=12, seed=1)
        assert drafter_path.stem in first.origins
        assert auto.token_ids == first.token_ids


def test_a_model_that_is_named_twice_is_loaded_once(drafter_path: Path) -> None:
    assert drafters_of([drafter_path, drafter_path]).model_paths == [drafter_path]


def test_two_models_of_one_name_are_refused(drafter_path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(drafter_path, tmp_path))
    with pytest.raises(InvalidValueError, match=f"two drafters called '{drafter_path.stem}'"):
        load(draft=[drafter_path, copy])


@pytest.mark.parametrize("member", ["name", "traits", "begin", "propose", "observe"])
def test_the_member_that_a_drafter_lacks_is_named(member: str) -> None:
    members = {name: None for name in ("name", "traits", "begin", "propose", "observe")}
    del members[member]
    with pytest.raises(InvalidValueError, match=f"which has no {member}; choose auto"):
        load(draft=SimpleNamespace(**members))  # type: ignore[arg-type]


@pytest.mark.parametrize("draft", ["none,suffix", "auto,none", ["none", Repeat()], "nothing,none"])
def test_none_and_something_else_is_refused(draft: Any) -> None:
    """For every other value."""
    with pytest.raises(InvalidValueError, match="names none and something else; choose one"):
        load(draft=draft)


def test_if_one_is_refused_none_is_loaded(
    drafter_path: Path, target_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafters that were already loaded are freed."""
    closed: list[Path] = []
    close = Model.close

    def closing(model: Model) -> None:
        closed.append(model.path)
        close(model)

    monkeypatch.setattr(Model, "close", closing)
    with pytest.raises(ModelNotFoundError, match="there is no model 'nothing'"):
        load(draft=f"suffix,{drafter_path},nothing")
    assert not closed  # all files are found before any model is loaded
    copy = Path(shutil.copy(drafter_path, tmp_path))
    with pytest.raises(InvalidValueError, match="two drafters called"):
        load(draft=[drafter_path, copy])
    assert {*closed} == {drafter_path, copy, target_path}
    with pytest.raises(ModelNotFoundError, match=r"nowhere\.gguf"):
        load(draft=["suffix", tmp_path / "nowhere.gguf"])
    with pytest.raises(
        InvalidValueError, match="it needs name, traits, begin, propose and observe"
    ):
        load(draft=["suffix", 3])  # type: ignore[list-item]


def test_a_recurrent_target_is_drafted_for_like_any_other(mamba: Path) -> None:
    options = {"max_tokens": 24, "seed": 3}
    with load(mamba, "none", threads=1) as plainly, load(mamba, threads=1) as engine:
        assert engine.drafter_set.names == ["suffix"]
        plain = plainly.generate("def f(x):", **options)
        first = engine.generate("def f(x):", depth=3, **options)
        again = engine.generate("def f(x):", depth=3, **options)
    assert set(plain.origins) == {"plain"}
    assert again.token_ids == first.token_ids == plain.token_ids
    # It returns to the mark at the end of the prompt.
    assert again.stats.prompt_evaluated == 1


@pytest.fixture
def no_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cannot copy a running state."""
    monkeypatch.setattr(llama_cpp, "llama_state_seq_get_size_ext", lambda *_args: 0)


@pytest.mark.usefixtures("no_checkpoints")
def test_a_state_that_cannot_be_copied_is_decoded_plainly(mamba: Path) -> None:
    with load(mamba) as engine:
        assert engine.drafter_set.drafters == ()
        assert engine.drafter_set.reason == "this model's cache can forget only everything at once"
        result = engine.generate("def f(x):", max_tokens=8, seed=3)
    assert set(result.origins) == {"plain"}


@pytest.mark.usefixtures("no_checkpoints")
@pytest.mark.parametrize("draft", ["suffix", "lookup", "ngram", "lookup,ngram"])
def test_a_named_drafter_is_refused_where_the_state_cannot_be_copied(
    mamba: Path, draft: str
) -> None:
    with pytest.raises(DrafterMismatchError, match="forget only everything at once"):
        load(mamba, draft)


@pytest.mark.usefixtures("no_checkpoints")
def test_a_recurrent_drafter_is_refused_where_its_state_cannot_be_copied(mamba: Path) -> None:
    with pytest.raises(DrafterMismatchError, match=r"mamba.gguf cannot draft: its cache"):
        load(draft=mamba)


def test_a_recurrent_drafter_drafts(mamba: Path) -> None:
    options = {"max_tokens": 16, "temperature": 0.8, "seed": 1}
    with load(draft="none", threads=1) as plainly, load(draft=mamba, threads=1) as engine:
        plain = plainly.generate("def f(x):", **options)
        drafted = engine.generate("def f(x):", depth=3, **options)
    assert drafted.token_ids == plain.token_ids
    assert drafted.stats.drafted > 0


def test_a_target_can_draft_for_itself(target_path: Path) -> None:
    with load(target_path, target_path, threads=1) as engine:
        result = engine.generate("def f(x):", max_tokens=24, temperature=0.8, seed=1, depth=3)
    assert result.stats.acceptance_rate == 1


@pytest.mark.parametrize("name", ["terminal", "Terminal-9M-Q8_0"])
def test_a_name_of_the_target_is_no_drafter(name: str) -> None:
    with pytest.raises(DrafterMismatchError) as refused:
        localspec.load(draft=name)
    assert str(refused.value) == (
        f"{name} is the target, which cannot speed itself up; "
        "its drafter is terminal-5m-q4_0, which auto takes by itself"
    )


def test_a_link_to_the_target_is_no_drafter(target_path: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "x.gguf", tmp_path / "mtp-x.gguf"
    shutil.copy(target_path, target)
    link.symlink_to(target.name)
    with pytest.raises(DrafterMismatchError) as refused:
        load(target, link, threads=1)
    assert str(refused.value) == (
        f"{link} is the target, which cannot speed itself up; name a smaller model "
        f"(localspec pair {link} lists them), or suffix"
    )
    with pytest.raises(
        DrafterMismatchError, match=r"x\.gguf has no MTP heads inside; the file with"
    ):
        load(target, "mtp", threads=1)


def test_the_bundled_drafter_is_named_without_its_folder() -> None:
    with localspec.load(draft="terminal-5m-q4_0", threads=1) as engine:
        assert engine.drafter_set.model_paths == [registry.bundled().drafter]


def test_a_targets_drafter_is_understood_as_lines_call_it(
    target_path: Path, drafter_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its file's name, and without the quantisation; one that is not here is fetched so."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    file = Path(shutil.copy(drafter_path, tmp_path / "Small-0.6B-Q8_0.gguf"))
    (tmp_path / "models.toml").write_text(
        f"[pairs.mine]\ntarget = '{target_path}'\n"
        f"[[pairs.mine.drafters]]\nkind = 'draft-model'\nfile = '{file}'\n"
        "[[pairs.mine.drafters]]\nkind = 'draft-model'\nfile = 'me/Other-1B-GGUF:Q8_0'\n"
    )
    for name in ("small-0.6b", "Small-0.6B-Q8_0"):
        with load(target_path, name, threads=1) as engine:
            assert engine.drafter_set.model_paths == [file]
    with pytest.raises(ModelNotFoundError, match="Other-1B-GGUF:Q8_0 is not on this machine; lo"):
        load(target_path, "other-1b")
    with pytest.raises(ModelNotFoundError, match=r"there is no model 'small-0\.7b'"):
        load(target_path, "small-0.7b")


def test_a_target_without_a_drafter_says_how_to_find_one(tmp_path: Path, target_path: Path) -> None:
    own = Path(shutil.copy(target_path, tmp_path / "mine.gguf"))
    with pytest.raises(DrafterMismatchError, match="localspec pair mine lists them"):
        own_drafters.require_another("mine", own, own)
    own_drafters.require_another("other", target_path, own)


def test_the_error_names_an_object_that_is_no_drafter() -> None:
    with pytest.raises(
        ModelNotFoundError, match="there is no model 'nothing'; choose auto, none, suffix"
    ):
        load(draft="nothing")
    with pytest.raises(
        InvalidValueError, match="it needs name, traits, begin, propose and observe"
    ):
        load(draft=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        ([], "draft is an empty list"),
        ("", "draft is '', with an empty name"),
        ("suffix,", "with an empty name"),
        ("none,suffix", "none and something else"),
    ],
)
def test_an_empty_list_or_name_is_refused(draft: str | list[str], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        load(draft=draft)


def test_spaces_around_a_comma_do_not_matter() -> None:
    with load(draft="suffix, lookup") as engine:
        assert engine.drafter_set.names == ["suffix", "lookup"]


def test_two_drafters_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="two drafters called 'suffix'"):
        load(draft=[Suffix(), Suffix()])


def test_the_costs_of_the_model_are_not_used_for_another_drafter(drafter_path: Path) -> None:
    with load(draft=[str(drafter_path), Silent()]) as engine:
        costs = engine.slots.own.loaded.policies.costs
        assert costs and list(costs._drafters) == [drafter_path.stem]


class Silent:
    """Never proposes anything."""

    name = "silent"
    traits = Traits()

    def begin(self, tokens: object) -> None: ...

    def propose(self, limit: object) -> Draft:
        return Draft(())

    def observe(self, outcome: object) -> None: ...


@pytest.mark.parametrize("strict", [False, True])
def test_a_drafter_s_cache_in_fewer_bits(
    drafter_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    """The type is tried, and replaced by f16 where it makes drafts worse."""
    if strict:
        monkeypatch.setattr("localspec.loading.kv_precision._LEAST_AGREEMENT", 0.9999)
    with load(draft=str(drafter_path), context=512, drafter_kv_type="q8_0") as engine:
        [member] = engine.drafter_set.members
        assert member.kv_type == ("f16" if strict else "q8_0")
        assert all("drafter's cache is kept as f16" in note for note in engine.notes)
        assert len(engine.notes) == strict
        assert engine.generate("def f(x):", max_tokens=8, depth=3).stats.drafted


@dataclass
class Unhashable:
    """A drafter with an `__eq__` of its own, and so without a hash; it is empty, too."""

    name: str = "unhashable"
    traits = Traits()

    def __len__(self) -> int:
        return 0

    def begin(self, tokens: object) -> None: ...

    def propose(self, limit: object) -> Draft:
        return Draft(())

    def observe(self, outcome: object) -> None: ...


def test_a_drafter_need_not_be_hashable_or_true() -> None:
    own, other = Unhashable(), Unhashable("other")
    assert drafters_of([own, other, "ngram"]).names == ["ngram", "unhashable", "other"]


def test_a_suffix_drafter_of_one_s_own_takes_the_place_of_that_of_auto(drafter_path: Path) -> None:
    own = Suffix(shortest=3)
    drafter_set = drafters_of([own, "auto"])
    assert drafter_set.names == ["suffix", drafter_path.stem]
    assert drafter_set.drafters[0].drafter is own  # type: ignore[attr-defined]


def test_a_model_that_auto_leaves_out_is_freed(
    monkeypatch: pytest.MonkeyPatch, drafter_path: Path
) -> None:
    """Its weights were loaded before its cache could not be made."""
    closed: list[Path] = []
    close = Model.close

    def closing(model: Model) -> None:
        closed.append(model.path)
        close(model)

    def refused(loaded: LoadedDrafter, *args: Any) -> SequenceDrafter:
        if loaded.model:
            raise ModelLoadError("there is no room for its cache")
        return for_sequence(loaded, *args)

    for_sequence = LoadedDrafter.for_sequence
    monkeypatch.setattr(Model, "close", closing)
    monkeypatch.setattr(LoadedDrafter, "for_sequence", refused)
    with load(threads=1, context=64) as engine:
        assert engine.drafter_set.names == ["suffix"]
        assert "no room for its cache" in str(engine.drafter_set.reason)
        assert closed == [drafter_path]


def test_a_profile_is_not_taken_for_a_drafter_of_another_name(
    drafter_path: Path, tmp_path: Path
) -> None:
    """A link has the identity of its file, and gives the drafter another name."""
    link = tmp_path / "link.gguf"
    link.symlink_to(drafter_path)
    for path in (drafter_path, link):
        with load(draft=path, threads=1, context=256) as engine:
            costs = engine.slots.own.loaded.policies.costs
            assert costs and costs.drafter(path.stem).first > 0
