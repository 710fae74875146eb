"""Chat app: what there is once, whatever screen is shown."""

import asyncio
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES
from textual.widget import Widget
from textual.widgets import Input, TextArea

from localspec.models import registry
from localspec.models.pair_finder import pair_of
from localspec_tui.archive import Archive
from localspec_tui.autosave import Keeper
from localspec_tui.clipboard import to_clipboard
from localspec_tui.code_blocks import last_code
from localspec_tui.engine_events import Ready
from localspec_tui.glyphs import PlainGlyphs
from localspec_tui.launch_options import Start
from localspec_tui.log_lines import LogLines
from localspec_tui.messages import model_name
from localspec_tui.preferences import Preferences
from localspec_tui.screens.chat import ChatScreen
from localspec_tui.screens.help import Groups, HelpScreen, listed
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.screens.settings import SAMPLING, Chosen, SettingsScreen
from localspec_tui.screens.system import SystemScreen
from localspec_tui.widgets.composer import Composer
from localspec_tui.widgets.conversation_view import ConversationView
from localspec_tui.widgets.turn_view import TurnView
from localspec_tui.worker import Worker

# Seconds within which ctrl+c has to come twice.
_TWICE = 2.0


class ChatApp(App[None]):
    """The worker, the archive and what was chosen; screens are given them here.

    glyphs: the encoding of a terminal that has not all of Unicode.
    main: the conversation's screen, whatever lies over it. chosen: what holds now. system: what the
    model is told before everything else.
    """

    TITLE = "localspec"
    CSS_PATH = "chat.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 (as Textual has it)
    VERTICAL_BREAKPOINTS = [(0, "-low"), (16, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "keys", "Help", tooltip="what every key does"),
        Binding("ctrl+c", "leave", "Stop or quit", tooltip="twice", show=False, priority=True),
        Binding(
            "ctrl+p",
            "command_palette",
            "palette",
            tooltip="what there is, by name",
            show=False,
            priority=True,
        ),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(
        self, worker: Worker, archive: Archive, start: Start, *, glyphs: str | None = None
    ) -> None:
        # Without colours, whatever the theme, but those of the terminal.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self.worker = worker
        self.archive = archive
        self.keeper = Keeper(archive)
        self.log_lines = LogLines()
        self.system = start.system
        self.chosen = Chosen(start.model, start.draft, start.sampling)
        self.main = ChatScreen()
        self._good = self.chosen
        self._start = start
        self._preferences = Preferences.read()
        self._plain = PlainGlyphs(glyphs) if glyphs else None
        self._asked_to_leave = float("-inf")

    # Life.

    def get_default_screen(self) -> Screen[None]:
        """The conversation."""
        return self.main

    def on_mount(self) -> None:
        theme = self._start.theme or self._preferences.theme
        if theme in BUILTIN_THEMES:
            self.theme = theme
        self.theme_changed_signal.subscribe(self, lambda new: self._remember(theme=new.name))
        self.log_lines.attach()
        self._listen()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """Show what was said before, and load, now that something is on the screen."""
        start, screen = self._start, self.main
        for note in filter(None, (*start.notes, self.archive.problem)):
            screen.view.note(note, warning=True)
        if start.session:
            screen.resume(start.session, start.system)
        else:
            screen.begin(start.system)
        self.worker.load(
            start.model, start.draft, when_full="stop", **start.runtime, **start.sampling
        )

    def _listen(self) -> None:
        """End in good order where the terminal is closed, or somebody asks for it."""
        for name in ("SIGTERM", "SIGHUP"):
            # Windows has neither.
            with suppress(NotImplementedError, AttributeError, RuntimeError):
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(getattr(signal, name), self.exit)

    @property
    def is_loading(self) -> bool:
        """Whether a model is being loaded, for the end of which nobody has to wait."""
        return self.main.reports.state == "loading"

    def on_unmount(self) -> None:
        if not self.is_loading:
            self.worker.close()
        for happening in self.worker.drain():
            self.keeper.hear(happening)
        self.keeper.save()
        self.archive.close()
        self.log_lines.detach()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Those of Textual, and what a terminal without Unicode needs."""
        plain = [self._plain] if self._plain else []
        return [*super().get_line_filters(), *plain]

    # What was chosen.

    def use(self, chosen: Chosen) -> None:
        """Go on with another model, drafters or sampling, as far as they are others."""
        now, self.chosen = self.chosen, chosen
        sampling = {name: chosen.sampling.get(name) for name in SAMPLING}
        self.worker.switch(
            chosen.model or _bundled() if chosen.model != now.model else None,
            chosen.draft if chosen.draft != now.draft else None,
            when_full="drop" if chosen.drop else "stop",
            **sampling,
        )

    def now_ready(self, ready: Ready) -> None:
        """This model answers from here on."""
        self.chosen = self._good = replace(self.chosen, model=ready.model)
        self.main.composer.border_subtitle = model_name(ready.model)
        self._remember(model=None if ready.bundled else ready.model)

    def not_switched(self) -> None:
        """What was chosen last does not hold; what was before it does."""
        self.chosen = self._good

    def _remember(self, **changed: str | None) -> None:
        try:
            self._preferences = self._preferences.remember(**changed)
        except OSError as error:
            self.main.view.note(f"what you choose is not remembered: {error.strerror}")

    # The clipboard.

    def copy(self, text: str, *, code: bool) -> None:
        """Copy a message, or the last block of code in it."""
        copied = last_code(text) if code else text
        if copied is None:
            self.notify("there is no block of code in it", timeout=2)
            return
        self.copy_to_clipboard(copied)
        self.run_worker(partial(to_clipboard, copied), thread=True)
        self.notify(f"copied: {len(copied):,} letters", timeout=2)

    # Keys.

    async def action_leave(self) -> None:
        """Copy what is selected; else stop what runs, and quit the second time."""
        if selected := self._selected:
            self.copy(selected, code=False)
            return
        self.worker.stop()
        if monotonic() - self._asked_to_leave < _TWICE:
            self.exit()
        self._asked_to_leave = monotonic()
        self.notify("ctrl+c again quits", timeout=_TWICE)

    @property
    def _selected(self) -> str | None:
        focused = self.focused
        if isinstance(focused, (Input, TextArea)):
            return focused.selected_text
        return self.screen.get_selected_text()

    def action_keys(self) -> None:
        """What every key does."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(groups()))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Everything there is a key for, and the themes."""
        yield SystemCommand("Theme", "Other colours", self.action_change_theme)
        for node in self._actors(screen):
            for binding in listed(node.BINDINGS):
                key = self.get_key_display(binding)
                about = f"{key}: {binding.tooltip}" if binding.tooltip else key
                run = partial(node.run_action, binding.action)
                yield SystemCommand(binding.description, about, run)

    def _actors(self, screen: Screen[Any]) -> Iterator[App[Any] | Screen[Any] | Widget]:
        """Whatever has keys of its own just now."""
        yield screen
        if isinstance(screen, ChatScreen):
            yield from (screen.view, screen.composer)
            if screen.view.chosen:
                yield screen.view.chosen
        yield self


def groups() -> Groups:
    """All keys of the chat, by where they hold; those of Textual are the last."""
    owners: dict[str, type[DOMNode]] = {
        "Everywhere": ChatApp,
        "The conversation": ChatScreen,
        "The text box": Composer,
        "A message that has the focus": ConversationView,
        "Sessions": SessionsScreen,
        "Model and sampling": SettingsScreen,
        "System prompt and presets": SystemScreen,
        "Going about": Screen,
        "Editing text": TextArea,
    }
    found = {title: owner.BINDINGS for title, owner in owners.items()}
    found["A message that has the focus"] = [*ConversationView.BINDINGS, *TurnView.BINDINGS]
    return found


def _bundled() -> str | Path:
    """The pair that comes along, by a name that loads it."""
    path = registry.bundled().target
    pair = pair_of(path)
    return pair.name if pair else path
