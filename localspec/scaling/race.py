"""Race: plain and speculative decoding of one prompt, one after the other."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.engine.engine import Engine, load
from localspec.engine.generation import Generation, Token
from localspec.engine.prompt import Prompt
from localspec.utils.tokens import common_prefix

# Tokens to warm up with, on a text that has nothing to do with what follows.
_WARM_UP = 12
_ELSEWHERE = "import os"


@dataclass(slots=True, eq=False)
class Lane:
    """One engine, and the text it makes; None before its turn."""

    name: str
    engine: Engine
    running: Generation | None = None

    @property
    def tokens(self) -> list[Token]:
        """Those made so far."""
        return self.running.tokens if self.running else []

    @property
    def speed(self) -> float | None:
        """Tokens per second of generation so far: what the screen takes is not in it."""
        return self.running.stats.tokens_per_second if self.running else None


class Race(AbstractContextManager["Race"]):
    """Both lanes on one target; use it in a `with`, which frees the models.

    Raises what `load` raises.
    """

    def __init__(self, target: Path, drafter: Path, **runtime: Any) -> None:
        with ExitStack() as stack:
            plain = stack.enter_context(load(target, "none", **runtime))
            speculative = stack.enter_context(load(target, ["suffix", drafter], **runtime))
            self._engines = stack.pop_all()
        self.plain = Lane("plain", plain)
        self.speculative = Lane("localspec", speculative)

    def __exit__(self, *_exc: object) -> None:
        self._engines.close()

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        """In the order of their turns."""
        return self.plain, self.speculative

    @property
    def ratio(self) -> float | None:
        """The second's speed over the first's, so far."""
        plain, speculative = self.plain.speed, self.speculative.speed
        return speculative / plain if plain and speculative else None

    @property
    def difference(self) -> int | None:
        """The first place where the texts differ, from 0; None if they are one, token for token."""
        plain, speculative = ([token.id for token in lane.tokens] for lane in self.lanes)
        return None if plain == speculative else common_prefix(plain, speculative)

    def warm_up(self, cancel: threading.Event) -> None:
        """Run both a little: the first passes of a model are slow."""
        for lane in self.lanes:
            lane.engine.generate(_ELSEWHERE, max_tokens=_WARM_UP, cancel=cancel)

    def run(
        self, prompt: Prompt, cancel: threading.Event, **options: Any
    ) -> Iterator[tuple[Lane, Token]]:
        """Each token, and whose it is. Side by side they would take each other's time."""
        for lane in self.lanes:
            if cancel.is_set():
                return
            lane.running = lane.engine.stream(prompt, cancel=cancel, logprobs=False, **options)
            for token in lane.running:
                yield lane, token
