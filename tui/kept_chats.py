"""Kept chats: what the model has read of conversations, on disk, by the keys of these (--keep)."""

from localspec.conversation.session import Session
from localspec.engine.kept_store import SavingTime, kept_store
from localspec.errors import LocalspecError
from localspec.stats import Stats

# Fewer tokens are read about as fast as they are found.
_LEAST_TOKENS = 32


class KeptChats:
    """Loads and saves the caches of a session, in the thread of the engine."""

    def __init__(self) -> None:
        self._is_given_up = False
        self._time: SavingTime | None = None
        self._forgotten = set[str]()
        # Of the most tokens that were read at once: how many, and how many per second.
        self._read, self._rate = 0, 0.0

    def learn(self, stats: Stats) -> None:
        """Note how fast a prompt was read."""
        rate = stats.prompt_tokens_per_second
        if rate and stats.prompt_evaluated > self._read:
            self._read, self._rate = stats.prompt_evaluated, rate

    def load(self, session: Session, key: str) -> str | None:
        """Load what is kept of a conversation, if anything is; returns the reason if that fails."""
        store = kept_store()
        if not store.has(_name(key)):
            return None
        store.note_use(_name(key))
        return session.load_state(_name(key), store)

    def save(self, session: Session, key: str, most: float | None = None) -> str | None:
        """Keep what was read of a conversation; returns the reason if that fails, else None.

        It takes no longer than to read it again. most: nor more seconds than that.
        """
        if session.cached_tokens < _LEAST_TOKENS:
            return None
        seconds = session.cached_tokens / self._rate if self._rate else None
        limits = [each for each in (seconds, most) if each is not None]
        self._time = time = SavingTime(min(limits, default=None))
        if self._is_given_up:
            time.stop()
        try:
            return session.save_state(_name(key), kept_store(gives_up=time.over))
        except (LocalspecError, MemoryError) as error:
            return str(error) or "memory is too small for a copy"
        finally:
            if key in self._forgotten:
                forget(key)

    def forget(self, key: str) -> None:
        """Delete what is kept of a conversation, also if it is being saved; from any thread."""
        # Whoever is later, this or the saving, deletes it.
        self._forgotten.add(key)
        forget(key)

    def give_up(self) -> None:
        """End the saving that is under way, and all others; from any thread."""
        self._is_given_up = True
        if self._time:
            self._time.stop()


def forget(key: str) -> None:
    """Delete what is kept of a conversation."""
    kept_store().remove(_name(key))


def _name(key: str) -> str:
    return f"chat {key}"
