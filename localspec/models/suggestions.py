"""Suggestions: the drafters on this disk that could serve a target, the best first."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.gguf.check import check_drafter, check_generative
from localspec.gguf.facts import Facts, facts_of
from localspec.gguf.heads import kind_of
from localspec.gguf.mask_token import PARD, is_pard
from localspec.gguf.vocabulary import HeaderVocabulary
from localspec.models.compatibility import checks
from localspec.models.head_compatibility import head_checks, inside_checks
from localspec.models.inventory import all_models
from localspec.models.kinds import DRAFT_MODEL, HEADS, MTP, THROUGH_TEXT
from localspec.models.listed_drafter import ListedDrafter
from localspec.models.own_drafters import OwnDrafter, own_drafters
from localspec.models.speed_up import (
    NO_GAIN,
    PairMeasurement,
    SpeedUpEstimate,
    bytes_read,
    estimate_speed_up,
)
from localspec.models.vocabulary_match import (
    Check,
    CheckResult,
    failed_check,
    goes_through_text,
)
from localspec.utils.paths import real_path

# Returns what was measured on this machine of a target and a drafter.
MeasurementLookup = Callable[[Facts, Facts], PairMeasurement]
# Tries whether a head can read a target, and returns what that showed.
HeadTrial = Callable[[Facts, Facts], list[Check]]


@dataclass(frozen=True, slots=True)
class DrafterSuggestion:
    """A drafter on this disk: a model that is smaller than the target, or a head.

    name: what to call it. failed: the first check it fails, None if it can draft. listed: what
    models.toml says of it as a drafter of this target.
    """

    name: str
    file: Path
    failed: Check | None
    speed_up: SpeedUpEstimate
    kind: str = DRAFT_MODEL
    listed: ListedDrafter | None = None

    @property
    def loses(self) -> str:
        """Why it is known to lose, as far as nothing was measured here."""
        return self.listed.loses if self.listed and self.speed_up.rate is None else ""

    @property
    def useful(self) -> bool:
        """Whether it can draft, and drafting is then faster than plain decoding."""
        return self.failed is None and self.speed_up.pays and not self.loses

    @property
    def known_by(self) -> str:
        """What its rank rests on: what was measured here, what others report, or assumptions."""
        if self.speed_up.rate is not None:
            return self.speed_up.rate_from
        return "reports" if self.listed and self.listed.report else "assumptions"


def text_model(path: Path) -> Facts:
    """Read a model that generates text. Raises ModelNotFoundError or ModelLoadError."""
    check_generative(path)
    return facts_of(path)


def drafter_model(path: Path) -> Facts:
    """Read a model that can draft, or a head. Raises ModelNotFoundError or ModelLoadError."""
    check_drafter(path)
    return facts_of(path)


def drafter_kind(target: Facts, drafter: Facts) -> str:
    """Return the kind of a drafter, by its file. drafter: the target for heads inside it."""
    if drafter.files == target.files and target.has_mtp:
        return MTP
    if kind := kind_of(drafter.header):
        return kind
    if goes_through_text(HeaderVocabulary(target.header), HeaderVocabulary(drafter.header)):
        return THROUGH_TEXT
    return PARD if is_pard(drafter.header) else DRAFT_MODEL


def no_trial(_target: Facts, _head: Facts) -> list[Check]:
    """Try nothing."""
    return []


def drafter_checks(
    target: Facts, drafter: Facts, context: int | None = None, trial: HeadTrial = no_trial
) -> list[Check]:
    """Check a drafter of any kind. A head that passes what headers tell is tried out.

    context: tokens of text, as in compatibility.checks.
    """
    kind = drafter_kind(target, drafter)
    if kind not in HEADS:
        return checks(target, drafter, context)
    inside = drafter.files == target.files
    found = inside_checks(target) if inside else head_checks(target, drafter, context)
    return found if failed_check(found) else [*found, *trial(target, drafter)]


def suggest_drafters(
    target: Facts,
    measured: MeasurementLookup,
    context: int | None = None,
    trial: HeadTrial = no_trial,
) -> list[DrafterSuggestion]:
    """Return the drafters on this disk: the useful ones first, and of them what is known best.

    What was measured here ranks before reports, in the order of models.toml, and these before
    assumptions. context: tokens of text, as in compatibility.checks.
    """
    found = []
    for name, file, own in _candidates(target):
        listed = own.listed if own else None
        try:
            model = drafter_model(file)
        except LocalspecError as error:
            if own:  # other files may be image encoders or embedding models, which cannot draft
                failed = Check("file", CheckResult.UNFIT, str(error))
                found.append(DrafterSuggestion(name, file, failed, NO_GAIN, own.kind, listed))
            continue
        kind = drafter_kind(target, model)
        if kind not in HEADS and bytes_read(model, 1) >= bytes_read(target, 1):
            continue
        failed_one = failed_check(drafter_checks(target, model, context, trial))
        speed_up = estimate_speed_up(target, model, measured(target, model), kind)
        found.append(DrafterSuggestion(name, file, failed_one, speed_up, kind, listed))
    order = {each.file: place for place, each in enumerate(found)}
    return sorted(found, key=lambda each: _rank(each, order[each.file]))


def _candidates(target: Facts) -> Iterator[tuple[str, Path, OwnDrafter | None]]:
    """Yield the name and the file of every drafter that there may be; the target's own first."""
    own = [each for each in own_drafters(target.files[0], target) if each.file]
    seen = {real_path(target.files[0])}
    # By their own names, not those of the files that links lead to: costs are kept by them.
    stored = {real_path(each.files[0]): each for each in all_models()}
    for each in own:
        if each.file and (each.reference is None or real_path(each.file) not in seen):
            seen.add(real_path(each.file))
            known = stored.get(real_path(each.file))
            name = each.name if each.reference is None else known.name if known else each.typed
            yield name, each.file, each
    for file, known in stored.items():
        if file not in seen:
            yield known.name, known.files[0], None


def _rank(each: DrafterSuggestion, place: int) -> tuple[bool, int, float]:
    """The key of the best drafter is the smallest. place: among all, as they were found."""
    gain = each.speed_up.low + each.speed_up.high
    if not each.useful:
        return True, 0 if each.failed is None else 1, -gain
    if each.known_by == "assumptions":
        return False, 3 if each.kind == THROUGH_TEXT else 2, -gain
    return (False, 1, place) if each.known_by == "reports" else (False, 0, -gain)
