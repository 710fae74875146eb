"""DraftModel: unknown tokens, cancelling, and the distributions that its drafts carry."""

import numpy as np
import pytest
from fakes.toy import ToyCache, ToyModel, proposed

from localspec.drafters.draft_model import DraftModel
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.passes import run

PLAIN = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)
SAMPLER = Sampler(PLAIN, Noise(1))
MODEL = ToyModel.random(8, seed=3)


def limit(text: list[int], **more: object) -> Limit:
    return Limit(4, SAMPLER.prefix(text), SAMPLER, **more)  # type: ignore[arg-type]


def test_a_known_token_stands_in_for_one_outside_its_vocabulary() -> None:
    """The target may have more tokens than the draft model, for chat turns for instance."""
    cache, plain = ToyCache(MODEL), ToyCache(MODEL)
    drafter = DraftModel(cache, name="small", n_vocab=12, stand_in=5)
    known = DraftModel(plain, name="small", n_vocab=12)
    drafter.begin([1, 2, 9, 3])
    known.begin([1, 2, 5, 3])
    text = [1, 2, 9, 3]
    for committed in ([11], [4, 8, 8], None, [11, 1]):
        drafts = [proposed(each, limit(text)).tokens for each in (drafter, known)]
        assert [*drafts[0]] == [*drafts[1]] and len(drafts[0]) == 4
        # None: all that was drafted, and a token that is not known.
        tokens = [*map(int, drafts[0]), 10] if committed is None else committed
        text += tokens
        drafter.observe(Outcome(tokens, len(tokens) - 1))
        read = [5 if token > 7 else token for token in tokens]
        known.observe(Outcome(read, len(tokens) - 1))
        assert cache.tokens == plain.tokens and cache.evaluated == plain.evaluated


def test_it_proposes_no_token_the_target_does_not_know() -> None:
    drafter = DraftModel(ToyCache(MODEL), name="small", n_vocab=3)
    drafter.begin([1, 2])
    for start in range(40):
        drafter.observe(Outcome([start % 3], 0))
        assert max(proposed(drafter, limit([1] * start)).tokens) < 3


def test_a_long_prompt_is_evaluated_in_chunks_that_can_be_cancelled() -> None:
    cache = ToyCache(MODEL)
    cache.chunk = 10
    drafter = DraftModel(cache, name="small", n_vocab=8)
    text = [1, 2, 3, 4] * 10
    drafter.begin(text)
    asked = iter([False, False, True])
    assert len(proposed(drafter, limit(text, cancelled=lambda: next(asked)))) == 0
    assert cache.evaluated == 20
    # No token is evaluated twice.
    assert len(proposed(drafter, limit(text))) == 4
    assert cache.evaluated == 40 + 3


def drawn(text: list[int], count: int, read: list[int] | None = None) -> list[int]:
    """What the model draws after a text, without a cache. read: what it reads of the text."""
    tokens: list[int] = []
    for _ in range(count):
        prefix = SAMPLER.prefix([*text, *tokens])
        logits = MODEL.logits([*(text if read is None else read), *tokens])
        law = SAMPLER.distribution(logits, prefix)
        tokens.append(SAMPLER.sample(law, prefix))
    return tokens


def test_what_a_text_shares_with_the_one_before_is_not_evaluated_again() -> None:
    cache = ToyCache(MODEL)
    drafter = DraftModel(cache, name="small", n_vocab=8)
    text = [1, 2, 3, 4] * 10
    for more in ([], [5, 6], [7]):
        text = [*text, *more]
        drafter.begin(text)
        before = cache.evaluated
        assert [*proposed(drafter, limit(text)).tokens] == drawn(text, 4)
        assert cache.evaluated - before == (len(more) or len(text)) + 3


@pytest.mark.parametrize("ahead", [False, True])
def test_another_text_has_no_tokens_drawn_behind_the_one_before(ahead: bool) -> None:
    drafter = DraftModel(ToyCache(MODEL), name="small", n_vocab=8, ahead=ahead)
    for text in ([1, 2, 3], [4, 5, 6], [4, 5]):
        drafter.begin(text)
        assert [*proposed(drafter, limit(text)).tokens] == drawn(text, 4)


def test_a_cache_can_be_rolled_back_to_the_text_in_front_of_a_draft() -> None:
    lengths: list[int] = []

    class Noted(ToyCache):
        def checkpoint(self) -> None:
            lengths.append(len(self.tokens))

    drafter = DraftModel(Noted(MODEL), name="small", n_vocab=8)
    text = [1, 2, 3]
    drafter.begin(text)
    for accepted in (0, 2, 4):
        tokens = [*proposed(drafter, limit(text)).tokens][:accepted]
        assert lengths.pop() == len(text) and not lengths
        text += [*tokens, 5]
        drafter.observe(Outcome([*tokens, 5], accepted))


def test_the_policy_is_not_asked_about_tokens_that_are_drawn_ahead() -> None:
    asked: list[float] = []
    drafter = DraftModel(ToyCache(MODEL), name="small", n_vocab=8, ahead=True)
    drafter.begin([1, 2])
    proposed(drafter, limit([1, 2], go_on=lambda each: not asked.append(each)))
    assert len(asked) == 4
    run(drafter.passes_ahead(3))
    assert len(asked) == 4
    assert drafter.traits.ready and drafter.traits.ready() == 4 + 3


def test_drafts_end_with_the_context() -> None:
    drafter = DraftModel(ToyCache(MODEL, n_ctx=10), name="small", n_vocab=8)
    for room in (3, 2, 1, 0):
        text = [1] * (10 - room)
        drafter.begin(text)
        assert len(proposed(drafter, limit(text))) == room


def test_the_distributions_of_a_draft_do_not_change_later() -> None:
    class OneBuffer(ToyCache):
        """Every pass writes the same array, as in llama.cpp."""

        buffer = np.empty(8, np.float32)

        def extend(self, tokens):  # type: ignore[no-untyped-def]
            self.buffer[:] = super().extend(tokens)
            return self.buffer

    drafter = DraftModel(OneBuffer(MODEL), name="small", n_vocab=8)
    drafter.begin([1, 2])
    assert proposed(drafter, limit([1, 2])).probs is None
    draft = proposed(drafter, limit([1, 2], needs_probs=True))
    assert draft.probs is not None
    text = [1, 2]
    for token, law in zip(draft.tokens, draft.probs, strict=True):
        assert np.array_equal(law.logits, MODEL.logits(text))
        text.append(token)
