"""Prompt reading: whether a drafter's reading of a prompt, before its first draft, will pay.

It happens once, takes seconds in which all texts wait, and must be earned back by the drafts of the
coming tokens. What decides is how texts are written once all are behind their prompts: where others
still read theirs, few rows share a decode, but that is soon over.

Drafts of several texts may pay where those of one do not, as rows are cheap in company. Then what
all of them have to read must be less than what all save, though rounds take a tenth longer than
promised. As long as nobody knows how often the drafter is right, one of them reads, the others wait
for what it finds, and the promise is enough.

A drafter that can draft from the end of a prompt alone reads all of it only where its better drafts
save more than that takes. Beside others, each of them would have to read as much: what they offer
may be drafts from the end.
"""

from collections.abc import Sequence

from localspec.control.joint_drafting import Drafting
from localspec.control.round import Round
from localspec.control.running_draft import Option

# Where it takes the drafts of all: so much dearer than promised, rounds must pay. If one unlucky
# text bears no more of them, all have read in vain.
_MARGIN = 1.1


def reading_pays(
    now: Round,
    survivals: Sequence[float],
    drafting: Drafting,
    tokens: float,
    *,
    known: bool,
    alike: bool = False,
) -> bool:
    """Whether drafts save more on so many coming tokens than must be read for them first.

    now: the next round. survivals, drafting: see Offer. known: whether it is known how often the
    drafter is right. alike: whether each other text that has not read its prompt in this way would
    have to read as much, whatever it offers.
    """

    def saved(round_: Round, plain: float, margin: float = 1.0) -> tuple[float, float]:
        """Seconds saved by the best drafts, and those in which others read prompts for them."""
        plan, rate = round_.best(survivals, drafting)
        if plan is None:
            return 0.0, 0.0
        return round_.saved(plan, rate / margin, survivals, tokens, plain), round_.unread(plan)

    alone = now.behind_prompts(read=False)
    if saved(alone, alone.plain)[0] >= drafting.unread:
        return True
    if not any(each.drafting.unread for each in now.others):
        return False
    if not known and any(drafting.name in each.read for each in now.others):
        return False
    by_all, others = saved(now.behind_prompts(read=True), alone.plain, _MARGIN if known else 1.0)
    unread = sum(drafting.name not in each.read for each in now.others) if alike else 0
    return by_all >= drafting.unread + max(others, unread * drafting.unread)


def without_vain_reading(options: Sequence[Option], tokens: float) -> list[Option]:
    """The options without those that read more of a prompt than pays beside reading its end.

    tokens: the expected number of further ones.
    """
    of_ends = {id(each.candidate.drafter): each for each in options if each.candidate.from_end}

    def pays(option: Option) -> bool:
        end = of_ends.get(id(option.candidate.drafter), option)
        saved = tokens * (1 / end.rate - 1 / option.rate)
        return saved >= option.reading - end.reading

    return [each for each in options if pays(each)]
