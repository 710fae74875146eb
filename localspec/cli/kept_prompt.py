"""Kept prompt: what `generate --keep` has read outlasts the command, on disk."""

from collections.abc import Mapping
from typing import Any

from localspec.cli.interrupt import on_interrupt
from localspec.cli.status_line import StatusLine
from localspec.engine.engine import Engine
from localspec.engine.kept_prompts import KeptPrompts
from localspec.engine.kept_store import SavingTime
from localspec.engine.prompt import Prompt, TextPrompt
from localspec.generation_config import GenerationConfig
from localspec.stats import Stats


class KeptPrompt:
    """The prompt of `generate --keep`: what is kept of it is in the engine's caches from now on.

    options: of the text. notes: what the user should know, one line each.
    """

    def __init__(self, engine: Engine, prompt: Prompt, options: Mapping[str, Any]) -> None:
        self._tokens = TextPrompt(prompt).tokens(engine.model, engine.context)
        self._kept = KeptPrompts(engine.slots.own)
        failure = self._kept.load(self._tokens, GenerationConfig.of(**options))
        self.notes = [f"the prompt has to be read again: {failure}"] if failure else []

    def save(self, stats: Stats) -> list[str]:
        """Keep the prompt; Ctrl-C leaves that. Returns what the user should know, one line each."""
        rate = stats.prompt_tokens_per_second
        time = SavingTime(len(self._tokens) / rate if rate else None)
        with on_interrupt(lambda *_: time.stop()), StatusLine() as status:
            status.show("keeping the prompt; Ctrl-C leaves that")
            failure = self._kept.save(self._tokens, time)
        return [f"the prompt is not kept: {failure}"] if failure else []
