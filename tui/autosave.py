"""Autosave: writes the conversation to the archive while it grows."""

from collections.abc import Sequence

from localspec.conversation.events import Ended, Piece
from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError
from localspec_tui.archive import Archive
from localspec_tui.engine_events import AnswerEdited, AnswerStarted, EngineEvent
from localspec_tui.origins import Origins
from localspec_tui.saved_session import SavedSession
from localspec_tui.session_settings import SessionSettings


class Autosave:
    """Saves questions, answers and the text box of the current session.

    conversation: of the current session. key: of that session; None until there is something to
    save. origins: of each answer of this session, by the key of the turn, which the screen shows,
    too.
    """

    def __init__(self, archive: Archive) -> None:
        self.conversation = Conversation()
        self.key: str | None = None
        self.origins: dict[str, Origins] = {}
        self._archive = archive
        self._unsent = ""
        self._answer: Turn | None = None
        self._answer_origins = Origins()

    def start_session(self, conversation: Conversation) -> None:
        """Save what follows as a new session. conversation: of this session."""
        self.conversation = conversation
        self.key, self.origins, self._unsent = None, {}, ""
        self._answer = None

    def resume_session(self, session: SavedSession) -> None:
        """Save what follows in a session of the archive."""
        self.start_session(session.conversation)
        self.key = session.key
        self.origins = {key: Origins.of(segments) for key, segments in session.origins.items()}
        self._unsent = session.unsent

    def save_question(
        self, turn: Turn, model: str, system: str | None, settings: SessionSettings
    ) -> None:
        """Save a user turn."""
        if self.key is None:
            self.key = self._archive.create(model, system, settings, self.conversation)
        else:
            self._archive.describe(self.key, model, system, settings)
        self._save(turn)

    def save_settings(self, model: str, system: str | None, settings: SessionSettings) -> None:
        """Save how answers are written now."""
        if self.key:
            self._archive.describe(self.key, model, system, settings)
            self._archive.save_rest(self.key)

    def save_unsent(
        self, text: str, model: str, system: str | None, settings: SessionSettings
    ) -> None:
        """Save what is in the text box. Raises LocalspecError if SQLite refuses to write."""
        if text == self._unsent:
            return
        if self.key is None:
            self.key = self._archive.create(model, system, settings, self.conversation)
        if not self._archive.set_unsent(self.key, text):
            self.key = None
        self._unsent = text

    def handle(self, event: EngineEvent) -> None:
        """Take over what an event adds to an answer. The end of an answer saves it."""
        match event:
            case AnswerStarted(turn, kept):
                before = self.origins.get(turn.key, Origins())
                self._answer, self._answer_origins = turn, before.beginning(kept)
                self.origins[turn.key] = self._answer_origins
            case AnswerEdited(turn, original):
                before = self.origins.get(original.key, Origins())
                self._answer, self._answer_origins = turn, before.edited(turn.content)
                self.origins[turn.key] = self._answer_origins
                self.save_answer()
                self._answer = None
            case Piece():
                self._answer_origins.append(event.said, event.token.origin)
            case Ended():
                self._answer_origins.append_rest(event.said)
                self.save_answer()
                self._answer = None

    def save_answer(self) -> None:
        """Save the answer that is being written, as far as it goes."""
        if self._answer:
            self._save(self._answer)

    def save_branch(self, last: Turn | None) -> None:
        """Save that the conversation continues after this turn."""
        if last:
            self._save(last)

    def save_rest(self) -> None:
        """Save what could not be saved, of this session and others."""
        self._archive.save_rest(self.key)

    @property
    def current(self) -> SavedSession:
        """The current session as it is now, whether or not it is saved.

        Raises InvalidValueError if it has no message.
        """
        if self.key is None or self.conversation.last is None:
            raise InvalidValueError("there is nothing to save yet; send a message first")
        return self._archive.live(self.key)

    def read(self, key: str) -> SavedSession:
        """A session: the current one as it is now, any other as it is saved.

        Raises LocalspecError if it cannot be read, or has no message.
        """
        return self.current if key == self.key else self._archive.read(key)

    @property
    def failure(self) -> str | None:
        """Why the last part of the session is not saved; None if it is."""
        if self.key is None:
            return None
        refusal = self._archive.refusal if self.conversation.last else None
        return self._archive.failures.get(self.key, refusal)

    @property
    def lost(self) -> Sequence[tuple[str, str]]:
        """The titles of other sessions, and why their last parts are not saved."""
        failures = self._archive.failures.items()
        return [(self._archive.live(key).title, why) for key, why in failures if key != self.key]

    @property
    def kept(self) -> str | None:
        """The key of the session, if the file has at least a part of it."""
        return self.key if self.key and self._archive.is_stored(self.key) else None

    def _save(self, turn: Turn) -> None:
        if self.key:
            is_answer = turn is self._answer
            origins = {turn.key: tuple(self._answer_origins.segments)} if is_answer else {}
            self._archive.save(self.key, [turn], turn, origins)
