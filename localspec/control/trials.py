"""Trials: drafts that do not seem to pay, made now and then to learn what they are worth."""

from localspec.control.pass_costs import PassCosts
from localspec.control.round import Round
from localspec.control.row_budget import RowShare
from localspec.control.running_draft import LIKELY, Option

# Where several texts wait for a trial that seems to lose a whole plain step: how much rarer it is.
_PATIENCE = 100.0


def is_trial_due(option: Option, round_: Round, rows: RowShare) -> bool:
    """Whether to try a drafter that does not seem to pay; ask once per step.

    Where others wait for it too, a trial is rarer the more it seems to lose. rows: of the text.
    """
    if round_.texts == 1:
        return option.candidate.is_trial_due()
    loss = max(0.0, 1 - option.rate * round_.plain)
    others = any(each.trial for each in rows.others)
    due = option.candidate.is_trial_due(1 + _PATIENCE * loss, in_company=others)
    rows.offer.trial = due
    return due


def is_worth_a_look(option: Option, round_: Round, least: float) -> bool:
    """Whether to draw a token, though the average draft does not pay: not if others wait.

    least: the seconds that it must gain.
    """
    return round_.texts == 1 and option.gain_of_looking(round_.table()) > least


def is_pass_worth_a_trial(option: Option, texts: int, passes: PassCosts) -> bool:
    """Whether a likely copy should tell what its pass takes, which was not seen for long.

    A copy is scored without a pass, so nothing else would show that passes are cheaper than they
    were. texts: how many share a decode.
    """
    unknown = texts == 1 and passes.is_stale(1 + option.depth)
    return unknown and option.survivals[0] >= LIKELY and option.candidate.is_trial_due()
