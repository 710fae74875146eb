"""Same text on toy models: a seed gives one text, whatever is drafted."""

from collections.abc import Callable

import numpy as np
import pytest
from fakes.toy import Scripted, ToyCache, ToyModel, ToyTarget, fixed

from localspec.drafters.draft_model import DraftModel
from localspec.drafters.ngram import Ngram
from localspec.drafters.prompt_lookup import PromptLookup
from localspec.errors import DrafterMismatchError
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.drafter import Drafter, Limit
from localspec.speculation.emission import Emission
from localspec.speculation.rules import RULES
from localspec.stats import Stats

COUPLED = RULES["coupled"]
N_VOCAB, SEEDS, LENGTH = 16, 60, 40
TARGET = ToyModel.random(N_VOCAB, seed=11, spread=2.0)
SMALL = TARGET.like(seed=12, noise=1.0)
PROMPT = [3, 1, 4, 1, 5]
SAMPLERS = {
    "defaults": SamplingParams(),
    "hot": SamplingParams(temperature=1.5, top_k=0, top_p=1, min_p=0),
    "penalised": SamplingParams(repeat_penalty=1.3, frequency_penalty=0.2, penalty_window=9),
    "greedy": SamplingParams(temperature=0),
    "xtc": SamplingParams(xtc_probability=0.6),
    "mirostat": SamplingParams(mirostat=1, mirostat_tau=1.5, mirostat_eta=0.5),
    "mirostat 2": SamplingParams(mirostat=2, mirostat_tau=1.5, mirostat_eta=0.5),
    "adaptive-p": SamplingParams(adaptive_target=0.4, adaptive_decay=0.6),
    "greedy xtc": SamplingParams(temperature=0, xtc_probability=0.6, xtc_threshold=0.05),
}


def decode(
    drafter: Drafter | None, params: SamplingParams, seed: int, depth: int = 3
) -> tuple[list[Emission], Stats]:
    text, stats = list(PROMPT), Stats()
    target = ToyTarget(TARGET, text)
    loop = Decoder(
        target, fixed(drafter, depth), COUPLED, Sampler(params, Noise(seed)), text, stats
    )
    emissions = list(loop.run(LENGTH))
    assert text == [*PROMPT, *(token.id for token in emissions)]
    assert target.cache == text[:-1]
    assert target.passes == stats.steps
    return emissions, stats


def small() -> Drafter:
    return DraftModel(ToyCache(SMALL), name="small", n_vocab=N_VOCAB)


def twin() -> Drafter:
    return DraftModel(ToyCache(TARGET), name="twin", n_vocab=N_VOCAB)


def adversary() -> Drafter:
    """A drafter that knows target and noise: right, then wrong, then right again."""

    def guess(text: list[int], limit: Limit) -> Draft:
        sampler, prefix = limit.sampler, limit.prefix
        tokens: list[int] = []
        for i in range(limit.depth):
            row = sampler.distribution(TARGET.logits([*text, *tokens]), prefix)
            token = sampler.sample(row, prefix)
            tokens.append(token if (len(text) + i) % 3 else (token + 1) % N_VOCAB)
            prefix = prefix.then(tokens[-1], row.state_after(tokens[-1]))
        return Draft(tokens)

    return Scripted(guess)


def tree() -> Drafter:
    """A tree with every token at the first position, and every one after each of the first two."""
    nodes = [*range(N_VOCAB)] * 3
    parents = [ROOT] * N_VOCAB + [0] * N_VOCAB + [1] * N_VOCAB
    return Scripted(lambda text, limit: Draft(nodes, parents=parents))


DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "small": small,
    "twin": twin,
    "lookup": PromptLookup,
    "ngram": Ngram,
    "adversary": adversary,
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_text_of_a_seed_does_not_depend_on_the_drafter(sampler: str) -> None:
    params = SAMPLERS[sampler]
    for seed in range(SEEDS):
        plain = [token.id for token in decode(None, params, seed)[0]]
        for name, drafter in DRAFTERS.items():
            for depth in (1, 2, 3, 5) if seed < 10 else (3,):
                drafted = [token.id for token in decode(drafter(), params, seed, depth)[0]]
                assert drafted == plain, (name, depth, seed)
        assert [token.id for token in decode(tree(), params, seed, 3 * N_VOCAB)[0]] == plain


def test_another_seed_gives_another_text() -> None:
    texts = {tuple(t.id for t in decode(None, SAMPLERS["hot"], seed)[0]) for seed in range(SEEDS)}
    assert len(texts) == SEEDS


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_drafter_that_is_the_target_is_always_right(sampler: str) -> None:
    emissions, stats = decode(twin(), SAMPLERS[sampler], seed=1, depth=2)
    assert [token.origin for token in emissions[:9]] == ["twin", "twin", "bonus"] * 3
    assert stats.acceptance_rate == 1
    assert stats.accepted_per_position == [
        stats.accepted // 2 + stats.accepted % 2,
        stats.accepted // 2,
    ]


def test_origins_and_counts_agree() -> None:
    emissions, stats = decode(adversary(), SAMPLERS["defaults"], seed=4)
    origins = [token.origin for token in emissions]
    assert stats.generated_tokens == len(origins) == LENGTH
    assert stats.accepted == origins.count("scripted") == sum(stats.accepted_per_position)
    assert (
        origins.count("corrected") + origins.count("bonus") + origins.count("plain") == stats.steps
    )
    assert {token.origin for token in decode(None, SAMPLERS["hot"], 1)[0]} == {"plain"}


def test_logprobs_are_those_of_the_branch_that_was_accepted() -> None:
    def guess(text: list[int], limit: Limit) -> Draft:
        def following(tokens: list[int]) -> int:
            prefix = limit.sampler.prefix([*text, *tokens])
            row = limit.sampler.distribution(TARGET.logits([*text, *tokens]), prefix)
            return limit.sampler.sample(row, prefix)

        first = following([])
        second = following([first])
        nodes = [(first + 1) % N_VOCAB, first, (second + 1) % N_VOCAB, second]
        return Draft(nodes, parents=[ROOT, ROOT, 1, 1])

    text, stats, sampler = list(PROMPT), Stats(), Sampler(SAMPLERS["hot"], Noise(2))
    loop = Decoder(
        ToyTarget(TARGET, text), fixed(Scripted(guess), 4), COUPLED, sampler, text, stats
    )
    loop.logprobs, loop.top_logprobs = True, 2
    found = list(loop.run(LENGTH))
    assert stats.accepted > LENGTH // 2
    for place, each in enumerate(found, start=len(PROMPT)):
        row = TARGET.logits(text[:place]).astype(float)
        known = row - np.log(np.exp(row).sum())
        assert each.logprob == pytest.approx(known[each.id], abs=1e-5)
        assert [token for token, _ in each.top] == known.argsort()[::-1][:2].tolist()
        assert [value for _, value in each.top] == pytest.approx(sorted(known)[::-1][:2], abs=1e-5)


def test_the_drafter_evaluates_no_token_twice() -> None:
    for seed in range(20):
        cache = ToyCache(SMALL)
        drafter = DraftModel(cache, name="small", n_vocab=N_VOCAB)
        _, stats = decode(drafter, SAMPLERS["defaults"], seed)
        rejected = stats.drafted - stats.accepted
        assert stats.accepted > 0
        assert cache.evaluated <= len(PROMPT) + LENGTH + rejected


def test_closing_half_way_leaves_everything_consistent() -> None:
    params, drafter = SAMPLERS["defaults"], small()
    plain = [token.id for token in decode(None, params, 7)[0]]
    for stop in range(1, 12):
        text = list(PROMPT)
        target = ToyTarget(TARGET, text)
        run = Decoder(
            target, fixed(drafter, 4), COUPLED, Sampler(params, Noise(7)), text, Stats()
        ).run(LENGTH)
        for _ in range(stop):
            next(run)
        run.close()
        assert target.cache == text[:-1]
        assert text[len(PROMPT) :][:stop] == plain[:stop]
        assert [token.id for token in decode(drafter, params, 7)[0]] == plain


@pytest.mark.parametrize("token", [-1, N_VOCAB, 10**9])
def test_a_token_outside_the_vocabulary_is_refused_by_name(token: int) -> None:
    wrong = Scripted(lambda text, limit: Draft([token]))
    with pytest.raises(DrafterMismatchError, match=f"'scripted' proposed token {token}"):
        decode(wrong, SAMPLERS["defaults"], 1)


def test_a_pass_that_keeps_few_tokens_gets_short_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much text is left is another question: it decides what reading a prompt may cost."""
    monkeypatch.setattr(ToyTarget, "most_kept", 3)
    limits: list[Limit] = []
    drafter = adversary()
    guess = drafter.propose

    def propose(limit: Limit) -> Draft:
        limits.append(limit)
        return guess(limit)

    monkeypatch.setattr(drafter, "propose", propose)
    expected, _ = decode(None, SAMPLERS["defaults"], 1)
    emissions, stats = decode(drafter, SAMPLERS["defaults"], 1, depth=6)
    assert [each.id for each in emissions] == [each.id for each in expected]
    assert max(limit.depth for limit in limits) == 2
    assert limits[0].tokens_left == LENGTH
    assert stats.drafted <= 2 * stats.steps


def test_a_draft_longer_than_asked_is_cut() -> None:
    chatty = Scripted(lambda text, limit: Draft([1] * 50))
    emissions, stats = decode(chatty, SAMPLERS["defaults"], 1, depth=2)
    assert len(emissions) == LENGTH
    assert stats.drafted <= 2 * stats.steps
