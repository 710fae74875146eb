"""Plain event handler: writes the events of the engine thread as lines."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from localspec.conversation.events import Dropped, Ended, Notice, Piece, Reading
from localspec_tui import notes
from localspec_tui.engine_events import (
    AnswerEdited,
    AnswerStarted,
    CommandFailed,
    EngineEvent,
    ModelLoading,
    ModelReady,
    QuestionAsked,
)
from localspec_tui.export import INCOMPLETE
from localspec_tui.labels import model_label
from localspec_tui.plain.message_reader import END_KEYS
from localspec_tui.preferences import Preferences
from localspec_tui.status import Status, in_words

if TYPE_CHECKING:
    from localspec_tui.plain.chat import PlainChat

# Seconds between two saves of an answer, and between two lines on how far a prompt is read.
_SAVE_INTERVAL, _READING_INTERVAL = 1.0, 5.0


class PlainEventHandler:
    """Handles each event once.

    failure: why the last command has failed; None if it has not. answered: when the last answer
    ended, by the monotonic clock.
    """

    def __init__(self, chat: "PlainChat") -> None:
        self.failure: CommandFailed | None = None
        self.answered = float("-inf")
        self._chat = chat
        self._printer = chat.printer
        self._saved = self._told = float("-inf")
        self._noted: set[str] = set()
        self._handlers: dict[type, Callable[[Any], None]] = {
            AnswerEdited: lambda _: self._printer.note(
                "edited: /continue goes on from its end, or send a message"
            ),
            CommandFailed: self._command_failed,
            Dropped: lambda event: self._printer.note(notes.dropped_turns(event)),
            Ended: self._ended,
            ModelLoading: lambda event: self._note_once(event.action),
            ModelReady: self._model_ready,
            Notice: lambda event: self._printer.note(event.line),
            Piece: self._piece,
            QuestionAsked: self._question_asked,
            Reading: self._reading,
        }

    def take_failure(self) -> CommandFailed | None:
        """Return `failure`, and forget it."""
        failure, self.failure = self.failure, None
        return failure

    def handle(self, event: EngineEvent) -> None:
        """Save and show one event."""
        self.save(event)
        if isinstance(event, QuestionAsked | AnswerStarted):
            # What the end of the answer saves may say nothing of it any more.
            self.note_archive_problem()
        if handler := self._handlers.get(type(event)):
            handler(event)

    def _question_asked(self, event: QuestionAsked) -> None:
        if chips := " ".join(span.chip for span in event.turn.media):
            self._printer.note(f"sent with {chips}")

    def save(self, event: EngineEvent) -> None:
        """Save what an event adds to the conversation."""
        chat = self._chat
        chat.autosave.handle(event)
        model, settings = chat.ready.model if chat.ready else "", chat.settings
        about = model, settings.system, settings.current
        if isinstance(event, QuestionAsked):
            chat.autosave.save_question(event.turn, *about)
        elif isinstance(event, AnswerStarted):
            chat.autosave.save_settings(*about)

    def save_sometimes(self) -> None:
        """Save the answer that is being written, unless that was just done."""
        if time.monotonic() - self._saved > _SAVE_INTERVAL:
            self._chat.autosave.save_answer()
            self._saved = time.monotonic()

    def note_archive_problem(self) -> None:
        """Say what is wrong with the archive, once."""
        if problem := self._chat.archive.problem:
            self._note_once(problem)

    def _reading(self, event: Reading) -> None:
        """Say how far a long prompt is read, which a short one is at once."""
        now = time.monotonic()
        if event.done >= event.total:
            self._told = float("-inf")
        elif self._told == float("-inf"):
            self._told = now
        elif now - self._told > _READING_INTERVAL:
            self._told = now
            read = f"{event.done:,} of {event.total:,} tokens"
            self._printer.note(f"reading the prompt, {read}")

    def _piece(self, event: Piece | Ended) -> None:
        self._printer.thought(event.thought)
        self._printer.said(event.said)

    def _ended(self, event: Ended) -> None:
        self._piece(event)
        self._printer.end_answer()
        self.answered, self._told = time.monotonic(), float("-inf")
        if event.turn is None:
            self._printer.note("stopped before the first token")
            return
        how = INCOMPLETE.get(event.stop_reason)
        status = in_words(self._status(event))
        self._printer.note(f"{how}; {status}" if how else status)
        self.note_archive_problem()
        if event.stop_reason == "context":
            self._context_full("/continue")

    def _status(self, event: Ended) -> Status:
        ready = self._chat.ready
        if ready is None or self._chat.settings.current.sampling.get("depth") == 0:
            return Status(event.stats, event.gauge, (), "depth is 0")
        return Status(event.stats, event.gauge, ready.draft, ready.reason)

    def _command_failed(self, event: CommandFailed) -> None:
        self.failure = event
        self._printer.end_answer()
        if self._chat.ready is None:
            # It is the error that the chat ends with.
            return
        self._printer.note(event.error)
        if event.context_full:
            self._context_full("the message again" if event.command == "send" else "/continue")

    def _context_full(self, then: str) -> None:
        """Say what can be done. then: what goes on afterwards."""
        ready = self._chat.ready
        if ready is None or self._chat.settings.current.drop_oldest:
            return
        key = self._chat.autosave.kept
        question = notes.context_full(ready.context, ready.longest_context, key, plain=True)
        for line in question.splitlines():
            self._printer.note(line)
        self._printer.note(
            f"/drop-oldest on makes room, then send {then}; /clear begins another chat"
        )

    def _model_ready(self, event: ModelReady) -> None:
        before, self._chat.ready = self._chat.ready, event
        self._chat.settings.confirm(event)
        for line in event.notes:
            self._note_once(line)
        if before != event:
            drafters = f"drafter: {' or '.join(event.draft)}" if event.draft else ""
            missing = notes.missing_drafter(event) or ("" if event.draft else "draft: off")
            what = ", ".join(filter(None, (drafters, missing)))
            self._printer.note(f"model: {model_label(event.model)}, {what}")
        if before is None:
            if event.bundled and not self._chat.options.session:
                for line in notes.first_launch().splitlines():
                    self._printer.note(line)
            self._printer.note(f"/help lists the commands, {END_KEYS} leaves")
        if not self._chat.options.private:
            self._remember(event)

    def _remember(self, ready: ModelReady) -> None:
        try:
            Preferences.read().remember_model(ready.model, bundled=ready.bundled)
        except OSError as error:
            self._note_once(f"your choices cannot be saved: {error.strerror}")

    def _note_once(self, line: str) -> None:
        if line not in self._noted:
            self._noted.add(line)
            self._printer.note(line)
