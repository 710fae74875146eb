"""What changed between two benchmarks: ratios, their intervals, and what cannot be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from localspec.bench.changes import changes, require_alike
from localspec.bench.geometric_mean import mean_of, ratio_of_means
from localspec.errors import InvalidValueError
from localspec.forecast.confidence import ConfidenceInterval

Groups = Sequence[Sequence[float]]


def row(contender: str, speeds: Groups, ratios: Groups = (), set_: str = "code") -> dict[str, Any]:
    return {
        "set": set_,
        "contender": contender,
        "tokens_per_second": asdict(mean_of(speeds)),
        "ratio": asdict(mean_of(ratios)) if ratios else None,
        "speeds": [list(group) for group in speeds],
        "ratios": [list(group) for group in ratios],
    }


def record(
    *rows: Mapping[str, Any], users: Sequence[Mapping[str, Any]] = (), **conditions: Any
) -> dict[str, Any]:
    usual = {
        "tokens": 96,
        "rounds": 3,
        "seed": 0,
        "rule": "coupled",
        "temperature": 0.8,
        "context": 512,
        "threads": 2,
        "gpu_layers": None,
        "reproducible": False,
        "prompts": {"code": 5},
        "placement": "on the processor",
        "prompts_hash": "a",
        "kv_type": "f16",
        "drafter_kv_type": "f16",
        "flash_attention": None,
        "ubatch": None,
        "rope": "",
        "adapters": [],
        "sampling": {},
    }
    return {
        "target": {"file": "/models/target.gguf", "memory": {"weights": 1000, "cache": 10}},
        "draft_models": [],
        "conditions": {**usual, **conditions},
        "machine": {"cpu": "some CPU", "gpus": []},
        "rows": list(rows),
        "users": list(users),
        "served": [],
    }


def test_an_interrupted_benchmark_is_compared_over_the_prompts_that_both_have() -> None:
    """The first prompts are twice as fast as the others, and nothing has changed."""
    speeds = [[200.0, 201.0], [211.0, 210.0], [100.0, 101.0], [102.0, 103.0], [98.0, 99.0]]
    before, now = (
        record(row("auto", speeds)),
        record(row("auto", [each[:1] for each in speeds[:2]])),
    )
    now["interrupted"] = True
    for found, when in ((changes(before, now), "now"), (changes(now, before), "before")):
        [change] = found.rows
        assert change.speed.value == pytest.approx(1, abs=0.01) and change.verdict == ""
        assert change.before == pytest.approx(change.now, rel=0.01)
        said = f"the benchmark {when} was interrupted; prompts that both have are compared"
        assert found.beside == [said]


def test_a_busier_machine_makes_nothing_slower() -> None:
    def measured(speed: float) -> dict[str, Any]:
        ratios = [[1.5], [1.6], [1.55]]
        return record(
            row("plain", [[speed], [1.1 * speed], [1.2 * speed]], [[1.0]] * 3),
            row("auto", [[1.5 * speed], [1.7 * speed], [1.8 * speed]], ratios),
        )

    before, now = measured(10), measured(5)
    assert [each.verdict for each in changes(before, now).rows] == ["slower", ""]
    assert changes(before, now).beside == []
    now["busy_cores"] = 1.9
    now["machine"]["versions"] = {"localspec": "0.2.0"}
    found = changes(before, now)
    assert [(each.speed.value, each.verdict) for each in found.rows] == [(0.5, ""), (0.5, "")]
    assert found.beside == [
        "localspec: None before, 0.2.0 now",
        "other programs kept an unknown number of cores busy before, 1.9 now",
    ]


def test_each_row_that_both_have_is_compared_with_itself() -> None:
    before = record(row("plain", [[10.0], [20.0]]), row("suffix", [[11.0], [21.0]]))
    now = record(
        row("plain", [[10.0], [20.0]]), row("auto", [[30.0], [30.0]], set_="edit"), users=[]
    )
    found = changes(before, now)
    assert [(each.group, each.contender) for each in found.rows] == [("code", "plain")]
    assert found.rows[0].speed == ConfidenceInterval(1.0, 1.0, 1.0)
    assert (found.only_before, found.only_now) == (["code · suffix"], ["edit · auto"])


def test_a_prompt_is_compared_with_itself() -> None:
    """Prompts differ tenfold; all are a fifth faster. Means of each side could not tell that."""
    before = record(row("auto", [[1.0], [5.0], [10.0]], [[1.0], [1.5], [2.0]]))
    now = record(row("auto", [[1.2], [6.0], [12.0]], [[1.1], [1.65], [2.2]]))
    [found] = changes(before, now).rows
    assert found.speed.value == pytest.approx(1.2)
    assert found.speed.low == pytest.approx(1.2) == found.speed.high
    assert found.gain is not None and found.gain.value == pytest.approx(1.1)
    assert (found.before, found.now) == pytest.approx((50 ** (1 / 3), 1.2 * 50 ** (1 / 3)))
    assert found.verdict == "faster"


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        ([[0.9], [0.85], [0.88]], "slower"),
        ([[0.9], [1.2], [1.0]], ""),
        ([[1.1], [1.15], [1.2]], "faster"),
    ],
)
def test_only_an_interval_without_one_is_a_verdict(now: Groups, verdict: str) -> None:
    before = record(row("auto", [[1.0], [1.0], [1.0]]))
    [found] = changes(before, record(row("auto", now))).rows
    assert found.verdict == verdict


def test_one_figure_tells_nothing_of_an_interval() -> None:
    before, now = record(row("auto", [[2.0]])), record(row("auto", [[3.0]]))
    [found] = changes(before, now).rows
    assert (found.speed, found.verdict) == (ConfidenceInterval(1.5), "")


@pytest.mark.parametrize("dropped", ["speeds", "both"])
def test_without_the_figures_of_each_prompt_the_interval_is_wide(dropped: str) -> None:
    before, now = row("auto", [[8.0, 10.0, 12.0]]), row("auto", [[16.0, 20.0, 24.0]])
    old, new = before["tokens_per_second"], now["tokens_per_second"]
    del before["speeds"]
    if dropped == "both":
        del now["speeds"]
    [found] = changes(record(before), record(now)).rows
    assert found.speed == ConfidenceInterval(
        2.0, new["low"] / old["high"], new["high"] / old["low"]
    )


def test_rows_of_several_users_are_compared_too() -> None:
    def of_users(total: float) -> dict[str, Any]:
        speed = asdict(ConfidenceInterval(total, total - 1, total + 1))
        return {"users": 4, "contender": "auto", "total": speed, "plain_ratio": None}

    [found] = changes(record(users=[of_users(10)]), record(users=[of_users(20)])).rows
    assert (found.group, found.gain) == ("4 users", None)
    assert found.speed == ConfidenceInterval(2.0, 19 / 11, 21 / 9)


def test_the_interval_of_a_ratio_covers_it_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(150):
        prompts = rng.normal(100, 30, 12).clip(20)
        above = [list(1.1 * each * rng.normal(1, 0.1, 3)) for each in prompts]
        below = [list(each * rng.normal(1, 0.1, 3)) for each in prompts]
        found = ratio_of_means(above, below)
        assert found.low is not None and found.high is not None
        covered += found.low <= 1.1 <= found.high
    assert 0.88 < covered / 150 <= 1


def test_what_may_differ() -> None:
    before, now = record(rounds=3), record(rounds=9)
    now["target"]["file"] = "/elsewhere/target.gguf"
    require_alike(before, now, "old.json")
    greedy = record(temperature=0.0, seed=1), record(temperature=0.0, seed=2)
    require_alike(*greedy, "old.json")


def test_with_xtc_the_seed_counts_at_temperature_0_too() -> None:
    xtc: Any = {"temperature": 0.0, "sampling": {"xtc_probability": 0.5}}
    require_alike(record(seed=1, **xtc), record(seed=1, **xtc), "old.json")
    with pytest.raises(InvalidValueError, match="with seed 1, not 2"):
        require_alike(record(seed=1, **xtc), record(seed=2, **xtc), "old.json")


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ({"kv_type": "f16"}, {"kv_type": "q8_0/f16"}, "kv_type f16, not q8_0/f16"),
        ({"sampling": {}}, {"sampling": {"top_k": 9}}, "top_k by default, not 9"),
        ({"sampling": {"top_k": 9}}, {"sampling": {}}, "top_k 9, not by default"),
    ],
)
def test_other_caches_and_samplers_are_refused(then: Any, now: Any, said: str) -> None:
    with pytest.raises(InvalidValueError, match=f"^old.json was measured with {said}; only"):
        require_alike(record(**then), record(**now), "old.json")


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"seed": 9}, "seed 0, not 9"),
        ({"temperature": 0.0}, "temperature 0.8, not 0.0"),
        ({"gpu_layers": 7}, "gpu_layers by default, not 7"),
        ({"prompts": {"edit": 5, "code": 2}}, r"prompts code \(5\), not edit \(5\), code \(2\)"),
    ],
)
def test_other_settings_are_refused(conditions: Any, said: str) -> None:
    with pytest.raises(InvalidValueError, match=f"^old.json was measured with {said}; only"):
        require_alike(record(), record(**conditions), "old.json")


def test_other_models_and_machines_are_refused() -> None:
    other_size, drafted, elsewhere = record(), record(), record()
    other_size["target"]["memory"]["weights"] = 2000
    drafted["draft_models"] = [{"file": "d.gguf", "memory": {"weights": 5, "cache": None}}]
    elsewhere["machine"]["gpus"] = ["some GPU"]
    for now, said in (
        (other_size, "the target target.gguf of 1,000 bytes, not target.gguf of 2,000 bytes"),
        (drafted, "the drafters none, not d.gguf of 5 bytes"),
        (elsewhere, "the GPU none, not some GPU"),
    ):
        with pytest.raises(InvalidValueError, match=said):
            require_alike(record(), now, "old.json")
