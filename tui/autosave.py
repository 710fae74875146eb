"""Keeper: saves the conversation as it grows."""

from collections.abc import Mapping, Sequence

from localspec.conversation.events import Ended, Piece
from localspec.conversation.turns import Turn
from localspec_tui.archive import Archive, Opened, Run
from localspec_tui.engine_events import Answering, Happening


class Keeper:
    """What is said goes to the archive; a session begins with its first turn.

    key: of the session, None before that. origins: of the answers of this session, by the keys of
    their turns.
    """

    def __init__(self, archive: Archive) -> None:
        self.key: str | None = None
        self.origins: dict[str, Sequence[Run]] = {}
        self._archive = archive
        self._answer: Turn | None = None
        self._runs: list[Run] = []

    def begin(self) -> None:
        """What is said from here on is another session."""
        self.key, self.origins, self._answer = None, {}, None

    def go_on(self, opened: Opened) -> None:
        """What is said from here on belongs to a session of the past."""
        self.begin()
        self.key, self.origins = opened.key, dict(opened.origins)

    def asked(self, turn: Turn, model: str, system: str | None) -> None:
        """A question was asked. Raises LocalspecError for what SQLite refuses."""
        if self.key is None:
            self.key = self._archive.begin(model, system)
        else:
            self._archive.set_model(self.key, model)
            self._archive.set_system(self.key, system)
        self._save(turn)

    def hear(self, happening: Happening) -> None:
        """Something came of an answer."""
        match happening:
            case Answering(turn):
                self._answer, self._runs = turn, []
                self.origins[turn.key] = self._runs
            case Piece():
                self._add(happening.said, happening.token.origin)
            case Ended():
                self._add(happening.said, self._runs[-1][1] if self._runs else "plain")
                self.save()
                self._answer = None

    def save(self) -> None:
        """Keep the answer that is being written, as far as it is."""
        if self._answer:
            self._save(self._answer)

    def chose(self, last: Turn | None) -> None:
        """The conversation goes on after this turn."""
        if last:
            self._save(last)

    def _add(self, text: str, origin: str) -> None:
        if not text:
            return
        if self._runs and self._runs[-1][1] == origin:
            text = self._runs.pop()[0] + text
        self._runs.append((text, origin))

    def _save(self, turn: Turn) -> None:
        if self.key:
            origins: Mapping[str, Sequence[Run]] = (
                {turn.key: tuple(self._runs)} if turn is self._answer else {}
            )
            self._archive.save(self.key, [turn], turn, origins)
