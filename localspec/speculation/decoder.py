"""The loop: draft, verify, commit. Nothing else."""

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
    """One token of text: its id, where it came from, and its log-probability if asked for.

    logprob: natural logarithm of the target's own probability (softmax of its raw logits, before
    any filter), or None. top: the likeliest tokens and their log-probabilities, as many as asked.
    """

    id: int
    origin: str
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class Decoder:
    """Decodes with one target and whatever drafters the policy has.

    text: the committed tokens, prompt included; the last one is pending, not yet in the target's
    cache. It grows here and nowhere else. cancelled: asked before each step. ends: whether a token
    ends the text; what a draft has beyond such a one is not committed. hurries: whether the first
    token comes before a drafter reads the prompt.
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
    hurries: bool = False
    prefix: Prefix = field(init=False)

    def run(self, max_tokens: int) -> Iterator[Emission]:
        """Yield up to `max_tokens` tokens; may be closed at any of them.

        What a step commits is in `text` and in the caches before its first token is yielded. So
        closing leaves them consistent: cut `text` to what was wanted, and go on from there.
        """
        self.policy.begin()
        with self.stats.timing("draft"):
            for drafter in self.policy.drafters:
                drafter.begin(self.text)
        self.prefix = self.sampler.prefix(self.text)
        left, hurried = max_tokens, self.hurries
        while left > 0 and not self.cancelled():
            accepted, emissions = self._step(left, hurried=hurried)
            hurried = False
            left -= len(emissions)
            for position, emission in enumerate(emissions):
                self.stats.count_token(position if position < accepted else None)
                yield emission

    def _step(self, left: int, *, hurried: bool = False) -> tuple[int, list[Emission]]:
        """One target pass; how many drafted tokens it accepted, and the 1 to `left` it commits."""
        began, drafting = perf_counter(), self.stats.seconds.draft
        with self.stats.timing("draft"):
            decision, proposed = self._propose(left, hurried=hurried)
            draft = self._kept(proposed)
        with self.stats.timing("verify"):
            scores = self.target.score(self.text[-1], draft)
        verdict = self.rule.verify(
            draft, self._rows(draft, scores), len(self.text), self.sampler.randomness
        )
        emissions = self._up_to_end(self._emissions(decision, draft, scores, verdict))
        tokens = [emission.id for emission in emissions]
        path = verdict.path[: len(tokens) - 1]
        accepted = min(len(verdict.path), len(tokens))
        self._commit(decision, path, accepted, tokens)
        self.stats.count_step(len(draft), scores.width)
        seconds, drafting = perf_counter() - began, self.stats.seconds.draft - drafting
        self.policy.learn(
            Step(proposed.tokens, len(draft), scores.width, tokens, seconds, drafting, scores.again)
        )
        return accepted, emissions

    def _propose(self, left: int, *, hurried: bool) -> tuple[Decision, Draft]:
        # A pass yields one token more than its draft, so the last token needs no draft.
        needs_probs = not self.rule.same_text
        limit = Limit(
            left - 1, self.prefix, self.sampler, needs_probs, self.cancelled, hurried=hurried
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

    def _kept(self, proposed: Draft) -> Draft:
        """What of it the target sees; all, where leaving out what was drawn would bias the text."""
        if proposed.probs and not self.rule.same_text:
            return proposed
        return proposed.first(self.policy.keep(proposed))

    def _rows(self, draft: Draft, scores: Scores) -> Rows:
        places = {ROOT: self.prefix}

        def place(node: int) -> Prefix:
            if node not in places:
                places[node] = place(draft.parent(node)).then(draft.tokens[node])
            return places[node]

        return lambda node: self.sampler.distribution(scores.logits[node + 1], place(node))

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

    def _up_to_end(self, emissions: list[Emission]) -> list[Emission]:
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
