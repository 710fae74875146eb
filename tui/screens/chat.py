"""Chat: the conversation, and the box in which it goes on."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.screen import Screen
from textual.widgets import Footer

from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError, LocalspecError
from localspec_tui.attachments import completions, expand
from localspec_tui.presets import Preset
from localspec_tui.reports import Reports
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.screens.settings import Chosen, SettingsScreen
from localspec_tui.screens.system import SystemScreen
from localspec_tui.widgets.composer import Composer
from localspec_tui.widgets.conversation_view import ConversationView
from localspec_tui.widgets.live_panel import LivePanel
from localspec_tui.widgets.progress_line import ProgressLine
from localspec_tui.widgets.status_line import StatusLine
from localspec_tui.widgets.turn_view import TurnView

if TYPE_CHECKING:
    from localspec_tui.app import ChatApp

# Seconds between saving what is being written.
SAVED_EVERY = 1.0
_FRAMES, _LOOKS = 20, 2


def _complete(line: str) -> str:
    """What is missing of the path that a line ends with."""
    before, at, begun = line.rpartition("@")
    if not at or (before and not before[-1].isspace()):
        return ""
    found = completions(begun, Path.cwd())
    return found[0].removeprefix(begun) if found and found[0].startswith(begun) else ""


class ChatScreen(Screen[None]):
    """Orders go to the worker; what it reports comes back through `Reports`, 20 times a second."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", tooltip="what was said so far stays"),
        Binding("escape", "back", "Back", tooltip="to the text box"),
        Binding("ctrl+r", "regenerate", "Regenerate", tooltip="this answer stays as a variant"),
        Binding("ctrl+n", "new", "New chat", tooltip="this one is kept"),
        Binding("ctrl+o", "sessions", "Sessions", tooltip="past ones: find, open, save, delete"),
        Binding("ctrl+s", "settings", "Model", tooltip="what drafts for it, and sampling"),
        Binding("f2", "system", "System prompt", tooltip="and presets", show=False),
        Binding("ctrl+t", "origins", "Origin view", tooltip="who wrote each token", show=False),
        Binding("ctrl+b", "compare", "Compare", tooltip="with plain decoding", show=False),
        Binding("ctrl+l", "panel", "Live panel", tooltip="what drafting does", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.conversation = Conversation()
        self.reports = Reports(self)
        self.show_origins = False
        # What is to be done when the worker says that the conversation has changed.
        self.upon_change: deque[Callable[[], None]] = deque()
        # The text that was sent last, to be put back where it is refused.
        self.sent = ""
        # What is asked otherwise, and what was in the box before.
        self._edited: Turn | None = None
        self._draft = ""

    def compose(self) -> ComposeResult:
        with Container(id="upper"):
            yield LivePanel(id="panel")
            with Vertical():
                yield ConversationView(self._view, id="conversation")
                yield ProgressLine(id="progress")
                yield Composer(_complete, id="composer")
        yield StatusLine(id="status")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(LivePanel).display = False
        self.set_interval(1 / _FRAMES, self.reports.take)
        self.set_interval(1 / _LOOKS, self.show_state)
        self.set_interval(SAVED_EVERY, self.chat.keeper.save)
        self.composer.focus()

    @property
    def chat(self) -> "ChatApp":
        """The app."""
        return cast("ChatApp", self.app)

    @property
    def view(self) -> ConversationView:
        """The conversation."""
        return self.query_one(ConversationView)

    @property
    def composer(self) -> Composer:
        """The box."""
        return self.query_one(Composer)

    @property
    def progress(self) -> ProgressLine:
        """What is waited for."""
        return self.query_one(ProgressLine)

    def show_state(self) -> None:
        """Speed, acceptance and context, as they are now."""
        worker, ready = self.chat.worker, self.reports.ready
        stats, session = worker.stats, worker.session
        if ready is None:
            return
        self.query_one(StatusLine).show(
            stats,
            session.gauge if session else None,
            worker.plain_seconds,
            ready.draft,
            ready.reason,
            self.reports.state,
        )
        panel = self.query_one(LivePanel)
        if panel.display:
            views = self.view.views
            panel.show(stats, worker.plain_seconds, views[-1].drafter if views else None)

    def begin(self, system: str | None) -> None:
        """Tell the worker what the conversation on the screen is, and this system prompt."""
        self.chat.system = system
        self.upon_change.append(lambda: None)
        self.chat.worker.reset(self.conversation, system)

    def open(
        self, conversation: Conversation, system: str | None, then: Callable[[], None]
    ) -> None:
        """Go on with this conversation. then: what is to be done once that is so."""
        self.chat.system = system

        def opened() -> None:
            then()
            self.conversation = conversation
            if self.view.views:
                self.view.clear()
            self.view.show(conversation.turns)
            self.view.follow()

        self.upon_change.append(opened)
        self.chat.worker.reset(conversation, system)

    def _view(self, turn: Turn) -> TurnView:
        variants = self.conversation.variants(turn)
        view = TurnView(
            turn,
            variant=(variants.index(turn) + 1, len(variants)),
            runs=self.chat.keeper.origins.get(turn.key, ()),
            markdown=self.reports.ready is None or self.reports.ready.has_template,
        )
        view.show_origins(self.show_origins)
        return view

    # Saying something.

    @on(Composer.Sent)
    def _send(self, event: Composer.Sent) -> None:
        self.sent = event.text
        try:
            text, _ = expand(event.text, Path.cwd())
        except InvalidValueError as error:
            self.refuse(str(error))
            return
        edited = self._edited
        self._end_edit()
        if edited and edited in self.conversation.turns:
            self.chat.worker.edit(self.conversation.turns.index(edited), text)
        else:
            self.chat.worker.send(text)
        self.view.follow()

    def send_again(self) -> None:
        """What was refused."""
        self.composer.action_send()

    def _end_edit(self) -> None:
        self._edited = None
        self.composer.border_title = ""

    def refuse(self, problem: str) -> None:
        """Nothing was said: put the text back, and say why."""
        self.view.note(problem, warning=True)
        if not self.composer.text:
            self.composer.write(self.sent)

    @on(ConversationView.Edited)
    def _edit(self, event: ConversationView.Edited) -> None:
        if self._edited is None:
            self._draft = self.composer.text
        self._edited = event.turn
        self.composer.border_title = "Ask it otherwise (Esc leaves it)"
        self.composer.write(event.turn.content)

    @on(ConversationView.Varied)
    def _vary(self, event: ConversationView.Varied) -> None:
        variants = self.conversation.variants(event.turn)
        wanted = variants[(variants.index(event.turn) + event.by) % len(variants)]
        if wanted is event.turn or self.chat.worker.busy:
            return
        self.upon_change.append(lambda: self._varied(wanted))
        self.chat.worker.choose(wanted)

    def _varied(self, turn: Turn) -> None:
        self.view.show(self.conversation.turns)
        self.view.focus_on(turn)
        self.chat.keeper.chose(self.conversation.last)

    @on(ConversationView.Copied)
    def _copy(self, event: ConversationView.Copied) -> None:
        self.chat.copy(event.turn.content, code=event.code)

    @on(Composer.Left)
    def _to_messages(self) -> None:
        self.view.action_go(-1)

    @on(ConversationView.Left)
    def _to_composer(self) -> None:
        self.composer.focus()

    # Keys.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key does anything now, and is shown."""
        match action:
            case "stop":
                return self.chat.worker.busy
            case "back":
                away = self._edited is not None or not self.composer.has_focus
                return away and not self.chat.worker.busy
            case "regenerate" | "compare":
                return bool(self.conversation.turns)
        return True

    def action_stop(self) -> None:
        """End what is written."""
        self.chat.worker.stop()

    def action_back(self) -> None:
        """To the text box; what was to be asked otherwise stays as it is."""
        if self._edited:
            self._end_edit()
            self.composer.load_text(self._draft)
        self.composer.focus()

    def action_regenerate(self) -> None:
        """Another answer."""
        self.chat.worker.regenerate()
        self.view.follow()

    def action_compare(self) -> None:
        """The last answer, plainly."""
        self.reports.state = "comparing"
        self.progress.wait("writing the last answer again without drafts; Esc leaves it")
        self.chat.worker.compare()

    def action_origins(self) -> None:
        """Show where tokens are from, or text again."""
        self.show_origins = not self.show_origins
        for view in self.view.views:
            view.show_origins(self.show_origins)

    def action_panel(self) -> None:
        """Show or hide what drafting does just now."""
        panel = self.query_one(LivePanel)
        panel.display = not panel.display
        self.show_state()

    def action_new(self) -> None:
        """Begin another conversation."""
        self.open(Conversation(), self.chat.system, self.chat.keeper.begin)
        self.composer.focus()

    def action_sessions(self) -> None:
        """Go on with one of the past."""

        def chosen(key: str | None) -> None:
            if key and key != self.chat.keeper.key:
                self.resume(key)

        self.app.push_screen(SessionsScreen(self.chat.archive, self.chat.keeper.key), chosen)

    def resume(self, key: str, system: str | None = None) -> None:
        """Go on with a session of the past. system: instead of the one that it had."""
        try:
            opened = self.chat.archive.open(key)
        except LocalspecError as error:
            self.view.note(str(error), warning=True)
            return
        told = opened.system if system is None else system
        self.open(opened.conversation, told, lambda: self.chat.keeper.go_on(opened))

    def action_settings(self) -> None:
        """Another model, another drafter, another sampling."""
        self.ask_settings()

    def ask_settings(self, problem: str = "") -> None:
        """problem: why they are asked for."""
        if any(isinstance(screen, SettingsScreen) for screen in self.app.screen_stack):
            return
        self.app.push_screen(SettingsScreen(self.chat.chosen, problem), self._use)

    def _use(self, chosen: Chosen | None) -> None:
        if chosen:
            self.chat.use(chosen)

    def action_system(self) -> None:
        """Another system prompt, or a preset."""

        def used(preset: Preset | None) -> None:
            if preset is None:
                return
            self.chat.use(replace(self.chat.chosen, sampling=preset.options))
            self.begin(preset.system)

        self.app.push_screen(
            SystemScreen(Preset(self.chat.system, self.chat.chosen.sampling)), used
        )
