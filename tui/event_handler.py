"""Event handler: shows the events of the engine thread on the chat screen."""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from localspec.conversation.events import Dropped, Ended, Notice, Piece, Reading
from localspec_tui import notes
from localspec_tui.engine_events import (
    AnswerEdited,
    AnswerStarted,
    CommandFailed,
    Comparison,
    ConversationChanged,
    EngineEvent,
    ModelLoading,
    ModelReady,
    QuestionAsked,
)
from localspec_tui.interpreter import freeze_garbage_collector

if TYPE_CHECKING:
    from localspec_tui.app import ChatApp
    from localspec_tui.screens.chat import ChatScreen

# Events that come many times a second and never change which keys are active.
_FREQUENT = (ModelLoading, Piece, Reading)
# Times per second that events are handled, and while an answer is written and no core is idle.
_RATE, _BUSY_RATE = 20, 8
# Seconds of an answer whose end rings the bell of a terminal that has lost the focus.
_LONG_ANSWER = 10.0


class EngineEventHandler:
    """Handles each event once.

    ready: the loaded model; None while no model is loaded. state: for the status line: loading, no
    model, ready, reading, answering or comparing. answer_drafters: those of the last answer.
    """

    def __init__(self, screen: "ChatScreen") -> None:
        self.ready: ModelReady | None = None
        self.state = "loading"
        self.answer_drafters: tuple[str, ...] = ()
        self._screen = screen
        self._shown_problem: str | None = None
        self._was_busy = False
        self._answer_began = 0.0
        self._handlers: dict[type, Callable[[Any], None]] = {
            AnswerEdited: self._answer_edited,
            AnswerStarted: self._answer_started,
            CommandFailed: self._command_failed,
            Comparison: self._comparison,
            ConversationChanged: self._conversation_changed,
            Dropped: self._dropped,
            Ended: self._ended,
            ModelLoading: self._model_loading,
            ModelReady: self._model_ready,
            Notice: self._notice,
            Piece: self._piece,
            QuestionAsked: self._question_asked,
            Reading: self._reading,
        }

    @property
    def _app(self) -> "ChatApp":
        return self._screen.chat

    def poll_regularly(self) -> None:
        """Handle events now, and again and again from now on."""
        self.poll()
        is_slow = self.state == "answering" and self._screen.figures.is_busy
        # Of the app: a timer of a screen has it drawn anew each time while a dialog lies over it.
        self._app.set_timer(1 / (_BUSY_RATE if is_slow else _RATE), self.poll_regularly)

    def poll(self) -> None:
        """Handle the events and log lines since the last call."""
        for line in self._app.log_lines.drain():
            self._screen.view.note(line)
        is_idle = not self._app.engine_thread.busy
        events = self._app.engine_thread.drain()
        self._app.settings.settle()
        for event in events:
            self.handle(event)
        is_changed = not all(isinstance(each, _FREQUENT) for each in events)
        if is_changed:
            # Other turns may be shown.
            self._screen.unsent.end_lost_edit()
            self._screen.search.refresh()
        busy, self._was_busy = self._was_busy, self._app.engine_thread.busy
        if busy != self._was_busy or is_changed:
            self._screen.refresh_bindings()
            # Each blink of the cursor makes the engine wait a little.
            self._screen.composer.cursor_blink = not self._was_busy

        if is_idle:
            self._screen.outbox.send_next()

    def handle(self, event: EngineEvent) -> None:
        """Save and show one event."""
        self._app.autosave.handle(event)
        self._handlers[type(event)](event)

    def _reading(self, event: Reading) -> None:
        self.state = "reading"
        self._screen.progress.show_count("tokens of the prompt read", event.done, event.total)

    def _notice(self, event: Notice) -> None:
        self._screen.view.note(event.line)

    def _dropped(self, event: Dropped) -> None:
        self._screen.view.note(notes.dropped_turns(event), warning=True)

    def _conversation_changed(self, _event: ConversationChanged) -> None:
        self._screen.pending_changes.popleft()()

    def _comparison(self, event: Comparison) -> None:
        self._set_idle()
        self._screen.view.note(notes.comparison(event))

    def _model_loading(self, event: ModelLoading) -> None:
        self.state = "loading"
        if event.percent is None:
            self._screen.progress.show_action(event.action)
        else:
            self._screen.progress.show_percent(event.action, event.percent)

    def _question_asked(self, event: QuestionAsked) -> None:
        self._screen.view.show(event.turn.path)
        self._screen.outbox.note_remark()
        self._screen.composer.suggest_first_message("")
        self._app.save_question(event.turn)
        self.note_archive_problem()
        self.state = "reading"

    def _answer_edited(self, event: AnswerEdited) -> None:
        self._screen.outbox.in_flight = ""
        self._screen.view.show(event.turn.path)
        self._screen.view.follow_end()
        self.note_archive_problem()
        self._set_idle()

    def _answer_started(self, event: AnswerStarted) -> None:
        self._answer_began = monotonic()
        self._app.save_settings()
        self.note_archive_problem()
        self._screen.progress.clear()
        # An answer that is continued is shown anew.
        self._screen.view.show(event.turn.path[:-1])
        self._screen.view.show(event.turn.path)
        self.state = "answering"
        self.answer_drafters = self.ready.draft if self.ready else ()

    def _piece(self, event: Piece) -> None:
        if self.state == "reading":  # in the answer, as the oldest messages were dropped
            self._screen.progress.clear()
            self.state = "answering"
        if entry := self._screen.view.last_turn:
            entry.append(event)

    def _ended(self, event: Ended) -> None:
        self._set_idle()
        if not self._app.app_focus and monotonic() - self._answer_began > _LONG_ANSWER:
            self._app.bell()
        if event.turn is None:
            self._screen.view.note("stopped before the first token")
            return
        if entry := self._screen.view.last_turn:
            entry.end(event)
        self.note_archive_problem()
        if event.stop_reason == "context":
            self._screen.outbox.hold("because the context is full")
            self._screen.dialogs.context_full(self._app.engine_thread.continue_answer)

    def note_archive_problem(self, other: str | None = None) -> None:
        """Show a problem of the archive, or another one if it has none, but not twice in a row."""
        problem = self._app.archive.problem or other
        if problem and problem != self._shown_problem:
            self._screen.view.note(problem, warning=True)
        self._shown_problem = problem

    def _set_idle(self) -> None:
        self._screen.progress.clear()
        self.state = "ready" if self.ready else "no model"

    def _model_ready(self, event: ModelReady) -> None:
        before, self.ready = self.ready, event
        self._set_idle()
        freeze_garbage_collector()
        self._app.confirm_settings(event)
        view = self._screen.view
        if (before is None or before.has_template) != event.has_template:
            # Answers are Markdown with a chat template, and plain text without one.
            view.show([])
            view.show(self._screen.conversation.turns)
        missing = notes.missing_drafter(event)
        if missing and (before is None or missing != notes.missing_drafter(before)):
            view.note(missing)
        for line in event.notes:
            view.note(line)
        if before is None and event.bundled and not self._screen.conversation.turns:
            view.note(notes.first_launch())
            self._screen.composer.suggest_first_message(notes.FIRST_MESSAGE)

    def _command_failed(self, event: CommandFailed) -> None:
        is_loaded = self._app.engine_thread.session is not None
        if not is_loaded:
            self.ready = None
        self._set_idle()
        match event.command:
            case "send" | "edit" | "edit_answer":
                self._screen.outbox.refuse(event.error)
                if is_loaded and event.context_full:
                    self._screen.outbox.hold("because the context is full")
                    self._screen.dialogs.context_full(self._screen.outbox.retry)
            case "continue_answer":
                self._screen.view.note(event.error, warning=True)
                if is_loaded and event.context_full:
                    self._screen.dialogs.context_full(self._app.engine_thread.continue_answer)
            case "choose" | "reset":
                self._screen.pending_changes.popleft()
                self._screen.view.note(event.error, warning=True)
            case _:
                self._screen.view.note(event.error, warning=True)
        if not is_loaded:
            self._screen.outbox.hold("because no model is loaded")
            self._screen.dialogs.no_model(event.error)
