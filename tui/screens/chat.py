"""Chat screen: the conversation, and the composer below it."""

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
from localspec_tui.attachments import attach_files, complete_path
from localspec_tui.event_handler import EngineEventHandler
from localspec_tui.presets import Preset
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.screens.settings import ChatSettings, SettingsScreen
from localspec_tui.screens.system_prompt import SystemPromptScreen
from localspec_tui.widgets.composer import Composer
from localspec_tui.widgets.conversation_view import ConversationView
from localspec_tui.widgets.live_panel import LivePanel
from localspec_tui.widgets.progress_line import ProgressLine
from localspec_tui.widgets.status_line import Status, StatusLine
from localspec_tui.widgets.turn_view import TurnView

if TYPE_CHECKING:
    from localspec_tui.app import ChatApp

# Seconds between two saves of an answer that is being written.
SAVE_INTERVAL = 1.0
# Times per second: engine events are handled, the status line and the live panel are updated.
_EVENT_RATE, _STATUS_RATE = 20, 2


def _complete_attachment(line: str) -> str:
    """The rest of the path at the end of a line that begins with @; empty if nothing matches."""
    before, at, prefix = line.rpartition("@")
    if not at or (before and not before[-1].isspace()):
        return ""
    paths = complete_path(prefix, Path.cwd())
    return paths[0].removeprefix(prefix) if paths and paths[0].startswith(prefix) else ""


class ChatScreen(Screen[None]):
    """Puts commands into the engine thread, and shows the events that come back.

    conversation: the one on the screen. show_origins: whether answers are in origin view.
    pending_changes: one callback for each ConversationChanged event that is still to come.
    sent_text: the last message, to be put back into the composer if it is refused.
    """

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
        self.event_handler = EngineEventHandler(self)
        self.show_origins = False
        self.pending_changes: deque[Callable[[], None]] = deque()
        self.sent_text = ""
        # The question that is being edited, and the text of the composer before that.
        self._edited_turn: Turn | None = None
        self._unsent_text = ""

    def compose(self) -> ComposeResult:
        with Container(id="upper"):
            yield LivePanel(id="panel")
            with Vertical():
                yield ConversationView(self._make_turn_view, id="conversation")
                yield ProgressLine(id="progress")
                yield Composer(_complete_attachment, id="composer")
        yield StatusLine(id="status")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(LivePanel).display = False
        self.set_interval(1 / _EVENT_RATE, self.event_handler.poll)
        self.set_interval(1 / _STATUS_RATE, self.update_status)
        self.set_interval(SAVE_INTERVAL, self.chat.autosave.save_answer)
        self.composer.focus()

    @property
    def chat(self) -> "ChatApp":
        """The app."""
        return cast("ChatApp", self.app)

    @property
    def view(self) -> ConversationView:
        """The conversation view."""
        return self.query_one(ConversationView)

    @property
    def composer(self) -> Composer:
        """The text box."""
        return self.query_one(Composer)

    @property
    def progress(self) -> ProgressLine:
        """The progress line."""
        return self.query_one(ProgressLine)

    def update_status(self) -> None:
        """Show the current speed, acceptance rate and context in the status line and live panel."""
        engine_thread, ready = self.chat.engine_thread, self.event_handler.ready
        stats, session = engine_thread.stats, engine_thread.session
        if ready is None:
            return
        self.query_one(StatusLine).show(
            Status(
                stats,
                session.gauge if session else None,
                engine_thread.plain_seconds,
                ready.draft,
                ready.reason,
                self.event_handler.state,
            )
        )
        panel = self.query_one(LivePanel)
        if panel.display:
            turn_views = self.view.turn_views
            drafter = turn_views[-1].latest_drafter if turn_views else None
            panel.show(stats, engine_thread.plain_seconds, drafter)

    def set_system_prompt(self, system: str | None) -> None:
        """Continue the conversation on the screen with this system prompt."""
        self.chat.system = system
        self.pending_changes.append(lambda: None)
        self.chat.engine_thread.reset(self.conversation, system)

    def switch_conversation(
        self, conversation: Conversation, system: str | None, then: Callable[[], None]
    ) -> None:
        """Continue another conversation. then: called once the engine thread has it."""
        self.chat.system = system

        def switched() -> None:
            then()
            self.conversation = conversation
            if self.view.turn_views:
                self.view.clear()
            self.view.show(conversation.turns)
            self.view.follow_end()

        self.pending_changes.append(switched)
        self.chat.engine_thread.reset(conversation, system)

    def _make_turn_view(self, turn: Turn) -> TurnView:
        variants, ready = self.conversation.variants(turn), self.event_handler.ready
        view = TurnView(
            turn,
            variant=(variants.index(turn) + 1, len(variants)),
            origins=self.chat.autosave.origins.get(turn.key, ()),
            markdown=ready is None or ready.has_template,
        )
        view.show_origins(self.show_origins)
        return view

    # Messages of the composer and of the conversation view.

    @on(Composer.Sent)
    def _send(self, event: Composer.Sent) -> None:
        self.sent_text = event.text
        try:
            text, _ = attach_files(event.text, Path.cwd())
        except InvalidValueError as error:
            self.return_message(str(error))
            return
        edited = self._edited_turn
        self._end_edit()
        if edited and edited in self.conversation.turns:
            self.chat.engine_thread.edit(self.conversation.turns.index(edited), text)
        else:
            self.chat.engine_thread.send(text)
        self.view.follow_end()

    def return_message(self, problem: str) -> None:
        """Put a refused message back into the composer. problem: why it was refused."""
        self.view.note(problem, warning=True)
        if not self.composer.text:
            self.composer.set_text(self.sent_text)

    @on(ConversationView.EditRequested)
    def _edit(self, event: ConversationView.EditRequested) -> None:
        if self._edited_turn is None:
            self._unsent_text = self.composer.text
        self._edited_turn = event.turn
        self.composer.border_title = "Ask it otherwise (Esc leaves it)"
        self.composer.set_text(event.turn.content)

    def _end_edit(self) -> None:
        self._edited_turn = None
        self.composer.border_title = ""

    @on(ConversationView.VariantRequested)
    def _switch_variant(self, event: ConversationView.VariantRequested) -> None:
        variants = self.conversation.variants(event.turn)
        variant = variants[(variants.index(event.turn) + event.step) % len(variants)]
        if variant is event.turn or self.chat.engine_thread.busy:
            return
        self.pending_changes.append(lambda: self._variant_switched(variant))
        self.chat.engine_thread.choose(variant)

    def _variant_switched(self, turn: Turn) -> None:
        self.view.show(self.conversation.turns)
        self.view.focus_turn(turn)
        self.chat.autosave.save_branch(self.conversation.last)

    @on(ConversationView.CopyRequested)
    def _copy(self, event: ConversationView.CopyRequested) -> None:
        self.chat.copy(event.turn.content, code=event.code)

    @on(Composer.Exited)
    def _focus_last_turn(self) -> None:
        self.view.action_move_focus(-1)

    @on(ConversationView.Exited)
    def _focus_composer(self) -> None:
        self.composer.focus()

    # Keys.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the key of an action works now, and is in the footer."""
        match action:
            case "stop":
                return self.chat.engine_thread.busy
            case "back":
                away = self._edited_turn is not None or not self.composer.has_focus
                return away and not self.chat.engine_thread.busy
            case "regenerate" | "compare":
                return bool(self.conversation.turns)
        return True

    def action_stop(self) -> None:
        """Stop the answer that is being written, or the loading of a model."""
        self.chat.engine_thread.stop()

    def action_back(self) -> None:
        """Focus the composer. An edit is given up."""
        if self._edited_turn:
            self._end_edit()
            self.composer.load_text(self._unsent_text)
        self.composer.focus()

    def action_regenerate(self) -> None:
        """Answer the last question again."""
        self.chat.engine_thread.regenerate()
        self.view.follow_end()

    def action_compare(self) -> None:
        """Generate the last answer again without drafts, and compare the two."""
        self.event_handler.state = "comparing"
        self.progress.show_action("writing the last answer again without drafts; Esc leaves it")
        self.chat.engine_thread.compare()

    def action_origins(self) -> None:
        """Turn the origin view on or off."""
        self.show_origins = not self.show_origins
        for view in self.view.turn_views:
            view.show_origins(self.show_origins)

    def action_panel(self) -> None:
        """Show or hide the live panel."""
        panel = self.query_one(LivePanel)
        panel.display = not panel.display
        self.update_status()

    def action_new(self) -> None:
        """Start an empty conversation."""
        self.switch_conversation(Conversation(), self.chat.system, self.chat.autosave.start_session)
        self.composer.focus()

    def action_sessions(self) -> None:
        """List the saved sessions, and resume the one that is chosen."""

        def chosen(key: str | None) -> None:
            if key and key != self.chat.autosave.key:
                self.resume(key)

        self.app.push_screen(SessionsScreen(self.chat.archive, self.chat.autosave.key), chosen)

    def resume(self, key: str, system: str | None = None) -> None:
        """Continue a saved session. system: replaces its system prompt; None keeps it."""
        try:
            session = self.chat.archive.open(key)
        except LocalspecError as error:
            self.view.note(str(error), warning=True)
            return
        self.switch_conversation(
            session.conversation,
            session.system if system is None else system,
            lambda: self.chat.autosave.resume_session(session),
        )

    def action_settings(self) -> None:
        """Open the settings."""
        self.open_settings()

    def open_settings(self, problem: str = "") -> None:
        """Open the settings, unless they are open. problem: why no model is loaded."""
        if any(isinstance(screen, SettingsScreen) for screen in self.app.screen_stack):
            return

        def chosen(settings: ChatSettings | None) -> None:
            if settings:
                self.chat.apply_settings(settings)

        self.app.push_screen(SettingsScreen(self.chat.settings, problem), chosen)

    def action_system(self) -> None:
        """Open the system prompt and the presets."""

        def chosen(preset: Preset | None) -> None:
            if preset:
                self.chat.apply_settings(replace(self.chat.settings, sampling=preset.options))
                self.set_system_prompt(preset.system)

        current = Preset(self.chat.system, self.chat.settings.sampling)
        self.app.push_screen(SystemPromptScreen(current), chosen)
