"""Top logits: the likeliest tokens, and the mass of the others."""

import numpy as np

from localspec.distillation.top_logits import joined, top_logits


def test_the_likeliest_tokens_and_the_rest() -> None:
    logits = np.random.default_rng(1).standard_normal((7, 300)).astype(np.float32) * 3
    found = top_logits(logits, 20)
    probs = np.exp(logits - logits.max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    expected = np.argsort(-probs, 1, kind="stable")[:, :20]
    np.testing.assert_array_equal(found.ids, expected)
    np.testing.assert_allclose(
        np.exp(found.log_probs.astype(float)), np.take_along_axis(probs, expected, 1), rtol=5e-3
    )
    total = np.exp(found.log_probs.astype(float)).sum(1) + np.exp(found.rest.astype(float))
    np.testing.assert_allclose(total, 1, atol=5e-3)


def test_equal_logits_in_the_order_of_the_vocabulary() -> None:
    found = top_logits(np.zeros((1, 8), np.float32), 8)
    assert found.ids[0].tolist() == list(range(8))
    assert found.rest[0] == -30


def test_small_vocabularies_and_certain_tokens() -> None:
    logits = np.full((2, 5), -1e30, np.float32)
    logits[:, 3] = 9
    found = top_logits(logits)
    assert found.ids.shape == (2, 5) and found.ids[0, 0] == 3
    assert found.log_probs[0, 0] == 0 and np.isfinite(found.log_probs).all()
    assert len(joined([found, found])) == 4
