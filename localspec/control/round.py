"""Round: the next decode of several texts, as the policy of one of them sees it.

Texts that are written at the same time take their steps together: in a round, text i drafts k_i
tokens, and one decode computes the 1 + k_i rows of each. All wait for all of it:

    T = C(sum of 1 + k_i) + D(k_1, k_2, ...)

C: seconds of a decode by its rows; D: seconds of drafting (`JointDrafting`). Text i may expect e_i
= 1 + S_i(1) + ... + S_i(k_i) tokens, where S_i(k) is the probability that its first k drafted
tokens are all accepted. The best round has the largest geometric mean of the speeds e_i / T: so no
text gains less than the others together lose, and texts that are alike are served alike, which the
sum of the speeds would not see to. The mean is largest where a small change of the drafts gains
nothing (its logarithm's derivative), that is where

    (sum of w_i e_i) / T,  w_i = 1 / (the tokens that text i had per step lately)

is largest (proportional fairness: Kelly 1997, "Charging and rate control for elastic traffic"). For
a number of rows the likeliest ones are the best. So the choices are the 0, 1, 2, ... likeliest
further rows of all texts. All of them are compared, as C rises in steps: where the next row does
not pay, the next four may; and a text's row may cost nothing only because others draft.

The texts decide one after the other. The first one that drafts has compared all choices, and so
plans for all (`plan_others`); those that follow choose only the depth of their own draft, beside
what is decided and planned for the others. Comparing all again would find hardly anything, and all
would wait for it. No draft grows while it is drawn, as that of a text without others may.

Nobody pays for the drafts of others, and nobody long for its own: a text bears a round of at most

    T_i = C(texts) e_i + slack_i

where its slack is the time by which it is ahead of a text that is written beside as many others
without any drafts, and one such round more (`RowShare.lead`), and of the tokens that it may gain,
three count at most. So whoever gains may spend what it has gained, and a text whose drafts are bad
is delayed by a few rounds, not by every draft of others. One that is behind, but not by far, goes
on beside others while its own drafts promise a gain, at what stopping costs all, if need be. Rounds
that some text does not bear are no choices. Where one would be left out, all may still draft alike.

With one text this is the rate (1 + S(1) + ... + S(k)) / (C(1 + k) + D(k)).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from localspec.control.base_costs import WIDEST, WIDEST_DECODE
from localspec.control.joint_drafting import Drafting, JointDrafting, Parts
from localspec.control.pass_costs import PassCosts
from localspec.control.round_plan import RoundPlan
from localspec.control.row_budget import Offer, writing

# The deepest drafts that are considered for all texts alike.
_DEEPEST_OF_ALL = 8
# A text bears a longer round for the tokens that it may gain in it, but no more than so many: they
# may all be wrong.
_TRUSTED = 3.0
# A text that is behind, but by fewer rounds than this, bears a round that takes no longer than this
# part of what it may gain: so it catches up sooner than by waiting. Fewer rounds would end what all
# gain at the first bad luck of one of them.
_FAR_BEHIND, _CATCHING_UP = 6.0, 0.9


class _Others(NamedTuple):
    """What the other texts bring and bear. seconds: outside the target's decode; see RoundPlan."""

    rows: tuple[int, ...]
    tokens: float
    seconds: float
    most: float
    depths: Sequence[int]


class Round:
    """The next step of all texts, as the policy of one of them sees it.

    own: what this text offered last. others: the offers of the others; without any, the text is
    alone. texts: how many share the decode. share: this text's part of a decode without drafts.
    """

    def __init__(self, passes: PassCosts, own: Offer, others: Sequence[Offer]) -> None:
        self._passes, self._own, self.others = passes, own, others
        self._parts, self.alone = Parts(), not others
        # How many of the others have each computer.
        self._sharing = Counter(id(each.drafting.computer) for each in others)
        # Whether only the depth of this text is left to choose.
        self._planned = own.planned or passes.unequal_apart
        self.texts = writing(others)
        self.share = self._bare = passes.seconds(1)
        if not others:
            return
        self._round = passes.of_plain(self.texts)
        self.share = self._round / self.texts
        # Who reads a prompt counts as if it took a plain step: that is what a second is worth soon.
        all_written = passes.of_plain(1 + len(others))
        self._for_readers, host = all_written - self._round, sum(each.host for each in others)
        # Seconds of a round in which nobody drafts, and those of the others outside the decode.
        self._plain_round, self._beside = self._round + host, self._for_readers + host
        self._weights = [own.tokens / each.tokens for each in others]
        # What a token is worth, in seconds of all texts.
        self._token = all_written / (1.0 + sum(self._weights))
        self._bare = (self._round + self._beside) / (1.0 + sum(self._weights))
        # The depths that are certain: no other is before a text has decided.
        self._certain = [each.depth if each.decided else 0 for each in others]
        # The tokens that `_likeliest` adds, and what each is worth.
        self._added, self._worths = list[tuple[Drafting, int]](), list[float]()

    # These are computed when they are first needed, and before others decide anew.

    @cached_property
    def _costs(self) -> list[float]:
        """Seconds of decodes by their rows."""
        return self._passes.table

    @cached_property
    def plain(self) -> float:
        """Seconds per token, by weight, of all texts if this one does not draft."""
        return self.share if self.alone else self._best_without()

    @cached_property
    def _now(self) -> "_Others":
        """What the others bring with the drafts that they chose last."""
        return self._at([each.depth for each in self.others])

    @cached_property
    def _settled(self) -> "_Others":
        """What the others bring with the drafts that they have decided on."""
        return self._at(self._certain)

    @cached_property
    def _likeliest(self) -> "list[_Others]":
        """What the others bring with their 0, 1, 2, ... likeliest tokens."""
        more = [self._now] if self._planned else self._more(self._settled)
        return [self._settled, *more]

    def _best_without(self) -> float:
        """Seconds per token, by weight, of the best round in which this text does not draft."""
        certain, *choices = (self._plan(each, 0, 0.0, each.seconds) for each in self._likeliest)
        borne = (each for each in choices if each.seconds <= each.most)
        return min(each.seconds / (1.0 + each.tokens) for each in (certain, *borne))

    def jointly(self) -> "Round":
        """The same round, in which the drafts of others are to be chosen too."""
        if self.alone or not self._own.planned:
            return self
        return Round(self._passes, replace(self._own, planned=False), self.others)

    def behind_prompts(self, *, read: bool) -> "Round":
        """The round once all texts are behind their prompts. read: see Offer.behind_prompts."""
        others = [each.behind_prompts(read=read) for each in self.others]
        return Round(self._passes, replace(self._own, planned=False), others)

    def plan_others(self, chosen: RoundPlan) -> None:
        """Tell the others what they should draft, if nobody has. chosen: of this text."""
        if self._planned or self.alone or any(each.drafting.unread for each in self.others):
            return
        for each, depth in zip(self.others, chosen.depths, strict=True):
            if not each.decided:
                each.depth, each.planned = min(depth, len(each.survivals)), True

    def table(self, others: Sequence[int] | None = None) -> list[float]:
        """Seconds of the decodes by this text's own rows, from 1 to WIDEST; entry 0 is unused.

        others: the rows of the others. By default those that are certain, or, where unequal passes
        share no decode, those of the drafts that they chose last.
        """
        if not self.others:
            return self._costs
        certain = self._now if self._passes.unequal_apart else self._settled
        beside = certain.rows if others is None else tuple(others)
        return [0.0, *(self._decode(beside, own) for own in range(1, WIDEST + 1))]

    def plans(self, survivals: Sequence[float], drafting: Drafting) -> Iterator[RoundPlan]:
        """The choices in which this text drafts.

        survivals, drafting: see Offer.
        """
        if not self.others:
            for depth in range(1, len(survivals) + 1):
                seconds = self._costs[1 + depth] + drafting.seconds(depth)
                yield RoundPlan(depth, (), 0.0, seconds, float("inf"))
            return
        gained = list(accumulate(survivals, initial=0.0))
        for others, depth, joint in self._choices(survivals, drafting):
            yield self._plan(others, depth, gained[depth], self._beside + joint.seconds)

    def best(
        self,
        survivals: Sequence[float],
        drafting: Drafting,
        late: float = 0.0,
        latest: float = float("inf"),
        savings: Sequence[float] = (),
    ) -> tuple[RoundPlan | None, float]:
        """The choice with the most tokens per second, by weight, of those that all bear.

        survivals, drafting: as in `plans`. late, latest: seconds that a step takes longer for each
        of this text's tokens, and at most. savings: see Overlap; empty without.
        Returns it, or None, and its tokens per second.
        """
        best, best_rate = None, 0.0
        if not survivals:
            return best, best_rate
        expected = list(accumulate(survivals, initial=1.0))
        beside = sum(self._now.rows) if self._own.planned and self.others else 0
        # Only this text's depth grows, and up to WIDEST rows no wider decode is quicker.
        only_deeper = self.alone or beside > 0
        only_deeper &= not savings and beside + len(survivals) < WIDEST
        for plan in self.plans(survivals, drafting):
            if only_deeper and plan.tokens + expected[-1] <= best_rate * plan.seconds:
                break  # even if all further tokens were free
            own = expected[plan.depth]
            seconds = plan.seconds + min(late * own, latest)
            if seconds > plan.most:
                continue
            seconds -= savings[plan.depth] if savings else 0.0
            if plan.tokens + own > best_rate * seconds:
                best, best_rate = plan, (plan.tokens + own) / seconds
        return best, best_rate

    def saved(
        self,
        plan: RoundPlan,
        rate: float,
        survivals: Sequence[float],
        tokens: float,
        plain: float | None = None,
    ) -> float:
        """Seconds of all texts that a choice saves on so many tokens of this one.

        rate: its tokens per second, by weight. survivals: as in `plans`. plain: seconds per token
        without it; by default those of a round in which nobody drafts.
        """
        own = 1.0 + sum(survivals[: plan.depth])
        plain = self._bare if plain is None else plain
        return tokens * max(0.0, plain - 1 / rate) * (1 + plan.tokens / own)

    def paid(self, plan: RoundPlan, drafting: Drafting) -> list[float]:
        """Seconds of this text's part of the drafts of a plan, by its tokens from 0 on.

        Alone, a draft may become longer than planned.
        """
        if self.alone:
            return [*drafting.alone]
        joint = self._drafts(plan.depths)
        tokens = (joint.add(drafting, place) for place in range(1, plan.depth + 1))
        return list(accumulate(tokens, initial=0.0))

    def unread(self, plan: RoundPlan) -> float:
        """Seconds in which drafters of others would first read prompts, to draft as planned."""
        return sum(
            each.drafting.unread
            for each, depth in zip(self.others, plan.depths, strict=True)
            if depth and not each.decided
        )

    def part(self, drafting: Drafting) -> float:
        """What this text pays of its drafter's decodes if all draft that may share them."""
        return self._parts.of(drafting, 1 + self._sharing[id(drafting.computer)])

    def _choices(
        self, survivals: Sequence[float], drafting: Drafting
    ) -> Iterator[tuple[_Others, int, JointDrafting]]:
        """What the others bring, the depth of this text, and the drafts of all."""
        if self._planned:
            joint = self._drafts([each.depth for each in self.others])
            for depth in range(1, len(survivals) + 1):
                joint.add(drafting, depth)
                yield self._now, depth, joint
        else:
            yield from self._merged(survivals, drafting)
        if self._own.planned:
            return
        # All bear more where none is left out, and equal rows are cheap where unequal ones are not.
        deepest = len(survivals)
        if not self._passes.unequal_apart:
            deepest = min(_DEEPEST_OF_ALL, deepest)
        joint = self._drafts(self._certain)
        for depth in range(1, deepest + 1):
            joint.add(drafting, depth)
            for each in self.others:
                if not each.decided and depth <= len(each.survivals):
                    joint.add(each.drafting, depth)
            yield self._alike(depth, joint), depth, joint

    def _merged(
        self, survivals: Sequence[float], drafting: Drafting
    ) -> Iterator[tuple[_Others, int, JointDrafting]]:
        """The likeliest rows of all texts, one more each time."""
        own, further, likeliest = self._worth(survivals, drafting, 1.0), 0, self._likeliest
        joint = self._drafts(self._certain)
        for depth in range(len(own) + 1):
            worth = own[depth] if depth < len(own) else float("-inf")
            while further < len(self._worths) and self._worths[further] > worth:
                joint.add(*self._added[further])
                further += 1
                if depth:
                    yield likeliest[further], depth, joint
            if depth < len(own):
                joint.add(drafting, depth + 1)
                yield likeliest[further], depth + 1, joint

    def _plan(self, others: _Others, depth: int, gained: float, outside: float) -> RoundPlan:
        """gained: the drafted tokens of this text that may be accepted.

        outside: seconds of all texts outside the target's decode.
        """
        seconds = outside + self._decode(others.rows, 1 + depth)
        most = min(others.most, self._borne(self._own, gained))
        return RoundPlan(depth, others.rows, others.tokens, seconds, most, others.depths)

    def _decode(self, others: tuple[int, ...], own: int) -> float:
        """Seconds of the decodes of all. own: the rows of this text."""
        if self._passes.unequal_apart:
            return self._passes.of_round((*others, own))
        if (rows := others[0] + own) <= WIDEST_DECODE:
            return self._costs[rows]
        # It would take two decodes: no choice where anybody drafts.
        return self._passes.seconds(rows) if own == 1 else float("inf")

    def _worth(self, survivals: Sequence[float], drafting: Drafting, weight: float) -> list[float]:
        """What each token of a draft is worth, in seconds; none is worth more than one before.

        Where others may draft too, it pays its part of a decode of the drafter, as if they did.
        """
        part, worths, least = self.part(drafting), list[float](), float("inf")
        for depth, chance in enumerate(survivals):
            seconds = drafting.seconds(depth + 1, part) - drafting.seconds(depth, part)
            least = min(least, weight * self._token * chance - seconds)
            worths.append(least)
        return worths

    def _more(self, certain: "_Others") -> "Iterator[_Others]":
        """Add the tokens of the others that are worth their drafting, the likeliest first."""
        tokens = [
            (-worth, number, depth)
            for number, each in enumerate(self.others)
            if not each.decided
            for depth, worth in enumerate(
                self._worth(each.survivals, each.drafting, self._weights[number])
            )
            if worth > 0
        ]
        tokens.sort()
        [[rows], expected, *_] = certain
        offers = zip(self.others, self._certain, strict=True)
        gained = [sum(each.survivals[:depth]) for each, depth in offers]
        borne = list(map(self._borne, self.others, gained))
        joint, depths = self._drafts(self._certain), list(self._certain)
        for worth, number, depth in tokens[: max(0, WIDEST_DECODE - rows - 1)]:
            offer = self.others[number]
            rows += 1
            expected += self._weights[number] * offer.survivals[depth]
            joint.add(offer.drafting, depth + 1)
            gained[number] += offer.survivals[depth]
            borne[number] = self._borne(offer, gained[number])
            self._worths.append(-worth)
            self._added.append((offer.drafting, depth + 1))
            seconds = self._beside + joint.seconds
            depths[number] = depth + 1
            yield _Others((rows,), expected, seconds, min(borne), tuple(depths))

    def _alike(self, depth: int, joint: JointDrafting) -> _Others:
        """What the others bring where all that have not decided yet draft so deep."""
        return self._at([each.depth if each.decided else depth for each in self.others], joint)

    def _at(self, depths: Sequence[int], joint: JointDrafting | None = None) -> _Others:
        """What the others bring where they draft so deep, as far as each can.

        joint: their drafts, maybe with this text's.
        """
        joint = joint or self._drafts(depths)
        rows, tokens, borne = list[int](), 0.0, float("inf")
        for each, weight, deepest in zip(self.others, self._weights, depths, strict=True):
            depth = min(deepest, len(each.survivals))
            gained = sum(each.survivals[:depth])
            tokens += weight * (1.0 + gained)
            borne = min(borne, self._borne(each, gained))
            if not each.reading:
                rows.append(1 + depth)
        total = tuple(rows) if self._passes.unequal_apart else (sum(rows),)
        return _Others(total, tokens, self._beside + joint.seconds, borne, depths)

    def _drafts(self, depths: Sequence[int]) -> JointDrafting:
        """The drafts of the others where they draft so deep, as far as each can."""
        joint = JointDrafting(self._parts)
        for each, deepest in zip(self.others, depths, strict=True):
            for place in range(1, min(deepest, len(each.survivals)) + 1):
                joint.add(each.drafting, place)
        return joint

    def _borne(self, offer: Offer, gained: float) -> float:
        """How many seconds a text bears, for the whole round, that may gain so many tokens."""
        gained, plain = min(gained, _TRUSTED), self._plain_round
        most = plain * (1.0 + gained) + offer.slack
        if offer.slack > -_FAR_BEHIND * self._round:
            most = max(most, plain * (1.0 + _CATCHING_UP * gained))
        way_back = self._passes.way_back if gained else 0.0
        return self._for_readers + most + way_back
