"""Notes: what the chat itself says."""

from localspec_tui import notes
from localspec_tui.engine_events import Comparison


def test_the_note_of_a_comparison() -> None:
    assert notes.comparison(Comparison(20.0, 42.0, True, None)) == (
        "plain 20.0 tok/s · with drafts 42.0 tok/s (2.10x) · identical: yes"
    )
    assert notes.comparison(Comparison(0.0, 42.0, False, 6)) == (
        "plain 0.0 tok/s · with drafts 42.0 tok/s · identical: no, from token 7"
    )
    equal = "equal digits in passes of 1-8 rows"
    assert notes.comparison(Comparison(20.0, 42.0, True, None, equal)).endswith(f"yes · {equal}")
