"""Decoder: the loop that drafts, verifies and commits."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from localspec.errors import LOST, DrafterMismatchError
from localspec.sampling.params import SamplerState
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.aside import Aside
from localspec.speculation.draft import NOTHING, ROOT, Draft, require_known, require_tree
from localspec.speculation.drafter import Limit, proposal, ready_for
from localspec.speculation.drawing_ahead import DrawingAhead
from localspec.speculation.emission import Emission, until_end
from localspec.speculation.followers import Followers
from localspec.speculation.passes import WIDE, Compute, Pass, Passes, Scores, direct, draft_pass
from localspec.speculation.policy import PLAIN_STEP, Decision, Policy, Step
from localspec.speculation.prompt_logprobs import PromptLogprobs
from localspec.speculation.rules import Rule, Verdict
from localspec.speculation.target import Target
from localspec.speculation.target_rows import TargetRows
from localspec.stats import Phase, Stats, Timing
from localspec.utils.media import words_before_media


@dataclass(slots=True)
class Decoder:
    """Decodes a text with one target and the drafters of a policy.

    The decoder runs no model. `next_pass` returns what the text needs next, somebody computes it,
    and `receive` takes the scores; `run` does both until the text ends.

    text: the committed tokens, prompt included. The last token is pending: it is not yet in the
        target's cache. Only the decoder appends to the text.
    logprobs: whether emissions carry log-probabilities. top_logprobs: of how many likely tokens.
        post_sampling_probs: whether they are those with which the samplers draw.
    cancelled: called before each step; generation stops when it returns True.
    ends: whether a token ends the text. Drafted tokens after such a token are not committed.
    quick_first_token: whether the first step runs without drafters that first read the prompt.
    clock: the time in seconds, without the time in which other texts were computed.
    chunk: returns how many tokens of the prompt the next pass should read at most.
    most: returns how many tokens the next step may commit.
    prompt_logprobs: takes the logits behind the prompt's tokens; None: nobody wants them.

    All tokens of a step are in `text` and in the caches before `receive` returns them. To keep only
    some of them, cut `text` and begin again.
    """

    target: Target
    policy: Policy
    rule: Rule
    sampler: Sampler
    text: list[int]
    stats: Stats
    logprobs: bool = False
    top_logprobs: int = 0
    post_sampling_probs: bool = False
    cancelled: Callable[[], bool] = lambda: False
    ends: Callable[[int], bool] = lambda _token: False
    quick_first_token: bool = False
    clock: Callable[[], float] = perf_counter
    chunk: Callable[[], int] | None = None
    most: Callable[[], int] | None = None
    prompt_logprobs: PromptLogprobs | None = None
    prefix: Prefix = field(init=False)
    _held: int = field(init=False, default=0)
    _place_to_mark: int = field(init=False, default=0)
    _followers: Followers = field(init=False)
    _flow: Generator[Pass | None, Scores, None] | None = field(init=False, default=None)
    _requested: Pass | None = field(init=False, default=None)
    _accepted: int = field(init=False, default=0)
    _emissions: list[Emission] = field(init=False, default_factory=list)

    @property
    def unread(self) -> int:
        """The number of prompt tokens that the target has to read before the first step."""
        return max(0, len(self.text) - 1 - self._held)

    def run(self, max_tokens: int, compute: Compute = direct) -> Generator[Emission, None, None]:
        """Yield up to `max_tokens` tokens; the generator may be closed after any of them.

        compute: computes a pass. A text that has begun already goes on.
        """
        if self._flow is None:
            self.begin(max_tokens)
        while self.next_pass() is not None:
            emissions = self.advance(compute)
            for position, emission in enumerate(emissions):
                self.stats.count_token(position if position < self._accepted else None)
                yield emission

    def begin(self, max_tokens: int) -> None:
        """Begin to generate up to `max_tokens` tokens; the cache keeps what it shares."""
        self.end()
        prompt, target = self.text[:-1], self.target
        self.policy.begin()
        self._followers = Followers(self.policy, self.clock)
        with self._timing("prompt"):
            shared = target.shared(prompt)
            held = self._followers.choose(self.text, shared)
            if self.prompt_logprobs:
                held = min(held, self.prompt_logprobs.most_held)
            self._place_to_mark = self._followers.words.place_to_mark(target.place_to_mark(prompt))
            shared = min(shared, held)
            self._held = target.truncate(shared)
            # Another text has the target's cells, but not the hidden rows that a drafter lacks.
            if held == len(prompt):
                self._held = target.take_prefix(prompt)
            self.stats.prompt_again += max(0, shared - self._held)
            # Regenerating and editing return to the end of a text and to the end of its prompt.
            target.mark()
        self.stats.prompt_tokens = len(self.text)
        self._flow = self._passes(max_tokens)

    def next_pass(self) -> Pass | None:
        """The pass that the text needs next; None at the end of the text, or if cancelled."""
        if self._requested is None and self._flow is not None:
            self._requested = next(self._flow, None)
        return self._requested

    def advance(self, compute: Compute) -> list[Emission]:
        """Have the requested pass computed; return the tokens that it committed, if any.

        Raises what `compute` raises. But where a drafter's device or machine is gone, the text
        goes on without that drafter.
        """
        if (requested := self.next_pass()) is None:
            return []
        try:
            return self.receive(compute(requested))
        except LOST as error:
            if self._flow is None or requested.sequence is self.target:
                raise
            self._emissions = []
            self._requested = self._flow.throw(error)
            return self._emissions

    def receive(self, scores: Scores) -> list[Emission]:
        """Take the scores of the requested pass; return the tokens that it committed, if any."""
        self._emissions, self._requested = [], None
        if self._flow is not None:
            self._requested = self._flow.send(scores)
        return self._emissions

    def end(self) -> None:
        """Stop decoding; the cache removes the tokens of an open pass at its next use."""
        flow, self._flow, self._requested = self._flow, None, None
        if flow is not None:
            flow.close()
            self._followers.catch_up()

    def tell_drafters(self) -> None:
        """Tell the drafters what they would be told with the next step, as none may follow."""
        if self._flow is not None:
            self._followers.catch_up()

    def _passes(self, max_tokens: int) -> Generator[Pass | None, Scores, None]:
        """Yield the passes of the text, and None whenever `receive` shall return."""
        while self.unread:
            if self.cancelled():
                return
            yield from self._read_chunk()
            yield None
        self.stats.prompt_evaluated += 1
        with self._timing("prompt"):
            self.target.mark()
        with self._timing("draft"):
            self._followers.begin(self.text)
        self.prefix = self.sampler.prefix(self.text)
        hurried, end = self.quick_first_token, len(self.text) + max_tokens
        while len(self.text) < end and not self.cancelled():
            yield from self._step(end - len(self.text), hurried=hurried)
            yield None
            hurried = False

    def _read_chunk(self) -> Passes[None]:
        """Evaluate the next tokens of the prompt, all but the last, which the first step does."""
        most = min(self.target.most_kept, self.chunk() if self.chunk else self.target.most_kept)
        unread, wanted = self.unread, 1
        if self._held < self._place_to_mark:
            unread = min(unread, self._place_to_mark - self._held)
        if self.prompt_logprobs:
            most = min(most, WIDE)
            wanted = min(unread, most)
            wide = min(unread, self.target.most_kept)
            if most == WIDE < wide < 2 * WIDE and self.target.scores_drafts:
                yield from self._score_ahead(self.prompt_logprobs, WIDE)
                most, wanted = wide, wide - WIDE
        count = self.target.part(self.text, self._held, self._held + unread, most)
        chunk = self.text[self._held : self._held + count]
        with self._timing("prompt"):
            layers = self._followers.layers
            scores = yield Pass(self.target, chunk, wanted=wanted, hidden=layers)
            self._held += len(chunk)
            self.stats.prompt_evaluated += len(chunk)
            start, marked = self._held - len(chunk), self._held == self._place_to_mark
            if self.prompt_logprobs:
                self.prompt_logprobs.take(self._held - wanted, scores.logits)
            yield from self._followers.show(
                self.text, start, chunk, scores, range(len(chunk)), marked=marked
            )
            if marked:
                self.target.mark()

    def _score_ahead(self, logprobs: PromptLogprobs, count: int) -> Passes[None]:
        """Score the next tokens of the prompt as a draft that is taken back.

        So a pass can be as wide as without log-probabilities, though it has more rows than can have
        logits.
        """
        draft = self.text[self._held : self._held + count]
        with self._timing("prompt"):
            scores = yield Pass(self.target, draft, drafted=count, wanted=count)
            logprobs.take(self._held, scores.logits)
            self.target.commit([])
            self.stats.prompt_again += count

    def _step(self, remaining: int, *, hurried: bool) -> Passes[None]:
        """Run one target pass and commit 1 to `remaining` tokens, but not more than `most`."""
        began, draft_seconds = self.clock(), self.stats.seconds.draft
        with self._timing("draft"):
            limit = self._limit(remaining, hurried=hurried)
            decision, proposed = yield from self._propose(limit)
            draft = self._verified_part(proposed)
            aside = Aside(lambda: self._look(limit)) if self.policy.rests else None
        self._followers.begin_step()
        with self._timing("verify"):
            for missing in self.target.catch_up():
                scores = yield missing
            pending = self.text[-1]
            # Those of this pass, and of the next draft and its pass.
            self.sampler.foresee(range(len(self.text), len(self.text) + 2 * (len(draft) + 1)))
            drawing = self._drawing_ahead(decision, draft, remaining - len(draft) - 1)
            layers = self._followers.layers
            scores = yield draft_pass(
                self.target, pending, draft, layers, drawing.passes, aside=aside
            )
            ahead = drawing.end()
        if aside:
            with self._timing("draft"):
                aside.end()
        only_sampled = self.rule.same_text
        rows = TargetRows(draft, scores, self.sampler, self.prefix, only_sampled=only_sampled)
        verdict = self.rule.verify(draft, rows, len(self.text), self.sampler.randomness)
        emissions = until_end(self._emitted(decision, draft, scores, rows, verdict), self.ends)
        tokens = tuple(emission.id for emission in emissions)
        path = verdict.path[: len(tokens) - 1]
        accepted = min(len(verdict.path), len(tokens))
        self._commit(decision, path, accepted, tokens, rows)
        draft_seconds = self.stats.seconds.draft - draft_seconds
        reading: dict[str, float] = {}
        if self._followers.is_reading:
            evaluated = (pending, *(draft.tokens[node] for node in path))
            kept = (0, *(node + 1 for node in path))
            start = len(self.text) - len(tokens) - 1
            with self._timing("draft"):
                reading = yield from self._followers.show(self.text, start, evaluated, scores, kept)
        self.stats.count_step(len(draft), scores.width, scores.others, predicted=draft.predicted)
        self.stats.drafted_ahead += ahead
        step = Step(
            proposed.tokens,
            len(draft),
            scores.width,
            tokens,
            self.clock() - began,
            draft_seconds,
            scores.again,
            scores.others,
            scores.seconds,
            scores.share,
            reading,
            ahead,
        )
        self.stats.seconds.steps += step.decoding_seconds
        self.stats.records.append(step.record(decision.drafter, accepted))
        self.policy.learn(step)
        self.stats.add_plain(len(tokens), self.policy.plain_time(step))
        self._accepted, self._emissions = accepted, emissions

    def _limit(self, remaining: int, *, hurried: bool) -> Limit:
        # A pass gives one token more than its draft, so the last token needs no draft.
        return Limit(
            min(self.most() if self.most else remaining, remaining, self.target.most_kept) - 1,
            self.prefix,
            self.sampler,
            not self.rule.same_text,
            self.cancelled,
            hurried=hurried,
            branches=self.target.branches,
            left=remaining,
            takes_back=self.target.takes_back,
            catch_up=self._followers.catch_up,
        )

    def _look(self, limit: Limit) -> None:
        """What a step that rests leaves until its pass is computed."""
        self._followers.catch_up()
        self.policy.look(limit)

    def _propose(self, limit: Limit) -> Passes[tuple[Decision, Draft]]:
        decision = self.policy.decide(limit)
        if not decision.drafter:
            return PLAIN_STEP, NOTHING
        drawn = ready_for(decision.drafter, from_end=decision.from_end)
        if not (draft := decision.draft):
            limit = limit.to(decision.depth, decision.go_on, from_end=decision.from_end)
            try:
                draft = yield from proposal(decision.drafter, limit)
            except LOST as error:
                self._followers.lose(decision.drafter, error)
                return PLAIN_STEP, NOTHING
        require_tree(draft, decision.drafter.name)
        draft = self._scorable(draft, decision.drafter.name).first(decision.depth)
        if self._followers.words.has_media:
            draft = draft.first(words_before_media(draft.tokens))
        require_known(draft, decision.drafter.name, self.target.n_vocab)
        self.stats.used_ahead += min(drawn, len(draft))
        return decision, draft

    def _drawing_ahead(self, decision: Decision, draft: Draft, most: int) -> DrawingAhead:
        """What the drafter of this draft draws ahead, `most` tokens at most."""
        drafter, tokens = decision.drafter, 0
        if drafter and drafter.traits.ready and self.rule.same_text:
            tokens = min(most, self.policy.ahead(draft))
        return DrawingAhead(drafter, tokens, self._followers.lose)

    def _scorable(self, draft: Draft, name: str) -> Draft:
        """The draft, or its first branch where the target cannot score all of them in one pass."""
        if draft.branches <= self.target.branches:
            return draft
        if self.target.only_chains:
            raise DrafterMismatchError(
                f"drafter {name!r} proposed a tree of {draft.branches} branches; "
                f"{self.target.only_chains}: propose a chain"
            )
        self.stats.trees_cut += 1
        return draft.first_branch()

    def _verified_part(self, proposed: Draft) -> Draft:
        """The part of the draft that the target verifies.

        A rejection rule needs every token that was drawn: leaving one out would bias the text.
        """
        if proposed.probs and not self.rule.same_text:
            return proposed
        return proposed.first(self.policy.keep(proposed))

    def _timing(self, phase: Phase) -> Timing:
        return self.stats.timing(phase, self.clock)

    def _emitted(
        self, decision: Decision, draft: Draft, scores: Scores, rows: TargetRows, verdict: Verdict
    ) -> list[Emission]:
        name = decision.drafter.name if decision.drafter else ""
        tokens = [(int(draft.tokens[node]), name) for node in verdict.path]
        if verdict.token is not None:
            tokens.append((verdict.token, verdict.origin))
        nodes, top = (ROOT, *verdict.path), self.top_logprobs
        if self.logprobs:
            emissions = [
                Emission.drawn(token, origin, rows.law(node), top)
                if self.post_sampling_probs
                else Emission.scored(token, origin, scores.logits[node + 1], top)
                for (token, origin), node in zip(tokens, nodes, strict=False)
            ]
        else:
            emissions = [Emission(token, origin) for token, origin in tokens]
        if not (sampler := self.sampler.params.stateful):
            return emissions
        return [
            replace(each, state=SamplerState(sampler, rows.state_after(node, each.id)))
            for each, node in zip(emissions, nodes, strict=False)
        ]

    def _commit(
        self,
        decision: Decision,
        path: Sequence[int],
        accepted: int,
        tokens: Sequence[int],
        rows: TargetRows,
    ) -> None:
        with self._timing("verify"):
            self.target.commit(path)
        self.text += tokens
        self.prefix = rows.prefix_behind(path, tokens[-1])
        drawn_from = rows.drawn_from(path)
        with self._timing("draft"):
            late = self.policy.rests
            self._followers.observe(tokens, decision.drafter, accepted, drawn_from, late=late)
