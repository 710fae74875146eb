"""Demo comparison: plain and speculative decoding of one prompt, one after the other."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localspec.bench.runner import warm_up
from localspec.drafters.spec import DraftOption, DraftRequest, parse_draft
from localspec.engine.engine import Engine, load_with
from localspec.engine.generation import Generation, Token
from localspec.engine.prompt import Prompt
from localspec.loading.config import EngineConfig, RuntimeConfig
from localspec.utils.tokens import common_prefix


@dataclass(slots=True, eq=False)
class Decoding:
    """One of the two ways of decoding: its engine, and its generation; None before its turn."""

    name: str
    engine: Engine
    generation: Generation | None = None

    @property
    def tokens(self) -> list[Token]:
        """The tokens generated so far."""
        return self.generation.tokens if self.generation else []

    @property
    def tokens_per_second(self) -> float | None:
        """The speed of generation so far; the time that drawing takes is not part of it."""
        return self.generation.stats.tokens_per_second if self.generation else None


class DemoComparison(AbstractContextManager["DemoComparison"]):
    """Plain and speculative decoding with the same target; use it in a `with`, to free the models.

    Raises what `engine.load` raises.
    """

    def __init__(self, target: Path, drafter: Path, **runtime: Any) -> None:
        with ExitStack() as stack:
            config = RuntimeConfig.of(**runtime)
            alone = EngineConfig(target, DraftRequest(), config)
            plain = stack.enter_context(load_with(alone))
            # Otherwise each would choose its own number on a busy machine.
            plain.slots.threads_are_fixed = True
            config = replace(config, most_threads=plain.threads)
            drafts: list[DraftOption] = ["suffix", drafter]
            further = EngineConfig(target, parse_draft(drafts), config, weights=plain.model)
            speculative = stack.enter_context(load_with(further))
            self._engines = stack.pop_all()
        self.plain = Decoding("plain", plain)
        self.speculative = Decoding("localspec", speculative)

    def __exit__(self, *_exc: object) -> None:
        self._engines.close()

    @property
    def decodings(self) -> tuple[Decoding, Decoding]:
        """Both, in the order in which they run."""
        return self.plain, self.speculative

    @property
    def speed_up(self) -> float | None:
        """The speed of speculative decoding over that of plain decoding; None before both ran."""
        plain, speculative = (each.tokens_per_second for each in self.decodings)
        return speculative / plain if plain and speculative else None

    @property
    def first_difference(self) -> int | None:
        """The index of the first token that differs between the texts; None if they are equal."""
        plain, speculative = ([token.id for token in each.tokens] for each in self.decodings)
        return None if plain == speculative else common_prefix(plain, speculative)

    def warm_up(self, cancel: threading.Event) -> None:
        """Generate a few tokens with both engines."""
        for each in self.decodings:
            warm_up(each.engine, cancel)

    def run(
        self, prompt: Prompt, cancel: threading.Event, **options: Any
    ) -> Iterator[tuple[Decoding, Token]]:
        """Yield each token with its decoding: first all of plain decoding, then the others.

        They do not run at the same time, because each would slow the other. options: those of
        GenerationConfig.
        """
        for each in self.decodings:
            each.generation = None
        for each in self.decodings:
            if cancel.is_set():
                return
            each.generation = each.engine.stream(prompt, cancel=cancel, logprobs=False, **options)
            for token in each.generation:
                yield each, token
