"""The real pair against what can be worked out: the law of its texts, and what a rule accepts.

The first three tokens, over many seeds, must follow the product of the target's own distributions;
and the real loop must take the steps that `forecast.replay` computes from probabilities.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from fakes.pycode import PYCODE, load
from fakes.toy import fixed, proposed

from localspec.bench.experiments.greedy_drafter import greedy_sampler
from localspec.bench.experiments.rules import (
    MATCH,
    MODEL,
    OTHER_SEEDS,
    Workload,
    engines_of,
    held_out_prompts,
    predict,
    score,
)
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.ngram import Ngram
from localspec.drafters.prompt_lookup import PromptLookup
from localspec.engine.engine import Engine
from localspec.forecast.confidence import ConfidenceInterval, t_quantile
from localspec.forecast.replay import ScoredText, expected_steps, score_text
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.sampling.distribution import Distribution
from localspec.sampling.draws import Draws
from localspec.sampling.filters import distribution
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.drafter import Drafter, Limit, Outcome, Traits
from localspec.speculation.rules import CORRECTED, RULES, Rows, Rule, Verdict
from localspec.stats import Stats

Law = dict[tuple[int, ...], float]
Texts = Counter[tuple[int, ...]]

# Its end has been there before, so that lookup and ngram propose at once, now right, now wrong.
PROMPT = "x = a\ny = a\nz = a\nw ="
FOUR = SamplingParams(temperature=1, top_k=4, top_p=1, min_p=0)
LENGTH = 3
ALPHA = 1e-6
# To see a chi-square divergence d at ALPHA with power .999 takes lambda / d texts; lambda is 142
# for 4**3 cells. This many see d = .14; the wrong rules below are at .27 and more.
SEEDS = range(1020)
FEWER = range(530)


# The law of the first tokens.


@pytest.fixture(scope="module")
def caches(target_model: Model, drafter_model: Model) -> Iterator[tuple[KVSequence, KVSequence]]:
    with (
        single_sequence(
            target_model, ContextParams(n_ctx=512, threads=1, flash_attention=True)
        ) as target,
        single_sequence(
            drafter_model, ContextParams(n_ctx=512, threads=1, flash_attention=True)
        ) as drafter,
    ):
        yield target, drafter


@pytest.fixture(scope="module")
def law(caches: tuple[KVSequence, KVSequence]) -> Law:
    """Every text of LENGTH tokens that the target can say, with its probability."""
    target, _ = caches
    prompt = target.model.tokenize(PROMPT)
    said: Law = {(): 1.0}
    for _ in range(LENGTH):
        longer: Law = {}
        for text, probability in said.items():
            target.truncate(0)
            row = distribution(target.extend([*prompt, *text]), FOUR)
            for index, p in enumerate(row.probabilities()):
                longer[(*text, row.token(index))] = probability * float(p)
        said = longer
    assert len(said) == 4**LENGTH and math.isclose(sum(said.values()), 1)
    return said


def _drafter(name: str, caches: tuple[KVSequence, KVSequence]) -> Drafter:
    target, small = caches
    made: dict[str, Callable[[], Drafter]] = {
        "draft_model": lambda: DraftModel(small, name="small", n_vocab=target.n_vocab),
        "lookup": PromptLookup,
        "ngram": Ngram,
    }
    return made[name]()


def counted(
    caches: tuple[KVSequence, KVSequence], drafter: Drafter, rule: Rule, seeds: range = SEEDS
) -> tuple[Texts, Stats]:
    """How often each text came out of the real loop, and what was drafted for it."""
    target, _ = caches
    prompt = target.model.tokenize(PROMPT)
    stats, texts = Stats(), Texts()
    for seed in seeds:
        kept = target.truncate(target.shared(prompt[:-1]))
        if kept < len(prompt) - 1:
            target.extend(prompt[kept:-1])
        # Depths 1 to 3 take turns: the first tokens are drafted, corrected and bonus ones.
        sampler, depth = Sampler(FOUR, rule.randomness(seed)), 1 + seed % 3
        loop = Decoder(target, fixed(drafter, depth), rule, sampler, list(prompt), stats)
        # Two tokens more are asked for, so that the last that count are drafted as well.
        running = loop.run(LENGTH + 2)
        texts[tuple(next(running).id for _ in range(LENGTH))] += 1
        running.close()
    return texts, stats


def g_test(texts: Texts, law: Law) -> float:
    """The chance of counts at least as odd, were they drawn from `law`; 0 if one is impossible.

    Cells that expect fewer than 5 are one cell; G is divided by Williams' correction.
    """
    if any(not law.get(text) for text in texts):
        return 0.0
    total = sum(texts.values())
    cells = sorted((p * total, texts[text]) for text, p in law.items())
    rare = sum(expected < 5 for expected, _ in cells)
    while rare and sum(expected for expected, _ in cells[:rare]) < 5:
        rare += 1
    pooled = [(sum(e for e, _ in cells[:rare]), sum(o for _, o in cells[:rare]))] if rare else []
    cells = pooled + cells[rare:]
    g = 2 * sum(observed * math.log(observed / e) for e, observed in cells if observed)
    return chi_square_tail(g / (1 + (len(cells) + 1) / (6 * total)), len(cells) - 1)


def chi_square_tail(x: float, df: int) -> float:
    """Pr[chi-square with df degrees of freedom > x]: the regularised incomplete gamma function.

    Its power series where that converges quickly, else its continued fraction (modified Lentz).
    """
    a, half = df / 2, x / 2
    if half <= 0:
        return 1.0
    scale = math.exp(a * math.log(half) - half - math.lgamma(a))
    if half < a + 1:
        term = total = 1 / a
        k = a
        while term > total * 1e-16:
            k += 1
            term *= half / k
            total += term
        return 1 - scale * total
    b = half + 1 - a
    c, d = 1e300, 1 / b
    fraction = d
    for i in range(1, 10_000):
        factor = -i * (i - a)
        b += 2
        d = 1 / (factor * d + b)
        c = b + factor / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return scale * fraction


@pytest.mark.parametrize("x", [0.1, 1.0, 5.0, 20.0, 80.0, 300.0])
def test_the_tail_of_chi_square(x: float) -> None:
    terms = [math.exp(-x / 2) * (x / 2) ** k / math.factorial(k) for k in range(40)]
    for df in (2, 4, 10, 26, 64):
        assert math.isclose(chi_square_tail(x, df), sum(terms[: df // 2]), rel_tol=1e-9)
    assert math.isclose(chi_square_tail(x, 1), math.erfc(math.sqrt(x / 2)), rel_tol=1e-9)


def test_the_g_test_is_calm_when_nothing_is_wrong(law: Law) -> None:
    texts, rng = list(law), np.random.default_rng(1)
    draws = rng.multinomial(len(SEEDS), np.array([law[text] for text in texts]), size=400)
    chances = [g_test(Counter(dict(zip(texts, map(int, row), strict=True))), law) for row in draws]
    assert 0.4 < np.mean(chances) < 0.6
    assert 0 < min(chances) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "draft"),
    [
        *((rule, draft) for rule in ("token", "block") for draft in ("lookup", "ngram")),
        *((rule, "draft_model") for rule in RULES),
    ],
)
def test_the_first_tokens_follow_the_targets_law(
    caches: tuple[KVSequence, KVSequence], law: Law, rule: str, draft: str
) -> None:
    texts, stats = counted(caches, _drafter(draft, caches), RULES[rule])
    assert 0.1 < stats.accepted / stats.drafted < 0.9  # both outcomes were really there
    assert stats.drafted > len(SEEDS)
    assert g_test(texts, law) > ALPHA


def _resamples_from_p(right: Rule) -> Rule:
    """After a rejection: p itself, where what is left of it is right."""

    def verify(draft: Draft, target: Rows, position: int, random: Draws) -> Verdict:
        verdict = right.verify(draft, target, position, random)
        if verdict.origin != CORRECTED:
            return verdict
        last = target(verdict.path[-1] if verdict.path else ROOT)
        return replace(verdict, token=random.sample(last, position))

    return replace(right, verify=verify)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "draft"), [("token", "draft_model"), ("block", "draft_model"), ("token", "lookup")]
)
def test_a_wrong_rule_shows(
    caches: tuple[KVSequence, KVSequence], law: Law, rule: str, draft: str
) -> None:
    wrong = _resamples_from_p(RULES[rule])
    assert g_test(counted(caches, _drafter(draft, caches), wrong, FEWER)[0], law) < ALPHA


class Likeliest:
    """A chooser that draws nothing."""

    seed = 0

    def sample(self, distribution: Distribution, position: int) -> int:
        return distribution.token(int(distribution.logits.argmax()))


class Pretender:
    """Proposes its model's likeliest tokens, and says that it drew them."""

    name = "pretender"
    traits = Traits(gives_probs=True)

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.begin = drafter.begin

    def observe(self, outcome: Outcome) -> None:
        self._drafter.observe(outcome)

    def propose(self, limit: Limit) -> Draft:
        sampler = replace(limit.sampler, randomness=Likeliest())
        return proposed(self._drafter, replace(limit, sampler=sampler))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_wrong_law_shows(caches: tuple[KVSequence, KVSequence], law: Law, rule: str) -> None:
    drafter = Pretender(_drafter("draft_model", caches))
    assert g_test(counted(caches, drafter, RULES[rule], FEWER)[0], law) < ALPHA


# What is accepted, against the replay.

DEPTHS = [2, 8]
TOKENS = 30
TEXTS_PER_PROMPT = 2
# Given the very texts it made, what a run took has a known mean: the chance of being further off.
FURTHER = 1e-5
# Against texts of other seeds both sides spread, as much as each other: sqrt(2) half-widths. Twice
# that is 4 standard errors of the difference, once in 1,700 at 17 degrees of freedom. In truth it
# is rarer: both sides have the same prompts, so the spread between prompts, which is part of the
# interval, cancels.
WIDENED = 2 * math.sqrt(2)


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Engine]]:
    with engines_of(*PYCODE) as made:
        yield made


@pytest.fixture(scope="module")
def work() -> Workload:
    return Workload(held_out_prompts(), TEXTS_PER_PROMPT, TOKENS, temperature=1.0)


@pytest.fixture(scope="module")
def scored_texts(engines: dict[str, Engine], work: Workload) -> list[list[ScoredText]]:
    """Texts of other seeds, from the target alone."""
    return score(engines, replace(work, first_seed=OTHER_SEEDS))


class Run:
    """Texts really generated with a rule, and the replay of those very texts."""

    def __init__(
        self,
        engine: Engine,
        caches: tuple[KVSequence, KVSequence],
        rule: str,
        depth: int,
        work: Workload,
    ) -> None:
        self.stats: list[Stats] = []
        self.off: list[tuple[float, float]] = []
        verified = "coupled" if rule == MATCH else rule
        for prompt, seeds in work.seeded():
            ids = engine.model.tokenize(prompt)
            for seed in seeds:
                result = work.generate(engine, prompt, seed, rule=verified, depth=depth)
                stats, tokens = result.stats, result.token_ids
                sampler = work.sampler(seed)
                drafting = greedy_sampler(sampler) if rule == MATCH else sampler
                text = score_text(
                    *caches, ids, tokens, sampler, limit=work.tokens, drafting=drafting
                )
                expected = expected_steps(text, verified, depth)
                self.stats.append(stats)
                self.off.append((stats.steps - expected.steps, stats.accepted - expected.accepted))

    def tokens_per_step(self) -> float:
        return self._sum("generated_tokens") / self._sum("steps")

    def acceptance(self) -> float:
        return self._sum("accepted") / self._sum("drafted")

    def _sum(self, count: str) -> float:
        return float(sum(getattr(stats, count) for stats in self.stats))

    def t(self) -> float:
        """The larger |t| of how far steps and accepted tokens are off, over texts."""
        off = np.array(self.off)
        error = off.std(axis=0, ddof=1) / math.sqrt(len(off))
        return float(np.abs(off.mean(axis=0) / np.maximum(error, 1e-9)).max())


def within(value: float, interval: ConfidenceInterval) -> bool:
    return abs(value - interval.value) <= WIDENED * (interval.high - interval.value)


def test_the_quantiles_of_t() -> None:
    tables = {1: 12.7062, 2: 4.30265, 3: 3.18245, 10: 2.22814, 17: 2.10982, 120: 1.97993}
    for df, quantile in tables.items():
        assert math.isclose(t_quantile(0.975, df), quantile, rel_tol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("rule", RULES)
def test_the_real_loop_accepts_what_replay_predicts(
    engines: dict[str, Engine],
    caches: tuple[KVSequence, KVSequence],
    work: Workload,
    *,
    scored_texts: list[list[ScoredText]],
    rule: str,
    depth: int,
) -> None:
    run = Run(engines[MODEL], caches, rule, depth, work)
    predicted = predict(scored_texts, rule, depth)
    assert run.t() < t_quantile(1 - FURTHER, len(run.off) - 1)
    assert within(run.tokens_per_step(), predicted.tokens_per_step)
    assert within(run.acceptance(), predicted.acceptance)


@pytest.mark.slow
def test_a_drafter_without_the_shared_noise_shows(
    engines: dict[str, Engine],
    caches: tuple[KVSequence, KVSequence],
    work: Workload,
    scored_texts: list[list[ScoredText]],
) -> None:
    """Under `coupled` its texts are right; only what is accepted tells."""
    [drafter] = engines[MODEL].drafter_set.drafters
    with load(draft=Pretender(drafter), threads=1, flash_attention=True) as engine:
        run = Run(engine, caches, "coupled", 4, work)
    assert run.t() > t_quantile(1 - FURTHER, len(run.off) - 1)
    assert not within(run.tokens_per_step(), predict(scored_texts, "coupled", 4).tokens_per_step)
    assert not within(run.acceptance(), predict(scored_texts, "coupled", 4).acceptance)


def test_where_nothing_is_left_to_chance_replay_is_exact(
    engines: dict[str, Engine], caches: tuple[KVSequence, KVSequence], work: Workload
) -> None:
    """What sample-and-match accepts is a function of the text."""
    run = Run(engines[MATCH], caches, MATCH, 3, replace(work, texts=1))
    assert np.abs(run.off).max() < 1e-9
