"""What `localspec pair` answers: tables and a conclusion for people, records for programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.cli.table import table_text
from localspec.gguf.facts import Facts
from localspec.gguf.reader import display_name
from localspec.gguf.vocabulary import TOKENIZER_NAMES, HeaderVocabulary
from localspec.models.kinds import DRAFT_MODEL, THROUGH_TEXT
from localspec.models.own_drafters import OwnDrafter
from localspec.models.registry import Pair
from localspec.models.speed_up import SpeedUpEstimate
from localspec.models.suggestions import DrafterSuggestion
from localspec.models.vocabulary_match import THROUGH_TEXT_LINE, Check, failed_check

_OTHER_DRAFTER = "use a smaller model of the same family, or --draft suffix"
_TOO_QUICK = "the target is so small that a draft takes as long as the tokens it saves"
_REMEDIES = {"memory": f"give a smaller --ctx, or {_OTHER_DRAFTER}"}


@dataclass(frozen=True, slots=True)
class DrafterReport:
    """What is known of one drafter for a target, both named as on the command line."""

    target_name: str
    target: Facts
    drafter_name: str
    drafter: Path
    checks: Sequence[Check]
    speed_up: SpeedUpEstimate
    kind: str = DRAFT_MODEL

    @property
    def fits(self) -> bool:
        """Whether the drafter can draft for the target."""
        return failed_check(self.checks) is None

    def text(self) -> str:
        """Return the table of checks, and the conclusion."""
        rows = [(each.name, str(each.verdict), each.detail) for each in self.checks]
        return f"{table_text(('check', 'verdict', 'detail'), rows)}\n{self._conclusion()}\n"

    def record(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "target": str(self.target.files[0]),
            "drafter": str(self.drafter),
            "kind": self.kind,
            "fits": self.fits,
            "checks": [asdict(each) for each in self.checks],
            "gain": asdict(self.speed_up) if self.fits else None,
            "conclusion": self._conclusion(),
        }

    def _conclusion(self) -> str:
        drafter, target = display_name(self.drafter_name), display_name(self.target_name)
        failed = failed_check(self.checks)
        if failed is None:
            how = f" ({THROUGH_TEXT_LINE})" if self.kind == THROUGH_TEXT else ""
            return f"{drafter} fits {target}{how}, {gain_text(self.speed_up)}"
        text = f"{drafter} cannot draft for {target}: {failed.detail}"
        return f"{text}; {_REMEDIES.get(failed.name, _OTHER_DRAFTER)}"


@dataclass(frozen=True, slots=True)
class SuggestionReport:
    """The drafters that a target might have.

    pair: the target's pair of models.toml, if any. missing: the drafters of that pair that were not
    downloaded. elsewhere: where the heads are that the target lacks.
    """

    target: Facts
    suggestions: Sequence[DrafterSuggestion]
    pair: Pair | None
    missing: Sequence[OwnDrafter]
    elsewhere: str | None = None
    fits: bool = True

    def text(self) -> str:
        """Return the table of suggestions, and the conclusion."""
        rows = [_cells(each) for each in self.suggestions]
        rows += [_missing_cells(each) for each in self.missing]
        shown = table_text(("drafter", "kind", "verdict", "detail"), rows)
        lines = [self._conclusion(), *([self.elsewhere] if self.elsewhere else [])]
        end = "".join(f"{line}\n" for line in lines)
        return f"{shown}\n{end}" if shown else end

    def record(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "target": str(self.target.files[0]),
            "candidates": [_record(each) for each in self.suggestions],
            "not_downloaded": str(self.missing[0].reference) if self.missing else None,
            "missing": [_missing_record(each) for each in self.missing],
            "heads_elsewhere": self.elsewhere,
            "conclusion": self._conclusion(),
        }

    def _conclusion(self) -> str:
        if self.suggestions and self.suggestions[0].useful:
            best = self.suggestions[0]
            how = f" ({THROUGH_TEXT_LINE})" if best.kind == THROUGH_TEXT else ""
            return f"best: {_shown(best.name)}{how}, {gain_text(best.speed_up)}"
        fitting = [each for each in self.suggestions if each.failed is None]
        if any(each.speed_up.too_quick for each in fitting):
            return f"no drafter pays: {_TOO_QUICK}"
        if wanted := next((each for each in self.missing if not each.objection), None):
            return (
                f"n-gram only, until localspec pull {_pull(wanted)} (of models.toml{_sure(wanted)})"
            )
        if lost := next(
            (each for each in self.suggestions if not each.failed and each.loses), None
        ):
            return f"n-gram only, because of {_shown(lost.name)} is known: {lost.loses}"
        if fitting:
            return "n-gram only, because the drafts of the models that fit cost more than they save"
        return f"n-gram only, because {self._why_none()}"

    def _why_none(self) -> str:
        if self.pair and self.pair.no_drafter:
            return self.pair.no_drafter
        if objections := [each.objection for each in self.missing if each.objection]:
            return objections[0]
        found = HeaderVocabulary(self.target.header)
        kind = TOKENIZER_NAMES[found.vocabulary_type]
        return (
            "no smaller model on this machine has the same vocabulary; look for one of the same "
            f"family with about {found.n_vocab:,} {kind} tokens, a tenth of its size or less"
        )


def gain_text(found: SpeedUpEstimate) -> str:
    """Return the expected gain, and what the expectation rests on."""
    if found.too_quick:
        return f"but gains nothing: {_TOO_QUICK}"
    if not found.pays:
        return "but gains nothing: its drafts would cost more than they save"
    low, high = f"{max(found.low, 1):.1f}", f"{found.high:.1f}"
    gain = f"about {high}" if low == high else f"about {low} to {high}"
    costs = "times measured here" if found.timed else "times assumed from sizes"
    if found.rate is None:
        rests_on = f"{costs}, accuracy assumed; localspec plan measures it"
    else:
        rests_on = f"{costs}; {found.rate:.0%} of its tokens were right for {found.rate_from}"
    return f"{gain} x plain decoding ({rests_on})"


def _cells(each: DrafterSuggestion) -> tuple[str, ...]:
    name = _shown(each.name)
    if each.failed:
        return name, each.kind, str(each.failed.verdict), each.failed.detail
    gain = gain_text(each.speed_up)
    if each.loses:
        return name, each.kind, "fits, loses", each.loses
    report = f"; reported: {each.listed.report}" if each.listed and each.listed.report else ""
    return name, each.kind, "fits", gain + report


def _missing_cells(each: OwnDrafter) -> tuple[str, ...]:
    about = each.listed.report if each.listed else ""
    detail = each.objection or f"localspec pull {_pull(each)}"
    if about and not each.objection:
        detail += f"; reported: {about}"
    return str(each.reference), each.kind, "not downloaded", detail


def _pull(each: OwnDrafter) -> str:
    """Return what to give to `localspec pull` for a drafter."""
    if each.kind == DRAFT_MODEL or not each.pair:
        return str(each.reference)
    return f"{each.pair} --drafter {each.kind}"


def _sure(each: OwnDrafter) -> str:
    unsure = each.listed and {"kind", "file"} & {*each.listed.unverified}
    return ", unverified" if unsure else ""


def _missing_record(each: OwnDrafter) -> dict[str, Any]:
    listed = each.listed
    return {
        "name": str(each.reference),
        "kind": each.kind,
        "pull": _pull(each),
        "report": (listed.report if listed else "") or None,
        "objection": each.objection,
    }


def _shown(name: str) -> str:
    """Return the name of a model for a table; of a file, without its folders."""
    return display_name(Path(name).name if Path(name).is_absolute() else name)


def _record(each: DrafterSuggestion) -> dict[str, Any]:
    return {
        "name": each.name,
        "file": str(each.file),
        "kind": each.kind,
        "known_by": each.known_by,
        "report": (each.listed.report if each.listed else "") or None,
        "loses": each.loses or None,
        "fits": each.failed is None,
        "failed": asdict(each.failed) if each.failed else None,
        "gain": None if each.failed else asdict(each.speed_up),
    }
