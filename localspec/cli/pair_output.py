"""What `localspec pair` answers: tables and a conclusion for people, records for programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from localspec.cli.table import table_text
from localspec.gguf.facts import Facts
from localspec.gguf.reader import display_name
from localspec.gguf.vocabulary import TOKENIZER_NAMES, HeaderVocabulary
from localspec.hub.reference import Repository
from localspec.models.registry import Pair
from localspec.models.speed_up import SpeedUpEstimate
from localspec.models.suggestions import DrafterSuggestion
from localspec.models.vocabulary_match import Check, failed_check

_OTHER_DRAFTER = "use a smaller model of the same family, or --draft suffix"
_REMEDIES = {"memory": f"give a smaller --ctx, or {_OTHER_DRAFTER}"}


@dataclass(frozen=True, slots=True)
class DrafterReport:
    """What is known of one drafter for a target, both named as on the command line."""

    target_name: str
    target: Facts
    drafter_name: str
    drafter: Facts
    checks: Sequence[Check]
    speed_up: SpeedUpEstimate

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
            "drafter": str(self.drafter.files[0]),
            "fits": self.fits,
            "checks": [asdict(each) for each in self.checks],
            "gain": asdict(self.speed_up) if self.fits else None,
            "conclusion": self._conclusion(),
        }

    def _conclusion(self) -> str:
        drafter, target = display_name(self.drafter_name), display_name(self.target_name)
        failed = failed_check(self.checks)
        if failed is None:
            return f"{drafter} fits {target}, {gain_text(self.speed_up)}"
        text = f"{drafter} cannot draft for {target}: {failed.detail}"
        return f"{text}; {_REMEDIES.get(failed.name, _OTHER_DRAFTER)}"


@dataclass(frozen=True, slots=True)
class SuggestionReport:
    """The drafters that a target might have.

    pair: the target's pair of models.toml, if any. missing: the drafter of that pair, if it was not
    downloaded.
    """

    target: Facts
    suggestions: Sequence[DrafterSuggestion]
    pair: Pair | None
    missing: Repository | None
    fits: bool = True

    def text(self) -> str:
        """Return the table of suggestions, and the conclusion."""
        rows = [_cells(each) for each in self.suggestions]
        if self.missing:
            rows.append((str(self.missing), "not downloaded", f"localspec pull {self.missing}"))
        shown = table_text(("drafter", "verdict", "detail"), rows)
        return f"{shown}\n{self._conclusion()}\n" if shown else f"{self._conclusion()}\n"

    def record(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "target": str(self.target.files[0]),
            "candidates": [_record(each) for each in self.suggestions],
            "not_downloaded": str(self.missing) if self.missing else None,
            "conclusion": self._conclusion(),
        }

    def _conclusion(self) -> str:
        if self.suggestions and self.suggestions[0].useful:
            best = self.suggestions[0]
            return f"best: {display_name(best.name)}, {gain_text(best.speed_up)}"
        if self.missing:
            sure = "" if self.pair and "drafter" not in self.pair.unverified else ", unverified"
            return f"n-gram only, until localspec pull {self.missing} (of models.toml{sure})"
        return f"n-gram only, because {self._why_none()}"

    def _why_none(self) -> str:
        if self.pair and self.pair.no_drafter:
            return self.pair.no_drafter
        found = HeaderVocabulary(self.target.header)
        kind = TOKENIZER_NAMES[found.vocabulary_type]
        return (
            "no smaller model on this machine speaks its vocabulary; look for one of the same "
            f"family with about {found.n_vocab:,} {kind} tokens, a tenth of its size or less"
        )


def gain_text(found: SpeedUpEstimate) -> str:
    """Return the expected gain, and what the expectation rests on."""
    if not found.pays:
        return "but gains nothing: its drafts would cost more than they save"
    low, high = f"{max(found.low, 1):.1f}", f"{found.high:.1f}"
    gain = f"about {high}" if low == high else f"about {low} to {high}"
    costs = "times measured here" if found.timed else "times assumed from sizes"
    if found.rate is None:
        rests_on = f"{costs}, accuracy assumed; localspec plan measures it"
    else:
        rests_on = f"{costs}; {found.rate:.0%} of its tokens were right for localspec plan"
    return f"{gain} x plain decoding ({rests_on})"


def _cells(each: DrafterSuggestion) -> tuple[str, ...]:
    name = display_name(each.name)
    if each.failed:
        return name, str(each.failed.verdict), each.failed.detail
    return name, "fits", gain_text(each.speed_up)


def _record(each: DrafterSuggestion) -> dict[str, Any]:
    return {
        "name": each.name,
        "file": str(each.model.files[0]),
        "fits": each.failed is None,
        "failed": asdict(each.failed) if each.failed else None,
        "gain": None if each.failed else asdict(each.speed_up),
    }
