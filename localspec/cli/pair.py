"""`localspec pair`: whether a drafter fits a target; or which models would."""

import os

import click

from localspec.cli.options import context_option
from localspec.cli.output import Output
from localspec.cli.pair_output import DrafterReport, SuggestionReport
from localspec.errors import (
    DrafterMismatchError,
    InvalidValueError,
    ModelLoadError,
    ModelNotFoundError,
)
from localspec.generation_config import GenerationConfig, require
from localspec.gguf.check import FORK_ARCHITECTURES
from localspec.gguf.facts import Facts
from localspec.gguf.mask_token import PARD
from localspec.gguf.reader import read_header
from localspec.hub.reference import Repository
from localspec.loading import acceptance_priors, learnt_rates
from localspec.loading.acceptance_check import remembered_rate
from localspec.loading.calibration import IN_ONE_PASS, remembered
from localspec.loading.config import RuntimeConfig
from localspec.loading.head_trial import head_trial
from localspec.models.heads_elsewhere import heads_elsewhere
from localspec.models.locate import locate, reference_of
from localspec.models.own_drafters import (
    listed_drafters,
    own_drafters,
    require_another,
    with_others,
)
from localspec.models.pair_finder import pair_like, pair_of, sampling_pair
from localspec.models.speed_up import DEPTHS, NO_GAIN, PairMeasurement, estimate_speed_up
from localspec.models.suggestions import (
    drafter_checks,
    drafter_kind,
    drafter_model,
    suggest_drafters,
    text_model,
)
from localspec.models.vocabulary_match import Check, CheckResult
from localspec.sampling.params import SamplingParams


@click.command()
@click.argument("target")
@click.argument("drafter", required=False)
@context_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not a table.")
def pair(*, target: str, drafter: str | None, context: int | None, as_json: bool) -> int:
    """Check whether DRAFTER can draft for TARGET, and what that may gain.

    DRAFTER is a smaller model, or a head of any kind; TARGET itself for the heads inside it.
    Without DRAFTER all drafters on this machine that can draft for TARGET are listed, the most
    promising first, and those that models.toml names. Each name is a path, a pair of models.toml
    (it stands for its target), or user/repo[:quant]. No weights are loaded. The exit code is 6 if
    the drafter does not fit.
    """
    output = Output()
    if context is not None:
        require("context", context, 2)
    model = _target(target)
    answer = (
        _suggestion_report(model, context)
        if drafter is None
        else _drafter_report(target, model, drafter, context)
    )
    if as_json:
        output.record(answer.record())
    else:
        output.data(answer.text())
    return 0 if answer.fits else DrafterMismatchError.exit_code


def _target(name: str) -> Facts:
    """Return the target's facts.

    Raises ModelNotFoundError, which names its drafter if models.toml knows one.
    """
    try:
        return text_model(locate(name))
    except ModelNotFoundError as error:
        known = pair_of(reference_of(name))
        if known is None:
            raise
        if known.drafters:
            named = ", ".join(str(each) for each in known.drafters)
            raise ModelNotFoundError(f"{error}; its drafters are {named}") from error
        reason = known.no_drafter or "none is known"
        raise ModelNotFoundError(f"{error}; no model drafts for it: {reason}") from error


def _drafter_report(name: str, target: Facts, drafter: str, context: int | None) -> DrafterReport:
    """Check the drafter that was named."""
    path = locate(drafter)
    if not os.path.exists(drafter):  # whoever types a path twice means it
        require_another(drafter, path, target.files[0])
    try:
        model = drafter_model(path)
    except ModelLoadError as error:
        if read_header(path).architecture not in FORK_ARCHITECTURES:
            raise
        # The file is sound, so this is the answer.
        unfit = [Check("architecture", CheckResult.UNFIT, str(error))]
        return DrafterReport(name, target, drafter, path, unfit, NO_GAIN)
    found = drafter_checks(target, model, context, head_trial)
    kind = drafter_kind(target, model)
    speed_up = estimate_speed_up(target, model, _measured(target, model), kind)
    return DrafterReport(name, target, drafter, path, found, speed_up, kind)


def _suggestion_report(target: Facts, context: int | None) -> SuggestionReport:
    """Look for drafters on this disk and in models.toml."""
    known = pair_like(target)
    # The heads of a model that this one is named after may fit: they are listed last.
    listed = listed_drafters(known) if known else []
    own = with_others(own_drafters(target.files[0], target), listed)
    missing = [each for each in own if isinstance(each.reference, Repository) and not each.file]
    found = suggest_drafters(target, _measured, context, head_trial)
    return SuggestionReport(target, found, known, missing, heads_elsewhere(target))


def _measured(target: Facts, drafter: Facts) -> PairMeasurement:
    """Return what was accepted before, and what passes took here with default settings."""
    target_file, drafter_file = target.files[0], drafter.files[0]
    kind = drafter_kind(target, drafter)
    name = kind if drafter.files == target.files else drafter_file.stem
    way = IN_ONE_PASS if kind == PARD else ""
    profile = remembered(target_file, {name: drafter_file}, RuntimeConfig(), [way] if way else [])
    costs = {depth: profile.step(name, depth) for depth in DEPTHS} if profile else None
    tried = remembered_rate(target_file, drafter_file)
    try:
        listed = sampling_pair(target_file)
        temperature = SamplingParams.for_model(
            target.header.metadata, listed.sampling if listed else {}
        ).temperature
    except InvalidValueError:
        # What the file recommends makes no sense, so nothing was planned with it.
        return PairMeasurement(tried, costs, "its first use")
    rule = GenerationConfig().rule
    learnt = learnt_rates.find(target_file, drafter_file, rule, temperature, way=way)
    if learnt is not None:
        return PairMeasurement(learnt.total.share, costs, "earlier texts")
    prior = acceptance_priors.find(target_file, [drafter_file], temperature).rates.get(name)
    if prior is not None or tried is None:
        return PairMeasurement(prior, costs)
    return PairMeasurement(tried, costs, "its first use")
