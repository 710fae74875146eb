"""Notes: what the chat itself says."""

from localspec_tui import notes
from localspec_tui.engine_events import Comparison


def test_the_note_of_a_comparison() -> None:
    assert notes.comparison(Comparison((20.0,), 42.0, None)) == (
        "plain 20.0 tok/s · with drafts 42.0 tok/s (2.1x plain) · identical: yes"
    )
    assert notes.comparison(Comparison((), 42.0, 6)) == (
        "plain 0.0 tok/s · with drafts 42.0 tok/s · identical: no, from token 7"
    )
    equal = "drafts change no digit of scores (logits): the same in passes over 1-8 tokens"
    note = notes.comparison(Comparison((20.0,), 42.0, None, digits=equal))
    assert note.endswith(f"yes · {equal}")


def test_a_comparison_on_a_busy_machine_is_a_range() -> None:
    assert notes.comparison(Comparison((20.0, 24.0), 42.0, None, expected_rate=22.0)) == (
        "plain 21.8 tok/s · with drafts 42.0 tok/s (1.9x plain) · identical: yes"
    )
    for event in (
        Comparison((20.0, 28.0), 42.0, None),
        Comparison((20.0, 21.0), 42.0, None, expected_rate=28.0),
    ):
        assert notes.comparison(event) == (
            "plain 20.0 to 28.0 tok/s (the machine is busy, or was) · with drafts 42.0 tok/s "
            "(1.5x to 2.1x plain) · identical: yes"
        )
