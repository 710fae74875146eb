"""`localspec pair`: whether a drafter fits a target; or which models would."""

import click

from localspec.cli.options import context_option
from localspec.cli.output import Output
from localspec.cli.pair_output import DrafterReport, SuggestionReport
from localspec.errors import DrafterMismatchError, InvalidValueError, ModelNotFoundError
from localspec.generation_config import require
from localspec.gguf.facts import Facts
from localspec.hub.reference import Repository
from localspec.loading import acceptance_priors
from localspec.loading.calibration import remembered
from localspec.loading.config import RuntimeConfig
from localspec.models.compatibility import checks
from localspec.models.locate import find_file, locate, reference_of
from localspec.models.pair_finder import pair_like, pair_of
from localspec.models.speed_up import DEPTHS, PairMeasurement, estimate_speed_up
from localspec.models.suggestions import suggest_drafters, text_model
from localspec.sampling.params import SamplingParams


@click.command()
@click.argument("target")
@click.argument("drafter", required=False)
@context_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def pair(*, target: str, drafter: str | None, context: int | None, as_json: bool) -> int:
    """Check whether DRAFTER can draft for TARGET, and what that may gain.

    Without DRAFTER: which models on this machine can, the most promising first, and the one that
    models.toml has for the target. Both are paths, pairs of models.toml (their targets), or
    user/repo[:quant]. No weights are loaded. The exit code is 6 for a drafter that does not fit.
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
        if known.drafter:
            raise ModelNotFoundError(f"{error}; its drafter is {known.drafter}") from error
        reason = known.no_drafter or "none is known"
        raise ModelNotFoundError(f"{error}; no model drafts for it: {reason}") from error


def _drafter_report(name: str, target: Facts, drafter: str, context: int | None) -> DrafterReport:
    """Check the drafter that was named."""
    model = text_model(locate(drafter))
    found = checks(target, model, context)
    speed_up = estimate_speed_up(target, model, _measured(target, model))
    return DrafterReport(name, target, drafter, model, found, speed_up)


def _suggestion_report(target: Facts, context: int | None) -> SuggestionReport:
    """Look for drafters on this disk and in models.toml."""
    known = pair_like(target)
    wanted = known.drafter if known else None
    missing = wanted if isinstance(wanted, Repository) and not find_file(wanted) else None
    return SuggestionReport(target, suggest_drafters(target, _measured, context), known, missing)


def _measured(target: Facts, drafter: Facts) -> PairMeasurement:
    """Return what `localspec plan` found, and what passes took here with default settings."""
    target_file, drafter_file = target.files[0], drafter.files[0]
    name = drafter_file.stem
    profile = remembered(target_file, {name: drafter_file}, RuntimeConfig())
    costs = {depth: profile.step(name, depth) for depth in DEPTHS} if profile else None
    try:
        temperature = SamplingParams.for_model(target.header.metadata).temperature
    except InvalidValueError:
        # What the file recommends makes no sense, so nothing was planned with it.
        return PairMeasurement(costs=costs)
    prior = acceptance_priors.find(target_file, [drafter_file], temperature)
    return PairMeasurement(prior.rates.get(name), costs)
