"""Plain chat: a chat without a screen, line by line."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from localspec.cli.interrupt import on_interrupt
from localspec.cli.output import Output, OutputError, write_note, write_to_stderr
from localspec.conversation.turns import Conversation
from localspec.errors import LocalspecError
from localspec.loading.config import RuntimeConfig
from localspec.utils.exit_codes import INTERRUPTED, SIGNALLED
from localspec.utils.running_clock import running_clock
from localspec_tui import notes
from localspec_tui.archive import Archive
from localspec_tui.attachments import Attachments
from localspec_tui.autosave import Autosave
from localspec_tui.completion import remark
from localspec_tui.default_options import with_defaults
from localspec_tui.engine_events import ModelReady
from localspec_tui.engine_thread import EngineThread
from localspec_tui.interpreter import prioritize_engine
from localspec_tui.keeping import wait_until_kept
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.message_history import HISTORY_LENGTH, recalled
from localspec_tui.plain.commands import PlainCommands, message_of
from localspec_tui.plain.event_handler import PlainEventHandler
from localspec_tui.plain.message_reader import MessageReader, Typed
from localspec_tui.plain.printer import Printer, as_shown
from localspec_tui.settings_switch import SettingsSwitch

# The signals of a `kill` and of a closed terminal, which Windows has not.
_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
# Seconds between two looks for what the engine has written.
_POLL_INTERVAL = 0.02
# Seconds after an answer in which a Ctrl-C was meant to stop it.
_LATE_STOP = 1.0


class PlainChat:
    """Reads messages and commands, and writes answers, until the user leaves.

    engine_thread, archive, autosave, settings: as those of the chat with a screen. ready: the
    loaded model; None while none is loaded. options: how the chat was started.
    """

    def __init__(
        self,
        engine_thread: EngineThread,
        archive: Archive,
        options: LaunchOptions,
        reader: MessageReader,
        printer: Printer,
    ) -> None:
        self.engine_thread = engine_thread
        self.archive = archive
        self.autosave = Autosave(archive)
        self.printer = printer
        self.ready: ModelReady | None = None
        self.settings = SettingsSwitch(engine_thread, options)
        self.options = options
        self._reader = reader
        self._events = PlainEventHandler(self)
        self._is_reading = self._is_stopped = self._leaves = False
        self._exit_code = 0

    def run(self) -> int:
        """Chat until the user leaves; the exit code. Raises OutputError.

        Where the messages come from a file or a pipe, it is that of the last one that failed.
        """
        running_clock.follow_stops()
        with on_interrupt(self._interrupted), _ending_for_signals():
            try:
                return self._chat()
            except KeyboardInterrupt:
                self._exit_code = INTERRUPTED
                return INTERRUPTED
            except SystemExit as ended:
                self._exit_code = int(ended.code or 0)
                raise
            finally:
                self._end()

    def work(self) -> bool:
        """Wait until the engine thread has nothing to do; whether all its commands went well."""
        self._events.failure, is_idle = None, False
        while not is_idle:
            # Once it is idle, all its events are there.
            is_idle = not self.engine_thread.busy
            events = self.engine_thread.drain()
            self.settings.settle()
            for event in events:
                self._events.handle(event)
            if not is_idle:
                self._events.save_sometimes()
                time.sleep(_POLL_INTERVAL)
        self.autosave.save_rest()
        return self._events.failure is None

    def begin_new(self) -> None:
        """Begin an empty conversation; the one before is kept."""
        left = self.autosave.kept
        self.autosave.start_session(Conversation())
        self.engine_thread.reset(self.autosave.conversation, self.settings.system, left=left)

    @property
    def is_typed(self) -> bool:
        """Whether the messages are typed at a terminal."""
        return self._reader.is_terminal

    def leave(self) -> None:
        """End the chat after the present command."""
        self._leaves = True

    # Start and end.

    def _chat(self) -> int:
        for note in self.options.notes:
            self.printer.note(note)
        self._events.note_archive_problem()
        self._open_session()
        self._events.note_archive_problem()
        if not self._load():
            if self._is_stopped:
                return INTERRUPTED
            failure = self._events.failure
            write_note(f"error: {failure.error if failure else 'no model is loaded'}")
            return failure.exit_code if failure else LocalspecError.exit_code
        self._reader.remember(lambda: map(recalled, self.archive.messages(HISTORY_LENGTH)))
        while not self._leaves and (typed := self._read()) is not None:
            self._is_stopped = False
            self._obey(typed)
        return 0 if self._reader.is_terminal else self._exit_code

    def _open_session(self) -> None:
        """Open the conversation to go on with, if there is one, and show how it ended."""
        if self.options.session:
            session = self.archive.open(self.options.session)
            self.autosave.resume_session(session)
            if self.settings.system is None:
                self.settings.system = session.system
            self.printer.note(f"going on with: {session.title}")
            for turn in session.conversation.turns[-2:]:
                self.printer.lines(as_shown(turn))
        self.engine_thread.reset(
            self.autosave.conversation, self.settings.system, key=self.autosave.key
        )

    def _load(self) -> bool:
        self.engine_thread.load(**self.options.load_options)
        return self.work()

    def _end(self) -> None:
        for each in (signal.SIGINT, *_ENDINGS):
            # What was written is saved, however often somebody asks for the end.
            signal.signal(each, signal.SIG_IGN)
        if self.ready is None and self.engine_thread.busy:
            # Loading may take minutes more, and nothing is lost by ending it.
            self.archive.close()
            os._exit(self._exit_code or INTERRUPTED)
        if self.engine_thread.keeps:
            self.engine_thread.end(self.autosave.kept)
        else:
            self.engine_thread.close()
        for event in self.engine_thread.drain():
            self._events.save(event)
        self.autosave.save_answer()
        self.autosave.save_rest()
        self.archive.close()
        saved, unkept = self.autosave, wait_until_kept(self.engine_thread)
        for line in notes.last_words(
            (), saved.kept, saved.failure, saved.lost, unkept=unkept, plain=True
        ):
            write_to_stderr(f"{line}\n")

    # Messages and commands.

    def _read(self) -> Typed | None:
        """The next message or command; None at the end. Raises KeyboardInterrupt."""
        while True:
            try:
                self._is_reading = True
                return self._reader.read()
            except KeyboardInterrupt:
                write_to_stderr("\n")
                is_late = time.monotonic() - self._events.answered < _LATE_STOP
                if not (self._reader.is_begun or is_late):
                    raise
            finally:
                self._is_reading = False

    def _obey(self, typed: Typed) -> None:
        """Run a command, or send a message. Raises OutputError."""
        try:
            if typed.is_command:
                PlainCommands(self).run(typed.text)
            elif typed.text.strip():
                self.engine_thread.send(message_of(typed.text))
                if line := remark(typed.text, Attachments()):
                    self.printer.note(line)
                self.work()
        except OutputError:
            raise
        except LocalspecError as error:
            self.printer.note(str(error))
            self._exit_code = error.exit_code
        if failure := self._events.take_failure():
            self._exit_code = failure.exit_code

    def _interrupted(self, _signal: int, _frame: FrameType | None) -> None:
        """Stop the answer that is being written; else, and the second time, leave."""
        if self._is_reading or self._is_stopped:
            raise KeyboardInterrupt
        self._is_stopped = True
        self.engine_thread.stop()


@contextmanager
def _ending_for_signals() -> Iterator[None]:
    """Let a closed terminal or a `kill` end the block, so that the conversation is saved."""

    def end(number: int, _frame: FrameType | None) -> None:
        sys.exit(SIGNALLED + number)

    before = [signal.signal(each, end) for each in _ENDINGS]
    try:
        yield
    finally:
        for each, handler in zip(_ENDINGS, before, strict=True):
            signal.signal(each, handler)


def run_plain(options: LaunchOptions, archive: Archive) -> int:
    """Run the plain chat and return its exit code.

    Raises InvalidValueError for a bad runtime option, LocalspecError where stdout is closed.
    """
    RuntimeConfig.of(**options.runtime)
    prioritize_engine()
    printer, options = Printer(Output()), with_defaults(options, archive)
    engine_thread = EngineThread(keeps=True) if options.keep else EngineThread()
    return PlainChat(engine_thread, archive, options, MessageReader(), printer).run()
