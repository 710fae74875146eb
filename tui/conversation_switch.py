"""Conversation switch: begins a conversation on the chat screen, or continues a saved one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.conversation.turns import Conversation, Turn
from localspec.errors import LocalspecError

if TYPE_CHECKING:
    from localspec_tui.screens.chat import ChatScreen


class ConversationSwitch:
    """Gives the engine thread another conversation, and shows it once the thread has it."""

    def __init__(self, screen: "ChatScreen") -> None:
        self._screen = screen
        # The variant that was asked for last; the screen shows it once the thread has it.
        self._variant: Turn | None = None

    def begin(self, system: str | None) -> None:
        """Begin the chat with the empty conversation on the screen, and this system prompt."""
        self._screen.chat.settings.system = system
        self._screen.pending_changes.append(lambda: None)
        self._screen.chat.engine_thread.reset(self._screen.conversation, system)

    def begin_new(self) -> None:
        """Start an empty conversation. What is in the text box stays there."""
        chat, conversation = self._screen.chat, Conversation()

        def take_over() -> None:
            chat.save_unsent("")
            chat.autosave.start_session(conversation)

        self._switch(conversation, chat.settings.system, take_over, key=None)
        self._screen.composer.focus()

    def resume(
        self,
        key: str,
        system: str | None = None,
        *,
        at_start: bool = False,
        found: str | None = None,
    ) -> None:
        """Continue a saved session. system: replaces its system prompt; None keeps it.

        at_start: whether the chat begins with it, with settings that are chosen already. found: key
        of the turn to show; None for the last.
        """
        screen, chat = self._screen, self._screen.chat
        try:
            session = chat.archive.open(key)
        except LocalspecError as error:
            screen.view.note(str(error), warning=True)
            return

        def take_over() -> None:
            if not at_start:
                screen.unsent.leave()
            chat.autosave.resume_session(session)

        def then() -> None:
            screen.event_handler.note_archive_problem()
            screen.unsent.put_back(session.unsent)
            if not at_start:
                ready = screen.event_handler.ready
                for line in chat.settings.continue_as_saved(session, ready):
                    screen.view.note(line, warning=True)
            if found:
                self.go_to(found)

        system = session.system if system is None else system
        self._switch(session.conversation, system, take_over, then, key=key)

    def go_to(self, key: str) -> None:
        """Show the turn with this key, or say that it is on another branch."""
        screen = self._screen
        turn = next((each for each in screen.conversation.turns if each.key == key), None)
        if turn:
            screen.view.go_to(turn)
        else:
            screen.view.note("what was found is in another variant: ←/→ on a message switch")

    def choose_variant(self, turn: Turn, step: int) -> None:
        """Continue another variant of a turn. step: 1 for the next, -1 for the one before."""
        screen, variants = self._screen, self._screen.conversation.variants(turn)
        if screen.pending_changes and self._variant and self._variant in variants:
            turn = self._variant
        variant = variants[(variants.index(turn) + step) % len(variants)]

        def chosen() -> None:
            screen.view.show(screen.conversation.turns)
            screen.view.focus_turn(variant)
            screen.chat.autosave.save_branch(screen.conversation.last)

        if variant is not turn:
            self._variant = variant
            screen.pending_changes.append(chosen)
            screen.chat.engine_thread.choose(variant)

    def _switch(
        self,
        conversation: Conversation,
        system: str | None,
        take_over: Callable[[], None],
        then: Callable[[], None] = lambda: None,
        *,
        key: str | None,
    ) -> None:
        """Continue another conversation.

        take_over: called once the engine thread has it; makes it the current one. then: called
        after it is shown. key: of a saved one.
        """
        screen = self._screen
        screen.chat.settings.system = system
        screen.outbox.hold("written in another conversation")

        def switched() -> None:
            take_over()
            if conversation.turns:
                screen.composer.suggest_first_message("")
            if screen.view.turn_entries:
                screen.view.clear()
            screen.view.show(conversation.turns)
            screen.view.follow_end()
            then()

        screen.pending_changes.append(switched)
        left = screen.chat.autosave.kept
        screen.chat.engine_thread.reset(conversation, system, key=key, left=left)
