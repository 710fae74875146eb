"""DraftModel: unknown tokens, cancelling, and the distributions that its drafts carry."""

import numpy as np
from fakes.toy import ToyCache, ToyModel, proposed

from localspec.drafters.draft_model import DraftModel
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome

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
