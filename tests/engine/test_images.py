"""Texts with images: their tokens are those of plain decoding, drafts or not, alone or not."""

import base64
from collections.abc import Iterator
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from fakes.drafter_kinds import EXACT
from fakes.failing_device import device_fails
from fakes.projectors import KINDS, picture, seeing_model, tiny_projector, write_projector
from fakes.pycode import PYCODE, load
from fakes.recorder import Recorder
from fakes.respelled import write_respelled
from fakes.seen import projector_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import localspec
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.text_drafter import TextDrafter
from localspec.engine.engine import Engine
from localspec.engine.media_marks import media_mark
from localspec.engine.prompt import template_tokens
from localspec.engine.state_store import StateStore
from localspec.errors import InvalidValueError, ModelLoadError
from localspec.utils.media import has_media, words_of

LOAD: dict[str, Any] = {
    "context": 300,
    "threads": 1,
    "gpu_layers": 0,
    "kv_type": "f32",
    "flash_attention": False,
}
OPTIONS: dict[str, Any] = {"max_tokens": 40, "temperature": 0.9}
WORDS = "ab cd ab cd ef ab cd"


def asked(*images: int, words: str = WORDS) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [
        {"type": "image", "image": picture(64, 40 + 30 * seed, seed=seed)} for seed in images
    ]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": words}]}]


def models(family: str) -> Path:
    """A model whose projector lies beside it."""
    tiny_projector(family)
    return seeing_model(family)


@pytest.fixture(scope="module", params=KINDS)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def plain(family: str) -> Iterator[Engine]:
    with localspec.load(models(family), draft="none", **LOAD) as engine:
        yield engine


@pytest.fixture(scope="module", params=["suffix", "lookup", "ngram"])
def drafting(family: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    with localspec.load(models(family), draft=request.param, texts=3, **LOAD) as engine:
        yield engine


def test_drafts_change_nothing(plain: Engine, drafting: Engine) -> None:
    drafted = accepted = 0
    for seed in range(6):
        prompt = asked(*range(seed % 3))
        expected = plain.generate(prompt, seed=seed, **OPTIONS)
        assert has_media(plain.stream(prompt, seed=seed, **OPTIONS).prompt) == (seed % 3 > 0)
        for depth in (None, 1, 4):
            found = drafting.generate(prompt, seed=seed, depth=depth, **OPTIONS)
            assert found.token_ids == expected.token_ids
            if seed % 3:
                drafted += found.stats.drafted
                accepted += found.stats.accepted
    assert drafted > accepted
    assert accepted or drafting.drafter_set.names != ["suffix"]


def test_texts_beside_each_other(plain: Engine, drafting: Engine) -> None:
    prompts = [asked(1), asked(), asked(2, 1)]
    expected = [plain.generate(each, seed=4, **OPTIONS).token_ids for each in prompts]
    for depth in (None, 4):
        found = drafting.generate(prompts, seed=4, depth=depth, **OPTIONS)
        assert [each.token_ids for each in found] == expected


def test_a_prompt_is_its_words_and_the_rows_of_its_images(plain: Engine) -> None:
    """What begins a text for the model comes first, and once."""
    model, image = plain.model, picture(seed=1)
    mark, rest = media_mark(image), model.tokenize(" cd", add_special=False)
    rows = model.projector.tokens(image) if model.projector else []
    for before in ("ab ", ""):
        tokens = template_tokens(f"{before}{mark} cd{mark}", model)
        assert tokens == [*model.tokenize(before), *rows, *rest, *rows]


def test_another_image_another_text(plain: Engine) -> None:
    texts = {
        tuple(plain.generate(asked(seed, words="a"), seed=1, **OPTIONS).token_ids)
        for seed in range(4)
    }
    assert len(texts) > 1


def test_the_second_turn_reads_only_what_is_new(plain: Engine) -> None:
    first = plain.generate(asked(3), seed=2, **OPTIONS)
    plain.generate(asked(1), seed=2, **OPTIONS)
    plain.generate(asked(3), seed=2, **OPTIONS)
    turns = [*asked(3), {"role": "assistant", "content": first.text}, *asked(words="and")]
    again = plain.generate(turns, seed=2, **OPTIONS)
    assert again.stats.prompt_evaluated < again.stats.prompt_tokens - 4
    with localspec.load(plain.model.path, draft="none", **LOAD) as cold:
        assert cold.generate(turns, seed=2, **OPTIONS).token_ids == again.token_ids


PROMPTS = st.builds(
    lambda images, words: asked(*images, words=words),
    st.lists(st.integers(0, 2), max_size=2),
    st.sampled_from(["a", WORDS, "ef ef ef ef", "cd ab"]),
)


@pytest.fixture(scope="module")
def remembering(family: str) -> Iterator[Engine]:
    with localspec.load(models(family), draft=["suffix", "lookup"], texts=2, **LOAD) as engine:
        yield engine


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_history_gives_the_texts_of_an_empty_cache(
    plain: Engine, remembering: Engine, data: st.DataObject
) -> None:
    """Prompts of words and images, cut short at any token, with drafts of any depth."""
    for _ in range(data.draw(st.integers(1, 4))):
        turns = data.draw(st.lists(PROMPTS, min_size=1, max_size=2))
        messages = [message for turn in turns for message in turn]
        seed, depth = data.draw(st.integers(0, 3)), data.draw(st.sampled_from([None, 3]))
        stream = remembering.stream(messages, seed=seed, depth=depth, **OPTIONS)
        count = data.draw(st.integers(1, 40))
        found = [token.id for token, _ in zip(stream, range(count), strict=False)]
        stream.close()
        plain.slots.own.target.truncate(0)
        assert found == plain.generate(messages, seed=seed, **OPTIONS).token_ids[: len(found)]


def test_a_device_that_fails_reads_the_images_again(family: str) -> None:
    with localspec.load(models(family), draft="suffix", **LOAD) as engine:
        expected = engine.generate(asked(1, 2), seed=3, depth=3, **OPTIONS).token_ids
        for after in range(8):
            with device_fails(1, later=True, after=after) as left:
                found = engine.generate(asked(1, 2), seed=3, depth=3, **OPTIONS)
            assert not left
            assert found.token_ids == expected


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen2vl"])
def test_reproducible_texts(family: str) -> None:
    options = LOAD | {"kv_type": "f16"}
    texts = []
    for draft in ("none", "suffix"):
        with localspec.load(
            models(family), draft=draft, reproducible=True, texts=2, **options
        ) as engine:
            texts.append(engine.generate(asked(1), seed=3, **OPTIONS).token_ids)
            both = engine.generate([asked(2), asked(1)], seed=3, **OPTIONS)
            texts.append(both[1].token_ids)
    assert texts == [texts[0]] * 4


def test_draft_models_read_the_words_alone(plain: Engine, family: str) -> None:
    """At temperature 0 a draft is what the model writes behind the words."""
    path = models(family)
    with (
        localspec.load(path, draft=str(path), **LOAD) as engine,
        pytest.MonkeyPatch.context() as patch,
    ):
        recorded = Recorder(DraftModel, None, patch)
        for number, images in enumerate(((1,), (), (1, 2), (2,))):
            options = OPTIONS | {"temperature": 0, "max_tokens": 12, "depth": 3}
            prompt = engine.stream(asked(*images), **options).prompt
            expected = plain.generate(asked(*images), **options)
            found = engine.generate(asked(*images), **options)
            assert found.token_ids == expected.token_ids
            assert found.stats.drafted
            for draft in recorded.drafts:
                assert draft.text[: len(words_of(prompt))] == words_of(prompt)
                options = OPTIONS | {"temperature": 0, "max_tokens": len(draft.tokens)}
                assert draft.tokens == plain.generate(draft.text, **options).token_ids, number
            recorded.drafts.clear()


@pytest.mark.parametrize("draft", ["a draft model", "through text"])
def test_drafts_behind_an_image_are_right_now_and_then(draft: str, tmp_path: Path) -> None:
    """A real pair, and an image that says nothing to it."""
    projector = projector_for(PYCODE.target, tmp_path / "mmproj.gguf")
    drafter = PYCODE.drafter
    if draft == "through text":
        drafter = write_respelled(tmp_path / "respelled.gguf", PYCODE.drafter)
    options = {"max_tokens": 40, "seed": 3, "temperature": 0.8}
    code = [{"type": "text", "text": "def read_lines(path):\n    with open(path) as file:\n"}]
    message = {"role": "user", "content": [{"type": "image", "image": picture(56, 56)}, *code]}
    with load(draft="none", mmproj=projector, **EXACT) as plain:
        expected = plain.generate([message], **options).token_ids
    with load(draft=drafter, mmproj=projector, **EXACT) as engine:
        for depth in (2, 5):
            found = engine.generate([message], depth=depth, **options)
            assert found.token_ids == expected
            assert 0 < found.stats.accepted < found.stats.drafted
        [member] = engine.drafter_set.members
        if isinstance(member.drafter, TextDrafter) and member.sequence:
            # It reads the conversation in its own template.
            drafter = member.sequence
            assert "[image]" in "".join(map(drafter.model.piece_text, drafter.tokens))


def test_penalties_read_the_words_alone(plain: Engine) -> None:
    options = OPTIONS | {"repeat_penalty": 1.3, "dry_multiplier": 0.8}
    with localspec.load(plain.model.path, draft="suffix", **LOAD) as engine:
        for seed in range(3):
            expected = plain.generate(asked(1), seed=seed, **options).token_ids
            assert engine.generate(asked(1), seed=seed, depth=4, **options).token_ids == expected


def test_texts_with_images_are_neither_remembered_nor_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    store = StateStore(tmp_path / "states")
    with localspec.load(models("llama"), draft="suffix", remember=True, **LOAD) as engine:
        engine.generate(asked(1), seed=1, **OPTIONS)
        slot = engine.slots.own
        assert slot.save("a", store) == "texts with images are not saved"
        assert not store.has("a")
        engine.generate(asked(), seed=1, **OPTIONS)
        assert slot.save("a", store) is None
        earlier = engine.drafter_set.earlier
    assert earlier and earlier.store
    texts = earlier.store.load()
    assert texts and not any(has_media(text.tokens) for text in texts)


def test_a_text_goes_on_from_its_tokens(plain: Engine) -> None:
    expected = plain.generate(asked(1), seed=5, **OPTIONS)
    first = plain.stream(asked(1), seed=5, **OPTIONS)
    start = [next(first).id for _ in range(7)]
    first.close()
    rest = plain.generate([*first.prompt, *start], seed=5, **OPTIONS | {"max_tokens": 33})
    assert [*start, *rest.token_ids] == expected.token_ids
    assert plain.detokenize(words_of(first.prompt))


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,{}"}},
        {"type": "image_url", "image_url": "data:image/png;base64,{}"},
        {"type": "input_image", "image_url": "data:image/png;base64,{}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "{}"}},
        {"type": "image", "image": "{}"},
    ],
)
def test_the_ways_to_write_an_image(part: dict[str, Any]) -> None:
    data = base64.b64encode(picture(64, 70, seed=1)).decode()

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        return value.replace("{}", data)

    message = {"role": "user", "content": [filled(part), {"type": "text", "text": WORDS}]}
    with localspec.load(models("llama"), draft="none", **LOAD) as engine:
        expected = engine.stream(asked(1), seed=1, **OPTIONS)
        assert engine.stream([message], seed=1, **OPTIONS).prompt == expected.prompt


@pytest.mark.parametrize("key", ["image", "path"])
def test_a_file_of_this_machine(key: str, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(picture(64, 70, seed=1))
    part = {"type": "image", key: file if key == "image" else str(file)}
    message = {"role": "user", "content": [part, {"type": "text", "text": WORDS}]}
    with localspec.load(models("llama"), draft="none", **LOAD) as engine:
        expected = engine.stream(asked(1), seed=1, **OPTIONS)
        assert engine.stream([message], seed=1, **OPTIONS).prompt == expected.prompt
        file.unlink()
        with pytest.raises(InvalidValueError, match=r"a\.png'; it cannot be read"):
            engine.stream([message], seed=1, **OPTIONS)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"type": "image", "image": b"nothing"}, "no JPEG, PNG, GIF or BMP"),
        (
            {"type": "image", "image": "!"},
            r"messages\[0\].content\[0\].image is '!', which is no base64",
        ),
        ({"type": "image", "image": None}, r"content\[0\].image is None; give the file's contents"),
        ({"type": "image_url", "image_url": {"url": "https://a/b.png"}}, "fetches no addresses"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "fetches no addresses"),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png,abc"}},
            "give its data in base64",
        ),
        ({"type": "image_url", "image_url": {}}, r"image_url.url is None"),
        (
            {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
            "hears nothing",
        ),
        ({"type": "video", "video": b""}, r"content\[0\].type is 'video'; it must be text"),
    ],
)
def test_what_is_no_image_is_refused(part: dict[str, Any], told: str) -> None:
    message = {"role": "user", "content": [part, {"type": "text", "text": "a"}]}
    with localspec.load(models("llama"), draft="none", **LOAD) as engine:
        with pytest.raises(InvalidValueError, match=told):
            engine.generate([message], **OPTIONS)
        assert engine.generate(asked(1), **OPTIONS).token_ids


def test_models_without_a_projector_say_what_to_do(tmp_path: Path) -> None:
    lonely = Path(copy(models("llama"), tmp_path / "lonely.gguf"))
    with localspec.load(lonely, draft="none", **LOAD) as engine:
        with pytest.raises(
            InvalidValueError,
            match=r"must be text; .* images and sounds need the model.s mmproj file beside it",
        ):
            engine.generate(asked(1), **OPTIONS)
        assert engine.generate(asked(), **OPTIONS).token_ids
    with localspec.load(lonely, draft="none", mmproj=tiny_projector("llama"), **LOAD) as engine:
        assert engine.generate(asked(1), **OPTIONS).token_ids
        with pytest.raises(InvalidValueError, match="the prompt ends with an image"):
            engine.generate(engine.stream(asked(1), **OPTIONS).prompt[:20], **OPTIONS)
    with pytest.raises(ModelLoadError, match=r"lonely\.gguf is no mmproj file"):
        localspec.load(lonely, draft="none", mmproj=lonely, **LOAD)


def test_a_projector_of_another_model_is_told_with_the_first_image(tmp_path: Path) -> None:
    wide = write_projector(tmp_path / "wide.gguf", "mlp", width=48)
    with localspec.load(models("llama"), draft="none", mmproj=wide, **LOAD) as engine:
        with pytest.raises(ModelLoadError, match="made for this model"):
            engine.generate(asked(1), **OPTIONS)
        assert engine.generate(asked(), **OPTIONS).token_ids
