"""Chat screen: the conversation, and the composer below it."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widgets import Input, TextArea

from localspec.conversation.turns import Conversation, Turn
from localspec.conversation.unfinished import is_unfinished
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.format import counted
from localspec_tui.completion import completion, quoted_completion
from localspec_tui.conversation_search import ConversationSearch
from localspec_tui.conversation_switch import ConversationSwitch
from localspec_tui.dialogs import Dialogs
from localspec_tui.event_handler import EngineEventHandler
from localspec_tui.figures import RegularUpdates, show_figures
from localspec_tui.message_history import HISTORY_LENGTH, MessageHistory, recalled
from localspec_tui.message_size import MessageSize
from localspec_tui.outbox import Outbox
from localspec_tui.outside_editor import edit_outside
from localspec_tui.screen_commands import ScreenCommands
from localspec_tui.slash_commands import is_command
from localspec_tui.unsent_text import UnsentText
from localspec_tui.widgets.composer import Composer
from localspec_tui.widgets.conversation_view import ConversationView
from localspec_tui.widgets.key_bar import KeyBar
from localspec_tui.widgets.live_panel import LivePanel
from localspec_tui.widgets.message_queue import MessageQueue
from localspec_tui.widgets.origin_view import OriginLegend
from localspec_tui.widgets.progress_line import ProgressLine
from localspec_tui.widgets.status_line import StatusLine
from localspec_tui.widgets.thought_view import ThoughtView
from localspec_tui.widgets.turn_entry import TurnEntry

if TYPE_CHECKING:
    from localspec_tui.app import ChatApp

# Seconds between two saves of an answer that is being written.
SAVE_INTERVAL = 1.0
# Times per second that the status line and the live panel are updated.
_STATUS_RATE = 2
_LONG_TEXT = "or in the text box, while it has more lines than it shows"


class ChatScreen(Screen[None]):
    """Puts commands into the engine thread, and shows the events that come back.

    show_origins: whether answers are in origin view.
    pending_changes: one callback for each ConversationChanged event that is still to come.
    outbox: messages that are not in the conversation yet. unsent: the one that is being typed.
    message_size: counts the tokens of that one.
    history: those that Up brings back. composer: the text box. view: the conversation view.
    figures: update the status line and the live panel. dialogs: open other screens. switch: begins
    and continues conversations, and changes their branch. search: finds a text in this one.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop_queued", "Drop queued", tooltip="all messages that wait"),
        Binding("escape", "stop", "Stop", tooltip="the text so far stays"),
        Binding("escape", "back", "Back", tooltip="to the text box"),
        Binding("ctrl+r", "regenerate", "Regenerate", tooltip="this answer stays as a variant"),
        Binding("ctrl+g", "continue_answer", "Go on", tooltip="with an answer that was cut off"),
        Binding("ctrl+f", "find", "Find", tooltip="a text in this chat", show=False),
        Binding("ctrl+n", "new", "New chat", tooltip="this chat is kept"),
        Binding("ctrl+o", "sessions", "Sessions", tooltip="find, open, save, delete"),
        Binding("ctrl+s", "settings", "Model", tooltip="drafters and sampling"),
        Binding("f2", "system", "System prompt", tooltip="and presets", show=False),
        Binding("ctrl+t", "origins", "Origin view", tooltip="where each token is from", show=False),
        Binding("ctrl+b", "compare", "Compare", tooltip="with plain decoding", show=False),
        Binding("pageup", "scroll_view('page_up')", "Scroll up", tooltip=_LONG_TEXT, show=False),
        Binding(
            "pagedown", "scroll_view('page_down')", "Scroll down", tooltip=_LONG_TEXT, show=False
        ),
        Binding("ctrl+home", "scroll_view('scroll_home')", "First message", show=False),
        Binding("ctrl+end", "scroll_view('scroll_end')", "Last message", show=False),
        Binding("ctrl+l", "panel", "Live panel", tooltip="what drafting does", show=False),
    ]
    # Widgets draw what is selected in them; Textual would draw the whole screen at each move, too.
    _select_state = Reactive(None, repaint=False)

    def __init__(self) -> None:
        super().__init__()
        self.event_handler = EngineEventHandler(self)
        self.show_origins = False
        self.pending_changes: deque[Callable[[], None]] = deque()
        self.outbox = Outbox(self)
        self.unsent = UnsentText(self)
        self.message_size = MessageSize(self)
        self.history = MessageHistory(self._earlier_messages)
        # Its text is saved at the end, when the widget is not on the screen any more.
        self.composer = Composer(
            completion,
            self.unsent.objection,
            self.unsent.as_attachments,
            self.outbox.take_last,
            self.history,
            complete_quoted=quoted_completion,
            id="composer",
        )
        # Looked up for each token, and faster so than by a query.
        self.view = ConversationView(self._make_entry, id="conversation")
        self.figures = RegularUpdates(self.update_status)
        self.dialogs = Dialogs(self)
        self.switch = ConversationSwitch(self)
        self.search = ConversationSearch(self)

    def compose(self) -> ComposeResult:
        with Container(id="upper"):
            yield LivePanel(id="panel")
            with Vertical():
                yield self.view
                yield OriginLegend(id="legend")
                yield ProgressLine(id="progress")
                yield self.search.bar
                yield MessageQueue(id="queue")
                yield self.composer
        yield StatusLine(id="status")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(LivePanel).display = False
        self.query_one(OriginLegend).display = False
        self.set_interval(1 / _STATUS_RATE, self.figures.tick)
        self.set_interval(SAVE_INTERVAL, self._save)
        self.composer.focus()
        self.event_handler.poll_regularly()

    @property
    def chat(self) -> "ChatApp":
        """The app."""
        return cast("ChatApp", self.app)

    @property
    def conversation(self) -> Conversation:
        """The one on the screen."""
        return self.chat.autosave.conversation

    @property
    def queue(self) -> MessageQueue:
        """Where the messages that wait are shown."""
        return self.query_one(MessageQueue)

    @property
    def progress(self) -> ProgressLine:
        """The progress line."""
        return self.query_one(ProgressLine)

    def update_status(self) -> None:
        """Show the current speed, acceptance rate and context in the status line and live panel."""
        if self.event_handler.ready:
            show_figures(self)
            self.message_size.show()

    def _save(self) -> None:
        """Save what has changed within the last second. A session begins with a message.

        What could not be saved before is tried again.
        """
        self.chat.autosave.save_answer()
        self.chat.autosave.save_rest()
        has_key = self.chat.autosave.key is not None
        problem = self.chat.save_unsent(self.unsent.text) if has_key else None
        self.event_handler.note_archive_problem(problem and f"not saved yet: {problem}")

    @property
    def has_markdown(self) -> bool:
        """Whether answers are Markdown. Without a chat template, they are plain text."""
        ready = self.event_handler.ready
        return ready is None or ready.has_template

    def _make_entry(self, turn: Turn) -> TurnEntry:
        variants = self.conversation.variants(turn)
        entry = TurnEntry(
            turn,
            variant=(variants.index(turn) + 1, len(variants)),
            origins=self.chat.autosave.origins.get(turn.key),
            has_markdown=self.has_markdown,
        )
        entry.show_origins(self.show_origins)
        entry.mark(self.search.pattern, None)
        return entry

    def get_selected_text(self) -> str | None:
        """The text that is selected, also where it is not mounted any more."""
        return self.view.selection.text or super().get_selected_text()

    def on_text_selected(self) -> None:
        self.view.end_drag()

    # Messages of the composer and of the conversation view.

    @on(Composer.Sent)
    def _send(self, event: Composer.Sent) -> None:
        if self.unsent.is_lost:
            self.unsent.end_edit()
            self.unsent.keep_lost(event.text)
            return
        if not self.unsent.edits_answer:
            self.history.add(event.text)
        if edited := self.unsent.end_edit():
            self.outbox.edit(edited, event.text)
        elif is_command(event.text):
            self._run_command(event.text)
        else:
            self.outbox.send(event.text)

    def _run_command(self, text: str) -> None:
        try:
            ScreenCommands(self).run(text)
        except InvalidValueError as error:
            self.view.note(str(error), warning=True)
            self.view.follow_end()
            if not self.composer.text:
                self.composer.set_text(text)

    def _earlier_messages(self) -> Sequence[str]:
        try:
            return [recalled(each) for each in self.chat.archive.messages(HISTORY_LENGTH)]
        except LocalspecError:
            # The archive says what is wrong with it where it matters more.
            return ()

    @on(Composer.Objected)
    def _say_objection(self, event: Composer.Objected) -> None:
        self.view.note(event.problem, warning=True)
        self.view.follow_end()

    @on(Composer.Changed)
    def _count_tokens(self) -> None:
        self.message_size.text_changed()

    @on(Composer.SentNothing)
    def _send_queued(self) -> None:
        self.outbox.release()

    @on(ConversationView.EditRequested)
    def _edit(self, event: ConversationView.EditRequested) -> None:
        self.unsent.begin_edit(event.turn)

    @on(ConversationView.VariantRequested)
    def _switch_variant(self, event: ConversationView.VariantRequested) -> None:
        if not self._is_kept_busy():
            self.switch.choose_variant(event.turn, event.step)

    @on(ConversationView.CopyRequested)
    def _copy(self, event: ConversationView.CopyRequested) -> None:
        copier = self.chat.copier
        (copier.copy_code if event.code else copier.copy)(event.turn.content)

    @on(Composer.EditorRequested)
    def _write_in_editor(self) -> None:
        text, problem = edit_outside(self.app, self.composer.text)
        self.composer.set_text(text)
        if problem:
            self.view.note(problem, warning=True)

    @on(ThoughtView.Toggled)
    def _find_again(self) -> None:
        self.search.refresh()

    @on(Composer.Exited)
    def _focus_last_turn(self) -> None:
        self.view.action_move_focus(-1)

    @on(ConversationView.Exited)
    def _focus_composer(self) -> None:
        self.composer.focus()

    # Keys.

    def focus_for(self, event: events.Key | events.Paste) -> None:
        """Focus the composer if a key is a letter that nothing else here uses, or for a paste."""
        if not self.is_mounted or isinstance(self.focused, TextArea | Input):
            return
        is_command = isinstance(event, events.Key) and self.view.uses(event.key)
        if isinstance(event, events.Paste) or (event.is_printable and not is_command):
            self.set_focus(self.composer)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the key of an action works now, and is in the footer."""
        match action:
            case "drop_queued":
                return bool(self.outbox.queued)
            case "stop":
                return self.chat.engine_thread.busy
            case "back":
                away = self.unsent.edited is not None or not self.composer.has_focus
                return away and not self.chat.engine_thread.busy
            case "regenerate":
                return bool(self.conversation.turns)
            case "continue_answer":
                return is_unfinished(self.conversation.last)
        return True

    def key_ctrl_g(self) -> None:
        """Say why there is nothing to go on with."""
        self.key_ctrl_r()
        if self.conversation.turns and not self.check_action("continue_answer", ()):
            self.action_continue_answer()

    def key_ctrl_r(self) -> None:
        """Say why there is nothing to answer again."""
        if not self.conversation.turns:
            self.notify("there is no message yet", timeout=3)

    def action_drop_queued(self) -> None:
        """Drop the messages that wait. Up brings them back."""
        if count := self.outbox.drop():
            self.view.note(f"{counted(count, 'queued message')} dropped")

    def action_stop(self) -> None:
        """Stop the answer that is being written, or the loading of a model."""
        self.outbox.hold("because the answer was stopped")
        self.chat.engine_thread.stop()

    def action_back(self) -> None:
        """Focus the composer. An edit is given up."""
        self.unsent.give_up_edit()
        self.composer.focus()

    def action_regenerate(self) -> None:
        """Answer the last question again."""
        if self._is_kept_busy():
            return
        self.chat.engine_thread.regenerate()
        self.view.follow_end()

    def action_continue_answer(self) -> None:
        """Continue the last answer, which was stopped or cut off."""
        if self._is_kept_busy():
            return
        self.chat.engine_thread.continue_answer()
        self.view.follow_end()

    def _is_kept_busy(self) -> bool:
        """Whether the engine writes an answer, which no key but Esc ends; if so, say that."""
        writes = self.chat.engine_thread.busy and self.event_handler.state != "loading"
        is_kept = writes and not self.pending_changes  # a switch is over soon
        if is_kept:
            self.notify("Esc stops the answer first", timeout=3)
        return is_kept

    def action_compare(self) -> None:
        """Generate the last answer again without drafts, and compare the two."""
        if self._is_kept_busy():
            return
        if not self.conversation.turns:
            self.notify("there is no answer to compare yet", timeout=3)
            return
        self.event_handler.state = "comparing"
        self.progress.show_action("writing the last answer again without drafts; Esc stops that")
        self.chat.engine_thread.compare()

    def action_origins(self) -> None:
        """Turn the origin view on or off."""
        self.show_origins = not self.show_origins
        for entry in self.view.turn_entries:
            entry.show_origins(self.show_origins)
        self.query_one(OriginLegend).display = self.show_origins
        self.search.refresh()
        self.update_status()

    async def action_scroll_view(self, action: str) -> None:
        """Scroll the conversation. action: of the conversation view."""
        await self.view.run_action(action)

    def action_panel(self) -> None:
        """Show or hide the live panel."""
        panel = self.query_one(LivePanel)
        panel.display = not panel.display
        self.update_status()

    def action_find(self) -> None:
        """Find a text in the conversation."""
        self.search.open()

    def action_new(self) -> None:
        """Start an empty conversation, unless an answer is being written."""
        if not self._is_kept_busy():
            self.switch.begin_new()

    def action_sessions(self) -> None:
        """List the saved sessions, and resume the one that is chosen."""
        self.dialogs.sessions()

    def action_settings(self) -> None:
        """Open the settings."""
        self.dialogs.settings()

    def action_system(self) -> None:
        """Open the system prompt and the presets."""
        self.dialogs.system_prompt()
