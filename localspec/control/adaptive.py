"""AdaptivePolicy: chooses the drafter and the depth with the most expected tokens per second.

For each drafter and depth it estimates the committed tokens and the seconds of the step, both
learnt from earlier ones. Plain decoding is always a choice. A loss budget bounds what errors cost.
"""

from collections.abc import Callable, Sequence
from time import perf_counter

from localspec.control.acceptance import NO_PRIOR, AcceptancePrior
from localspec.control.base_costs import WIDEST
from localspec.control.candidate import Candidate
from localspec.control.candidates import candidates_of
from localspec.control.cost_model import CostModel
from localspec.control.explanation import Explain, explanation, why_nobody
from localspec.control.joint_drafting import NO_DRAFTING, Drafting
from localspec.control.loss_budget import LossBudget
from localspec.control.prompt_reading import reading_pays, without_vain_reading
from localspec.control.replays import with_replays
from localspec.control.resting import Resting
from localspec.control.round import Round
from localspec.control.row_budget import RowBudget, RowShare, writing
from localspec.control.running_draft import Option, RunningDraft, affordable_depth
from localspec.control.step_seconds import StepSeconds
from localspec.control.trials import is_pass_worth_a_trial, is_trial_due, is_worth_a_look
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit, can_leave_out
from localspec.speculation.policy import PLAIN_STEP, Decision, Step

# The expected speed of drafting must be this many times that of plain decoding: estimates err.
_LEAST_GAIN = 1.02
# To show a head the hidden rows that it missed, the target may take this share of the time of plain
# decoding of the coming tokens; that happens in the 1st, 4th, 13th text after the head has failed.
_RESUMING_SHARE = 0.1
# Where drafts save less than this part of what reading a prompt takes, asking again may wait a bit.
_HOPELESS = 0.25
# Most answers end long before `max_tokens`. The first answer is expected to have this many tokens,
# later ones as many as the answers before; a long answer is expected to double.
_EXPECTED_TOKENS = 128.0
_TRIED_AGAIN, _MEASURED = "tried again", "to see what a pass with a draft takes"


class AdaptivePolicy:
    """A Policy that drafts only when drafting is faster, and chooses the fastest depth.

    drafters: the cheap ones first; the first of several equally fast drafters is chosen.
    costs: shared by all policies of a sequence. deepest: the most tokens of a draft. prior: what is
    known of the drafters before they draft. clock: returns the time in seconds, without the time in
    which other texts were computed. rows: the text's share of the rows of all texts; None: it is
    written alone.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        costs: CostModel,
        *,
        deepest: int = WIDEST - 1,
        prior: AcceptancePrior = NO_PRIOR,
        clock: Callable[[], float] = perf_counter,
        rows: RowShare | None = None,
    ) -> None:
        self.explain: Explain | None = None  # called with each decision
        self.clock = clock
        self.rows = rows or RowBudget().new_share()
        self._resting = Resting(self.rows)
        self._deepest = min(deepest, WIDEST - 1)
        self.all_candidates = [
            each for d in drafters for each in candidates_of(d, costs.drafter(d.name), prior)
        ]
        self.candidates = self.all_candidates  # without those that were lost in this text
        self._running: RunningDraft | None = None
        self.use_costs(costs)
        # Survivals and drafting (see Offer) of a candidate that found no round.
        self._drafts: tuple[Sequence[float], Drafting] = ((), NO_DRAFTING)
        self._steps_since_plain, self._generated, self._expected_tokens = 0, 0, _EXPECTED_TOKENS

    @property
    def all_drafters(self) -> Sequence[Drafter]:
        """Those that are not lost for good."""
        return [each.drafter for each in self.all_candidates if not each.from_end]

    @property
    def drafters(self) -> Sequence[Drafter]:
        """Those that draft in this text."""
        return [each.drafter for each in self.candidates if not each.from_end]

    def use_costs(self, costs: CostModel) -> None:
        """Decide by other costs, between two generations; acceptance rates are kept."""
        self.loss_budget = LossBudget()
        self.move_to(self.all_drafters, costs)

    def move_to(self, drafters: Sequence[Drafter], costs: CostModel) -> None:
        """Go on with what was learnt, for the same drafters in another text. costs: of that."""
        self._passes, self._running = costs.passes, None
        self._round = Round(self._passes, self.rows.offer, ())
        by_name = {each.name: each for each in drafters}
        for candidate in self.all_candidates:
            name = candidate.drafter.name
            candidate.move_to(by_name[name], costs.drafter(name))

    def begin(self) -> None:
        """Start a generation. Costs and acceptance rates are kept, also of those that were lost."""
        if self._generated:
            self._expected_tokens = (self._expected_tokens + self._generated) / 2
        self._generated = 0
        self.rows.offer.risk = 0.0
        self.rows.ask_all()
        self.candidates = self.all_candidates
        for each in self.candidates:
            each.begin_text()

    def lose(self, drafter: Drafter, *, for_good: bool) -> None:
        """Do without a drafter that cannot draft any more."""
        self._running = None
        self.candidates = [each for each in self.candidates if each.drafter is not drafter]
        if for_good:
            self.all_candidates = [c for c in self.all_candidates if c.drafter is not drafter]

    def reads(self, drafter: Drafter, lacking: int = 0) -> bool:
        """Whether to show a drafter hidden rows: not if reading them has not paid for long."""
        candidate = next(each for each in self.candidates if each.drafter is drafter)
        if lacking:
            plain, row = self._passes.seconds(1), self._passes.seconds(WIDEST) / WIDEST
            candidate.resume(lacking * row, _RESUMING_SHARE * self._expected_tokens * plain)
        return candidate.reads

    def padded(self, rows: int) -> int:
        """The fastest number of rows for a pass over `rows`; none that no draft may have."""
        return self._passes.padded(rows, self._deepest + 1)

    def decide(self, limit: Limit) -> Decision:
        """Choose the step with the most expected tokens per second."""
        self._passes.share(writing(others := self.rows.others))
        self._round = round_ = Round(self._passes, self.rows.offer, others)
        self._running, self._drafts = None, ((), NO_DRAFTING)
        if self._resting.begins(self.candidates, limit, self._passes, others):
            if self.explain:
                self.explain(explanation(None, round_.plain, "nothing was drafted lately"))
            return PLAIN_STEP
        limit.catch_up()
        tokens_left = min(limit.tokens_left, self._expected_tokens + self._generated)
        limit = limit.to(min(limit.depth, self._deepest))
        for candidate in self.candidates:
            candidate.learn_from_others(self.rows)
        options = [
            option
            for candidate in self.candidates
            if limit.depth
            and candidate.may_draft(limit)
            and (option := self._option(candidate, limit, tokens_left))
        ]
        chosen, reason = self._chosen(without_vain_reading(options, tokens_left))
        if not options:
            reason = why_nobody(self.candidates) or reason
        if chosen and reason is _TRIED_AGAIN and round_.texts > 1:
            chosen = chosen.of_one_token(round_)
        if self.explain:
            self.explain(explanation(chosen, round_.plain, reason))
        if chosen:
            self.rows.ask_all()
            round_.plan_others(chosen.plan)
        self._offer(options, chosen)
        is_unknown = reason is _TRIED_AGAIN and self._passes.is_stale(1 + round_.texts)
        measures = reason is _MEASURED or is_unknown
        return self._start(chosen, limit, measures=measures) if chosen else PLAIN_STEP

    @property
    def rests(self) -> bool:
        """Whether others would wait for what the drafters are told now."""
        return self._resting.in_company

    def look(self, limit: Limit) -> None:
        """Look, while a pass is computed, whether the next step should decide."""
        self._resting.look(self.candidates, limit)

    def keep(self, draft: Draft) -> int:
        """How many of the drafted tokens are worth verifying."""
        running = self._running
        return running.keep() if running and running.survivals else len(draft)

    def ahead(self, draft: Draft) -> int:
        """As many tokens as the target's pass leaves time for, if that pays."""
        running, alone = self._running, self._round.texts == 1
        return running.tokens_ahead(len(draft)) if running and alone else 0

    def learn(self, step: Step) -> None:
        """Update pass costs, acceptance rates and the loss budget."""
        # What any other pass took is charged to the loss budget.
        if step.tells_cost:
            self._learn_pass(step)
        else:
            self._passes.note(step.rows)
        self._generated += len(step.tokens)
        running, lost = self._running, self._passes.take_lost()
        reading = running.read_within(step.draft_seconds) if running else 0.0
        self.rows.learn(step, self._passes, reading, lost)
        plain, seconds = self._step_seconds.plain(step), self._step_seconds.own_seconds(step)
        lost /= self._round.texts
        self._charge(step, seconds, plain, lost)
        self._steps_since_plain = self._steps_since_plain + 1 if step.verified else 0
        for candidate in self.candidates:
            drafted = running is not None and candidate is running.candidate
            candidate.learn_reading(step.reading, plain, drafted=drafted)
            if running and drafted:
                # A run of drafts pays for its beginning, no single draft.
                entry = lost if self._passes.is_new_run else 0.0
                self._learn_draft(running, step, seconds - entry, plain)
            else:
                candidate.score_shadow_draft(step.tokens)
                candidate.collect(len(step.tokens) * plain / self._round.texts)

    def _learn_pass(self, step: Step) -> None:
        if running := self._running:
            expected = self._passes.seconds(step.rows)
            running.candidate.overlap.learn(step.ahead, step.pass_seconds, expected)
        self._passes.learn(step.rows, None if step.ahead else step.pass_seconds)

    def plain_time(self, step: Step) -> float | None:
        """Seconds that plain steps would have taken for the tokens of a step; None: unknown."""
        return self._step_seconds.plain_time(step)

    @property
    def _step_seconds(self) -> StepSeconds:
        return StepSeconds(self._passes, self._round.texts, self.rows.offer.host)

    def _charge(self, step: Step, seconds: float, plain: float, lost: float) -> None:
        """Charge a step to the loss budgets. seconds: its own. lost: in its decode, by changes."""
        running, texts, reading = self._running, self._round.texts, sum(step.reading.values())
        if running is None:
            expected = plain + reading + lost
            took = seconds if step.again else expected
        else:
            drafting = running.expected_seconds(len(step.drafted))
            expected = self._step_seconds.expected_pass(step) + drafting + reading
            took = seconds - running.reading
        self.loss_budget.add_step(took, expected, len(step.tokens), plain, texts)
        if texts > 1:
            self._charge_all(step, plain, lost)

    def _charge_all(self, step: Step, plain: float, lost: float) -> None:
        """Charge a step to the loss budget of all texts. lost: its part of what changes cost."""
        running, reading = self._running, sum(step.reading.values())
        if step.is_plain_decode and not self._passes.unequal_apart:
            took = expected = plain + reading + lost
        else:
            took = step.seconds - (running.reading if running else step.draft_seconds)
            drafting = running.expected_seconds(len(step.drafted)) if running else 0.0
            expected = self._passes.seconds(step.rows) * step.width / step.rows + drafting + reading
        every = self.rows.budget.loss_budget
        every.add_step(took, expected, len(step.tokens), plain, self._round.texts)

    def _learn_draft(self, running: RunningDraft, step: Step, seconds: float, plain: float) -> None:
        candidate = running.candidate
        candidate.learn(step.drafted, step.tokens)
        if not candidate.reports_confidence and step.drafted:
            candidate.cost.learn_whole(step.draft_seconds, len(step.drafted), cheap=candidate.cheap)
        # The hidden rows that others read are not its own cost.
        others = sum(step.reading.values()) - step.reading.get(candidate.drafter.name, 0.0)
        own = seconds - running.reading - others
        # What a token is worth while others draft.
        worth = self._step_seconds.plain_pass(step) * (self._round.plain / self._round.share)
        gain = len(step.tokens) - (own + (worth - plain)) / worth
        candidate.learn_gain(gain)
        if not candidate.cheap or running.measures:
            candidate.end_trial(paid=gain > 0)

    def _option(self, candidate: Candidate, limit: Limit, tokens_left: float) -> Option | None:
        """The candidate's depth with the most tokens per second, within the loss budgets.

        tokens_left: the expected number of further tokens, on which drafting must save more than
        reading the prompt takes. Catching up with N tokens of the answer serves about the next N,
        so each step is charged only its share.
        """
        cost, round_, backlog = candidate.cost, self._round, candidate.backlog
        has_prompt_to_read = candidate.has_prompt_to_read(self._generated)
        if has_prompt_to_read and (pause := candidate.take_pause(round_.others)):
            self._drafts = self._drafts if self._drafts[0] else (pause.survivals, pause.drafting)
            return None
        # With the prompt it reads what was written since.
        first_backlog, answer_backlog = (backlog, 0) if has_prompt_to_read else (0, backlog)
        slowdown = 1.0 if candidate.from_end else self._passes.reading_slowdown
        reading = cost.reading_seconds(first_backlog, slowdown)
        catching_up = cost.catch_up_seconds(answer_backlog, slowdown)
        survivals = candidate.survivals(limit)
        drafting = candidate.drafting(len(survivals), reading)
        if limit.takes_back is not None:
            drafting = with_replays(drafting, survivals, limit.takes_back, round_.table())
        most = self._available() - catching_up
        del survivals[affordable_depth(survivals, drafting, round_, most) :]
        # Tokens may be drawn ahead in the next step.
        overlaps = round_.texts == 1 and not limit.needs_probs
        savings = candidate.savings(survivals, round_.table()) if overlaps else []
        late = catching_up / max(1, answer_backlog)
        round_ = round_.jointly() if has_prompt_to_read else round_
        best, best_rate = round_.best(survivals, drafting, late, catching_up, savings)
        if best and reading > candidate.affordable(tokens_left, round_.share / round_.texts):
            saved = round_.saved(best, best_rate, survivals, tokens_left)
            known = candidate.is_known
            alike = can_leave_out(candidate.drafter) and not candidate.from_end
            promised = survivals, drafting, tokens_left
            pays = saved >= reading and (
                round_.alone or reading_pays(round_, *promised, known=known, alike=alike)
            )
            if saved < _HOPELESS * reading:
                candidate.pause(round_.others, survivals, drafting)
            best = best if pays else None
        if not best:
            self._drafts = self._drafts if self._drafts[0] else (survivals, drafting)
            return None
        own = 1.0 + sum(survivals[: best.depth])
        return Option(
            candidate, best, own, best_rate, survivals, drafting, reading, catching_up, slowdown
        )

    def _available(self) -> float:
        """How many seconds longer than a plain step the next step may take."""
        plain = self._round.texts * self._round.share
        own = self.loss_budget.available(plain)
        if self._round.texts == 1:
            return own
        risks = sum(each.risk for each in self.rows.others)
        return min(own, self.rows.budget.loss_budget.available(plain) - risks)

    def _offer(self, options: list[Option], chosen: Option | None) -> None:
        """Tell the other texts what this one may bring, and what it brings now."""
        best = chosen or max(options, key=lambda option: option.rate, default=None)
        # Others may find a round that all bear, where this text finds none by itself.
        survivals, drafting = (best.survivals, best.drafting) if best else self._drafts
        self.rows.offer.bring(survivals, drafting, chosen.depth if chosen else 0)
        self.rows.offer.read = frozenset(
            each.name
            for each in self.candidates
            if (chosen and chosen.candidate is each) or not each.has_prompt_to_read(self._generated)
        )

    def _chosen(self, options: list[Option]) -> tuple[Option | None, str]:
        # Beside texts that draft, a plain step says nothing of the cost of plain decoding.
        round_, drafted = self._round, self._steps_since_plain
        best = max(options, key=lambda option: option.rate, default=None)
        speed = best.rate * round_.plain if best else 1.0
        if self._passes.is_plain_due(drafted, round_.texts, speed, alone=round_.alone):
            return None, "to see what a plain step costs now"
        if best and speed > _LEAST_GAIN:
            return best, "promises most"
        for option in options:
            if reason := self._reason_to_try(option):
                return option, reason
        spent = "nothing to draft, or the loss budget is spent"
        return None, "nothing promises more" if options else spent

    def _reason_to_try(self, option: Option) -> str | None:
        """Why to draft although it does not seem to pay; None: no reason."""
        if option.candidate.cheap:
            worth = is_pass_worth_a_trial(option, self._round.texts, self._passes)
            return _MEASURED if worth else None
        if option.candidate.gain > 0:
            return "has paid lately"
        if is_trial_due(option, self._round, self.rows):
            return _TRIED_AGAIN
        if is_worth_a_look(option, self._round, (_LEAST_GAIN - 1) * self._round.plain):
            return "one token is worth drawing, to see how sure the drafter is"
        return None

    def _start(self, option: Option, limit: Limit, *, measures: bool = False) -> Decision:
        candidate, plan, round_ = option.candidate, option.plan, self._round
        passes = round_.table(plan.others)
        # The rows of a parallel draft are computed first; others leave no more room than planned.
        may_grow = round_.alone and not candidate.parallel
        deepest = min(candidate.depth(limit), limit.depth if may_grow else plan.depth)
        paid, most = round_.paid(plan, option.drafting), self._available()
        longer = passes[plan.depth + 1] - passes[1] + paid[plan.depth]
        self._running = running = RunningDraft(
            option,
            max(option.rate, 1 / round_.plain),
            passes,
            most,
            deepest,
            paid=paid,
            takes_back=limit.takes_back,
            clock=self.clock,
            rows=self.rows,
            measures=measures,
        )
        self.rows.offer.risk = longer + option.drafting.replay(plan.depth) + option.catching_up
        if candidate.parallel or candidate.reports_confidence:
            return Decision(candidate.drafter, deepest, running.go_on, None, candidate.from_end)
        # A drafter that reports no confidence never stops early: limit it to the best depth.
        depth = min(limit.depth, plan.depth)
        draft = candidate.shadow_draft(depth)
        return Decision(candidate.drafter, depth, running.go_on, draft, candidate.from_end)
