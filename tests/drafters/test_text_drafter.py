"""TextDrafter: what it reads and draws, and that every rule is exact for its drafts."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes.enumeration import SEED, Drawn, SharedNoise, exact, total_variation
from fakes.letters import Letters
from fakes.mutants import Code, Edit
from fakes.stateful import examples, run_machine
from fakes.text_oracle import READERS, WORDS, Oracle
from fakes.toy import ToyCache, ToyModel, ToyTarget, fixed, proposed
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from localspec.drafters.respelled_text import RespelledText
from localspec.drafters.spelling import Spelling
from localspec.drafters.text_chain import TextChain
from localspec.drafters.text_drafter import TextDrafter
from localspec.drafters.translation import Translation
from localspec.sampling.filters import distribution
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.sampling.xtc import applies
from localspec.speculation.decoder import Decoder
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.rules import RULES
from localspec.stats import Stats

EXACT = 1e-12
PLAIN = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)
SAMPLERS = {
    "full": PLAIN,
    "top-k": SamplingParams(temperature=1.3, top_k=2, top_p=1, min_p=0),
    "penalties": SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, repeat_penalty=1.5),
    "xtc": SamplingParams(
        temperature=1, top_k=0, top_p=1, min_p=0, xtc_probability=0.5, xtc_threshold=0.25
    ),
    "greedy": SamplingParams(temperature=0),
}
TARGET = Letters("a", "b", "ab")
# Drafters of other vocabularies for the same letters.
DRAFTERS = {
    "letters": Letters("b", "a"),
    "longer": Letters("b", "ba", "a", "aab", "abab"),
    "with control tokens": Letters(None, "a", "b", "bb", None, bos=0, ends=[4]),
    "other letters": Letters("x", "b", "a", "ax"),
    "the same in another order": Letters("ab", "b", "a"),
}
PROMPT = [0, 1, 2, 0]


TRANSLATIONS = {name: Translation(TARGET, each) for name, each in DRAFTERS.items()}
LENGTH = 3


def drafter(vocabulary: str, seed: int = 3) -> TextDrafter:
    model = ToyModel.random(DRAFTERS[vocabulary].n_vocab, seed=seed)
    return TextDrafter(ToyCache(model), name="text", translation=TRANSLATIONS[vocabulary])


def law_of_target(model: ToyModel, params: SamplingParams, length: int) -> dict[Any, float]:
    """The probability of each text of this length, as a product over its tokens."""
    law: dict[Any, float] = {(): 1.0}
    for _ in range(length):
        law = {
            (*text, token): share * float(p)
            for text, share in law.items()
            for token, p in enumerate(_next(model, params, text))
        }
    return law


def _next(model: ToyModel, params: SamplingParams, text: tuple[int, ...]) -> Any:
    before = [*PROMPT, *text]
    xtc = applies(params, SEED, len(before))
    return distribution(model.logits(before), params, before, xtc=xtc).dense(model.n_vocab)


def spoken(
    make: Callable[[], TextDrafter], params: SamplingParams, rule_name: str, *, depth: int
) -> tuple[dict[Any, float], float]:
    """The exact law of the first tokens that the decoder gives; how many drafts were accepted."""
    target, accepted = ToyModel.random(3, seed=1), 0.0
    noise = SharedNoise if rule_name == "coupled" else Drawn

    def run(branches: Any) -> tuple[int, ...]:
        nonlocal accepted
        text, stats = list(PROMPT), Stats()
        sampler = Sampler(params, noise(branches))
        loop = Decoder(
            ToyTarget(target, text), fixed(make(), depth), RULES[rule_name], sampler, text, stats
        )
        said = tuple(token.id for token in loop.run(LENGTH))
        accepted += branches.probability * stats.accepted
        return said

    return exact(run), accepted


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("rule_name", RULES)
@pytest.mark.parametrize("vocabulary", DRAFTERS)
def test_it_leaves_the_distribution_alone(
    vocabulary: str, rule_name: str, sampler: str, depth: int
) -> None:
    params = SAMPLERS[sampler]
    law, accepted = spoken(lambda: drafter(vocabulary), params, rule_name, depth=depth)
    expected = law_of_target(ToyModel.random(3, seed=1), params, LENGTH)
    assert total_variation(law, expected) < EXACT
    assert accepted > 0 or sampler == "greedy"


# What it drafts, by an oracle that knows the text as a whole.

GREEDY = Sampler(SamplingParams(temperature=0), Noise(1))
WARM = Sampler(PLAIN, Noise(1))


def machine(make: Callable[..., TextDrafter], name: str, seen: Counter[Any]) -> type[Any]:
    """Texts that go on, are cut and changed; each draft is the oracle's. seen: what happened."""
    own = READERS[name]
    model = ToyModel.random(own.n_vocab, seed=5, spread=2.0)
    oracle = Oracle(own, model)
    one = st.sampled_from([0, 1, 2]) | st.integers(0, WORDS.n_vocab - 1)
    tokens = st.lists(one, min_size=1, max_size=4)

    class Machine(RuleBasedStateMachine):
        @initialize(text=tokens)
        def begin(self, text: list[int]) -> None:
            self.cache = ToyCache(model, n_ctx=200)
            self.drafter = make(self.cache, own)
            self.drafter.begin(text)
            self.text = list(text)

        @rule(
            depth=st.integers(1, 5),
            sampler=st.sampled_from([GREEDY, WARM]),
            certain=st.booleans(),
            token=one,
        )
        def step(self, depth: int, sampler: Sampler, certain: bool, token: int) -> None:
            limit = Limit(depth, sampler.prefix(self.text), sampler, needs_probs=certain)
            draft = proposed(self.drafter, limit)
            assert draft.probs is None and draft.parents is None
            drafted = [int(each) for each in draft.tokens]
            assert drafted == oracle.draft(self.text, depth, sampler, certain=certain)
            # All of the text was read, as a new drafter would read it.
            spelled = oracle.spelled(self.text)
            assert self.cache.tokens[: len(spelled)] == spelled
            assert self.drafter.traits.backlog and self.drafter.traits.backlog() == 0
            # Each number of tokens is accepted equally often.
            accepted = min(range(len(drafted) + 1), key=lambda n: seen[len(drafted), n])
            seen[len(drafted), accepted] += 1
            self.commit([*drafted[:accepted], token], accepted)

        @rule(tokens=tokens)
        def step_of_another_drafter(self, tokens: list[int]) -> None:
            self.commit(tokens, 0)

        @rule(share=st.floats(0, 1), tokens=tokens | st.just([]))
        def is_cut(self, share: float, tokens: list[int]) -> None:
            cut = self.text[: int(share * len(self.text))]
            self.text = [*cut, *tokens] or self.text[:1]
            self.drafter.begin(self.text)

        def commit(self, tokens: list[int], accepted: int) -> None:
            self.text += tokens
            self.drafter.observe(Outcome(tokens, accepted))

    return Machine


def make(cache: ToyCache, own: Letters) -> TextDrafter:
    return TextDrafter(cache, name="text", translation=Translation(WORDS, own))


@pytest.mark.parametrize("name", READERS)
def test_its_drafts_are_those_of_an_oracle(name: str) -> None:
    """Whatever happened before, and however much of a draft was accepted."""
    seen: Counter[Any] = Counter()
    run_machine(machine(make, name, seen), examples=examples(80), steps=25)
    for length in range(1, 6):
        assert all(seen[length, accepted] for accepted in range(length + 1)), seen


def test_what_it_cannot_read_gets_no_drafts() -> None:
    """A text longer than its cache, and one of which it knows nothing; the next text is drafted."""
    own = READERS["shorter"]
    cache = ToyCache(ToyModel.random(own.n_vocab, seed=5), n_ctx=12)
    text_drafter = make(cache, own)
    for text, is_read in (([0, 1] * 6, False), ([0, 1], True)):
        text_drafter.begin(text)
        draft = proposed(text_drafter, Limit(3, GREEDY.prefix(text), GREEDY))
        assert bool(len(draft)) is is_read
    silent = make(ToyCache(ToyModel.random(2, seed=1)), Letters("x", "y"))
    silent.begin([0, 1])
    assert not len(proposed(silent, Limit(3, GREEDY.prefix([0, 1]), GREEDY)))


def test_a_long_text_is_read_in_chunks_that_can_be_cancelled() -> None:
    own = READERS["shorter"]
    cache = ToyCache(ToyModel.random(own.n_vocab, seed=5))
    cache.chunk = 10
    text_drafter, text = make(cache, own), [0, 1] * 20
    text_drafter.begin(text)
    asked = iter([False, False, True])
    limit = Limit(3, GREEDY.prefix(text), GREEDY, cancelled=lambda: next(asked))
    assert not len(proposed(text_drafter, limit))
    assert cache.evaluated == 20
    assert text_drafter.traits.backlog and text_drafter.traits.backlog() == 1 + 40 - 20
    assert len(proposed(text_drafter, Limit(3, GREEDY.prefix(text), GREEDY)))
    assert cache.evaluated < 41 + 3 * 8


def test_a_cache_can_be_rolled_back_to_the_text_in_front_of_a_draft() -> None:
    held: list[list[int]] = []

    class Noted(ToyCache):
        def checkpoint(self) -> None:
            held.append([*self.tokens])

    own = READERS["shorter"]
    text_drafter, text = make(Noted(ToyModel.random(own.n_vocab, seed=5)), own), [0, 1, 0]
    text_drafter.begin(text)
    for _ in range(3):
        assert len(proposed(text_drafter, Limit(3, GREEDY.prefix(text), GREEDY)))
        assert held.pop() == text_drafter._text.tokens and not held
        text += [1]
        text_drafter.observe(Outcome([1], 0))


def test_a_constraint_ends_the_draft() -> None:
    """No forbidden token is drafted, also none that a longer one of the drafter's spells."""

    class Alternating:
        """After `a` comes `b` or `ab`, else `a`."""

        def __init__(self, last: int = 0) -> None:
            self._last = last

        def allowed(self) -> Any:
            return np.isin(np.arange(WORDS.n_vocab), [1, 3] if self._last == 0 else [0])

        def then(self, token: int) -> "Alternating":
            assert self.allowed()[token]
            return Alternating(token)

    longest = 0
    for seed in range(20):
        own = READERS["longer"]
        text_drafter = TextDrafter(
            ToyCache(ToyModel.random(own.n_vocab, seed=seed)),
            name="text",
            translation=Translation(WORDS, own),
        )
        text_drafter.begin([0])
        sampler = Sampler(PLAIN, Noise(seed), constraint=Alternating())
        draft = proposed(text_drafter, Limit(4, sampler.prefix([0]), sampler))
        allowed = Alternating()
        for token in draft.tokens:
            allowed = allowed.then(int(token))
        longest = max(longest, len(draft))
    assert longest > 1


@pytest.mark.parametrize("logits", [np.nan, np.inf, -np.inf])
def test_broken_logits_are_no_draft(logits: float) -> None:
    """The target decides whether the text can go on."""
    own = READERS["longer"]
    row = np.full(own.n_vocab, logits, np.float32)
    chain = TextChain(Limit(3, WARM.prefix([0]), WARM), Translation(WORDS, own), 9)
    assert not chain.draw(row)
    assert not chain.tokens


def test_a_penalty_that_breaks_the_logits_ends_the_draft() -> None:
    own = READERS["longer"]
    params = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, repeat_penalty=1e-38)
    sampler = Sampler(params, Noise(1))
    chain = TextChain(Limit(3, sampler.prefix([0, 1]), sampler), Translation(WORDS, own), 9)
    assert not chain.draw(np.full(own.n_vocab, 9, np.float32))
    assert not chain.tokens


def test_a_vocabulary_of_other_characters() -> None:
    assert Translation(WORDS, Letters("x", "y")).lengthening > 0
    assert Translation(Letters("é"), Letters("ü")).lengthening == 1


def test_how_sure_it_is_is_said_once_for_each_token() -> None:
    """A policy may end the draft at any of them; what was drawn until then is proposed."""
    own = READERS["longer"]
    for most in range(1, 6):
        asked: list[float] = []

        def go_on(confidence: float, asked: list[float] = asked, most: int = most) -> bool:
            asked.append(confidence)
            return len(asked) < most

        text_drafter = make(ToyCache(ToyModel.random(own.n_vocab, seed=5)), own)
        text_drafter.begin([0, 1])
        draft = proposed(text_drafter, Limit(8, WARM.prefix([0, 1]), WARM, go_on=go_on))
        assert len(asked) >= min(most, len(draft))
        # One of the drafter's tokens may spell several.
        assert len(draft) <= most + 2


def test_a_token_that_spells_several_is_asked_about_as_often() -> None:
    own = READERS["longer"]
    for seed in range(10):
        asked: list[float] = []
        text_drafter = make(ToyCache(ToyModel.random(own.n_vocab, seed=seed)), own)
        text_drafter.begin([0, 1])
        limit = Limit(
            8, WARM.prefix([0, 1]), WARM, go_on=lambda each, asked=asked: not asked.append(each)
        )
        draft = proposed(text_drafter, limit)
        assert len(asked) == len(draft) > 0


# Mistakes planted in the source: a wrong draft costs time alone, so only the oracle sees them.

MISTAKES = {
    "a stale cache": Edit(TextDrafter._choose_part, "self._shared()", "len(self._held)"),
    "what was evaluated is not recorded": Edit(TextDrafter._read, "self._held += tokens", "pass"),
    "the last token's logits are those before it": Edit(
        TextDrafter.passes, "self._read(lacking)", "self._read(lacking[:-1] or lacking)"
    ),
    "committed tokens are forgotten": Edit(
        TextDrafter.observe, "extend(outcome.tokens)", "extend(outcome.tokens[:1])"
    ),
    "a cut keeps the bytes behind it": Edit(
        RespelledText._cut, "state.end, state.at_start", "self.end, state.at_start"
    ),
    "a cut keeps the tokens behind it": Edit(
        RespelledText._cut, "del self._text[state.count :]", "del self._text[length:]"
    ),
    "what stands before a control token is lost": Edit(
        RespelledText._append, "self._tokenize()", "pass"
    ),
    "bytes before a control token are spelled twice": Edit(
        RespelledText._append,
        'len(self.tokens), b"", False',
        "len(self.tokens), self.end, False",
    ),
    "a border that tokens cross": Edit(
        Spelling.last_border, " and data[at - 1] not in self._before_space", ""
    ),
    "a border is one token too late": Edit(
        Spelling.last_border, "return count, at\n", "return count, at + 1\n"
    ),
    "the end of a character is lost": Edit(
        Spelling.tokens, "found += self._of_bytes(invalid)", "pass"
    ),
    "the likeliest token alone counts": Edit(
        TextChain._row_of_target, "np.exp(logits - top)", "np.exp(4 * (logits - top))"
    ),
    "another token than the drawn one": Edit(
        TextChain.draw, "sharing[logits[sharing].argmax()]", "sharing[logits[sharing].argmin()]"
    ),
    "the noise of the place before": Edit(
        TextChain.draw, "self._prefixes[-1]", "self._prefixes[max(0, len(self.tokens) - 1)]"
    ),
    "certain drafts are drawn": Edit(
        TextChain.draw, "if self._limit.needs_probs:", "if self._limit.needs_probs and False:"
    ),
    "the text goes on behind its end": Edit(
        TextChain._take,
        "[*self.tokens, end], proposal) and False",
        "[*self.tokens, end], proposal)",
    ),
    "an end is another end": Edit(Translation.__init__, "self._ends.get(token, NONE)", "NONE"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught(mistake: str) -> None:
    code = Code(MISTAKES[mistake])

    def mistaken(cache: ToyCache, own: Letters) -> TextDrafter:
        drafter: TextDrafter = code.of(TextDrafter)(
            cache, name="text", translation=code.of(Translation)(WORDS, own)
        )
        return drafter

    for name in READERS:
        try:
            run_machine(
                machine(mistaken, name, Counter()),
                examples=300,
                steps=25,
                phases=[Phase.generate],
            )
        except Exception:
            return
    pytest.fail("no draft differs from the oracle's")
