"""Launch options: how a chat starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.drafters.spec import AUTO
from localspec_tui.session_settings import SessionSettings, kept_of


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """model: None is the bundled pair. draft: the drafters; None is those of the session, else
    `auto`. runtime: other options of `localspec.load`. copied_texts, earlier_texts: texts that are
    in no prompt, which drafts may copy from. chat_template: in place of the model's own. mmproj:
    the file that reads images for it, or "none"; None: the one beside it. session_options: other
    options of Session. sampling: options of GenerationConfig that are not the default. system: the
    system prompt. session: key of the session to resume. drop_oldest: as that session has it.
    theme: None is the theme used last. is_terminal_light: whether a light theme suits the terminal,
    where the user has never chosen one. notes: lines to show first. private: whether nothing of the
    chat is kept. keep: whether what the model reads is kept on disk. named: which of `runtime` and
    `chat_template` the command line names.
    """

    model: str | None = None
    draft: str | None = None
    runtime: Mapping[str, Any] = field(default_factory=dict)
    copied_texts: tuple[str, ...] = ()
    earlier_texts: Sequence[str] = ()
    chat_template: str | None = None
    mmproj: str | None = None
    session_options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    system: str | None = None
    session: str | None = None
    drop_oldest: bool = False
    theme: str | None = None
    is_terminal_light: bool = False
    notes: tuple[str, ...] = ()
    private: bool = False
    keep: bool = False
    named: frozenset[str] = frozenset()

    @property
    def settings(self) -> SessionSettings:
        """How the answers are written at first."""
        return SessionSettings(
            self.draft or AUTO,
            self.sampling,
            self.drop_oldest,
            self.session_options,
            self.chat_template,
            kept_of(self.runtime),
            self.mmproj,
        )

    @property
    def load_options(self) -> dict[str, Any]:
        """What `EngineThread.load` takes."""
        settings = self.settings
        return {
            "model": self.model,
            "draft": settings.draft,
            "when_full": settings.when_full,
            "copied_texts": self.copied_texts,
            "earlier_texts": self.earlier_texts,
            "chat_template": self.chat_template,
            "mmproj": self.mmproj,
            **self.runtime,
            **self.session_options,
            **self.sampling,
        }
