"""Decoder: the loop that drafts, verifies and commits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from localspec.errors import DrafterMismatchError
from localspec.sampling.filters import Row, largest, logprobs
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import NOTHING, ROOT, Draft
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.policy import PLAIN_STEP, Decision, Policy, Step
from localspec.speculation.rules import Rows, Rule, Verdict
from localspec.speculation.target import Scores, Target
from localspec.stats import Stats


@dataclass(frozen=True, slots=True)
class Emission:
    """One token of text.

    id: the token id.
    origin: the name of the drafter that proposed it, or `corrected`, `bonus` or `plain`.
    logprob: natural logarithm of the target's own probability (softmax of its raw logits, before
        any filter); None unless log-probabilities were requested.
    top: the likeliest tokens with their log-probabilities, as many as were requested.
    """

    id: int
    origin: str
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class Decoder:
    """Decodes a text with one target and the drafters of a policy.

    text: the committed tokens, prompt included. The last token is pending: it is not yet in the
        target's cache. Only the decoder appends to the text.
    logprobs: whether emissions carry log-probabilities. top_logprobs: of how many likely tokens.
    cancelled: called before each step; generation stops when it returns True.
    ends: whether a token ends the text. Drafted tokens after such a token are not committed.
    quick_first_token: whether the first step runs without a drafter that would have to read the
        prompt first.
    """

    target: Target
    policy: Policy
    rule: Rule
    sampler: Sampler
    text: list[int]
    stats: Stats
    logprobs: bool = False
    top_logprobs: int = 0
    cancelled: Callable[[], bool] = lambda: False
    ends: Callable[[int], bool] = lambda _token: False
    quick_first_token: bool = False
    prefix: Prefix = field(init=False)

    def run(self, max_tokens: int) -> Iterator[Emission]:
        """Yield up to `max_tokens` tokens; the generator may be closed after any of them.

        All tokens of a step are in `text` and in the caches before the first of them is yielded.
        So text and caches stay consistent when the generator is closed: cut `text` to the tokens
        you want to keep, and run again.
        """
        self.policy.begin()
        with self.stats.timing("draft"):
            for drafter in self.policy.drafters:
                drafter.begin(self.text)
        self.prefix = self.sampler.prefix(self.text)
        remaining, hurried = max_tokens, self.quick_first_token
        while remaining > 0 and not self.cancelled():
            accepted, emissions = self._step(remaining, hurried=hurried)
            hurried = False
            remaining -= len(emissions)
            for position, emission in enumerate(emissions):
                self.stats.count_token(position if position < accepted else None)
                yield emission

    def _step(self, remaining: int, *, hurried: bool = False) -> tuple[int, list[Emission]]:
        """Run one target pass and commit 1 to `remaining` tokens.

        Return how many drafted tokens were accepted, and the committed tokens.
        """
        began, draft_seconds = perf_counter(), self.stats.seconds.draft
        with self.stats.timing("draft"):
            decision, proposed = self._propose(remaining, hurried=hurried)
            draft = self._verified_part(proposed)
        with self.stats.timing("verify"):
            scores = self.target.score(self.text[-1], draft)
        verdict = self.rule.verify(
            draft, self._rows(draft, scores), len(self.text), self.sampler.randomness
        )
        emissions = self._cut_at_end(self._emissions(decision, draft, scores, verdict))
        tokens = [emission.id for emission in emissions]
        path = verdict.path[: len(tokens) - 1]
        accepted = min(len(verdict.path), len(tokens))
        self._commit(decision, path, accepted, tokens)
        self.stats.count_step(len(draft), scores.width)
        seconds = perf_counter() - began
        draft_seconds = self.stats.seconds.draft - draft_seconds
        self.policy.learn(
            Step(
                proposed.tokens,
                len(draft),
                scores.width,
                tokens,
                seconds,
                draft_seconds,
                scores.again,
            )
        )
        return accepted, emissions

    def _propose(self, remaining: int, *, hurried: bool) -> tuple[Decision, Draft]:
        # A pass gives one token more than its draft, so the last token needs no draft.
        needs_probs = not self.rule.same_text
        limit = Limit(
            remaining - 1, self.prefix, self.sampler, needs_probs, self.cancelled, hurried=hurried
        )
        decision = self.policy.decide(limit)
        if not decision.drafter:
            return PLAIN_STEP, NOTHING
        draft = decision.draft or decision.drafter.propose(limit.to(decision.depth, decision.go_on))
        draft = draft.first(decision.depth)
        for token in draft.tokens:
            if not 0 <= token < self.target.n_vocab:
                raise DrafterMismatchError(
                    f"drafter {decision.drafter.name!r} proposed token {token}; "
                    f"the target knows 0 to {self.target.n_vocab - 1}"
                )
        return decision, draft

    def _verified_part(self, proposed: Draft) -> Draft:
        """The part of the draft that the target verifies.

        A rejection rule needs every token that was drawn: leaving one out would bias the text.
        """
        if proposed.probs and not self.rule.same_text:
            return proposed
        return proposed.first(self.policy.keep(proposed))

    def _rows(self, draft: Draft, scores: Scores) -> Rows:
        prefixes = {ROOT: self.prefix}

        def prefix_at(node: int) -> Prefix:
            if node not in prefixes:
                prefixes[node] = prefix_at(draft.parent(node)).then(draft.tokens[node])
            return prefixes[node]

        return lambda node: self.sampler.distribution(scores.logits[node + 1], prefix_at(node))

    def _emissions(
        self, decision: Decision, draft: Draft, scores: Scores, verdict: Verdict
    ) -> list[Emission]:
        name = decision.drafter.name if decision.drafter else ""
        tokens = [(int(draft.tokens[node]), name) for node in verdict.path]
        tokens.append((verdict.token, verdict.origin))
        if not self.logprobs:
            return [Emission(token, origin) for token, origin in tokens]
        rows = [0, *(node + 1 for node in verdict.path)]
        return [
            self._with_logprobs(token, origin, scores.logits[row])
            for (token, origin), row in zip(tokens, rows, strict=True)
        ]

    def _cut_at_end(self, emissions: list[Emission]) -> list[Emission]:
        for count, emission in enumerate(emissions, start=1):
            if self.ends(emission.id):
                return emissions[:count]
        return emissions

    def _with_logprobs(self, token: int, origin: str, logits: Row) -> Emission:
        top = largest(logits, self.top_logprobs).tolist() if self.top_logprobs else []
        own, *others = logprobs(logits, [token, *top])
        return Emission(token, origin, own, tuple(zip(top, others, strict=True)))

    def _commit(
        self, decision: Decision, path: Sequence[int], accepted: int, tokens: Sequence[int]
    ) -> None:
        with self.stats.timing("verify"):
            self.target.commit(path)
        self.text += tokens
        for token in tokens:
            self.prefix = self.prefix.then(token)
        with self.stats.timing("draft"):
            for drafter in self.policy.drafters:
                own = accepted if drafter is decision.drafter else 0
                drafter.observe(Outcome(tokens, own))
