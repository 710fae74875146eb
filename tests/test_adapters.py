"""Drafters for llama-cpp-python's own `Llama`: the same text as without, in fewer passes."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as functions
import numpy as np
import pytest
from fakes.tiny import tiny_model
from llama_cpp import Llama

import localspec.adapters
from localspec.adapters import LlamaDrafter, draft_model
from localspec.errors import (
    DrafterMismatchError,
    InvalidValueError,
    LocalspecError,
    ModelNotFoundError,
)
from localspec.models.registry import bundled
from localspec.utils.tokens import common_prefix

PROMPT = "How do I find files by name, and how do I delete the files that I find by name?"
PROMPTS = [PROMPT, "List all processes, the largest first.", PROMPT]
# Two logits that differ by less may change places: kernels round quantised weights differently.
NEAR_TIE = 0.3
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True, scope="module")
def weights_as_they_are() -> Iterator[None]:
    """Some builds compute weights that were rearranged for them wrongly (`localspec doctor`)."""
    usual = functions.llama_model_default_params

    def params() -> Any:
        made = usual()
        made.use_extra_bufts = False
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions, "llama_model_default_params", params)
        yield


class Writer:
    """A `Llama`, which counts its passes."""

    def __init__(self, path: Path, draft: LlamaDrafter | None = None, **more: Any) -> None:
        options: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "n_threads_batch": 1, **more}
        self.llama = Llama(str(path), draft_model=draft, verbose=False, **options)
        self.passes = 0
        self._eval = self.llama.eval
        self.llama.eval = self._counted  # type: ignore[method-assign]

    def _counted(self, tokens: Any) -> None:
        self.passes += 1
        self._eval(tokens)

    def write(self, prompt: str, count: int = 60, **options: Any) -> list[int]:
        self.llama.set_seed(5)
        ids = self.llama.tokenize(prompt.encode())
        return self.after(ids, count, **options)

    def after(self, ids: list[int], count: int, **options: Any) -> list[int]:
        tokens: list[int] = []
        for token in self.llama.generate(ids, **options):
            tokens.append(token)
            if len(tokens) == count:
                break
        return tokens


@pytest.fixture(scope="module")
def plain(weights_as_they_are: None) -> Writer:
    return Writer(bundled().target)


def opened(name: str, **options: Any) -> LlamaDrafter:
    if name == "model":
        options = {"target": bundled().target, "context": 512, "threads": 1, **options}
    return draft_model(bundled().drafter if name == "model" else name, **options)


@pytest.mark.parametrize("options", [{"temp": 0.0}, {"temp": 0.8, "top_k": 40}])
@pytest.mark.parametrize("name", ["suffix", "lookup", "ngram", "model"])
def test_llama_writes_the_same_in_fewer_passes(
    plain: Writer, name: str, options: dict[str, Any]
) -> None:
    with opened(name) as drafter:
        drafting = Writer(bundled().target, drafter)
        plain.passes = 0
        differing = {
            prompt
            for prompt in PROMPTS
            if drafting.write(prompt, **options) != plain.write(prompt, **options)
        }
        # A near tie of one text may fall otherwise in a wider pass, each time it is written.
        assert len(differing) <= 1
        assert 0 < drafter.accepted < drafter.drafted, "some are wrong, so the cache is cut"
        assert drafting.passes <= plain.passes - drafter.accepted + 3 * len(PROMPTS)
        if options["temp"] == 0.0:
            assert drafter.accepted > 0.4 * drafter.drafted


def test_a_model_drafts_what_it_says_itself() -> None:
    """The library's own greedy tokens, after every text that it was shown."""
    oracle, drafts = Writer(bundled().drafter, logits_all=True), list[tuple[list[int], list[int]]]()
    with opened("model") as drafter:
        asked = drafter.__call__

        class Noted(LlamaDrafter):
            def __init__(self) -> None:
                pass

            def __call__(self, input_ids: Any, /, **options: Any) -> Any:
                draft = asked(input_ids, **options)
                drafts.append((input_ids.tolist(), draft.tolist()))
                return draft

        Writer(bundled().target, Noted()).write(PROMPT, count=40, temp=0.0)
    assert len(drafts) > 5 and max(len(draft) for _, draft in drafts) > 2
    differing = 0
    for text, draft in drafts:
        own = oracle.after(text, len(draft), temp=0.0)
        if own != draft:
            differing += 1
            at = common_prefix(own, draft)
            scores = oracle.llama.scores[len(text) + at - 1]
            assert abs(scores[own[at]] - scores[draft[at]]) < NEAR_TIE
    assert differing <= len(drafts) // 5


@pytest.mark.parametrize("name", ["suffix", "model"])
def test_texts_that_are_cut_and_changed(name: str) -> None:
    """A drafter that has seen other texts drafts as a new one does, but for what it has learnt."""
    texts = [[1, 50, 60, 70, 50, 60], [1, 50, 60, 70, 50, 60, 70, 80], [1, 50], [1, 90, 50, 60]]
    with opened(name, depth=4) as one:
        for text in [*texts, *texts[::-1], texts[0]]:
            shown = one(np.array(text, dtype=np.intc))
            assert shown.dtype == np.intc
            with opened(name, depth=4) as new:
                other = new(np.array(text, dtype=np.intc))
            if name == "model":
                least = min(len(shown), len(other))
                assert shown[:least].tolist() == other[:least].tolist()
        assert one(np.array([], dtype=np.intc)).tolist() == []
    assert one(np.array(texts[0], dtype=np.intc)).tolist() == [], "it was closed"


def test_a_text_longer_than_the_context_of_the_small_model() -> None:
    text = np.array([1, *[50, 60, 70] * 20], dtype=np.intc)
    with opened("model", context=32) as drafter:
        assert drafter(text[:20]).size > 0
        assert drafter(text).tolist() == []
        assert drafter(text[:20]).size > 0


@pytest.mark.parametrize("size", [96, 256])
def test_llama_writes_to_the_end_of_its_context(size: int) -> None:
    """Also of one that the library makes larger than was asked for, up to where plain texts end."""
    ends = list[int]()
    with opened("suffix") as drafter:
        for draft in (None, drafter):
            llama, written = Writer(bundled().target, draft, n_ctx=size).llama, 0
            with pytest.raises(RuntimeError):
                for _ in llama.generate(llama.tokenize(PROMPT.encode()), temp=0.0):
                    written += 1
            ends.append(written)
    assert ends[0] == ends[1] and drafter.accepted > 0


@pytest.mark.parametrize(
    "example",
    [localspec.adapters.__doc__, (ROOT / "docs" / "other-tools.md").read_text("utf-8")],
)
def test_the_examples_write_texts_longer_than_a_batch(example: str) -> None:
    [(_, options)] = re.findall(
        r"Llama\((\S+), (.*), draft_model=draft_model\(.suffix.\)\)", example
    )
    given = eval(f"dict({options})")  # that of the example
    with opened("suffix") as drafter:
        writer = Writer(bundled().target, drafter, **given)
        ids = writer.llama.tokenize(PROMPT.encode())
        before = (ids * (505 // len(ids) + 1))[:505]
        long = (ids * 50)[:600]
        assert len(writer.after(before, 60, temp=0.0)) == 60
        assert len(writer.after(long, 60, temp=0.0)) == 60
        assert drafter.accepted > 0


def test_two_threads_ask_one_drafter() -> None:
    """As two `Llama` objects do that share it: by turns, each for its own text."""
    texts = [np.array(ids, dtype=np.intc) for ids in ([1, 50, 60, 70, 50, 60], [1, 90, 50, 60])]
    with opened("model", depth=3) as drafter:
        with ThreadPoolExecutor(2) as threads:
            drafts = [*threads.map(drafter, texts * 20)]
        for text, draft in zip(texts * 20, drafts, strict=True):
            least = min(len(draft), len(first := drafter(text)))
            assert draft[:least].tolist() == first[:least].tolist()


def test_a_draft_is_counted_once_it_is_known_what_became_of_it() -> None:
    with draft_model("suffix", depth=4) as drafter:
        ids = [1, 2, 3, 4] * 8
        draft = drafter(np.array(ids, dtype=np.intc)).tolist()
        assert draft[:2] == [1, 2] and (drafter.drafted, drafter.accepted) == (0, 0)
        drafter(np.array([*ids, 1, 9], dtype=np.intc))
        known = drafter.drafted, drafter.accepted
        assert known == (len(draft), 1)
        drafter(np.array([7, *ids], dtype=np.intc))  # another text: the last draft has no end
        assert (drafter.drafted, drafter.accepted) == known
        assert repr(drafter) == f"<LlamaDrafter suffix, 1 of {len(draft)} drafted tokens accepted>"


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"draft": "auto"}, InvalidValueError, "draft is 'auto'; name suffix, lookup, ngram"),
        ({"draft": ["suffix"]}, InvalidValueError, r"draft is \['suffix'\]; name one drafter"),
        ({"draft": None}, InvalidValueError, "draft is None; name one drafter"),
        ({"draft": "suffix", "depth": 0}, InvalidValueError, "depth is 0"),
        ({"draft": "D", "target": "T", "gpu_layers": "all"}, InvalidValueError, "gpu_layers is 'a"),
        ({"draft": "D", "target": "T", "context": "64"}, InvalidValueError, "write 64 without"),
        ({"draft": "suffix", "n_ctx": 64}, InvalidValueError, "'n_ctx'; did you mean context"),
        ({"draft": "nothere.gguf", "target": "T"}, ModelNotFoundError, "nothere.gguf"),
        ({"draft": "D"}, InvalidValueError, "target is not given"),
        ({"draft": "D", "target": "other"}, DrafterMismatchError, "cannot draft for"),
    ],
)
def test_what_is_refused(options: dict[str, Any], error: type[LocalspecError], said: str) -> None:
    files = {"T": bundled().target, "D": bundled().drafter, "other": tiny_model("llama")}
    named = {
        name: files.get(value, value) if isinstance(value, str) else value
        for name, value in options.items()
    }
    with pytest.raises(error, match=said) as raised:
        draft_model(**named)
    assert "\n" not in str(raised.value)


def test_heads_are_refused() -> None:
    head = Path(__file__).parent / "trained" / "eagle3-terminal-9m-q8_0.gguf"
    with pytest.raises(DrafterMismatchError, match="reads rows that Llama does not hand out"):
        draft_model(head, target=bundled().target)
