"""A trimmed head drafts what the whole head drafts, among the tokens that are left."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from fakes import dflash
from fakes.eagle3 import SHAPES, WIDTH, Eagle3Oracle, HeadShape, write_head, write_target
from fakes.matrix_heads import write_medusa
from fakes.mtp import write_sidecar
from fakes.numpy_llama import Tensors
from fakes.pycode import load
from fakes.tiny import N_VOCAB, TURNS

from localspec.conversion.target import TargetFile
from localspec.conversion.token_counts import count_ids, count_texts, texts_in
from localspec.conversion.trim import DraftHead, default_tokens, needed_tokens, trim, trim_in_place
from localspec.errors import InvalidValueError, LocalspecError, ModelLoadError
from localspec.gguf.reader import read_header
from localspec.gguf.weights import Weights
from localspec.models.trained_drafters import default_folder

MAPS = Path("/proc/self/maps")
TEXT = [1, 259, 30, 266, 271, 90, 275, 40, 262, 3, 270, 261]
OPTIONS = {"threads": 1, "context": 128, "gpu_layers": 0}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("target") / "target.gguf")


@pytest.fixture(scope="module")
def target(path: Path) -> TargetFile:
    return TargetFile(path)


def counts_of(*often: int) -> np.ndarray:
    """Counts in which these tokens come in this order."""
    found = np.zeros(N_VOCAB, np.int64)
    found[[*often]] = range(len(often) + 10, 10, -1)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_the_logits_that_are_left_are_the_same(
    tmp_path: Path, target: TargetFile, shape: str
) -> None:
    head = write_head(tmp_path / "head.gguf", SHAPES[shape])
    whole, before = DraftHead(head, target), head.read_bytes()
    done = trim(whole, counts_of(259, 266, 275), {2}, 50)
    assert head.read_bytes() == before
    assert done.rows == (len(whole.ids), 50)
    assert done.bytes[1] < done.bytes[0]
    oracles = Eagle3Oracle(target.path, head), Eagle3Oracle(target.path, done.path)
    states = oracles[0].encoded(TEXT[:-1])
    full, fewer = (oracle.decoded(TEXT[1:], states)[0] for oracle in oracles)
    kept = Tensors(done.path)["d2t"]
    assert {259, 266, 275, 2} & {*whole.ids} <= {*kept}
    assert np.abs(fewer[:, kept] - full[:, kept]).max() < 1e-9
    assert not np.isfinite(np.delete(fewer, kept, axis=1)).any()


@pytest.mark.parametrize("shape", SHAPES)
def test_it_drafts_in_llama_cpp(tmp_path: Path, path: Path, target: TargetFile, shape: str) -> None:
    head = write_head(tmp_path / "head.gguf", SHAPES[shape])
    done = trim(DraftHead(head, target), counts_of(259, 266, 271, 275), {2}, 40)
    texts = []
    for draft in (head, done.path):
        with load(path, draft=draft, **OPTIONS) as engine:
            found = engine.generate(TEXT, max_tokens=40, temperature=0, depth=3, ignore_eos=True)
        texts.append(found.token_ids)
        assert found.stats.drafted
    assert texts[0] == texts[1]


@pytest.mark.parametrize("shape", dflash.SHAPES)
def test_heads_that_draft_in_blocks(tmp_path: Path, shape: str) -> None:
    path = write_target(tmp_path / "target.gguf")
    head = dflash.write_block_head(tmp_path / "head.gguf", dflash.SHAPES[shape])
    done = trim(DraftHead(head, TargetFile(path)), counts_of(259, 266, 271, 275), {2}, 60)
    shapes = {tensor.name: tensor.shape for tensor in read_header(done.path).tensors}
    assert shapes["output.weight"][1] == shapes["d2t"][0] == 60
    assert shapes.get("markov_w2.weight", (0, 60))[1] == 60
    with load(path, draft=done.path, **OPTIONS) as engine:
        assert engine.drafter_set.names == [done.path.stem]
        found = engine.generate(TEXT, max_tokens=30, temperature=0, depth=3, ignore_eos=True)
    assert found.stats.drafted


def test_rows_of_a_quantised_matrix_are_not_rounded_again(
    tmp_path: Path, target: TargetFile
) -> None:
    from fakes.published import eagle3_config, eagle3_tensors, published

    from localspec.conversion.convert import convert

    made = write_head(tmp_path / "made.gguf", HeadShape(WIDTH))
    folder = published(tmp_path / "head", eagle3_tensors(made), eagle3_config(WIDTH))
    head = convert(folder, target.path, tmp_path / "head.gguf", "Q8_0").path
    whole = DraftHead(head, target)
    done = trim(whole, counts_of(), set(), 30)
    rows = np.isin(whole.ids, Tensors(done.path)["d2t"])
    ours, theirs = Tensors(done.path)["output.weight"], Tensors(head)["output.weight"]
    assert np.array_equal(ours, theirs[rows])


def test_which_tokens_are_kept(tmp_path: Path, target: TargetFile) -> None:
    """First those that are needed, then by their counts, then by their place."""
    head = DraftHead(write_head(tmp_path / "head.gguf", SHAPES["whole vocabulary"]), target)
    done = trim(head, counts_of(200, 100), {250}, 5)
    assert sorted(Tensors(done.path)["d2t"]) == [0, 1, 100, 200, 250]
    assert done.covered == 1.0
    fewer = trim(head, counts_of(200, 100), {250}, 2, tmp_path / "two.gguf")
    assert fewer.covered is not None
    assert 0.4 < fewer.covered < 0.6


def test_what_the_template_and_the_end_need(target: TargetFile) -> None:
    texts = [*target.header.metadata["tokenizer.ggml.tokens"]]  # type: ignore[misc]
    types = [*target.header.metadata["tokenizer.ggml.token_type"]]  # type: ignore[misc]
    written = {token for token, text in enumerate(texts) if types[token] == 3 and text in TURNS}
    assert needed_tokens(target, {7}) == {1, 2, 7} | {token for token in written if texts[token]}


def test_the_usual_number(tmp_path: Path, target: TargetFile) -> None:
    head = DraftHead(write_head(tmp_path / "head.gguf", SHAPES["whole vocabulary"]), target)
    assert default_tokens(head, ()) == N_VOCAB // 4
    assert default_tokens(head, range(100)) == 100
    done = trim(head, counts_of(), {1})
    assert done.path == tmp_path / f"head-{N_VOCAB // 4}-tokens.gguf"
    assert not trim(head, counts_of(), {1}).written


@pytest.mark.parametrize("tokens", [0, -1, N_VOCAB, 10**9])
def test_a_number_that_makes_no_sense(tmp_path: Path, target: TargetFile, tokens: int) -> None:
    head = DraftHead(write_head(tmp_path / "head.gguf", SHAPES["whole vocabulary"]), target)
    with pytest.raises(InvalidValueError, match=f"tokens is {tokens}"):
        trim(head, counts_of(), {1}, tokens)


def test_what_is_needed_is_never_left_out(tmp_path: Path, target: TargetFile) -> None:
    head = DraftHead(write_head(tmp_path / "head.gguf", SHAPES["whole vocabulary"]), target)
    with pytest.raises(InvalidValueError, match="need 3, which are always kept"):
        trim(head, counts_of(), {1, 2, 3}, 2)


def test_a_trained_head_stays_its_users_alone_when_it_is_trimmed(
    tmp_path: Path, target: TargetFile
) -> None:
    path = write_head(tmp_path / "head.gguf", SHAPES["whole vocabulary"])
    path.chmod(0o600)
    trim_in_place(path, target, counts_of())
    assert read_header(path).tensor("d2t")
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o600


def test_the_head_itself_is_never_replaced(tmp_path: Path, target: TargetFile) -> None:
    path = write_head(tmp_path / "head.gguf", SHAPES["whole vocabulary"])
    with pytest.raises(InvalidValueError, match="the head itself"):
        trim(DraftHead(path, target), counts_of(), {1}, 20, path)
    other = tmp_path / "other.gguf"
    other.write_bytes(b"mine")
    with pytest.raises(InvalidValueError, match="exists and is another file"):
        trim(DraftHead(path, target), counts_of(), {1}, 20, other)
    assert other.read_bytes() == b"mine"


def test_a_head_of_the_hubs_cache_is_trimmed_among_localspecs_drafters(
    tmp_path: Path, target: TargetFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("localspec.conversion.trim.repository_of", lambda _: "zoo/head")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    paths = []
    for shape in [*SHAPES][:2]:
        (tmp_path / shape).mkdir()
        head = write_head(tmp_path / shape / "head.gguf", SHAPES[shape])
        paths.append(trim(DraftHead(head, target), counts_of(259), {2}, 40).path)
        assert trim(DraftHead(head, target), counts_of(259), {2}, 40).written is False
    assert len({*paths}) == 2 and {path.parent for path in paths} == {default_folder()}
    assert not [*Path().iterdir()]


def test_a_map_that_names_a_token_twice(tmp_path: Path, target: TargetFile) -> None:
    head = write_head(tmp_path / "head.gguf", SHAPES[next(iter(SHAPES))])
    trimmed = trim(DraftHead(head, target), counts_of(259), {2}, 40).path
    table = next(each for each in read_header(trimmed).tensors if each.name == "d2t")
    data = Weights(trimmed).data(table).view("<i8").copy()
    before = data.tobytes()
    data[7] = data[9]
    trimmed.write_bytes(trimmed.read_bytes().replace(before, data.tobytes()))
    with pytest.raises(ModelLoadError, match=f"its d2t names token {data[7]} 2 times"):
        DraftHead(trimmed, target)


def test_in_its_own_file(
    tmp_path: Path, target: TargetFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_head(tmp_path / "head.gguf", SHAPES["whole vocabulary"])
    move = os.replace

    def replace(new: Path, old: Path) -> None:
        # Windows would refuse it.
        assert not MAPS.exists() or str(old) not in MAPS.read_text()
        move(new, old)

    monkeypatch.setattr(os, "replace", replace)
    trim_in_place(path, target, counts_of(259, 266, 275))
    assert [*tmp_path.iterdir()] == [path]
    kept = {*DraftHead(path, target).ids.tolist()}
    assert len(kept) == N_VOCAB // 4
    assert kept >= {259, 266, 275}


def test_no_room(tmp_path: Path, target: TargetFile, monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.conversion import convert

    head = DraftHead(write_head(tmp_path / "head.gguf", SHAPES["whole vocabulary"]), target)
    usage = type("usage", (), {"free": 10})
    monkeypatch.setattr(convert.shutil, "disk_usage", lambda _folder: usage)
    with pytest.raises(LocalspecError, match="10 bytes are free"):
        trim(head, counts_of(), {1}, 20)
    assert [path.name for path in tmp_path.iterdir()] == ["head.gguf"]


@pytest.mark.parametrize("kind", ["medusa", "mtp", "model"])
def test_drafters_whose_graph_reads_no_map(tmp_path: Path, target: TargetFile, kind: str) -> None:
    writers = {"medusa": write_medusa, "mtp": write_sidecar, "model": write_target}
    path = writers[kind](tmp_path / f"{kind}.gguf")
    with pytest.raises(InvalidValueError, match="d2t") as found:
        DraftHead(path, target)
    assert "\n" not in str(found.value)


class Letters:
    """A tokenizer of letters."""

    n_vocab = 128

    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        assert not add_special
        return [ord(letter) for letter in text]


def test_counting(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("aab")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b.txt").write_text("bc\n" * 50_000)
    (tmp_path / "below" / "picture.png").write_bytes(b"\xff\xd8\0")
    (tmp_path / ".hidden").write_text("hidden")
    found = count_texts(Letters(), texts_in(tmp_path))
    assert (found[ord("a")], found[ord("b")], found[ord("c")]) == (2, 50_001, 50_000)
    assert found.sum() == 150_003
    assert np.array_equal(count_ids(4, [1, 1, 3]), [0, 2, 0, 1])


def test_line_breaks_are_counted_as_models_write_them(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("\ufeffa\r\nb\r\n".encode())
    found = count_texts(Letters(), texts_in(file))
    assert (found[ord("\n")], found[ord("\r")], found.sum()) == (2, 0, 4)


def test_what_cannot_be_counted(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\xff\xd8\0")
    for path, said in (("picture.png", "not UTF-8"), ("none", "No such file"), (".", "no text")):
        with pytest.raises(InvalidValueError, match=said):
            [*texts_in(tmp_path / path)]
