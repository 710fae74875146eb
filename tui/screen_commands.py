"""Screen commands: what the slash commands do on the chat screen."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from localspec.conversation.turns import Turn
from localspec.errors import InvalidValueError
from localspec_tui.export import export_session
from localspec_tui.screens.export_dialog import ask_export
from localspec_tui.session_settings import with_thinking
from localspec_tui.slash_commands import (
    answer_of,
    drafters_of,
    full_context_note,
    is_on,
    path_of,
    question_of,
    run_command,
    system_of,
    wants_thinking,
)

if TYPE_CHECKING:
    from localspec_tui.screens.chat import ChatScreen


class SlashCommands:
    """Runs commands on the chat screen."""

    def __init__(self, screen: "ChatScreen") -> None:
        self._screen = screen
        self._actions: Mapping[str, Callable[[str], None]] = {
            "/help": lambda _: self._screen.chat.action_help(),
            "/clear": lambda _: self._screen.switch.begin_new(),
            "/sessions": lambda _: self._screen.action_sessions(),
            "/find": lambda text: self._screen.search.open(text),
            "/regenerate": lambda _: self._regenerate(),
            "/edit": self._edit,
            "/edit-answer": self._edit_answer,
            "/copy": lambda _: self._copy(),
            "/system": self._system,
            "/drop-oldest": self._drop_oldest,
            "/continue": lambda _: self._screen.action_continue_answer(),
            "/model": self._model,
            "/draft": self._draft,
            "/think": self._think,
            "/save": self._save,
            "/quit": lambda _: self._screen.chat.exit(),
        }

    def run(self, text: str) -> None:
        """Run a command. Raises InvalidValueError for an unknown one."""
        run_command(text, self._actions)

    def _regenerate(self) -> None:
        """Answer the last question again."""
        self._last_question()
        self._screen.action_regenerate()

    def _edit(self, text: str) -> None:
        """Answer another text of the last question. text: empty puts the question into the box."""
        question = self._last_question()
        if text:
            self._screen.outbox.edit(question, text)
        else:
            self._screen.unsent.begin_edit(question)

    def _edit_answer(self, text: str) -> None:
        """Put a text in place of the last answer. text: empty puts the answer into the box."""
        turns = self._screen.conversation.turns
        answer = turns[answer_of(turns)]
        if text:
            self._screen.outbox.edit(answer, text)
        else:
            self._screen.unsent.begin_edit(answer)

    def _last_question(self) -> Turn:
        turns = self._screen.conversation.turns
        return turns[question_of(turns)]

    def _copy(self) -> None:
        """Copy the last answer."""
        turns = self._screen.conversation.turns
        answers = [turn.content for turn in turns if turn.role == "assistant"]
        if not answers:
            raise InvalidValueError("there is no answer to copy yet")
        self._screen.chat.copier.copy(answers[-1])

    def _system(self, text: str) -> None:
        """Set the system prompt. text: empty opens it."""
        if not text:
            self._screen.action_system()
            return
        system = system_of(text)
        self._screen.chat.settings.change_system(system)
        self._screen.view.note(f"system prompt from the next answer on: {system or 'none'}")

    def _drop_oldest(self, choice: str) -> None:
        """Choose what happens where the context is full."""
        settings, drop = self._screen.chat.settings, is_on("/drop-oldest", choice)
        settings.apply(settings.model, replace(settings.current, drop_oldest=drop))
        self._screen.view.note(full_context_note(drop=drop))

    def _model(self, name: str) -> None:
        """Switch to a model. name: empty opens the settings."""
        if not name:
            self._screen.action_settings()
            return
        settings = self._screen.chat.settings
        settings.apply(path_of(name), settings.current)

    def _draft(self, drafters: str) -> None:
        """Switch to these drafters. drafters: empty opens the settings."""
        if not drafters:
            self._screen.action_settings()
            return
        settings = self._screen.chat.settings
        settings.apply(settings.model, replace(settings.current, draft=drafters_of(drafters)))

    def _think(self, choice: str) -> None:
        """Switch reasoning on or off."""
        on = wants_thinking(choice, self._screen.event_handler.ready)
        self._screen.chat.engine_thread.set_thinking(on)
        settings = self._screen.chat.settings
        options = with_thinking(settings.current.session_options, on)
        settings.current = replace(settings.current, session_options=options)
        self._screen.view.note(f"reasoning is {choice} from the next answer on")

    def _save(self, path: str) -> None:
        """Save the conversation. path: empty asks for one."""
        session = self._screen.chat.autosave.current
        if path:
            self._screen.view.note(f"written: {export_session(session, path_of(path))}")
        else:
            ask_export(self._screen.chat, session)
