"""What passes cost is told without bias where other programs take the cores now and then."""

from types import SimpleNamespace

import numpy as np
import pytest

from localspec.forecast import timing
from localspec.forecast.answers import RecordedAnswer
from localspec.forecast.timing import measure_costs
from localspec.stats import Seconds, Stats

# Seconds for which another program computes, once in so many seconds of ours on average.
_SLICE = 0.004


class SharedCore:
    """A core that another program takes now and then; a pass computes a millisecond per row."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def __call__(self, *where: object) -> float:
        own = 0.001 * int(str(where[-1]))
        return own + _SLICE * int(self._rng.poisson(own / _SLICE))


def test_wide_passes_wait_no_more_than_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_pass_seconds", SharedCore())
    context = SimpleNamespace(
        set_tokens=lambda _tokens: None, n_ctx=64, model=SimpleNamespace(is_offloaded=False)
    )
    stats = Stats(steps=100, seconds=Seconds(verify=0.2, generate=0.21))
    sampler = SimpleNamespace(prefix=lambda _tokens: None)
    answer = RecordedAnswer([1], [2, 3], 2, sampler, stats)  # type: ignore[arg-type]
    found = measure_costs(context, None, (), [answer])  # type: ignore[arg-type]
    assert found.passes[1] == pytest.approx(0.002)
    for rows in (8, 16):
        assert found.passes[rows] == pytest.approx(0.002 * rows, rel=0.2)
