"""Engine host: the loaded engine, the session over it, and what the commands of the chat do.

It runs in the thread of the commands.
"""

from collections.abc import Callable, Mapping
from typing import Any

from localspec.conversation.answer import Answer
from localspec.conversation.events import Dropped, Ended, Gauge, Notice, Piece
from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation, Turn
from localspec.engine.engine import Engine
from localspec.errors import ContextFullError, InvalidValueError, LocalspecError
from localspec.generation_config import DEFAULT_MAX_TOKENS
from localspec.utils.progress import watched
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
from localspec_tui.kept_chats import KeptChats, forget
from localspec_tui.labels import model_label
from localspec_tui.load_request import Draft, LoadRequest, ModelOption

# Seconds to keep what was read before another conversation goes on.
_UNNOTICED = 2.0
# Options of Session, beside those of GenerationConfig, that can be changed.
SESSION_OPTIONS = frozenset({"when_full", "thinking_budget", "template_options"})


class EngineHost:
    """Its methods are the commands of EngineThread, which says what they emit.

    emit: takes each event. is_cancelled, is_superseded: what happened to the command that runs.
    kept: where what is read of conversations is kept; None: nowhere.

    session: None while no model is loaded. answer: the one that is being written or compared, else
    the one shown last; None if that was not written here. left: the key of the conversation at the
    end, if it is saved. unkept: why what was read of it is not kept; None if it is, or nothing was.
    """

    def __init__(
        self,
        load: Callable[..., Engine],
        session: Callable[..., Session],
        emit: Callable[[EngineEvent], None],
        *,
        is_cancelled: Callable[[], bool],
        is_superseded: Callable[[], bool],
        kept: KeptChats | None = None,
    ) -> None:
        self.session: Session | None = None
        self.left: str | None = None
        self.unkept: str | None = None
        self._kept = kept
        # The key of the conversation that was opened, and whether more was read since.
        self._key: str | None = None
        self._has_read = False
        self.answer: Answer | None = None
        self._load_engine, self._make_session = load, session
        self._emit, self._is_cancelled, self._is_superseded = emit, is_cancelled, is_superseded
        self._load_request = LoadRequest()
        self._conversation: Conversation | None = None
        self._system: str | None = None
        self._last_progress: tuple[str, int | None] | None = None
        # Answers of the loaded model that `compare` can generate again, by the key of their turn.
        self._comparable: dict[str, Answer] = {}

    @property
    def gauge(self) -> Gauge | None:
        """As `EngineThread.gauge`."""
        session, answer = self.session, self.answer
        if session is None:
            return None
        gauge, last = session.gauge, session.conversation.last
        if answer and answer.turn is last and answer.gauge.size == gauge.size:
            # The session's own may be that of a comparison.
            return answer.gauge
        return gauge if gauge.used or last is None else None

    def fail(self, error: Exception, command: str) -> None:
        """Emit that a command raised an error."""
        kind = "" if isinstance(error, LocalspecError) else f"{type(error).__name__}: "
        line = " ".join(f"{kind}{error}".split())
        is_full, code = isinstance(error, ContextFullError), LocalspecError.exit_code
        if isinstance(error, LocalspecError):
            code = error.exit_code
        self._emit(CommandFailed(line, command, context_full=is_full, exit_code=code))

    def _emit_progress(self, action: str, share: float | None) -> None:
        """Emit how far loading is. Raises LocalspecError to end loading that was cancelled."""
        if self._is_cancelled():
            raise LocalspecError("loading was stopped")
        self._emit_percent(action, share)

    def _emit_percent(self, action: str, share: float | None) -> None:
        percent = None if share is None else int(100 * share)
        if (action, percent) != self._last_progress:
            self._last_progress = action, percent
            self._emit(ModelLoading(action, percent))

    def load(self, request: LoadRequest, *, may_stop: bool = True) -> None:
        """Load a model in place of the loaded one. may_stop: whether loading can be cancelled."""
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
        self._load_kept()

    def _unload(self) -> None:
        """Free the loaded model. The conversation is kept for the next model."""
        if self.session:
            self._conversation, self._system = self.session.conversation, self.session.system
        self.close()
        self.session = None
        self._comparable.clear()

    @property
    def keeps(self) -> bool:
        """Whether what is read of conversations is kept."""
        return self._kept is not None

    def _load_kept(self) -> None:
        """Load what is kept of the conversation."""
        if self._kept and self.session and self._key:
            self._has_read = False
            if failure := self._kept.load(self.session, self._key):
                self._emit(Notice(f"the conversation has to be read again: {failure}"))

    def _keep(self, key: str | None, most: float | None = None) -> str | None:
        """Keep what was read of the conversation with this key; the reason if that fails.

        most: seconds.
        """
        if not (self._kept and self.session and key and self._has_read):
            return None
        self._has_read = False
        return self._kept.save(self.session, key, most)

    def forget(self, key: str) -> None:
        """Delete what is kept of a conversation; from any thread."""
        (self._kept.forget if self._kept else forget)(key)

    def give_up_keeping(self) -> None:
        """End the keeping that is under way, or begins later; from any thread."""
        if self._kept:
            self._kept.give_up()

    def end(self) -> None:
        """Keep what was read, and free the loaded model."""
        try:
            self.unkept = self._keep(self.left)
        finally:
            self.close()

    def close(self) -> None:
        """Free the loaded model."""
        if self.session:
            self.session.close()
            self.session.engine.close()

    def _require_session(self) -> Session:
        if self.session is None:
            raise LocalspecError("no model is loaded; choose one")
        return self.session

    def ask(self, start: Callable[[Session], Answer]) -> None:
        """Begin an answer with a question, and write it."""
        answer = self._started(start)
        self._emit(QuestionAsked(self._require_session().turns[-1]))
        self._write(answer)

    def regenerate(self) -> None:
        """Answer the last question again."""
        self._write(self._started(lambda session: session.regenerate()))

    def continue_answer(self) -> None:
        """Continue the last answer."""
        self._write(self._started(lambda session: session.continue_answer()))

    def _started(self, start: Callable[[Session], Answer]) -> Answer:
        """Start an answer; with the first image, what reads it is loaded."""
        with watched(self._emit_progress):
            return start(self._require_session())

    def _write(self, answer: Answer) -> None:
        """Generate an answer, and emit its events. If that fails, Ended is emitted all the same."""
        self._track(answer)
        self._has_read = True
        try:
            self._emit_all(answer)
        except Exception:
            if answer.turn:
                reason = answer.turn.stop_reason or "cancelled"
                self._emit(Ended(answer.turn, reason, "", "", answer.stats, answer.gauge))
            raise
        finally:
            if self._kept:
                self._kept.learn(answer.stats)

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
        self.answer = answer
        if self._is_superseded():
            answer.stop()

    def edit_answer(self, number: int, text: str) -> None:
        """Put a text beside an answer."""
        session = self._require_session()
        turns = session.turns
        edited = session.edit_answer(number, text)
        self.answer = None
        self._emit(AnswerEdited(edited, turns[number]))

    def choose(self, turn: Turn) -> None:
        """Make the branch with this turn the active one."""
        session = self._require_session()
        session.choose(turn)
        self.answer = self._comparable.get(turn.key)
        self._emit(ConversationChanged(tuple(session.turns)))

    def reset(
        self, conversation: Conversation, system: str | None, key: str | None, left: str | None
    ) -> None:
        """Continue another conversation. key, left: as in EngineThread."""
        self._conversation, self._system = conversation, system
        self.answer = None
        self._comparable.clear()
        if self.session:
            self.session.reset(conversation)
            self.session.system = system
        self._emit(ConversationChanged(tuple(conversation.turns)))
        if failure := self._keep(left, _UNNOTICED):
            self._emit(Notice(f"what was read of the conversation before is not kept: {failure}"))
        self._key, self._has_read = key, False
        self._load_kept()

    def enlarge(self, context: int) -> None:
        """Load the model again with a context of so many tokens."""
        before = self._load_request
        try:
            self.load(before.changed({"context": context}))
        except Exception as error:
            # Who handles the failure looks whether a model is loaded.
            self.load(before, may_stop=False)
            self.fail(error, "enlarge")

    def set_system(self, system: str | None) -> None:
        """Use another system prompt."""
        self._system = system
        # Answers have been written with another prompt.
        self._comparable.clear()
        if self.session:
            self.session.system = system

    def set_thinking(self, variables: Mapping[str, Any]) -> None:
        """Tell the chat template of reasoning."""
        session = self._require_session()
        # Answers have been written with another prompt.
        self._comparable.clear()
        session.template_options = {**(session.template_options or {}), **variables}
        changed = {"template_options": session.template_options}
        self._load_request = self._load_request.changed(changed)

    def switch(self, model: ModelOption, draft: Draft | None, sampling: Mapping[str, Any]) -> None:
        """Continue with another model, other drafters or other options."""
        request = self._load_request.changed(sampling, model=model, draft=draft)
        if self.session is None:
            self.load(request)
            return
        try:
            self._change_options(self.session, sampling)
            if model is not None or draft is not None:
                self._exchange(self.session, model, draft)
            self._load_request = request
            self._limit_answers(self.session)
        except Exception as error:
            self.fail(error, "switch")
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
        self._load_request = self._load_request.changed(sampling)

    def _exchange(self, session: Session, model: ModelOption, draft: Draft | None) -> None:
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

    def compare(self) -> None:
        """Generate the last answer again without drafts."""
        session = self._require_session()
        last, shown = session.conversation.last, self.answer
        answer = self._comparable.get(last.key) if last else None
        if answer is None:
            raise InvalidValueError(
                "only an answer of the model that is loaded, written in one go and with no message "
                "dropped, can be compared; regenerate the answer"
            )
        try:
            self._emit(compare(session, answer, self._track))
        finally:
            self.answer = shown


def _label(model: ModelOption) -> str:
    return model_label(str(model)) if model else "the bundled pair"
