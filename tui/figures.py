"""Figures: what the status line, the origin legend and the live panel of the chat screen show."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.generation_config import DEFAULT_MAX_TOKENS
from localspec.utils.busy_cores import BusyCores
from localspec_tui.origins import Origins
from localspec_tui.sampling_defaults import SAMPLING_DEFAULTS
from localspec_tui.status import Status
from localspec_tui.widgets.live_panel import LivePanel
from localspec_tui.widgets.origin_view import OriginLegend
from localspec_tui.widgets.status_line import StatusLine
from localspec_tui.widgets.throttle import BUSY

if TYPE_CHECKING:
    from localspec_tui.screens.chat import ChatScreen

# Ticks between two updates while no core is idle.
_SKIPPED = 3


class RegularUpdates:
    """Calls `update` at each tick of a timer, but at every fourth one while no core is idle.

    is_busy: whether none was before the last tick.
    """

    def __init__(self, update: Callable[[], None]) -> None:
        self.is_busy = False
        self._update = update
        self._busy_cores = BusyCores()
        self._skipped = 0

    def tick(self) -> None:
        """Update, or skip this tick."""
        self.is_busy = self._busy_cores.share() >= BUSY
        if self.is_busy and self._skipped < _SKIPPED:
            self._skipped += 1
        else:
            self._skipped = 0
            self._update()


def show_figures(screen: "ChatScreen") -> None:
    """Show the current speed, acceptance rate and context, and the origins if they are asked for.

    A model is loaded.
    """
    screen.query_one(StatusLine).show(_status(screen))
    if screen.show_origins:
        screen.query_one(OriginLegend).show(_origins_of_interest(screen))
    panel = screen.query_one(LivePanel)
    if panel.display:
        last = screen.view.last_turn
        drafter = last.origins.latest_drafter if last else None
        panel.show(screen.chat.engine_thread.stats, drafter)


def _origins_of_interest(screen: "ChatScreen") -> Origins:
    """Those of the turn that has the focus, if it has any, else of the last that has some."""
    turns = [screen.view.focused_turn, *reversed(screen.view.turn_entries)]
    return next((turn.origins for turn in turns if turn and turn.origins.names), Origins())


def longest_answer(screen: "ChatScreen") -> str:
    """What an empty max_tokens means for the next answer."""
    ready, gauge = screen.event_handler.ready, screen.chat.engine_thread.gauge
    if ready and not ready.has_template:
        return str(DEFAULT_MAX_TOKENS)
    left = f"{gauge.size - gauge.used:,}, " if gauge else ""
    return left + SAMPLING_DEFAULTS["max_tokens"]


def _status(screen: "ChatScreen") -> Status:
    handler, engine_thread = screen.event_handler, screen.chat.engine_thread
    ready, why_plain = handler.ready, _why_plain(screen)
    drafters = ready.draft if ready else ()
    return Status(
        engine_thread.stats,
        engine_thread.gauge,
        () if why_plain else drafters,
        why_plain or (ready.reason if ready else None),
        handler.state,
        drafted=handler.answer_drafters == drafters,
    )


def _why_plain(screen: "ChatScreen") -> str | None:
    """Why drafters that are loaded do not draft now; None if they may."""
    if screen.event_handler.state == "comparing":
        return "for the comparison"
    return "depth is 0" if screen.chat.settings.current.sampling.get("depth") == 0 else None
