"""Engine thread: runs the engine beside the screen."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from localspec.conversation.events import Gauge
from localspec.conversation.media_spans import Content
from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation, Turn
from localspec.drafters.spec import AUTO
from localspec.engine import engine as engines
from localspec.engine.engine import Engine
from localspec.errors import LocalspecError
from localspec.stats import Stats
from localspec_tui.command_queue import CommandQueue
from localspec_tui.engine_events import EngineEvent
from localspec_tui.engine_host import EngineHost
from localspec_tui.kept_chats import KeptChats
from localspec_tui.load_request import Draft, LoadRequest, ModelOption

_CLOSE_TIMEOUT, _LOOK_EVERY = 10.0, 0.1


class EngineThread:
    """Owns an engine and a session. Its methods return at once; only one thread may call them.

    A method puts a command; the commands run one after the other. A new command ends the answer
    that is being written, unless it is of use only from the next answer on. Results are events, to
    be fetched with `drain`. A command that fails emits CommandFailed, and the next command runs.
    """

    def __init__(
        self,
        load: Callable[..., Engine] = engines.load,
        *,
        session: Callable[..., Session] = Session,
        keeps: bool = False,
    ) -> None:
        """keeps: whether what is read of conversations outlasts the chat, on disk."""
        self._events: deque[EngineEvent] = deque()
        self._has_given_up = False
        self._host = EngineHost(
            load,
            session,
            self._events.append,
            is_cancelled=lambda: self._commands.cancelled,
            is_superseded=lambda: self._commands.superseded,
            kept=KeptChats() if keeps else None,
        )
        self._commands = CommandQueue(self._host.fail, self._host.end)

    @property
    def session(self) -> Session | None:
        """None while no model is loaded. Read it between answers only, also after `close`."""
        return self._host.session

    def drain(self) -> list[EngineEvent]:
        """The events since the last call, in order."""
        return [self._events.popleft() for _ in range(len(self._events))]

    @property
    def busy(self) -> bool:
        """Whether a command waits or runs. Once False, all events are there for `drain`."""
        return self._commands.busy

    @property
    def stats(self) -> Stats | None:
        """Stats of the answer or comparison that is being written, else of the answer shown last.

        None if that answer was not written here.
        """
        answer = self._host.answer
        return answer.stats if answer else None

    @property
    def gauge(self) -> Gauge | None:
        """The context usage of the answer or comparison that is being written, else of the last.

        None while no model is loaded, and where it is not known what the conversation takes.
        """
        return self._host.gauge

    def count_tokens(self, text: str) -> int | None:
        """How many tokens a text has; None while no model is loaded. Any thread may call this.

        It does not wait for an answer that is being written.
        """
        session = self.session
        try:
            return session.engine.model.count_tokens(text) if session else None
        except (LocalspecError, UnicodeEncodeError):
            # The model was just closed, or the text is no valid Unicode.
            return None

    # Commands.

    def load(self, model: ModelOption = None, draft: Draft = AUTO, **options: Any) -> None:
        """Load a model in place of the loaded one; the conversation stays.

        options: those of `localspec.load` and of Session, except that `when_full` is "drop" by
        default. Emits ModelLoading, then ModelReady or CommandFailed.
        """
        self._put("load", lambda: self._host.load(LoadRequest(model, draft, options)))

    def send(self, text: Content) -> None:
        """Ask a question. Emits QuestionAsked, AnswerStarted and the events of the answer."""
        self._put("send", lambda: self._host.ask(lambda session: session.send(text)))

    def regenerate(self) -> None:
        """Answer the last question again. Emits AnswerStarted and the events of the answer."""
        self._put("regenerate", self._host.regenerate)

    def continue_answer(self) -> None:
        """Continue the last answer, which was stopped or cut off. Emits what `regenerate` emits."""
        self._put("continue_answer", self._host.continue_answer)

    def edit(self, number: int, text: Content) -> None:
        """Replace a question of the active branch, counted from 0. Emits what `send` emits."""
        self._put("edit", lambda: self._host.ask(lambda session: session.edit(number, text)))

    def edit_answer(self, number: int, text: str) -> None:
        """Put a text beside an answer of the active branch. Emits AnswerEdited."""
        self._put("edit_answer", lambda: self._host.edit_answer(number, text))

    def choose(self, turn: Turn) -> None:
        """Make the branch with this turn the active one. Emits ConversationChanged."""
        self._put("choose", lambda: self._host.choose(turn))

    def reset(
        self,
        conversation: Conversation | None = None,
        system: str | None = None,
        *,
        key: str | None = None,
        left: str | None = None,
    ) -> None:
        """Continue another conversation, by default an empty one. Emits ConversationChanged.

        system: the system prompt; None is no system prompt. key: of the conversation, and left: of
        the one before, where they are saved: what was read of them may be kept under these.
        """
        other = conversation or Conversation()
        self._put("reset", lambda: self._host.reset(other, system, key, left))

    def switch(self, model: ModelOption = None, draft: Draft | None = None, **sampling: Any) -> int:
        """Continue with another model, other drafters or other options; None keeps the model.

        sampling: options of GenerationConfig and of Session. Emits ModelLoading if
        something must be loaded, CommandFailed if that fails, and ModelReady in both cases. While
        no model is loaded, it emits what `load` emits. An answer that is being written ends only
        for another model or other drafters. Returns the number of the command, for `has_run`.
        """
        put = self._put_behind if model is None and draft is None else self._put
        return put("switch", lambda: self._host.switch(model, draft, sampling))

    def has_run(self, number: int) -> bool:
        """Whether the command with this number has run; if so, its events are there."""
        return self._commands.has_run(number)

    def enlarge(self, context: int) -> None:
        """Load the model again with a context of so many tokens; the conversation stays.

        If it cannot be loaded so, it is loaded as it was, and then CommandFailed is emitted. Emits
        what `load` emits.
        """
        self._put("enlarge", lambda: self._host.enlarge(context))

    def set_system(self, system: str | None) -> None:
        """Use another system prompt from the next answer on."""
        self._put_behind("set_system", lambda: self._host.set_system(system))

    def set_thinking(self, variables: Mapping[str, Any]) -> None:
        """Tell the chat template of the model's reasoning from the next answer on."""
        self._put_behind("set_thinking", lambda: self._host.set_thinking(variables))

    def compare(self) -> None:
        """Generate the last answer again without drafts. Emits Comparison or CommandFailed."""
        self._put("compare", self._host.compare)

    def stop(self) -> None:
        """Stop the answer that is being written within one step, and loading soon."""
        self._commands.cancel()
        self._stop_session()

    @property
    def keeps(self) -> bool:
        """Whether what is read of conversations outlasts the chat."""
        return self._host.keeps

    def end(self, left: str | None) -> None:
        """Stop, and wait for that, at most 10 seconds; after that all events are there.

        Then what was read is kept, and the models are freed, which `wait` waits for. left: the key
        of the conversation, if it is saved.
        """
        self._host.left = left
        self.stop()
        self._commands.end(_CLOSE_TIMEOUT)

    def wait(self) -> str | None:
        """Wait for what `end` has begun; returns why what was read is not kept, else None.

        Once that is given up, it waits 10 seconds at most.
        """
        while not self._commands.close(_LOOK_EVERY):
            if self._has_given_up:
                self._commands.close(_CLOSE_TIMEOUT)
                break
        return self._host.unkept

    def forget(self, key: str) -> None:
        """Delete what is kept of what was read of a conversation, at once."""
        self._host.forget(key)

    def give_up_keeping(self) -> None:
        """Let `wait` end soon, with nothing kept."""
        self._has_given_up = True
        self._host.give_up_keeping()

    def close(self) -> None:
        """Stop, and free the models. Waits for that, but at most 10 seconds."""
        self.stop()
        self._commands.close(_CLOSE_TIMEOUT)

    def _put(self, name: str, run: Callable[[], None]) -> int:
        self._commands.supersede()
        self._stop_session()
        return self._commands.put(name, run)

    def _put_behind(self, name: str, run: Callable[[], None]) -> int:
        """Put a command that waits for the end of the answer."""
        return self._commands.put(name, run)

    def _stop_session(self) -> None:
        if session := self.session:
            session.stop()
