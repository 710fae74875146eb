"""Reports: what the engine's thread has to tell, put on the screen."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from localspec.conversation.events import Dropped, Ended, Notice, Piece, Reading
from localspec.errors import LocalspecError
from localspec_tui import messages
from localspec_tui.engine_events import (
    Answering,
    Asked,
    Changed,
    Compared,
    Failed,
    Happening,
    Loading,
    Ready,
)
from localspec_tui.interpreter import keep_what_is_there
from localspec_tui.screens.choose import ChooseScreen

if TYPE_CHECKING:
    from localspec_tui.app import ChatApp
    from localspec_tui.screens.chat import ChatScreen

_WHEN_FULL = {
    "stop": "Leave it as it is",
    "drop": "From now on drop the oldest messages, and answer again",
    "new": "Begin another conversation",
}

_OFTEN = (Loading, Piece, Reading)


class Reports:
    """ready: what answers; None while nothing does. state: loading, no model, ready, reading,
    answering or comparing.
    """

    def __init__(self, screen: "ChatScreen") -> None:
        self.ready: Ready | None = None
        self.state = "loading"
        self._screen = screen
        self._unsaved: str | None = None
        self._was_busy = False
        self._keys: object = None
        self._ways: dict[type, Callable[[Any], None]] = {
            Answering: self._answering,
            Asked: self._asked,
            Changed: self._changed,
            Compared: self._compared,
            Dropped: self._dropped,
            Ended: self._ended,
            Failed: self._failed,
            Loading: self._loading,
            Notice: self._notice,
            Piece: self._piece,
            Reading: self._reading,
            Ready: self._ready,
        }

    @property
    def _app(self) -> "ChatApp":
        return self._screen.chat

    def take(self) -> None:
        """Show what has happened since the last call."""
        for line in self._app.log_lines.drain():
            self._screen.view.note(line)
        happened = self._app.worker.drain()
        for happening in happened:
            self.show(happening)
        busy, self._was_busy = self._was_busy, self._app.worker.busy
        if busy != self._was_busy or not all(isinstance(each, _OFTEN) for each in happened):
            self._refresh_keys()
            # Each time it blinks, the engine waits a little.
            self._screen.composer.cursor_blink = not self._was_busy

    def _refresh_keys(self) -> None:
        """Have the footer made anew, which takes its time, if other keys do something now."""
        active = self._screen.active_bindings.values()
        keys = {(each.binding, each.enabled) for each in active}
        if keys != self._keys:
            self._keys = keys
            self._screen.refresh_bindings()

    def show(self, happening: Happening) -> None:
        """Show one."""
        self._app.keeper.hear(happening)
        self._ways[type(happening)](happening)

    def _reading(self, reading: Reading) -> None:
        self.state = "reading"
        self._screen.progress.show_share("tokens of the prompt read", reading.done, reading.total)

    def _notice(self, notice: Notice) -> None:
        self._screen.view.note(notice.line)

    def _dropped(self, dropped: Dropped) -> None:
        self._screen.view.note(messages.dropped(dropped), warning=True)

    def _changed(self, _changed: Changed) -> None:
        self._screen.upon_change.popleft()()

    def _compared(self, compared: Compared) -> None:
        self._rest()
        self._screen.view.note(messages.compared(compared))

    def _loading(self, loading: Loading) -> None:
        self.state = "loading"
        if loading.percent is None:
            self._screen.progress.wait(loading.doing)
        else:
            self._screen.progress.show_percent(loading.doing, loading.percent)

    def _asked(self, asked: Asked) -> None:
        turn, screen = asked.turn, self._screen
        screen.sent = ""
        screen.view.show(turn.path)
        model = self.ready.model if self.ready else ""
        try:
            self._app.keeper.asked(turn, model, self._app.system)
        except LocalspecError as error:
            screen.view.note(str(error), warning=True)
        self.state = "reading"

    def _answering(self, answering: Answering) -> None:
        self._screen.progress.clear()
        self._screen.view.show(answering.turn.path)
        self.state = "answering"

    def _piece(self, piece: Piece) -> None:
        self._screen.view.views[-1].append(piece)

    def _ended(self, ended: Ended) -> None:
        self._rest()
        if ended.turn is None:
            self._screen.view.note("stopped before the first token")
            return
        self._screen.view.views[-1].end(ended)
        self._say_unsaved()
        if ended.stop_reason == "context":
            self.ask_when_full(self._app.worker.regenerate)

    def _say_unsaved(self) -> None:
        """What is the matter with the archive, each thing once."""
        problem = self._app.archive.problem
        if problem and problem != self._unsaved:
            self._screen.view.note(problem, warning=True)
        self._unsaved = problem

    def _rest(self) -> None:
        self._screen.progress.clear()
        self.state = "ready" if self.ready else "no model"

    def _ready(self, ready: Ready) -> None:
        before, self.ready = self.ready, ready
        self._rest()
        keep_what_is_there()
        self._app.now_ready(ready)
        view = self._screen.view
        if (before is None or before.has_template) != ready.has_template:
            # Answers look otherwise: as Markdown, or as they were written.
            view.show([])
            view.show(self._screen.conversation.turns)
        for line in filter(None, (messages.missing(ready), *ready.notes)):
            view.note(line)
        if before is None and ready.bundled and not self._screen.conversation.turns:
            view.note(messages.first_run())
            self._screen.composer.propose(messages.FIRST_PROMPT)

    def _failed(self, failed: Failed) -> None:
        error, during = failed.error, failed.during
        loaded = self._app.worker.session is not None
        if not loaded:
            self.ready = None
        self._rest()
        match during:
            case "send" | "edit":
                self._screen.refuse(error)
                if loaded and failed.full:
                    self.ask_when_full(self._screen.send_again)
            case "choose" | "reset":
                self._screen.upon_change.popleft()
                self._screen.view.note(error, warning=True)
            case _:
                self._app.not_switched()
                self._screen.view.note(error, warning=True)
        if not loaded:
            self._screen.ask_settings(error)

    def ask_when_full(self, again: Callable[[], None]) -> None:
        """Have it decided what goes now that the context is full. again: if something does."""

        def decided(answer: str | None) -> None:
            if answer == "drop":
                self._app.use(replace(self._app.chosen, drop=True))
                again()
            elif answer == "new":
                self._screen.action_new()

        session = self._app.worker.session
        size = session.gauge.size if session else 0
        self._app.push_screen(ChooseScreen(messages.full(size), _WHEN_FULL), decided)
