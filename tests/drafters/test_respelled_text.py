"""The drafter's tokens of a text: those of the whole text, though only its end is tokenized anew.

With tokenizers of llama.cpp, of every kind that splits texts in a way of its own.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from random import Random

import pytest
from fakes.letters import AddsSpace, Letters
from fakes.pycode import PYCODE
from fakes.respelled import write_respelled
from fakes.stateful import examples, run_machine
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from localspec.drafters.respelled_text import RespelledText
from localspec.drafters.spelling import Spelling
from localspec.drafters.translation import Translation
from localspec.llama.model import Model

# By name: the kind, the split into words, and how many merges.
KINDS = {
    "gpt-2": ("gpt2", "gpt-2", 2000),
    "few": ("gpt2", "gpt-2", 150),
    "llama-bpe": ("gpt2", "llama-bpe", 1500),
    "qwen2": ("gpt2", "qwen2", 2000),
    "tekken": ("gpt2", "tekken", 2000),
    "gpt-4o": ("gpt2", "gpt-4o", 2000),
    "deepseek-llm": ("gpt2", "deepseek-llm", 2000),
    "falcon": ("gpt2", "falcon", 2000),
    "spm": ("llama", "", 2000),
    "spm few": ("llama", "", 100),
}
TEXTS = st.lists(
    st.sampled_from(
        [
            *(
                "a",
                "e",
                "s",
                "x",
                " ",
                " ",
                "  ",
                "\n",
                "\n    ",
                "\t",
                "'",
                "'s",
                "it's",
                "(",
                ")",
            ),
            *(
                "self",
                " self",
                "return",
                " = ",
                "==",
                "1",
                "12",
                "345",
                "1234567",
                ".",
                "...",
                "__",
            ),
            *("é", "ß", "日本", "語", "😀", "\u200d", "\u00a0", "▁", "\r\n", "def f(x):", "<s>"),
            *("<|im_end|>", "<0x41>", "Größe", " 10", ",", ", ", "!", " !", "=" * 30),
        ]
    ),
    max_size=40,
).map("".join)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Model]]:
    folder, loaded = tmp_path_factory.mktemp("models"), dict[str, Model]()
    with ExitStack() as undo:

        def model(name: str) -> Model:
            if name not in loaded:
                kind, pre, merges = KINDS[name]
                path = folder / f"{name}.gguf".replace(" ", "-")
                write_respelled(path, PYCODE.drafter, kind=kind, pre=pre, merges=merges)
                loaded[name] = undo.enter_context(Model(path))
            return loaded[name]

        yield model


@pytest.fixture(scope="module", params=KINDS)
def own(request: pytest.FixtureRequest, models: Callable[[str], Model]) -> Model:
    return models(request.param)


@pytest.fixture(scope="module")
def translation(own: Model, target_model: Model) -> Translation:
    return Translation(target_model, own)


def whole(
    translation: Translation, tokens: Sequence[int], wording: Sequence[int] | None = None
) -> list[int]:
    """The drafter's tokens of a text, each stretch without a control token tokenized as one.

    wording: of what comes before.
    """
    target = translation.target.tokenizer
    spaces = b" " if translation.target.adds_space else b""
    found = list(translation.begins if wording is None else wording)
    stretch, is_start = b"", wording is None

    for place, token in enumerate(tokens):
        piece = target.piece(token)
        if piece:
            is_first = wording is None and list(tokens[:place]) in ([], [target.bos])
            stretch += piece[1:] if is_first and piece[:1] == b" " == spaces else piece
        elif place or wording is not None or token != target.bos:
            found += translation.own.tokens(stretch, first=is_start)
            found += translation.control(token)
            stretch, is_start = b"", False
    return found + translation.own.tokens(stretch, first=is_start)


@settings(max_examples=examples(60), deadline=None, derandomize=True, database=None)
@given(text=TEXTS, cuts=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_it_is_that_of_the_whole_text(
    translation: Translation, target_model: Model, text: str, cuts: list[int]
) -> None:
    """Whatever comes, in parts of any length."""
    tokens = target_model.tokenize(text, parse_special=False)
    respelled, at = RespelledText(translation), 0
    while at < len(tokens):
        part = tokens[at : at + cuts[at % len(cuts)]]
        at += len(part)
        stable = respelled.tokens[: respelled.stable]
        respelled.extend(part)
        assert respelled.tokens == whole(translation, tokens[:at])
        assert respelled.tokens[: len(stable)] == stable


def test_a_machine_of_changes(translation: Translation, target_model: Model, own: Model) -> None:
    """Texts that go on, are cut and changed, with and without a wording of their prompt."""
    texts = [
        "def f(x):\n    return self.value  # Größe 日本語 😀\n" * 3,
        "import os\n\n\nclass Names(object): pass",
        " " * 30,
    ]
    control = [target_model.bos, target_model.eos, 1]
    wording = own.tokenize("[Q] What? [A]", add_special=True, parse_special=True)

    class Changes(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            self.text: list[int] = []
            self.prompt: list[int] = []
            self.respelled = RespelledText(translation)

        @rule(which=st.sampled_from(texts), start=st.integers(0, 40), count=st.integers(1, 70))
        def goes_on(self, which: str, start: int, count: int) -> None:
            self.add(target_model.tokenize(which, add_special=False)[start : start + count])

        @rule(tokens=st.lists(st.integers(0, target_model.n_vocab - 1), min_size=1, max_size=8))
        def goes_on_with_any_tokens(self, tokens: list[int]) -> None:
            self.add(tokens)

        @rule(token=st.sampled_from(control))
        def goes_on_with_a_control_token(self, token: int) -> None:
            self.add([token])

        @rule(share=st.floats(0, 1), tokens=st.lists(st.integers(3, 4000), max_size=3))
        def is_cut(self, share: float, tokens: list[int]) -> None:
            self.text = [*self.text[: int(share * len(self.text))], *tokens]
            self.respelled.set_text(self.text)

        @rule(share=st.floats(0, 1))
        def gets_a_wording(self, share: float) -> None:
            self.prompt = self.text[: int(share * len(self.text))]
            self.respelled.reword(self.prompt, wording)
            self.respelled.set_text(self.text)

        def add(self, tokens: list[int]) -> None:
            self.text += tokens
            self.respelled.extend(tokens)

        @invariant()
        def it_is_that_of_the_whole_text(self) -> None:
            size = len(self.prompt)
            if size and self.text[:size] == self.prompt:
                fresh = RespelledText(translation)
                fresh.reword(self.prompt, wording)
                fresh.set_text(self.text)
                assert self.respelled.tokens == fresh.tokens
                assert fresh.tokens[: len(wording)] == wording
            else:
                assert self.respelled.tokens == whole(translation, self.text)

    run_machine(Changes, examples=examples(8), steps=12)


def test_only_the_end_is_tokenized_again(
    translation: Translation, target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the text is, a token more costs no more than a short one's."""
    usual, sizes = Spelling.tokens, list[int]()

    def counted(self: Spelling, data: bytes, *, first: bool = False) -> list[int]:
        sizes.append(len(data))
        return usual(self, data, first=first)

    monkeypatch.setattr(Spelling, "tokens", counted)
    text = target_model.tokenize("for name in names:\n    print(name, end='')\n" * 400)
    respelled = RespelledText(translation)
    respelled.extend(text)
    read = sum(sizes)
    assert read < 20 * sum(len(target_model.piece(token)) for token in text)
    sizes.clear()
    for token in text[1:200]:
        respelled.extend([token])
    assert max(sizes) < 100


LETTERS = Translation(Letters("a", "b", "ab", None), Letters("b", "a", None))


def test_a_prompt_has_the_wording_that_it_was_given_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    respelled = RespelledText(LETTERS)
    for prompt, wording, text, tokens in (
        ([], [], [0, 1], [1, 0]),
        ([0, 1], [1, 1, 1], [0, 1], [1, 1, 1]),
        ([0, 1], [0], [0, 1, 2], [0, 1, 0]),
        ([0], [1, 1], [0, 1], [1, 1, 0]),
        ([1], [1, 1], [0, 1], [1, 0]),
        ([0, 1, 0], [1], [0, 1], [1, 0]),
        ([0], [], [0, 1], [0]),
        ([], [0, 0], [0, 1], [1, 0]),
    ):
        respelled.reword(prompt, wording)
        respelled.set_text(text)
        assert respelled.tokens == tokens
    read = list[bytes]()
    monkeypatch.setattr(Spelling, "tokens", lambda _, data, **__: read.append(data) or [])
    respelled.reword([], [0, 0])
    respelled.set_text([0, 1])
    assert not read


# Vocabularies of which both, one or none begin a text with a space.
WITH_SPACES = [
    Translation(
        target(" a", "a", "b", " ", None, None, bos=5), own("b", " a", "a", " ", None, bos=4)
    )
    for target in (Letters, AddsSpace)
    for own in (Letters, AddsSpace)
]


@pytest.mark.parametrize("translation", WITH_SPACES, ids=range(4))
@pytest.mark.parametrize("begin", [[], [0], [5], [5, 0], [5, 3, 0], [4, 0], [2, 5]])
@pytest.mark.parametrize("wording", [None, [0]])
def test_a_long_text_may_be_cut_anywhere(
    translation: Translation, begin: list[int], wording: list[int] | None
) -> None:
    """Also behind a wording, and behind control tokens, where no text comes before."""
    prompt = [1, 1, 2, 1] if wording else []
    text = [*prompt, *begin, *Random(1).choices(range(5), k=300)]
    respelled = RespelledText(translation)
    respelled.reword(prompt, wording or [])
    for length in (300, 131, 130, 129, 128, 127, 68, 67, 66, 64, 63, 9, 5, 4, 200):
        respelled.set_text(text[:length])
        assert respelled.tokens == whole(translation, text[len(prompt) : length], wording)


def test_a_stretch_without_a_border_is_cut(translation: Translation, target_model: Model) -> None:
    """Between characters, and hardly a token is another one than those of the whole text."""
    chinese = "机器学习是人工智能的一个分支。它让计算机从数据中学习。" * 60
    for text in ("=" * 30_000, chinese):
        tokens = target_model.tokenize(text, add_special=False)
        respelled, longest = RespelledText(translation), 0
        for start in range(0, len(tokens), 7):
            respelled.extend(tokens[start : start + 7])
            longest = max(longest, len(respelled.end))
        own = translation.own
        spelled = b"".join(own.pieces[token] for token in respelled.tokens)
        assert spelled.decode().strip() == text
        assert longest < 700
        if text == chinese:
            common = Counter(respelled.tokens) & Counter(whole(translation, tokens))
            assert common.total() > 0.98 * len(respelled.tokens)


def test_half_a_character(translation: Translation, target_model: Model) -> None:
    """Its bytes are spelled as they are until it is whole."""
    tokens = target_model.tokenize("a 😀 b", add_special=False)
    halves = next(
        count
        for count in range(len(tokens))
        if not _is_valid(b"".join(map(target_model.piece, tokens[:count])))
    )
    respelled = RespelledText(translation)
    respelled.extend(tokens[:halves])
    spelled = b"".join(translation.own.pieces[token] for token in respelled.tokens)
    assert spelled.lstrip() == b"".join(map(target_model.piece, tokens[:halves])).lstrip()
    respelled.extend(tokens[halves:])
    assert respelled.tokens == whole(translation, tokens)


def _is_valid(data: bytes) -> bool:
    try:
        return bool(data.decode() or True)
    except UnicodeDecodeError:
        return False
