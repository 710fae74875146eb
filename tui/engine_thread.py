"""Engine thread: runs the engine beside the screen."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from localspec.conversation.answer import Answer
from localspec.conversation.events import Dropped, Ended, Piece
from localspec.conversation.session import Session
from localspec.conversation.thinking import thinking_variables
from localspec.conversation.turns import Conversation, Turn
from localspec.drafters.spec import AUTO
from localspec.engine import engine as engines
from localspec.engine.engine import Engine
from localspec.errors import ContextFullError, InvalidValueError, LocalspecError
from localspec.generation_config import DEFAULT_MAX_TOKENS
from localspec.stats import Stats
from localspec.utils.progress import watched
from localspec_tui.command_queue import CommandQueue
from localspec_tui.comparison import compare
from localspec_tui.engine_events import (
    AnswerEdited,
    AnswerStarted,
    CommandFailed,
    ConversationChanged,
    EngineEvent,
    ModelLoading,
    ModelReady,
    QuestionAsked,
)
from localspec_tui.labels import model_label
from localspec_tui.load_request import Draft, LoadRequest, Model

# Options of Session, beside those of GenerationConfig, that can be changed.
SESSION_OPTIONS = frozenset({"when_full", "thinking_budget", "template_options"})
_CLOSE_TIMEOUT = 10.0


class EngineThread:
    """Owns an engine and a session. Its methods return at once; only one thread may call them.

    A method puts a command; the commands run one after the other. A new command ends the answer
    that is being written, unless it is of use only from the next answer on. Results are events, to
    be fetched with `drain`. A command that fails emits CommandFailed, and the next command runs.

    session: None while no model is loaded. Read it between answers only, also after `close`.
    """

    def __init__(
        self,
        load: Callable[..., Engine] = engines.load,
        *,
        session: Callable[..., Session] = Session,
    ) -> None:
        self.session: Session | None = None
        self._load_engine, self._make_session = load, session
        self._events: deque[EngineEvent] = deque()
        self._load_request = LoadRequest()
        self._conversation: Conversation | None = None
        self._system: str | None = None
        self._answer: Answer | None = None
        self._last_progress: tuple[str, int | None] | None = None
        # Answers of the loaded model that `compare` can generate again, by the key of their turn.
        self._comparable: dict[str, Answer] = {}
        self._commands = CommandQueue(self._emit_failure, self._close_engine)

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
        return self._answer.stats if self._answer else None

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

    def load(self, model: Model = None, draft: Draft = AUTO, **options: Any) -> None:
        """Load a model in place of the loaded one; the conversation stays.

        options: those of `localspec.load` and of Session, except that `when_full` is "drop" by
        default. Emits ModelLoading, then ModelReady or CommandFailed.
        """
        self._put("load", lambda: self._load(LoadRequest(model, draft, options)))

    def send(self, text: str) -> None:
        """Ask a question. Emits QuestionAsked, AnswerStarted and the events of the answer."""
        self._put("send", lambda: self._ask(lambda session: session.send(text)))

    def regenerate(self) -> None:
        """Answer the last question again. Emits AnswerStarted and the events of the answer."""
        self._put("regenerate", lambda: self._write(self._require_session().regenerate()))

    def continue_answer(self) -> None:
        """Continue the last answer, which was stopped or cut off. Emits what `regenerate` emits."""
        self._put("continue_answer", lambda: self._write(self._require_session().continue_answer()))

    def edit(self, number: int, text: str) -> None:
        """Replace a question of the active branch, counted from 0. Emits what `send` emits."""
        self._put("edit", lambda: self._ask(lambda session: session.edit(number, text)))

    def edit_answer(self, number: int, text: str) -> None:
        """Put a text beside an answer of the active branch. Emits AnswerEdited."""
        self._put("edit_answer", lambda: self._edit_answer(number, text))

    def choose(self, turn: Turn) -> None:
        """Make the branch with this turn the active one. Emits ConversationChanged."""
        self._put("choose", lambda: self._choose(turn))

    def reset(self, conversation: Conversation | None = None, system: str | None = None) -> None:
        """Continue another conversation, by default an empty one. Emits ConversationChanged.

        system: the system prompt; None is no system prompt.
        """
        self._put("reset", lambda: self._reset(conversation or Conversation(), system))

    def switch(self, model: Model = None, draft: Draft | None = None, **sampling: Any) -> None:
        """Continue with another model, other drafters or other options; None keeps the model.

        sampling: options of GenerationConfig, and SESSION_OPTIONS. Emits ModelLoading if
        something must be loaded, CommandFailed if that fails, and ModelReady in both cases. While
        no model is loaded, it emits what `load` emits. An answer that is being written ends only
        for another model or other drafters.
        """
        put = self._put_behind if model is None and draft is None else self._put
        put("switch", lambda: self._switch(model, draft, sampling))

    def enlarge(self, context: int) -> None:
        """Load the model again with a context of so many tokens; the conversation stays.

        If it cannot be loaded so, it is loaded as it was, and then CommandFailed is emitted. Emits
        what `load` emits.
        """
        self._put("enlarge", lambda: self._enlarge(context))

    def set_system(self, system: str | None) -> None:
        """Use another system prompt from the next answer on."""
        self._put_behind("set_system", lambda: self._set_system(system))

    def set_thinking(self, on: bool) -> None:
        """Switch the model's reasoning on or off from the next answer on."""
        self._put_behind("set_thinking", lambda: self._set_thinking(on))

    def compare(self) -> None:
        """Generate the last answer again without drafts. Emits Comparison or CommandFailed."""
        self._put("compare", self._compare)

    def stop(self) -> None:
        """Stop the answer that is being written within one step, and loading soon."""
        self._commands.cancel()
        self._stop_session()

    def close(self) -> None:
        """Stop, and free the models. Waits for that, but at most 10 seconds."""
        self.stop()
        self._commands.close(_CLOSE_TIMEOUT)

    def _put(self, name: str, run: Callable[[], None]) -> None:
        self._commands.supersede()
        self._stop_session()
        self._commands.put(name, run)

    def _put_behind(self, name: str, run: Callable[[], None]) -> None:
        """Put a command that waits for the end of the answer."""
        self._commands.put(name, run)

    def _stop_session(self) -> None:
        if session := self.session:
            session.stop()

    # Everything below runs in the thread of the command queue.

    def _emit(self, event: EngineEvent) -> None:
        self._events.append(event)

    def _emit_failure(self, error: Exception, command: str) -> None:
        kind = "" if isinstance(error, LocalspecError) else f"{type(error).__name__}: "
        line = " ".join(f"{kind}{error}".split())
        is_full, code = isinstance(error, ContextFullError), LocalspecError.exit_code
        if isinstance(error, LocalspecError):
            code = error.exit_code
        self._emit(CommandFailed(line, command, context_full=is_full, exit_code=code))

    def _emit_progress(self, action: str, share: float | None) -> None:
        """Emit how far loading is. Raises LocalspecError to end loading that was cancelled."""
        if self._commands.cancelled:
            raise LocalspecError("loading was stopped")
        self._emit_percent(action, share)

    def _emit_percent(self, action: str, share: float | None) -> None:
        percent = None if share is None else int(100 * share)
        if (action, percent) != self._last_progress:
            self._last_progress = action, percent
            self._emit(ModelLoading(action, percent))

    def _load(self, request: LoadRequest, *, may_stop: bool = True) -> None:
        self._emit(ModelLoading(f"loading {_label(request.model)}"))
        self._unload()
        self._load_request = request.without_conversation()
        defaults = {
            "when_full": "drop",
            "conversation": self._conversation,
            "system": self._system,
        }
        options = {**defaults, **request.session_options}
        self._conversation, self._system = options["conversation"], options["system"]
        with watched(self._emit_progress if may_stop else self._emit_percent):
            engine = self._load_engine(request.model, request.draft, **request.engine_options)
        try:
            session = self._make_session(engine, **options)
            self._limit_answers(session)
            ready = self._described(engine)
        except BaseException:
            engine.close()
            raise
        self.session = session
        self._emit(ready)

    def _unload(self) -> None:
        """Free the loaded model. The conversation is kept for the next model."""
        if self.session:
            self._conversation, self._system = self.session.conversation, self.session.system
        self._close_engine()
        self.session = None
        self._comparable.clear()

    def _close_engine(self) -> None:
        if self.session:
            self.session.close()
            self.session.engine.close()

    def _require_session(self) -> Session:
        if self.session is None:
            raise LocalspecError("no model is loaded; choose one")
        return self.session

    def _ask(self, start: Callable[[Session], Answer]) -> None:
        session = self._require_session()
        answer = start(session)
        self._emit(QuestionAsked(session.turns[-1]))
        self._write(answer)

    def _write(self, answer: Answer) -> None:
        """Generate an answer, and emit its events. If that fails, Ended is emitted all the same."""
        self._track(answer)
        try:
            self._emit_all(answer)
        except Exception:
            if answer.turn:
                reason = answer.turn.stop_reason or "cancelled"
                self._emit(Ended(answer.turn, reason, "", "", answer.stats, answer.gauge))
            raise

    def _emit_all(self, answer: Answer) -> None:
        started, continued, kept = None, answer.turn, len(answer.text)
        if continued:
            # Its parts have prompts and counts of their own.
            self._comparable.pop(continued.key, None)
        for event in answer:
            if started is None and answer.turn and isinstance(event, (Piece, Ended)):
                started = answer.turn
                if not continued:
                    self._comparable[started.key] = answer
                self._emit(AnswerStarted(started, kept))
            elif started and isinstance(event, Dropped):
                # The rest of the answer has another prompt than its beginning.
                self._comparable.pop(started.key, None)
            self._emit(event)

    def _track(self, answer: Answer) -> None:
        """Make this the answer of `stats`, and stop it if its command was superseded already."""
        self._answer = answer
        if self._commands.superseded:
            answer.stop()

    def _edit_answer(self, number: int, text: str) -> None:
        session = self._require_session()
        turns = session.turns
        edited = session.edit_answer(number, text)
        self._answer = None
        self._emit(AnswerEdited(edited, turns[number]))

    def _choose(self, turn: Turn) -> None:
        session = self._require_session()
        session.choose(turn)
        self._answer = self._comparable.get(turn.key)
        self._emit(ConversationChanged(tuple(session.turns)))

    def _reset(self, conversation: Conversation, system: str | None) -> None:
        self._conversation, self._system = conversation, system
        self._answer = None
        self._comparable.clear()
        if self.session:
            self.session.reset(conversation)
            self.session.system = system
        self._emit(ConversationChanged(tuple(conversation.turns)))

    def _enlarge(self, context: int) -> None:
        before = self._load_request
        try:
            self._load(before.changed(None, None, {"context": context}))
        except Exception as error:
            # Who handles the failure looks whether a model is loaded.
            self._load(before, may_stop=False)
            self._emit_failure(error, "enlarge")

    def _set_system(self, system: str | None) -> None:
        self._system = system
        # Answers have been written with another prompt.
        self._comparable.clear()
        if self.session:
            self.session.system = system

    def _set_thinking(self, on: bool) -> None:
        session = self._require_session()
        # Answers have been written with another prompt.
        self._comparable.clear()
        session.template_options = {**(session.template_options or {}), **thinking_variables(on)}
        changed = {"template_options": session.template_options}
        self._load_request = self._load_request.changed(None, None, changed)

    def _switch(self, model: Model, draft: Draft | None, sampling: Mapping[str, Any]) -> None:
        request = self._load_request.changed(model, draft, sampling)
        if self.session is None:
            self._load(request)
            return
        try:
            self._change_options(self.session, sampling)
            if model is not None or draft is not None:
                self._exchange(self.session, model, draft)
            self._load_request = request
            self._limit_answers(self.session)
        except Exception as error:
            self._emit_failure(error, "switch")
        self._emit(self._described(self.session.engine))

    def _described(self, engine: Engine) -> ModelReady:
        return ModelReady.of(engine, self._load_request)

    def _change_options(self, session: Session, sampling: Mapping[str, Any]) -> None:
        """Change the options of the session. They stay even if a model cannot be loaded then."""
        session.switch(**{name: sampling[name] for name in sampling.keys() - SESSION_OPTIONS})
        if sampling.get("template_options", session.template_options) != session.template_options:
            # Answers have been written with another prompt.
            self._comparable.clear()
        for name in sampling.keys() & SESSION_OPTIONS:
            setattr(session, name, sampling[name])
        self._load_request = self._load_request.changed(None, None, sampling)

    def _exchange(self, session: Session, model: Model, draft: Draft | None) -> None:
        """Load another model or other drafters."""
        self._emit(ModelLoading(f"loading {_label(model) if model else f'drafter {draft}'}"))
        with watched(self._emit_progress):
            session.switch(model=model, draft=draft)
        if model is not None:
            self._comparable.clear()

    def _limit_answers(self, session: Session) -> None:
        """Limit the length of answers of a model without a chat template, which may never end."""
        most = None if session.engine.prefers_chat else DEFAULT_MAX_TOKENS
        session.switch(max_tokens=self._load_request.options.get("max_tokens") or most)

    def _compare(self) -> None:
        session = self._require_session()
        last, shown = session.conversation.last, self._answer
        answer = self._comparable.get(last.key) if last else None
        if answer is None:
            raise InvalidValueError(
                "only an answer of the model that is loaded, written in one go and with no message "
                "dropped, can be compared; regenerate the answer"
            )
        try:
            self._emit(compare(session, answer, self._track))
        finally:
            self._answer = shown


def _label(model: Model) -> str:
    return model_label(str(model)) if model else "the bundled pair"
