"""Drafters that run models or read hidden rows, in texts with images.

The text is that of plain decoding. Each draft is an independent forward's: from the words alone, or
from the target's rows, of images too where the drafter keeps them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.drafter_kinds import EXACT, FIRST, PROMPT, Pair, write_pair
from fakes.eagle3 import LIKELY
from fakes.projectors import picture
from fakes.pycode import load
from fakes.recorder import TIE_OF_FLASH_ATTENTION, Recorder, partly_right
from fakes.seen import SeeingRows, projector_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.conversation.session import Session
from localspec.drafters.assistant import Assistant
from localspec.drafters.dflash import Dflash
from localspec.drafters.output_row import OutputRowDrafter
from localspec.engine.engine import Engine
from localspec.engine.state_store import StateStore
from localspec.generation_config import GenerationConfig
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Evaluated, Limit, Outcome, Traits
from localspec.speculation.passes import Passes
from localspec.utils.media import has_media, words_of
from localspec.utils.tokens import common_prefix

PAIRS = [*FIRST, ("eagle3", "qwen35"), ("dflash", "qwen35"), ("medusa", "qwen35")]
# How several texts share a context.
SHARED = EXACT | {"flash_attention": True, "kv_type": "f16", "drafter_kv_type": "f16"}
Load = Callable[..., Engine]
OPTIONS: dict[str, Any] = {"max_tokens": 9, "ignore_eos": True}


@pytest.fixture(scope="module", params=PAIRS, ids=" on ".join)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return write_pair(*request.param, tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def projector(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return projector_for(pair.target, tmp_path_factory.mktemp("projector") / "mmproj.gguf")


@pytest.fixture(scope="module")
def seeing(pair: Pair, projector: Path) -> Load:
    """Loads the target with its projector."""

    def loaded(*, drafts: bool, **options: Any) -> Engine:
        draft = pair.draft if drafts else "none"
        return load(pair.target, draft=draft, mmproj=projector, **options)

    return loaded


@pytest.fixture(scope="module")
def plain(seeing: Load) -> Iterator[Engine]:
    with seeing(drafts=False, **EXACT) as engine:
        yield engine


@pytest.fixture(scope="module")
def engine(seeing: Load) -> Iterator[Engine]:
    with seeing(drafts=True, **EXACT) as engine:
        yield engine


@pytest.fixture(scope="module")
def alone(seeing: Load) -> Iterator[Engine]:
    with seeing(drafts=False, **SHARED) as engine:
        yield engine


@pytest.fixture(scope="module")
def company(seeing: Load) -> Iterator[Engine]:
    with seeing(drafts=True, texts=2, **SHARED) as engine:
        yield engine


@pytest.fixture(scope="module")
def rows(pair: Pair) -> Iterator[SeeingRows]:
    with SeeingRows(pair.target, pair.reads) as rows:
        yield rows


@pytest.fixture
def drafts(pair: Pair, rows: SeeingRows, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(pair.drafter, pair.oracle_of(rows), monkeypatch)


def image(engine: Engine, seed: int) -> list[int]:
    projector = engine.model.projector
    assert projector is not None
    return projector.tokens(picture(56, 56 + 28 * (seed % 2), seed=seed))


def texts(engine: Engine) -> list[list[int]]:
    """Prompts with images before, between and behind words; some share words, some images."""
    first, second = image(engine, 1), image(engine, 2)
    start, end = PROMPT[:4], PROMPT[4:]
    return [
        [*start, *first, *end],
        [*start, *second, *end],
        [*first, *PROMPT],
        [*start, *first, *end, *second, *first, *LIKELY],
        [*start, *first, *second, 40],
        PROMPT,
        [*start, *first, *end, *second, *LIKELY],
    ]


def test_each_draft_is_that_of_the_whole_text(
    engine: Engine, plain: Engine, drafts: Recorder, rows: SeeingRows
) -> None:
    """Whatever text came before."""
    for seed, (prompt, same) in enumerate(zip(texts(engine), texts(plain), strict=True)):
        options = {"max_tokens": 12, "temperature": seed % 2, "seed": seed, "ignore_eos": True}
        expected = plain.generate(same, **options)
        found = engine.generate(prompt, depth=1 + seed % 5, **options)
        assert found.token_ids == expected.token_ids
        assert found.stats.drafted
        rows.prompts = [prompt]
        drafts.check(every=2)
    assert drafts.checked > 20


def test_which_drafters_keep_images(engine: Engine, pair: Pair, drafts: Recorder) -> None:
    """Heads without a cache of their own do, and those whose cache has rows of any kind.

    Where all rows of an image have one position, no sliding window would ever pass them.
    """
    engine.generate(texts(engine)[0], depth=3, **OPTIONS)
    is_block = issubclass(pair.drafter, Dflash)
    keeps = is_block or issubclass(pair.drafter, Assistant | OutputRowDrafter)
    is_pinned = is_block and engine.model.tells_rows_apart
    assert {has_media(each.text) for each in drafts.drafts} == {keeps and not is_pinned}


def test_drafts_that_are_right_in_part(
    pair: Pair, engine: Engine, plain: Engine, drafts: Recorder, rows: SeeingRows
) -> None:
    prompt, same = texts(engine)[3], texts(plain)[3]
    options = {"temperature": 1, "seed": 5, "ignore_eos": True}
    expected = [*prompt, *plain.generate(same, max_tokens=40, **options).token_ids]
    rows.prompts = [prompt]
    with partly_right(pair.drafter, expected) as proposed:
        for depth in (2, 4):
            found = engine.generate(prompt, max_tokens=30, depth=depth, **options)
            assert [*prompt, *found.token_ids] == expected[: len(prompt) + 30]
            assert found.stats.accepted
    assert sum(count for (_, right), count in proposed.items() if right) > 3
    drafts.check(every=2)
    assert drafts.checked > 10


# What a text begins with, and what follows: images by their numbers, and words.
PARTS = st.lists(
    st.one_of(st.integers(1, 2), st.sampled_from([[40], [266, 271], [*LIKELY]])), max_size=4
)


def text_of(engine: Engine, begin: int, parts: list[Any]) -> list[int]:
    """A text of these parts; texts that begin with other numbers share no beginning."""
    tokens = [begin, *PROMPT[:3]]
    for part in parts:
        tokens += image(engine, part) if isinstance(part, int) else part
    return [*tokens, 41]


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_history(
    company: Engine, alone: Engine, pair: Pair, rows: SeeingRows, data: st.DataObject
) -> None:
    """Texts of words and images, alone and beside another, cut short."""
    with pytest.MonkeyPatch.context() as patch:
        drafts = Recorder(pair.drafter, pair.oracle_of(rows), patch)
        for seed in range(data.draw(st.integers(2, 5))):
            some = data.draw(st.lists(PARTS, min_size=1, max_size=2))
            depth, count = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
            options = OPTIONS | {"seed": seed, "temperature": data.draw(st.sampled_from([0, 1]))}
            prompts = [text_of(company, 50 + at, parts) for at, parts in enumerate(some)]
            expected = [
                alone.generate(text_of(alone, 50 + at, parts), **options).token_ids
                for at, parts in enumerate(some)
            ]
            rows.prompts = prompts
            if len(prompts) > 1:
                found = company.generate(prompts, depth=depth, **options)
                assert [each.token_ids for each in found] == expected
            else:
                stream = company.stream(prompts[0], depth=depth, **options)
                start = [token.id for token, _ in zip(stream, range(count), strict=False)]
                stream.close()
                assert start == expected[0][: len(start)]
            drafts.check(every=3, tie=TIE_OF_FLASH_ATTENTION)


@pytest.mark.parametrize("lead", [1, 4])
def test_what_was_read_beside_an_image_is_not_saved(
    engine: Engine, drafts: Recorder, rows: SeeingRows, tmp_path: Path, lead: int
) -> None:
    """On disk are numbers alone, which would not tell it from the same words without an image."""
    slot, store = engine.slots.own, StateStore(tmp_path)
    engine.generate([*PROMPT[:lead], *image(engine, 1), *PROMPT[lead:]], depth=3, **OPTIONS)
    slot.target.set_tokens(PROMPT)
    assert slot.save("a", store) is None
    assert slot.load("a", store) is None
    drafts.drafts.clear()
    engine.generate([*PROMPT, 40], depth=3, **OPTIONS)
    rows.prompts = [[*PROMPT, 40]]
    drafts.check()
    assert drafts.checked


@pytest.mark.parametrize("lead", [1, 4])
def test_a_copy_of_a_text_goes_on_beside_another_image(
    company: Engine, drafts: Recorder, rows: SeeingRows, lead: int
) -> None:
    texts = [
        [*PROMPT[:lead], *image(company, seed), *PROMPT[lead:], 40, 41] for seed in range(1, 4)
    ]
    with Session(company, depth=3) as session:
        first, settings = session._slot, GenerationConfig(depth=3, **OPTIONS)
        assert [*first.start(texts[0], settings)]
        with session.fork() as other:
            for text in texts[1:]:
                drafts.drafts.clear()
                other._slot.copy_from(first)
                assert [*other._slot.start(text, settings)]
                rows.prompts = [text]
                drafts.check(tie=TIE_OF_FLASH_ATTENTION)
    assert drafts.checked


@pytest.mark.parametrize("with_image", [True, False])
def test_other_questions_behind_the_same_beginning_are_read_alone(
    seeing: Load, with_image: bool
) -> None:
    """As without a drafter, though a head needs the row in front of them."""
    read = []
    for drafts in (False, True):
        with seeing(drafts=drafts, **EXACT) as engine:
            begin = [*PROMPT, *(image(engine, 1) if with_image else range(200, 236))]
            first, second = ([*range(start, start + 20)] for start in (40, 80))
            read.append([])
            for question in (first, second, first, [40, *second], [40, *first]):
                found = engine.generate([*begin, *question], depth=3, **OPTIONS)
                read[-1].append(found.stats.prompt_evaluated)
    for plain, drafted in zip(*read, strict=True):
        assert plain <= drafted <= plain + 1
    assert read[0][0] > 2 * read[0][-1]


def test_other_images_behind_the_same_beginning_are_read_alone(seeing: Load) -> None:
    """But for the word in front of the image, whose row is another one, and the one before that."""
    read = []
    for drafts in (False, True):
        with seeing(drafts=drafts, **EXACT) as engine:
            read.append([])
            for seed in (1, 2, 3, 4):
                prompt = [*range(40, 100), *image(engine, seed), *LIKELY]
                found = engine.generate(prompt, depth=3, **OPTIONS)
                read[-1].append(found.stats.prompt_evaluated)
    for without, drafted in zip(*read, strict=True):
        assert without <= drafted <= without + 2
    assert read[0][0] > read[0][-1] + 50


class Head:
    """A head of a user's, which looks its tokens up and the last row of what it is shown."""

    name = "a user's"

    def __init__(self, layer: int) -> None:
        self.traits = Traits(reads_hidden=(layer,))
        self.known = {token: token for token in range(400)}
        self.text: list[int] = []
        self.read_tokens: list[int] = []
        self.rows: list[Any] = []

    def held(self, tokens: Any) -> int:
        shared = common_prefix(self.read_tokens, [self.known[token] for token in tokens])
        del self.read_tokens[shared:], self.rows[shared:]
        return len(tokens) + 1 if shared == len(tokens) else shared

    def begin(self, tokens: Any) -> None:
        self.text = [self.known[token] for token in tokens]

    def observe(self, outcome: Outcome) -> None:
        self.text += outcome.tokens

    def read(self, evaluated: Evaluated) -> Passes[None]:
        (rows,) = evaluated.hidden.values()
        tokens = [self.known[token] for token in evaluated.tokens]
        known = common_prefix(self.read_tokens[evaluated.start :], tokens)
        if known < len(tokens):  # what it knows, it need not read
            del self.read_tokens[evaluated.start + known :], self.rows[evaluated.start + known :]
            assert len(self.read_tokens) == evaluated.start + known
            self.read_tokens += tokens[known:]
            self.rows += [row.copy() for row in rows[known:]]
        yield from ()

    def passes(self, limit: Limit) -> Passes[Draft]:
        yield from ()
        assert self.read_tokens == self.text[:-1]
        return Draft([self.text[-1]])


def test_heads_of_users_are_shown_the_words(tmp_path: Path) -> None:
    """And the rows of other images where only these are others."""
    pair = write_pair("eagle3", "qwen35", tmp_path)
    projector = projector_for(pair.target, tmp_path / "mmproj.gguf")
    last = []
    for seeds in ((1, 1, 2, 1, 3), (3,)):
        head = Head(pair.reads[-1])
        with load(pair.target, draft=head, mmproj=projector, **EXACT) as engine:
            for seed in seeds:
                prompt = [*PROMPT[:3], *image(engine, seed), *PROMPT[3:]]
                found = engine.generate(prompt, depth=3, **OPTIONS)
                assert head.text == [*words_of(prompt), *found.token_ids]
                assert found.stats.drafted
        last.append(np.array(head.rows[: len(words_of(prompt))]))
    np.testing.assert_allclose(*last, atol=1e-4)
