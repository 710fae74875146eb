"""Chat commands: what the slash commands do, in the chat and in the plain chat."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from localspec.conversation.thinking import effort_variables, thinking_variables
from localspec.conversation.turns import Turn
from localspec.conversation.window import last_question
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.utils.reasoning_levels import EFFORTS
from localspec.utils.similar_names import did_you_mean
from localspec_tui.attachments import with_images_of
from localspec_tui.autosave import Autosave
from localspec_tui.engine_events import ModelReady
from localspec_tui.engine_thread import EngineThread
from localspec_tui.export import export_session
from localspec_tui.sampling_defaults import SAMPLING_DEFAULTS, Recommended
from localspec_tui.sampling_values import DEFAULT, in_words, parse_setting, sampling_value
from localspec_tui.session_settings import with_variables
from localspec_tui.settings_switch import SettingsSwitch
from localspec_tui.slash_commands import ALIASES, COMMANDS, as_message, drafters_of, parse, path_of


class Chat(Protocol):
    """What commands work on."""

    engine_thread: EngineThread
    autosave: Autosave
    settings: SettingsSwitch


class ChatCommands(ABC):
    """Runs commands. What a chat does in its own way is in its subclass.

    ready: the loaded model, if there is one. own: what further commands do with their argument,
    by name. without: what commands do that need an argument and have none, or why they cannot.
    """

    def __init__(
        self,
        chat: Chat,
        ready: ModelReady | None,
        own: Mapping[str, Callable[[str], None]],
        without: Mapping[str, Callable[[], None] | str],
    ) -> None:
        self._chat, self._ready, self._without = chat, ready, without
        self._actions: Mapping[str, Callable[[str], None]] = {
            "/edit": self._edit,
            "/edit-answer": self._edit_answer,
            "/system": self._system,
            "/model": self._model,
            "/draft": self._draft,
            "/set": self._set,
            "/think": self._think,
            "/drop-oldest": self._drop_oldest,
            "/save": self._save,
            **own,
        }

    @abstractmethod
    def note(self, line: str) -> None:
        """Tell the user something."""

    @abstractmethod
    def change(self, turn: Turn, text: str) -> None:
        """Put another text, as it was typed, in place of a turn. text: empty asks for one."""

    def run(self, text: str) -> None:
        """Run a command. Raises LocalspecError if that is not possible."""
        name, argument = parse(text)
        if name not in self._actions and os.path.exists(path := text.strip()):
            what = "a folder; name a file in it" if os.path.isdir(path) else "a file; name it"
            raise InvalidValueError(
                f"{path} is {what} after @, or begin it with // to send it as a message"
            )
        if name not in self._actions:
            raise InvalidValueError(
                f"there is no command {name}; {self._instead_of(name)} To send it as a message, "
                "begin it with //"
            )
        if argument and name in COMMANDS:
            raise InvalidValueError(
                f"{name} takes nothing behind it, and there is {argument!r}; to send this as a "
                "message, begin it with //"
            )
        without = None if argument else self._without.get(name)
        if without is None:
            self._actions[name](argument)
        elif isinstance(without, str):
            raise InvalidValueError(f"{name}: {without}")
        else:
            without()

    def _instead_of(self, name: str) -> str:
        """What to type in place of a command that there is not."""
        known = [*self._actions, *ALIASES]
        if not any(each.startswith(name) for each in known):
            settings = (each for each in SAMPLING_DEFAULTS if each.startswith(name[1:]))
            if name[1:] and (setting := next(settings, None)):
                return f"/set {setting} VALUE sets it."
        return did_you_mean(name, known, most=1) or "/help lists them."

    @property
    def _turns(self) -> Sequence[Turn]:
        return self._chat.autosave.conversation.turns

    def _question(self) -> Turn:
        """The last message."""
        if not any(turn.role == "user" for turn in self._turns):
            raise InvalidValueError("there is no message yet; send one first")
        return self._turns[last_question(self._turns)]

    def _edit(self, text: str) -> None:
        question = self._question()
        self.change(question, with_images_of(question, text) if text else "")

    def _edit_answer(self, text: str) -> None:
        answer = next((turn for turn in reversed(self._turns) if turn.role == "assistant"), None)
        if answer is None:
            raise InvalidValueError("there is no answer yet; send a message first")
        if answer.stop_reason is None:
            raise InvalidValueError("the answer is still being written; stop it first")
        self.change(answer, as_message(text))

    def _system(self, text: str) -> None:
        system = None if text.strip() in ('""', "''") else as_message(text)
        self._chat.settings.change_system(system)
        self.note(f"system prompt: {system or 'none'}")

    def _model(self, name: str) -> None:
        settings = self._chat.settings
        settings.apply(path_of(name), settings.current)

    def _draft(self, drafters: str) -> None:
        settings = self._chat.settings
        settings.apply(settings.model, replace(settings.current, draft=drafters_of(drafters)))

    @property
    def models_own(self) -> Mapping[str, Recommended] | None:
        """The sampling values that the loaded model recommends; None if none is loaded."""
        return self._ready.sampling if self._ready else None

    def _set(self, argument: str) -> None:
        name, typed = parse_setting(argument)
        settings = self._chat.settings
        chosen = {**settings.current.sampling}
        if typed:
            chosen.pop(name, None)
            if typed != DEFAULT:
                chosen[name] = sampling_value(name, typed)
            GenerationConfig.of(**chosen)
            settings.apply(settings.model, replace(settings.current, sampling=chosen))
        from_now = " from the next answer on" if typed else ""
        self.note(f"{name}{from_now}: {in_words(name, chosen, self.models_own)}")

    def _think(self, choice: str) -> None:
        settings, variables = self._chat.settings, self._reasoning(choice)
        self._chat.engine_thread.set_thinking(variables)
        options = with_variables(settings.current.session_options, variables)
        settings.current = replace(settings.current, session_options=options)
        what = "reasoning effort" if choice in EFFORTS else "reasoning"
        self.note(f"{what} is {choice} from the next answer on")

    def _reasoning(self, choice: str) -> Mapping[str, Any]:
        """The variables that switch the model's reasoning, or say how much it is."""
        ready, its = self._ready, "the chat template of this model"
        levels = ready is not None and ready.reads_effort
        is_level = choice in EFFORTS
        more = ", or how much: low, medium, high" if levels else ""
        on = not is_level and _is_on("/think", choice, more)
        if ready is None:
            raise InvalidValueError("no model is loaded; choose one")
        if is_level and not levels:
            way_out = "; say /think on or /think off" if ready.has_thinking_switch else ""
            raise InvalidValueError(f"{its} knows no levels of reasoning{way_out}")
        if not is_level and not ready.has_thinking_switch:
            way_out = "; /think low or /think high says how much" if levels else ""
            raise InvalidValueError(f"{its} has no switch for reasoning{way_out}")
        return effort_variables(choice) if is_level else thinking_variables(on)

    def _drop_oldest(self, choice: str) -> None:
        drop, settings = _is_on("/drop-oldest", choice), self._chat.settings
        settings.apply(settings.model, replace(settings.current, drop_oldest=drop))
        what = "drops the oldest messages" if drop else "ends the answer"
        self.note(f"a full context {what} from now on")

    def _save(self, path: str) -> None:
        self.note(export_session(self._chat.autosave.current, path_of(path)))


def _is_on(command: str, choice: str, more: str = "") -> bool:
    if choice not in ("on", "off"):
        raise InvalidValueError(
            f"{command} {choice}".rstrip() + f": say {command} on or {command} off{more}"
        )
    return choice == "on"
