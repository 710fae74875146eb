"""Worker: the engine in a thread of its own."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from localspec.conversation.answer import Answer
from localspec.conversation.events import Dropped, Ended
from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation, Turn
from localspec.engine import engine as engines
from localspec.engine.engine import Engine
from localspec.errors import ContextFullError, InvalidValueError, LocalspecError
from localspec.generation_config import DEFAULT_MAX_TOKENS
from localspec.loading.drafter_loader import AUTO
from localspec.stats import Stats
from localspec.utils.progress import watched
from localspec_tui.commands import Orders
from localspec_tui.comparison import compare
from localspec_tui.engine_events import (
    Answering,
    Asked,
    Changed,
    Failed,
    Happening,
    Loading,
    Ready,
)
from localspec_tui.load_request import Draft, Model, Wanted

_PATIENCE = 10.0


class Worker:
    """Owns an engine and a session; its methods return at once and are for one thread to call.

    What happens comes out of `drain`. Orders are carried out one after the other, and each ends the
    answer that is being written. What fails is said, and the next order is carried out.

    session: for reading between answers, after `close` too; None while no model is loaded.
    """

    def __init__(
        self,
        load: Callable[..., Engine] = engines.load,
        *,
        session: Callable[..., Session] = Session,
    ) -> None:
        self.session: Session | None = None
        self._load_engine, self._make_session = load, session
        self._happened: deque[Happening] = deque()
        self._wanted = Wanted()
        self._conversation: Conversation | None = None
        self._system: str | None = None
        self._answer: Answer | None = None
        self._told: tuple[str, int | None] | None = None
        self._comparable: dict[str, Answer] = {}
        self._orders = Orders(self._fail, self._free)

    def drain(self) -> list[Happening]:
        """What happened since the last call, in order."""
        return [self._happened.popleft() for _ in range(len(self._happened))]

    @property
    def busy(self) -> bool:
        """Whether something is still to be done; once it is False, all that happened is there."""
        return self._orders.busy

    @property
    def stats(self) -> Stats | None:
        """Of the answer, or the comparison, that is being written, else of the last answer."""
        return self._answer.stats if self._answer else None

    @property
    def plain_seconds(self) -> float | None:
        """What a plain step takes, as far as is known."""
        return self.session.engine.plain_seconds if self.session else None

    # Orders.

    def load(self, model: Model = None, draft: Draft = AUTO, **options: Any) -> None:
        """Load a model, in place of the one there is; what was said stays.

        options: those of `localspec.load` and of Session; unless told otherwise, the oldest turns
        are dropped when the context is full. Leads to Loading, then Ready or Failed.
        """
        self._order("load", lambda: self._load(Wanted(model, draft, options)))

    def send(self, text: str) -> None:
        """Leads to Asked, Answering, and the events of the answer."""
        self._order("send", lambda: self._ask(lambda session: session.send(text)))

    def regenerate(self) -> None:
        """Leads to Answering and the events of the answer."""
        self._order("regenerate", lambda: self._follow(self._loaded().regenerate()))

    def edit(self, number: int, text: str) -> None:
        """Say something else in place of a turn of the branch, counted from 0; as `send`."""
        self._order("edit", lambda: self._ask(lambda session: session.edit(number, text)))

    def choose(self, turn: Turn) -> None:
        """Go on with the branch that this turn is on. Leads to Changed."""
        self._order("choose", lambda: self._choose(turn))

    def reset(self, conversation: Conversation | None = None, system: str | None = None) -> None:
        """Begin anew, or go on with a conversation. Leads to Changed.

        system: what the model is told before it; None is nothing.
        """
        self._order("reset", lambda: self._reset(conversation or Conversation(), system))

    def switch(self, model: Model = None, draft: Draft | None = None, **sampling: Any) -> None:
        """Go on with another model, other drafters, or other settings; what is not given stays.

        sampling: settings, and `when_full` of Session.
        Leads to Loading if there is something to load, to Failed if that does not work, and then
        to Ready; to what `load` leads to while no model is loaded.
        """
        self._order("switch", lambda: self._switch(model, draft, sampling))

    def compare(self) -> None:
        """Write the last answer once more without drafts. Leads to Compared or Failed."""
        self._order("compare", self._compare)

    def stop(self) -> None:
        """End what is being written, or was ordered, within one step; and loading, soon."""
        self._orders.give_up()
        self._stop_writing()

    def close(self) -> None:
        """End what runs and free the models; waits for that, but not for ever."""
        self.stop()
        self._orders.close(_PATIENCE)

    def _order(self, name: str, do: Callable[[], None]) -> None:
        self._orders.stop()
        self._stop_writing()
        self._orders.give(name, do)

    def _stop_writing(self) -> None:
        if session := self.session:
            session.stop()

    # All that follows is done by the thread.

    def _say(self, happening: Happening) -> None:
        self._happened.append(happening)

    def _fail(self, error: Exception, during: str) -> None:
        kind = "" if isinstance(error, LocalspecError) else f"{type(error).__name__}: "
        line = " ".join(f"{kind}{error}".split())
        self._say(Failed(line, during, full=isinstance(error, ContextFullError)))

    def _tell(self, doing: str, share: float | None) -> None:
        """How far loading is; ends it where nobody wants it any more."""
        if self._orders.given_up:
            raise LocalspecError("loading was stopped")
        percent = None if share is None else int(100 * share)
        if (doing, percent) != self._told:
            self._told = doing, percent
            self._say(Loading(doing, percent))

    def _load(self, wanted: Wanted) -> None:
        self._say(Loading(f"loading {wanted.model or 'the model that comes along'}"))
        self._forget()
        self._wanted = wanted.again
        told = {"conversation": self._conversation, "system": self._system}
        options = {"when_full": "drop", **told, **wanted.of_session}
        self._conversation, self._system = options["conversation"], options["system"]
        with watched(self._tell):
            engine = self._load_engine(wanted.model, wanted.draft, **wanted.of_engine)
        try:
            session = self._make_session(engine, **options)
            self._bound(session)
            ready = Ready.of(engine, wanted.model)
        except BaseException:
            engine.close()
            raise
        self.session = session
        self._say(ready)

    def _forget(self) -> None:
        """Free what is loaded; what was said is for the model that comes next."""
        if self.session:
            self._conversation, self._system = self.session.conversation, self.session.system
        self._free()
        self.session = None
        self._comparable.clear()

    def _free(self) -> None:
        if self.session:
            self.session.close()
            self.session.engine.close()

    def _loaded(self) -> Session:
        if self.session is None:
            raise LocalspecError("no model is loaded; choose one")
        return self.session

    def _ask(self, begin: Callable[[Session], Answer]) -> None:
        session = self._loaded()
        answer = begin(session)
        self._say(Asked(session.turns[-1]))
        self._follow(answer)

    def _follow(self, answer: Answer) -> None:
        self._watch(answer)
        try:
            self._say_all(answer)
        except Exception:
            if answer.turn:
                reason = answer.turn.stop_reason or "cancelled"
                self._say(Ended(answer.turn, reason, "", "", answer.stats, answer.gauge))
            raise

    def _say_all(self, answer: Answer) -> None:
        begun: Turn | None = None
        for event in answer:
            if begun is None and answer.turn:
                begun = answer.turn
                self._comparable[begun.key] = answer
                self._say(Answering(begun))
            elif begun and isinstance(event, Dropped):
                # The rest of it does not follow what it began after.
                self._comparable.pop(begun.key, None)
            self._say(event)

    def _watch(self, answer: Answer) -> None:
        self._answer = answer
        if self._orders.stopped:
            answer.stop()

    def _choose(self, turn: Turn) -> None:
        session = self._loaded()
        session.choose(turn)
        self._say(Changed(tuple(session.turns)))

    def _reset(self, conversation: Conversation, system: str | None) -> None:
        self._conversation, self._system = conversation, system
        self._answer = None
        self._comparable.clear()
        if self.session:
            self.session.reset(conversation)
            self.session.system = system
        self._say(Changed(tuple(conversation.turns)))

    def _switch(self, model: Model, draft: Draft | None, sampling: Mapping[str, Any]) -> None:
        wanted = self._wanted.but(model, draft, sampling)
        if self.session is None:
            self._load(wanted)
            return
        if model is not None or draft is not None:
            self._say(Loading(f"loading {model or f'drafter {draft}'}"))
        try:
            options = {name: sampling[name] for name in sampling.keys() - {"when_full"}}
            with watched(self._tell):
                self.session.switch(model=model, draft=draft, **options)
            self.session.when_full = sampling.get("when_full", self.session.when_full)
            self._wanted = wanted
            self._bound(self.session)
            if model is not None:
                self._comparable.clear()
        except Exception as error:
            self._fail(error, "switch")
        self._say(Ready.of(self.session.engine, self._wanted.model))

    def _bound(self, session: Session) -> None:
        """A model that goes on with a text need not come to an end."""
        most = None if session.engine.prefers_chat else DEFAULT_MAX_TOKENS
        session.switch(max_tokens=self._wanted.options.get("max_tokens") or most)

    def _compare(self) -> None:
        session = self._loaded()
        last, shown = session.conversation.last, self._answer
        answer = self._comparable.get(last.key) if last else None
        if answer is None:
            raise InvalidValueError(
                "only what this model answered here, with nothing dropped on the way, can be "
                "compared; regenerate the answer"
            )
        try:
            self._say(compare(session, answer, self._watch))
        finally:
            self._answer = shown
