"""Changes: what differs between two benchmarks of the same models under the same conditions."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.bench.configurations import PLAIN
from localspec.bench.geometric_mean import mean_of, ratio_of_means
from localspec.errors import InvalidValueError
from localspec.forecast.confidence import ConfidenceInterval
from localspec.utils.busy_cores import BUSY
from localspec.utils.format import counted

Record = Mapping[str, Any]
# What reading something that is no record of a benchmark may raise.
NO_RECORD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)

# Conditions under which figures may be compared; the number of rounds only moves the intervals.
_SAME = (
    *("tokens", "seed", "rule", "temperature", "context", "threads", "gpu_layers"),
    *("reproducible", "prompts", "placement", "prompts_hash", "kv_type", "drafter_kv_type"),
    *("flash_attention", "ubatch", "rope", "adapters"),
)
_IN_WORDS = {"placement": "models", "prompts_hash": "prompts whose hash is"}


@dataclass(frozen=True, slots=True)
class Change:
    """What changed in one row.

    group: its prompt set, or its number of users. before, now: tokens per second. speed: now over
    before. gain: the same of the speed as a ratio to plain decoding, which a slower machine does
    not change; None where a row has no such ratio. verdict: `faster` or `slower` where the interval
    of the gain leaves no doubt, else ""; of plain decoding, and without a gain, that of the speed,
    if no other programs were busy.
    """

    group: str
    contender: str
    before: float
    now: float
    speed: ConfidenceInterval
    gain: ConfidenceInterval | None
    verdict: str


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of all rows that both benchmarks have, and the names of the others' rows.

    beside: what else was different, a line each.
    """

    rows: list[Change]
    only_before: list[str]
    only_now: list[str]
    beside: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The changes for JSON, as cli/bench.schema.json describes them."""
        rows = [{**asdict(row), "verdict": row.verdict or None} for row in self.rows]
        return {**asdict(self), "rows": rows}


def changes(before: Record, now: Record) -> Changes:
    """Compare two records of `bench --json`, row by row.

    Any of NO_RECORD is raised for what is no such record; one that can be compared with itself can
    be compared with others.
    """
    old, new = dict(_rows(before)), dict(_rows(now))
    quiet = not any(_is_busy(each) for each in (before, now))
    return Changes(
        rows=[_change(*key, old[key], new[key], quiet=quiet) for key in new if key in old],
        only_before=[" · ".join(key) for key in old if key not in new],
        only_now=[" · ".join(key) for key in new if key not in old],
        beside=list(_beside(before, now)),
    )


def require_alike(before: Record, now: Record, name: str) -> None:
    """Raise InvalidValueError unless models, conditions and machine are the same.

    before, now: records of `bench --json`; of `now` nothing that was measured is read. name: of the
    file of `before`.
    """
    for what, then, here in _compared(before, now):
        if then != here:
            raise InvalidValueError(
                f"{name} was measured with {what} {_said(then)}, not {_said(here)}; "
                "only the same models and settings can be compared"
            )


def _compared(before: Record, now: Record) -> Iterator[tuple[str, Any, Any]]:
    yield "the target", _model(before["target"]), _model(now["target"])
    drafters = [sorted(map(_model, each["draft_models"])) for each in (before, now)]
    yield "the drafters", drafters[0], drafters[1]
    then, here = before["conditions"], now["conditions"]
    for key in _SAME:
        if key != "seed" or _draws(then) or _draws(here):
            yield _IN_WORDS.get(key, key), then[key], here[key]
    for name in {**then["sampling"], **here["sampling"]}:
        yield name, then["sampling"].get(name), here["sampling"].get(name)
    for key in ("cpu", "gpus"):
        yield f"the {key.upper().rstrip('S')}", before["machine"][key], now["machine"][key]


def _beside(before: Record, now: Record) -> Iterator[str]:
    """What may be different, and what it was."""
    for when, each in (("before", before), ("now", now)):
        if each.get("interrupted"):
            yield f"the benchmark {when} was interrupted; prompts that both have are compared"
    then, here = (each["machine"].get("versions", {}) for each in (before, now))
    for name in {**then, **here}:
        if then.get(name) != here.get(name):
            yield f"{name}: {then.get(name)} before, {here.get(name)} now"
    if _is_busy(before) or _is_busy(now):
        cores = (each.get("busy_cores") for each in (before, now))
        told = ("an unknown number of" if each is None else f"{each:.1f}" for each in cores)
        yield "other programs kept {} cores busy before, {} now".format(*told)


def _is_busy(record: Record) -> bool:
    return (record.get("busy_cores") or 0.0) >= BUSY


def _draws(conditions: Record) -> bool:
    """Whether the texts depend on the seed: with XTC also those of temperature 0."""
    return bool(conditions["temperature"] or conditions["sampling"].get("xtc_probability"))


def _model(record: Record) -> str:
    """A file is told by its name and its size: it may lie elsewhere now."""
    return f"{Path(record['file']).name} of {record['memory']['weights']:,} bytes"


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} ({count})" for name, count in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "by default" if value in (None, "") else str(value)


def _rows(record: Record) -> Iterator[tuple[tuple[str, str], Record]]:
    for row in record["rows"]:
        yield (row["set"], row["contender"]), row
    for row in (*record["users"], *record["served"]):
        yield (counted(row["users"], "user"), row["contender"]), row


def _change(group: str, contender: str, before: Record, now: Record, *, quiet: bool) -> Change:
    speed, gain = ("tokens_per_second", "ratio") if "set" in now else ("total", "plain_ratio")
    speeds = _ratio(before, now, speed, "speeds")
    if speeds is None:
        raise ValueError("every row has a speed")
    gains = _ratio(before, now, gain, "ratios")
    ratio = gains[2] if gains else None
    told = ratio if ratio and contender != PLAIN else speeds[2] if quiet else None
    return Change(group, contender, *speeds, ratio, _verdict(told))


def _verdict(told: ConfidenceInterval | None) -> str:
    if not told or told.low is None or told.high is None:
        return ""
    return "faster" if told.low > 1 else "slower" if told.high < 1 else ""


def _ratio(
    before: Record, now: Record, figure: str, groups: str
) -> tuple[float, float, ConfidenceInterval] | None:
    """A figure before and now, and their ratio: of the same prompts where both have those of each.

    An interrupted benchmark has the first prompts only.
    """
    old, new = before[figure], now[figure]
    if old is None or new is None:
        return None
    pairs = zip(before.get(groups) or (), now.get(groups) or (), strict=False)
    if common := [pair for pair in pairs if all(pair)]:
        then, here = zip(*common, strict=True)
        return mean_of(then).value, mean_of(here).value, ratio_of_means(here, then)
    value = new["value"] / old["value"]
    if None in (old["low"], old["high"], new["low"], new["high"]):
        ratio = ConfidenceInterval(value)
    else:
        # Wider than needed, as if both ends were met at once.
        ratio = ConfidenceInterval(value, new["low"] / old["high"], new["high"] / old["low"])
    return old["value"], new["value"], ratio
