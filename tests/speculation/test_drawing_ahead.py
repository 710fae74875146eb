"""Drawing ahead: whatever is drawn while the target computes, texts are the same.

So are drafts, but for those of samplers with a state, which begin with the state that was guessed.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, repeat

import pytest
from fakes.ahead import Interleaved, Recorded
from fakes.enumeration import Drawn, SharedNoise, exact, total_variation
from fakes.laws import EXACT, PROMPT, SAMPLERS, TOYS, product_law
from fakes.mutants import Code, Edit
from fakes.plain_sampling import plain_stateful
from fakes.toy import ToyCache, ToyModel, ToyTarget, fixed
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control.fixed_depth import FixedDepth
from localspec.drafters.chain import Chain
from localspec.drafters.draft_model import DraftModel
from localspec.errors import WorkerError
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit
from localspec.speculation.policy import Decision
from localspec.speculation.rules import RULES
from localspec.stats import Stats

N_VOCAB, LENGTH = 12, 30
TARGET = ToyModel.random(N_VOCAB, seed=21, spread=2.0)
SMALL = TARGET.like(seed=22, noise=0.7)
TEXT = [3, 1, 4, 1, 5]
MANY = 2 * 9 + 1


def drafter_of(model: ToyModel = SMALL) -> Recorded:
    return Recorded(ToyCache(model), name="small", n_vocab=model.n_vocab, ahead=True)


def decoder(
    drafter: DraftModel | None, seed: int, params: SamplingParams = SAMPLERS["full"], depth: int = 3
) -> Decoder:
    text = list(TEXT)
    target, sampler = ToyTarget(TARGET, text), Sampler(params, Noise(seed))
    return Decoder(target, fixed(drafter, depth), RULES["coupled"], sampler, text, Stats())


def plain(seed: int, params: SamplingParams = SAMPLERS["full"]) -> list[int]:
    return [token.id for token in decoder(None, seed, params).run(LENGTH)]


def drawn_by(
    model: ToyModel,
    text: Sequence[int],
    count: int,
    sampler: Sampler,
    state: float | None = None,
) -> list[int]:
    """What a model draws after a text, token by token: an oracle without caches.

    state: of the sampler behind the text; from there on the model's own distributions move it.
    """
    tokens: list[int] = []
    for _ in range(count):
        before = [*text, *tokens]
        prefix = replace(sampler.prefix(before), state=state)
        row = model.logits(before)
        tokens.append(sampler.sample(sampler.distribution(row, prefix), prefix))
        if state is not None:
            state = plain_stateful(row, sampler.params, state)[1][tokens[-1]]
    return tokens


@pytest.mark.parametrize("counts", [[2], [4, 0], [3, 9, 6]], ids=str)
@pytest.mark.parametrize(("sampler", "depth"), [*((each, 1) for each in SAMPLERS), ("top-k", 2)])
@pytest.mark.parametrize("toy", TOYS)
def test_the_distribution_is_that_of_the_target(
    toy: str, sampler: str, depth: int, counts: list[int]
) -> None:
    target, small = TOYS[toy]
    params, length = SAMPLERS[sampler], 4

    def run(branches):  # type: ignore[no-untyped-def]
        text = list(PROMPT)
        drafter = DraftModel(ToyCache(small), name="small", n_vocab=3, ahead=True)
        loop = Decoder(
            ToyTarget(target, text),
            fixed(drafter, depth),
            RULES["coupled"],
            Sampler(params, SharedNoise(branches)),
            text,
            Stats(),
        )
        return tuple(token.id for token in loop.run(length, Interleaved(cycle(counts))))

    law = exact(run)
    assert total_variation(law, product_law(target, params, length)) < EXACT  # type: ignore[arg-type]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_texts_and_drafts_do_not_depend_on_who_is_quicker(data: st.DataObject) -> None:
    """Any number of passes beside each of the target's, lost ones, and the end at any token."""
    seed, depth = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 5))
    params = SAMPLERS[data.draw(st.sampled_from(sorted(SAMPLERS)))]
    counts = data.draw(st.lists(st.integers(0, 2 * depth + 5), max_size=20))
    lost = frozenset(data.draw(st.lists(st.integers(0, 20), max_size=4)))
    stop = data.draw(st.integers(1, LENGTH))
    drafter = drafter_of()
    loop = decoder(drafter, seed, params, depth)
    running = loop.run(LENGTH, Interleaved(iter(counts), lost))
    tokens = [token.id for token, _ in zip(running, range(stop), strict=False)]
    running.close()
    loop.end()
    assert tokens == plain(seed, params)[:stop]
    assert loop.target.cache == loop.text[:-1]  # type: ignore[attr-defined]
    sampler = Sampler(params, Noise(seed))
    for text, draft, began, state in drafter.proposed:
        whole = [*text, *draft]
        drawn = drawn_by(SMALL, whole[:began], len(whole) - began, sampler, state)
        assert whole[began:] == drawn
    # The drafter's cache begins with what it says that it holds, so another text can use it.
    cache = drafter._cache
    assert isinstance(cache, ToyCache)
    assert cache.tokens[: drafter._cached] == loop.text[: drafter._cached]
    drafter.begin(loop.text)
    again = decoder(drafter, seed, params, depth)
    assert [token.id for token in again.run(LENGTH)] == plain(seed, params)


def test_a_right_guess_is_the_next_draft_without_a_pass() -> None:
    """A drafter that is its target is always right: then all its passes are beside the target's."""
    drafter = drafter_of(TARGET)
    loop = decoder(drafter, seed=1)
    cache = drafter._cache
    assert isinstance(cache, ToyCache)
    beside: list[int] = []
    computed = Interleaved(repeat(MANY))

    def compute(requested):  # type: ignore[no-untyped-def]
        before = cache.evaluated
        scores = computed(requested)
        if requested.sequence is loop.target:
            beside.append(cache.evaluated - before)
        return scores

    assert [token.id for token in loop.run(LENGTH, compute)] == plain(1)
    stats = loop.stats
    # All but the prompt and the first draft; and no token twice.
    assert cache.evaluated == len(TEXT) + 2 + sum(beside)
    assert cache.evaluated <= len(TEXT) + LENGTH
    assert stats.drafted_ahead == sum(beside)
    assert stats.used_ahead == stats.drafted - 3
    assert stats.acceptance_rate == 1


def test_of_what_was_drawn_ahead_only_what_is_proposed_was_used() -> None:
    loop = decoder(drafter_of(TARGET), seed=1)
    loop.most = lambda: 2
    assert [token.id for token in loop.run(LENGTH, Interleaved(repeat(MANY)))] == plain(1)
    assert 0 < loop.stats.used_ahead <= loop.stats.drafted


@pytest.mark.parametrize("depth", [1, 3])
def test_what_was_drawn_behind_the_end_of_a_prompt_is_not_used_behind_all_of_it(depth: int) -> None:
    """What is used needs no pass: all other tokens are drawn from one each."""
    prompt, used = [*range(N_VOCAB)] * 20, 0
    cache = ToyCache(TARGET)
    drafter = DraftModel(cache, name="small", n_vocab=N_VOCAB, ahead=True)

    class Turning(FixedDepth):
        """Drafts from the end of the prompt first, then behind all of it."""

        def decide(self, limit: Limit) -> Decision:
            self.evaluated = cache.evaluated
            return replace(super().decide(limit), from_end=len(text) < len(prompt) + 12)

        def keep(self, draft: Draft) -> int:
            nonlocal used
            read = max(0, cache.evaluated - self.evaluated)
            # What it reads of the prompt is in the pass of the first token.
            used += len(draft) - min(read, len(draft))
            return len(draft)

    text, stats = list(prompt), Stats()
    target, sampler = ToyTarget(TARGET, text), Sampler(SAMPLERS["full"], Noise(1))
    policy = Turning([drafter], depth)
    loop = Decoder(target, policy, RULES["coupled"], sampler, text, stats)
    for _ in loop.run(LENGTH, Interleaved(repeat(MANY))):
        pass
    assert len(cache.tokens) > len(prompt), "all of the prompt was read at last"
    assert stats.used_ahead == used > 0


def test_more_is_ready_the_more_often_the_drafter_is_right() -> None:
    used = []
    for noise in (2.0, 0.7, 0.2):
        total = 0
        for seed in range(10):
            drafter = drafter_of(TARGET.like(seed=22, noise=noise))
            loop = decoder(drafter, seed)
            assert [t.id for t in loop.run(LENGTH, Interleaved(repeat(MANY)))] == plain(seed)
            assert loop.stats.used_ahead <= loop.stats.drafted_ahead
            total += loop.stats.used_ahead
        used.append(total)
    assert 0 < used[0] < used[1] < used[2]


@pytest.mark.parametrize("rule", ["token", "block"])
def test_rejection_rules_draw_nothing_ahead(rule: str) -> None:
    target, small = TOYS["loud"]

    def run(branches):  # type: ignore[no-untyped-def]
        text, stats = list(PROMPT), Stats()
        drafter = DraftModel(ToyCache(small), name="small", n_vocab=3, ahead=True)
        sampler = Sampler(SAMPLERS["full"], Drawn(branches))
        loop = Decoder(
            ToyTarget(target, text), fixed(drafter, 2), RULES[rule], sampler, text, stats
        )
        tokens = tuple(token.id for token in loop.run(4, Interleaved(repeat(MANY))))
        assert stats.drafted_ahead == stats.used_ahead == 0
        return tokens

    law = exact(run)
    assert total_variation(law, product_law(target, SAMPLERS["full"], 4)) < EXACT  # type: ignore[arg-type]


def test_nothing_is_drawn_behind_the_end_of_the_context_or_of_the_text() -> None:
    for n_ctx in range(len(TEXT) + 3, len(TEXT) + LENGTH + 9):
        cache = ToyCache(TARGET, n_ctx)
        drafter = Recorded(cache, name="small", n_vocab=N_VOCAB, ahead=True)
        longest = 0
        loop = decoder(drafter, 1)
        for _ in loop.run(LENGTH, Interleaved(repeat(MANY))):
            longest = max(longest, len(cache.tokens))
        # The last token that is drawn needs no place.
        assert longest < min(n_ctx, len(TEXT) + LENGTH)


def test_a_drafter_whose_machine_goes_away_meanwhile_is_lost() -> None:
    for after in range(8):
        drafter, left = drafter_of(), [after]

        class Failing(Interleaved):
            def __call__(self, requested):  # type: ignore[no-untyped-def]
                if not requested.meanwhile:
                    return super().__call__(requested)
                if left[0]:  # noqa: B023
                    left[0] -= 1  # noqa: B023
                    return super().__call__(requested)
                assert next(requested.meanwhile)
                with pytest.raises(StopIteration):
                    requested.meanwhile.throw(WorkerError("gone"))
                return super().__call__(requested)

        loop = decoder(drafter, 2)
        assert [token.id for token in loop.run(LENGTH, Failing(repeat(5)))] == plain(2)
        assert drafter not in loop.policy.drafters
        assert loop.target.cache == loop.text[:-1]  # type: ignore[attr-defined]


MISTAKES = {
    "wrong guesses stay ready": Edit(
        DraftModel.observe, "drawn[:count] == [*outcome.tokens]", "len(drawn) > count"
    ),
    "what was lost stays in the cache": Edit(
        DraftModel._holds_ready, "if self._cache.truncate(held) < held:", "if False:"
    ),
    "taken tokens are no part of the prefix": Edit(
        Chain.take, "self._prefix = prefix.then(token, state)", "self._prefix = prefix"
    ),
}
# The cache is asked what it holds, so these cost time only.
SLOW = {
    "the guess is ready again": Edit(
        DraftModel.observe, "self._drawn[count:] if", "self._drawn[count - 1 :] if"
    ),
    "the last drawn token counts as evaluated": Edit(
        DraftModel._holds_ready, "len(self._drawn) - 1", "len(self._drawn)"
    ),
    "nothing stays ready": Edit(DraftModel.observe, "self._drawn[count:] if stand else []", "[]"),
}


@pytest.mark.parametrize("mistake", [None, *SLOW])
def test_no_token_is_evaluated_twice(mistake: str | None) -> None:
    code = Code(SLOW[mistake]) if mistake else Code()
    cache = ToyCache(TARGET)
    drafter = code.of(DraftModel)(cache, name="small", n_vocab=N_VOCAB, ahead=True)
    found = [token.id for token in decoder(drafter, 1).run(LENGTH, Interleaved(repeat(MANY)))]
    assert found == plain(1)
    assert (cache.evaluated > len(TEXT) + LENGTH) == bool(mistake)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_detected(mistake: str) -> None:
    """Drafts differ from the oracle's; the text is that of plain decoding all the same."""
    code, wrong = Code(MISTAKES[mistake]), 0
    params = SAMPLERS["penalties"]
    for seed in range(6):
        model = TARGET.like(seed=22, noise=0.3)
        drafter = code.of(DraftModel)(ToyCache(model), name="small", n_vocab=N_VOCAB, ahead=True)
        proposed: list[tuple[list[int], list[int]]] = []
        usual = drafter.passes

        def passes(limit, usual=usual, drafter=drafter, proposed=proposed):  # type: ignore[no-untyped-def]
            text = list(drafter._text)
            draft = yield from usual(limit)
            proposed.append((text, list(draft.tokens)))
            return draft

        drafter.passes = passes
        loop = decoder(drafter, seed, params)
        lost = frozenset(range(0, 20, 3))
        found = [token.id for token in loop.run(LENGTH, Interleaved(repeat(5), lost))]
        assert found == plain(seed, params)
        sampler = Sampler(params, Noise(seed))
        wrong += sum(
            draft != drawn_by(model, text, len(draft), sampler) for text, draft in proposed
        )
    assert wrong
