"""What a pass costs and computes by its width."""

import sys

import pytest
from fakes.pycode import load

from localspec.bench.experiments import width_table

BEHIND = 40


def test_each_width_is_timed_and_compared_with_passes_of_one_row() -> None:
    with load(draft="none", context=BEHIND + 6 * width_table.WIDEST, threads=1) as engine:
        found = [*width_table.measure_widths(engine.slots.own.target, BEHIND)]
        assert [each.rows for each in found] == [*range(1, width_table.WIDEST + 1)]
        assert all(each.seconds > 0 for each in found)
        positions = 2 * width_table.WIDEST
        assert found[0].as_one == found[-1].as_widest == positions
        assert found[0].difference == 0
        # What differs in some position differs by some amount, and the other way round.
        assert all((each.as_one < positions) == (each.difference > 0) for each in found)


def test_two_tables_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["width_table", "--behind", str(BEHIND), "--threads", "1"])
    width_table.main()
    printed = capsys.readouterr().out
    assert printed.count("as 1 row") == 2
    assert printed.rstrip().endswith("x a pass of one row")


@pytest.mark.slow
def test_texts_that_a_warm_cache_changes_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--texts", "3", "--pieces", "60", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", ["width_table", *options])
    # Passes of one class of widths alone, so the cache's past changes nothing.
    width_table.main()
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["60", "0/3"]
    seen: list[int] = []

    def differs(*_: object) -> list[int]:
        seen.append(len(seen))
        return [seen[-1]]

    monkeypatch.setattr(width_table, "_greedy", differs)
    width_table.main()
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["60", "3/3"]
