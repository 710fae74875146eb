"""Row budget: the rows of shared decodes, spent on the drafts that pay most, of all texts.

Each text decides from what the others offered last (`Round` says how), and tells what it offers.
The first one that drafts plans for all. So no two texts take the same row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from localspec.control.acceptance import Tally
from localspec.control.base_costs import WIDEST
from localspec.control.deciding import Deciding
from localspec.control.joint_drafting import NO_DRAFTING, Drafting
from localspec.control.loss_budget import LossBudget
from localspec.control.pass_costs import PassCosts
from localspec.speculation.policy import Step

# How far the loss budget of all texts may be overdrawn, in their plain decodes.
OVERDRAFT = 4.0
# How many plain decodes drafts may delay a text, beside what it expects to gain by its own.
DELAY = 1.0
# A text never has to make up for more: drafts of a fixed depth beside it ask nobody.
_LARGEST_DEBT = 10.0
# So many decisions in a row in which nobody drafts let a text rest for one round more, and for as
# many as there are others at most, where it is not known that deciding takes longer.
_IN_VAIN = 2
# The weight of the newest step in the tokens per step.
_NEWEST = 1 / 32


@dataclass(slots=True)
class Offer:
    """What a text may bring to the next decode.

    survivals: the probabilities that the first 1, 2, ... tokens of its draft are all accepted.
    drafting: what drafts of at least so many tokens take. depth: how many it drafts now, or drafted
    last, or should draft. planned: whether it should, by the plan of a text that has decided before
    it. decided: whether it drafts them in the next decode. risk: the seconds that this draft may
    lose.
    host: seconds of a step outside the models. reading: whether the target still reads its prompt,
    so that it takes no step with the others. tokens: per step, lately. trial: whether its draft now
    is a trial. slack: how many seconds a round may take longer than one without drafts, if this
    text drafts nothing. read: the drafters that have read the prompt, or are about to.
    """

    survivals: Sequence[float] = ()
    drafting: Drafting = NO_DRAFTING
    depth: int = 0
    planned: bool = False
    decided: bool = False
    risk: float = 0.0
    host: float = 0.0
    reading: bool = False
    tokens: float = 1.0
    trial: bool = False
    slack: float = float("inf")
    read: frozenset[str] = frozenset()

    def behind_prompts(self, *, read: bool) -> "Offer":
        """The same once all texts are behind their prompts, and nothing is decided.

        read: whether the drafter has read the prompt too; without, the text does not draft. A fixed
        depth expects nothing of its drafts, and remains decided.
        """
        offer = replace(self, decided=self.decided and not any(self.survivals), reading=False)
        if self.decided and self.depth:
            offer.drafting = self.drafting.after_reading()
        elif not read and self.drafting.unread:
            offer.survivals, offer.drafting, offer.depth = (), NO_DRAFTING, 0
        return offer

    def bring(self, survivals: Sequence[float], drafting: Drafting, depth: int) -> None:
        """Offer another draft."""
        self.survivals, self.drafting = survivals, drafting
        self.decide(depth)

    def decide(self, depth: int) -> None:
        """Draft so many tokens in the next decode."""
        self.depth, self.decided = depth, True
        self.planned = self.reading = False


def writing(others: Sequence[Offer]) -> int:
    """How many texts share the next decode, this one too: not those that still read their prompts.

    others: the offers of the others.
    """
    return 1 + sum(not each.reading for each in others)


class RowBudget:
    """What the texts of a scheduler know of each other.

    loss_budget: for the drafts of all texts together.
    """

    def __init__(self) -> None:
        self.loss_budget = LossBudget(OVERDRAFT)
        self._shares: list[RowShare] = []

    def new_share(self, is_written: Callable[[], bool] = lambda: True) -> "RowShare":
        """Register a text. is_written: returns whether it takes part in the next decode."""
        share = RowShare(self, is_written)
        self._shares.append(share)
        return share

    def remove(self, share: "RowShare") -> None:
        """Forget a text."""
        if share in self._shares:
            self._shares.remove(share)

    def beside(self, own: "RowShare") -> "list[RowShare]":
        """The shares of the other texts that are written now."""
        return [each for each in self._shares if each is not own and each.is_written()]


class RowShare:
    """The part of one text in a row budget.

    offer: what it may bring to the next decode. cache: only texts of one cache share decodes.
    budget: that of all texts. is_written: as in RowBudget. seen: the tokens that each drafter, by
    its name, has drafted lately. lead: how far the text is ahead of one that is written beside as
    many others without any drafts. texts: how many shared the last decode of its target or drafter;
    0 if others had many rows in it. resting: whether it need not decide in this step. asked:
    whether it decides all the same, or as it must.
    """

    def __init__(self, budget: RowBudget, is_written: Callable[[], bool]) -> None:
        self.budget, self.is_written = budget, is_written
        self.begin(None)
        self.seen: dict[str, Tally] = {}
        self.texts = 1
        self.resting, self.asked = False, True
        # The rounds in a row in which it rested, and those in a row in which nobody drafted though
        # it was asked; how many other texts there were.
        self._rested = self._in_vain = self._company = 0
        self._alone, self._in_company = Deciding(), Deciding(beside=True)

    @property
    def deciding(self) -> float:
        """What it takes to decide that nothing is drafted, in plain steps; learnt alone."""
        return self._alone.takes

    @property
    def others(self) -> list[Offer]:
        """The offers of the other texts that share decodes with this one."""
        return [each.offer for each in self._sharing()]

    def _sharing(self) -> "list[RowShare]":
        return [each for each in self.budget.beside(self) if each.cache is self.cache]

    def ask_all(self) -> None:
        """Let all texts decide: one drafts, or there are other ones."""
        for each in (self, *self._sharing()):
            each._in_vain = 0

    def rests(self, others: Sequence[Offer]) -> bool:
        """Whether the text takes a plain step without deciding, as nothing was drafted lately.

        others: the offers of the other texts. To decide takes a part of a millisecond, in which all
        wait, and a plain pass only ten or twenty.
        """
        if len(others) != self._company:
            self.ask_all()
            self._company = len(others)
        rests = 0 if others else self._alone.rests
        if others and (in_vain := self._in_vain // _IN_VAIN):
            rests = max(min(in_vain, writing(others) - 1), self._in_company.rests)
        self.resting = self._rested < rests
        return self.resting

    def seen_by_others(self, drafter: str) -> Tally:
        """How many drafted tokens of a drafter were right lately, in the other texts."""
        beside = self.budget.beside(self)
        found = [each.seen[drafter] for each in beside if drafter in each.seen]
        return Tally(sum(each.right for each in found), sum(each.tried for each in found))

    def begin(self, cache: object) -> None:
        """Start a text, of which nothing is known, in this cache."""
        self.offer, self.cache, self.lead = Offer(), cache, LossBudget(DELAY, _LARGEST_DEBT)

    def learn(self, step: Step, passes: PassCosts, prompt: float = 0.0, lost: float = 0.0) -> None:
        """Learn from a step of this text.

        prompt: the expected seconds in which its drafter has first read the text. They are charged
        to nobody: they pay later, and what may be spent on them is a share of the time of all.
        lost: by the decode to changes of the rows (`PassCosts.take_lost`).
        """
        # Behind all decisions of the round, so that texts that are asked together remain so.
        self._rested = self._rested + 1 if self.resting else 0
        self._in_vain += not self.resting
        offer = self.offer
        if offer.decided and offer.depth:
            offer.drafting = offer.drafting.after_reading()
        offer.risk, offer.trial, offer.decided = 0.0, False, False
        offer.tokens += _NEWEST * (len(step.tokens) - offer.tokens)
        offer.host += _NEWEST * (step.host_seconds - offer.host)
        others = self._sharing()
        if others and all(rows <= WIDEST for rows in step.others):  # not a part of a prompt
            drafting = max(0.0, step.draft_seconds - prompt) + sum(step.reading.values())
            self._learn_round(step, passes, others, drafting, lost)
        elif not others and not self.resting:
            self._learn_deciding(step, passes, prompt)

    def _learn_deciding(self, step: Step, passes: PassCosts, prompt: float) -> None:
        """Learn what deciding takes and gains in a text alone. prompt: as in `learn`."""
        plain = passes.seconds(1)
        drafting = max(0.0, step.draft_seconds - prompt) / plain
        gain = len(step.tokens) - passes.seconds(step.rows) / plain - drafting
        self._alone.learn(drafting, gain, drafted=bool(step.drafted))

    def _learn_round(
        self,
        step: Step,
        passes: PassCosts,
        others: "Sequence[RowShare]",
        drafting: float,
        lost: float,
    ) -> None:
        """Learn from a step how long its text had to wait, and the others for its draft.

        drafting: seconds of the draft, and of reading hidden rows. lost: as in `learn`.
        """
        rows = [step.width, *step.others]
        if passes.unequal_apart:
            depths = (1 + each.offer.depth for each in others if not each.offer.reading)
            rows = [step.width, *depths]
        plain = passes.of_plain(len(rows))
        took = passes.of_round(rows) if passes.unequal_apart else passes.unpadded(sum(rows))
        # The others' seconds outside the models: all wait for these too, drafts or not.
        host = sum(each.offer.host for each in others if not each.offer.reading)
        if self.asked:
            # All wait for it, and a token of this text is worth a part of a decode.
            longer = (took + lost) * step.width / sum(rows) - plain / len(rows) + drafting
            gain = len(step.tokens) - 1 - longer * len(rows) / plain
            takes = drafting * len(rows) / plain
            self._in_company.learn(takes, gain, drafted=bool(step.drafted))
        # Deciding has its own account, or debts of that would rule out the drafts that pay.
        if not step.drafted:
            drafting = sum(step.reading.values())
        seconds = took + lost + drafting + host
        self.lead.add_step(seconds, seconds, len(step.tokens), plain + host)
        # DELAY is in decodes: time outside the models lets drafts delay no text any longer.
        self.offer.slack = self.lead.available(plain)
        for each in others if drafting else ():
            # One that still reads its prompt takes no step with the others.
            if each.offer.decided or each.offer.slack < float("inf"):
                each._wait(drafting, plain)

    def _wait(self, seconds: float, plain: float) -> None:
        """Account for seconds of another text's draft. plain: of a plain decode."""
        self.lead.add_step(seconds, seconds, 0, plain)
        # A text that has learnt nothing yet bears everything.
        if self.offer.slack < float("inf"):
            self.offer.slack = self.lead.available(plain)
