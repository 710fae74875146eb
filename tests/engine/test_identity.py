"""The promise on the real pair: with one seed, the same token ids whatever drafts.

One thread and flash attention: there the logits of a pass do not depend on its width, bit for bit.
With more threads they do, slightly; then every difference must be certified as a near-tie.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes.prompts import PROMPTS
from fakes.pycode import load
from fakes.toy import fixed, proposed

from localspec.control.explanation import Explanation
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.ngram import Ngram
from localspec.drafters.prompt_lookup import PromptLookup
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine
from localspec.engine.generation import Result
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import MAX_DEPTH, Draft
from localspec.speculation.drafter import Drafter, Limit
from localspec.speculation.passes import Pass, Scores
from localspec.speculation.policy import PLAIN_STEP, Decision, Step
from localspec.speculation.rules import RULES
from localspec.stats import Stats
from localspec.utils.tokens import common_prefix

DEPTHS = range(1, 9)
SEEDS = range(20)
DRAFTS = ["suffix", "lookup", "ngram", "draft_model"]
# Those with which a step has to be given to one of several.
SEVERAL = ["auto", "suffix_and_model"]


@pytest.fixture(scope="module")
def engines(drafter_path) -> Iterator[dict[str, Engine]]:  # type: ignore[no-untyped-def]
    options = {"threads": 1, "flash_attention": True, "context": 512}
    made = {draft: load(draft=draft, **options) for draft in ("none", "auto", *DRAFTS[:-1])}
    made["draft_model"] = load(draft=str(drafter_path), **options)
    made["suffix_and_model"] = load(draft=f"suffix,{drafter_path}", **options)
    yield made
    for engine in made.values():
        engine.close()


@pytest.fixture(scope="module")
def decoded(engines: dict[str, Engine]) -> Callable[..., Result]:
    """Plain decoding, which is the same for every drafter: once for each prompt and options."""
    known: dict[str, Result] = {}

    def plainly(prompt: str, **options: Any) -> Result:
        asked = repr((prompt, options))
        if asked not in known:
            known[asked] = engines["none"].generate(prompt, **options)
        return known[asked]

    return plainly


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy(
    engines: dict[str, Engine], decoded: Callable[..., Result], draft: str, prompt: str
) -> None:
    plain = decoded(prompt, max_tokens=64, temperature=0, seed=0)
    for depth in DEPTHS:
        drafted = engines[draft].generate(
            prompt, max_tokens=64, temperature=0, depth=depth, seed=depth
        )
        assert drafted.token_ids == plain.token_ids, depth
        assert drafted.text == plain.text
        assert drafted.stop_reason == plain.stop_reason


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_the_deepest_draft_there_can_be(engines: dict[str, Engine], temperature: float) -> None:
    """From 64 rows on the library computes differently; MAX_DEPTH stays below."""
    for seed in range(3):
        options = {"max_tokens": 120, "temperature": temperature, "seed": seed}
        prompt = PROMPTS[seed]
        plain = engines["none"].generate(prompt, **options)
        for draft in ("suffix", "lookup", "draft_model"):
            drafted = engines[draft].generate(prompt, depth=MAX_DEPTH, **options)
            assert drafted.token_ids == plain.token_ids


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_sampled(
    engines: dict[str, Engine], decoded: Callable[..., Result], draft: str, seed: int
) -> None:
    """Every prompt at every depth; of a seed, at every other one."""
    turn, place = divmod(seed, len(PROMPTS))
    prompt = PROMPTS[place]
    options = {"max_tokens": 48, "temperature": 0.8, "seed": seed}
    plain = decoded(prompt, **options)
    for depth in DEPTHS[turn % 2 :: 2]:
        drafted = engines[draft].generate(prompt, depth=depth, **options)
        assert drafted.token_ids == plain.token_ids, depth


@pytest.mark.parametrize("draft", SEVERAL)
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_several_drafters(
    engines: dict[str, Engine], decoded: Callable[..., Result], draft: str, temperature: float
) -> None:
    """They take turns within a text: each drafts some of it."""
    origins: set[str] = set()
    for seed, prompt in enumerate(PROMPTS):
        options = {"max_tokens": 64, "temperature": temperature, "seed": seed}
        plain = decoded(prompt, **options)
        for depth in (1, 5):
            drafted = engines[draft].generate(prompt, depth=depth, **options)
            assert drafted.token_ids == plain.token_ids, depth
            origins |= {*drafted.origins}
    assert {"suffix", "pycode-4m-q4_0"} <= origins


@pytest.mark.parametrize("draft", [*DRAFTS, *SEVERAL])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_as_deep_as_pays(
    engines: dict[str, Engine], decoded: Callable[..., Result], draft: str, temperature: float
) -> None:
    """Whatever the controller decides by its clock, and it is told of each of its decisions."""
    for seed, prompt in enumerate(PROMPTS):
        options = {"max_tokens": 64, "temperature": temperature, "seed": seed}
        plain = decoded(prompt, **options)
        decisions: list[Explanation] = []
        drafted = engines[draft].generate(prompt, explain=decisions.append, **options)
        assert drafted.token_ids == plain.token_ids
        assert drafted.text == plain.text
        assert drafted.stop_reason == plain.stop_reason
        assert len(decisions) == drafted.stats.steps == len(drafted.stats.widths)


class Erratic:
    """A policy without reason: at every step any drafter, depth and padding, none, or a rest.

    Of a proposal it may break off the making, and leave out any part afterwards.
    """

    def __init__(self, drafters: Sequence[Drafter], seed: int) -> None:
        self.drafters = drafters
        self.rng = np.random.default_rng(seed)
        self.rests, self.looks = False, 0

    def begin(self) -> None:
        pass

    def look(self, limit: Limit) -> None:
        self.looks += 1

    def decide(self, limit: Limit) -> Decision:
        self.rests = self.rng.random() < 0.2
        if self.rests:
            return PLAIN_STEP
        limit.catch_up()
        if not limit.depth or self.rng.random() < 0.2:
            return PLAIN_STEP
        drafter = self.drafters[self.rng.integers(len(self.drafters))]
        depth = int(self.rng.integers(1, min(limit.depth, 12) + 1))
        draft = proposed(drafter, limit.to(depth)) if self.rng.random() < 0.3 else None
        return Decision(drafter, depth, lambda _margin: self.rng.random() < 0.8, draft)

    def keep(self, draft: Draft) -> int:
        whole = self.rng.random() < 0.5
        return len(draft) if whole else int(self.rng.integers(len(draft) + 1))

    def learn(self, step: Step) -> None:
        pass

    def ahead(self, draft: Draft) -> int:
        return 0

    def plain_time(self, step: Step) -> None:
        return None

    def lose(self, drafter: Drafter, *, for_good: bool) -> None:
        raise AssertionError

    def padded(self, width: int) -> int:
        return width + int(self.rng.choice([0, 0, 0, 1, 3, 9, 19]))


@pytest.mark.parametrize("draft", [*DRAFTS, *SEVERAL])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_no_decision_of_a_planner_matters(
    engines: dict[str, Engine],
    draft: str,
    temperature: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a controller decides depends on measured times; this covers what it might."""
    engine = engines[draft]
    accepted, widths = 0, set[int]()
    for seed, prompt in enumerate(PROMPTS[:4]):
        policy = Erratic(engine.drafter_set.drafters, seed)
        options: dict[str, Any] = {"max_tokens": 48, "temperature": temperature, "seed": seed}
        plain = engines["none"].generate(prompt, **options)

        def chosen(*_args: object, policy: Erratic = policy, **_options: object) -> Erratic:
            return policy

        with monkeypatch.context() as patch:
            patch.setattr(engine.slots.own.loaded.policies, "policy", chosen)
            drafted = engine.generate(prompt, **options)
        assert drafted.token_ids == plain.token_ids
        assert drafted.stop_reason == plain.stop_reason
        accepted += drafted.stats.accepted
        widths |= {*drafted.stats.widths}
    assert accepted > 0
    assert len(widths) > 5 and max(widths) > 16


SHAPES = {
    "untruncated": {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "nucleus of everything": {"temperature": 1.2, "top_k": 0, "top_p": 0.8},
    "typical": {"temperature": 0.9, "typical_p": 0.5},
    "top-n-sigma": {"temperature": 1.5, "top_n_sigma": 1.0, "top_k": 0, "top_p": 1.0},
    "dynamic temperature": {"temperature": 1.0, "dynatemp_range": 0.9, "dynatemp_exponent": 0.7},
    "penalties": {"repeat_penalty": 1.3, "frequency_penalty": 0.3, "penalty_window": 20},
    "whole text penalised": {"presence_penalty": 0.8, "penalty_window": -1},
    "mirostat": {"mirostat": 1, "mirostat_tau": 2.5, "mirostat_eta": 0.3},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 2.5, "mirostat_eta": 0.3},
    "adaptive-p": {"temperature": 1.0, "adaptive_target": 0.5, "adaptive_decay": 0.8},
    "bias": {"logit_bias": {269: -5.0, 200: 3.0, 30: float("-inf")}},
}


@pytest.mark.parametrize("draft", [*DRAFTS, "suffix_and_model"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_sampler(
    engines: dict[str, Engine], decoded: Callable[..., Result], draft: str, shape: str
) -> None:
    drafted_tokens = 0
    for seed in range(4):
        options = {"max_tokens": 48, "seed": seed, **SHAPES[shape]}
        plain = decoded(PROMPTS[seed], **options)
        drafted = engines[draft].generate(PROMPTS[seed], depth=4, **options)
        assert drafted.token_ids == plain.token_ids
        drafted_tokens += drafted.stats.drafted
    assert drafted_tokens > 0


def test_the_drafter_earns_something_on_held_out_prompts(engines: dict[str, Engine]) -> None:
    for temperature in (0, 0.8):
        for prompt in PROMPTS:
            stats = (
                engines["draft_model"]
                .generate(prompt, max_tokens=64, temperature=temperature, seed=1, depth=3)
                .stats
            )
            assert stats.acceptance_rate and stats.acceptance_rate > 0.2
            assert stats.tokens_per_step and stats.tokens_per_step > 1.3


class Recorder:
    """A text that keeps the logits each of its positions was decided from."""

    def __init__(self, sequence: KVSequence) -> None:
        self.rows: dict[int, np.ndarray] = {}
        self._sequence = sequence

    def __getattr__(self, name: str) -> object:
        return getattr(self._sequence, name)

    @property
    def context(self) -> "Recorder":
        return self

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        (one,) = passes
        first = len(self._sequence.tokens) + 1
        [scores] = self._sequence.context.decode([replace(one, sequence=self._sequence)])
        # A later pass over the same position has the text's real prefix: it replaces this row.
        for i, row in enumerate(scores.logits):
            self.rows[first + i] = row.copy()
        return [scores]


# Without truncation a token's score has no cliffs, so that a near-tie can be certified.
CERTIFIABLE = SamplingParams(temperature=0.8, top_k=0, top_p=1, min_p=0)


@pytest.mark.parametrize("params", [SamplingParams(temperature=0), CERTIFIABLE])
@pytest.mark.parametrize("name", DRAFTS)
def test_with_more_threads_every_difference_is_a_near_tie(
    target_model: Model,
    drafter_model: Model,
    make_context: Callable[..., KVSequence],
    name: str,
    params: SamplingParams,
) -> None:
    """The divergence certificate: the two tokens' scores differ by no more than floats did."""
    target = make_context(target_model, threads=2)
    small = make_context(drafter_model, threads=2)
    noise = Noise(3)

    def run(prompt: list[int], drafter: Drafter | None) -> tuple[list[int], Recorder]:
        target.truncate(0)
        target.extend(prompt[:-1])
        recorder, text = Recorder(target), list(prompt)
        loop = Decoder(
            recorder, fixed(drafter, 4), RULES["coupled"], Sampler(params, noise), text, Stats()
        )
        list(loop.run(24))
        return text, recorder

    for prompt in (target_model.tokenize(text) for text in PROMPTS[:1]):
        drafter: Drafter = {
            "suffix": Suffix,
            "lookup": PromptLookup,
            "ngram": Ngram,
            "draft_model": lambda: DraftModel(small, name="small", n_vocab=target.n_vocab),
        }[name]()
        (plain, plain_rows), (drafted, drafted_rows) = run(prompt, None), run(prompt, drafter)
        at = common_prefix(plain, drafted)
        if at == min(len(plain), len(drafted)):
            continue
        first, second = plain_rows.rows[at], drafted_rows.rows[at]
        scale = params.temperature or 1.0
        both = np.array([plain[at], drafted[at]])
        perturbed = first[both] / scale + (noise.gumbel(at, both) if params.temperature else 0)
        assert abs(perturbed[0] - perturbed[1]) <= 2 * np.abs(first - second).max() / scale
