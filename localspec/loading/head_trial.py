"""Head trial: what is known of a head and a target beyond their headers."""

from localspec.drafters.spec import DrafterSpec
from localspec.errors import DrafterMismatchError, LocalspecError
from localspec.gguf.facts import Facts
from localspec.loading.acceptance_check import LEAST_RATE, remembered_rate
from localspec.loading.drafter_finder import checked_drafter
from localspec.models.trained_drafters import is_trained_for
from localspec.models.vocabulary_match import Check, CheckResult


def head_trial(target: Facts, head: Facts) -> list[Check]:
    """Try out once, in a child process, whether a head reads this target; no weights are read.

    Then tell how many of its tokens the target accepted at first use, if there was one.
    """
    found = []
    if head.files != target.files:
        path = head.files[0]
        try:
            checked_drafter(DrafterSpec("draft-model", model=path), path, target.files[0])
        except LocalspecError as error:
            if not isinstance(error, DrafterMismatchError):
                return [Check("trial", CheckResult.HARMLESS, str(error))]
            return [Check("trial", CheckResult.UNFIT, str(error).partition(";")[0])]
        found.append(Check("trial", CheckResult.FITS, "llama.cpp hands out what it reads"))
    rate = remembered_rate(target.files[0], head.files[0])
    if rate is not None:
        detail = f"{rate:.0%} of its tokens were accepted at first use"
        verdict = CheckResult.FITS if rate >= LEAST_RATE else CheckResult.UNFIT
        if verdict is CheckResult.UNFIT and is_trained_for(target.files[0], head.header):
            verdict = CheckResult.HARMLESS
            detail += ": it was trained for this very model, and learnt too little"
        elif verdict is CheckResult.UNFIT:
            detail += ": it was made for another checkpoint"
        found.append(Check("acceptance", verdict, detail))
    return found
