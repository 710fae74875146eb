"""Engine: a loaded target and its drafter, generating text."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Unpack

from localspec.drafting import Choice, Drafting
from localspec.generation import Generation, Result
from localspec.llama import library
from localspec.llama.model import Model
from localspec.loading import Order, loaded, with_drafters
from localspec.models.locate import pair_of
from localspec.pace import forget
from localspec.progress import watched
from localspec.prompt import Prompt, prompt_tokens
from localspec.recipe import Recipe
from localspec.runtime import Runtime
from localspec.seat import Seat
from localspec.settings import SettingOptions, Settings
from localspec.speculation.controller import Explain
from localspec.speculation.costs import Widths
from localspec.stats import Seconds, Stats
from localspec.turnstile import Turnstile


class Engine:
    """A target and at most one drafter, with their caches.

    Make it with `load`; close it (or use `with`) to free both models. One generation runs at a
    time: starting another closes the one before. What a new prompt shares with the text in the
    caches is not evaluated again. Several texts at a time are for `Session`.
    """

    def __init__(self, order: Order) -> None:
        began = perf_counter()
        self._order = order
        self.turnstile = Turnstile()
        self.seat = Seat(loaded(order), self.turnstile)
        self._own_taken = False
        self._further: list[Seat] = []
        self._load_seconds = perf_counter() - began

    @property
    def notes(self) -> Sequence[str]:
        """What is less than could be expected, so that all fits in memory; a line each."""
        return self.seat.loaded.notes

    @property
    def model(self) -> Model:
        """The target."""
        return self.seat.target.model

    @property
    def drafting(self) -> Drafting:
        """Which drafters there are, or why none."""
        return self.seat.drafting

    @property
    def context(self) -> int:
        """How many tokens of text fit."""
        return self.seat.target.n_ctx

    @property
    def widths(self) -> Widths | None:
        """What passes of the target take, by width, as far as is known; None if nothing drafts."""
        return self.seat.planning.widths

    @property
    def plain_seconds(self) -> float | None:
        """What a plain step takes now, as far as is known; None if nothing drafts."""
        return self.widths.seconds(1) if self.widths else None

    @property
    def plan_ignored(self) -> str | None:
        """Why a stored plan does not count, once a generation has asked for one; else None."""
        return self.seat.planning.plan_ignored

    @property
    def prefers_chat(self) -> bool:
        """Whether a bare prompt is best taken as a chat turn: the GGUF has a template for it."""
        pair = pair_of(self.model.path)
        return self.model.chat_template is not None and (pair is None or pair.prompt == "chat")

    def generate(
        self,
        prompt: Prompt,
        *,
        cancel: threading.Event | None = None,
        explain: Explain | None = None,
        **options: Unpack[SettingOptions],
    ) -> Result:
        """Generate to the end; `stream` says what the arguments mean.

        Log-probabilities are worked out only with `logprobs=True`.
        """
        return self._start(prompt, Settings.of(**options), cancel, explain).result()

    def stream(
        self,
        prompt: Prompt,
        *,
        cancel: threading.Event | None = None,
        explain: Explain | None = None,
        **options: Unpack[SettingOptions],
    ) -> Generation:
        """Generate token by token.

        prompt: a text to be continued, token ids, or chat messages for the model's template.
        cancel: set it, from any thread, to stop within one step.
        explain: called before each step with why it is planned as it is (not at a fixed depth).
        options: those of Settings and SamplingParams; what is not given comes from the GGUF, else
        from the defaults. `logprobs` is on unless turned off.

        Raises InvalidValueError for a value that makes no sense and for a prompt that does not fit.
        """
        return self._start(prompt, Settings.of(**{"logprobs": True, **options}), cancel, explain)

    def _start(
        self,
        prompt: Prompt,
        settings: Settings,
        cancel: threading.Event | None,
        explain: Explain | None,
    ) -> Generation:
        stats = Stats(seconds=Seconds(load=self._load_seconds))
        cancelled = cancel.is_set if cancel else lambda: False
        with self.turnstile:
            tokens = prompt_tokens(prompt, self.model, self.seat.room(settings))
            return self.seat.start(
                tokens, settings, stats=stats, cancelled=cancelled, explain=explain
            )

    def take_seat(self) -> Seat:
        """Caches for a text: the engine's own if no other text has them, else new ones.

        Give them back with `leave`. Raises ModelLoadError where memory does not hold new ones.
        """
        with self.turnstile:
            if not self._own_taken:
                self._own_taken = True
                return self.seat
            seat = Seat(self.seat.loaded.another(), self.turnstile)
            self._further.append(seat)
        return seat

    def leave(self, seat: Seat) -> None:
        """Nothing more is to be done with this text."""
        with self.turnstile:
            seat.stop()
            if seat is self.seat:
                self._own_taken = False
            elif seat in self._further:
                self._further.remove(seat)
                seat.loaded.close()

    def switch(
        self,
        model: str | Path | None = None,
        draft: Choice | Sequence[Choice] | None = None,
    ) -> None:
        """Load another target, or other drafters, in place of these; what is None stays.

        The old ones are freed first. Where the new ones cannot be loaded, the old ones are loaded
        again, and the reason is raised. All texts of the engine go on with what is there then.
        """
        order = replace(
            self._order,
            model=self._order.model if model is None else model,
            draft=self._order.draft if draft is None else draft,
        )
        with self.turnstile:
            for seat in self._seats:
                seat.stop()
            before, self._order = self._order, order
            load = self._load_target if model is not None else self._load_drafters
            library.forget_interrupt()
            try:
                load()
                library.raise_interrupt()
            except BaseException:
                self._order = before
                with watched(None):
                    load()
                raise

    def close(self) -> None:
        """Free both models and their caches."""
        with self.turnstile:
            for seat in self._seats:
                seat.stop()
            self._free()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def recipe(self, running: Generation) -> Recipe:
        """All that decides this generation's text."""
        settings = running.settings
        return Recipe.of(
            self.model.path,
            self.seat.loaded.runtime,
            prompt=running.prompt,
            params=self.seat.params(settings),
            settings=settings,
            widths=running.stats.widths,
        )

    @property
    def _seats(self) -> list[Seat]:
        return [self.seat, *self._further]

    def _free(self) -> None:
        """Both models and all caches; those of the engine's own seat last."""
        if self.widths and self.widths.proved_wrong:
            forget(self.seat.target, self.drafting.context, self.seat.loaded.runtime)
        for seat in reversed(self._seats):
            seat.loaded.close()
        self.model.close()

    def _load_target(self) -> None:
        self._free()
        self.seat.take(loaded(self._order))
        for seat in self._further:
            seat.take(self.seat.loaded.another())

    def _load_drafters(self) -> None:
        for seat in reversed(self._seats):
            seat.drafting.close()
        self.seat.take(with_drafters(self.seat.loaded, self._order))
        for seat in self._further:
            seat.take(self.seat.loaded.for_text(seat.target))


def load(
    model: str | Path | None = None,
    draft: Choice | Sequence[Choice] = "auto",
    *,
    context: int | None = None,
    gpu_layers: int | None = None,
    threads: int | None = None,
    flash_attention: bool | None = None,
    reproducible: bool = False,
    kv_type: str = "f16",
    drafter_kv_type: str = "f16",
    remember: bool = False,
) -> Engine:
    """Load a target and its drafter; use the result in a `with`.

    model: a path, the name of a pair, or `user/repo[:quant]`; None is the bundled one.
    draft: `auto`, `none`, `suffix`, `lookup`, `ngram`, a model named likewise, any object with the
    Drafter protocol, or a list to choose from.
    remember: let the suffix drafter copy from earlier texts too, and keep this engine's: in the
    user's cache, bounded, until `localspec forget`.
    The other options are those of Runtime; None leaves them to localspec.

    Raises ModelNotFoundError, ModelLoadError, DrafterMismatchError, InvalidValueError.
    """
    library.forget_interrupt()
    runtime = Runtime(
        context, gpu_layers, threads, flash_attention, reproducible, kv_type, drafter_kv_type
    )
    engine = Engine(Order(model, draft, runtime, remember))
    try:
        library.raise_interrupt()
    except KeyboardInterrupt:
        engine.close()
        raise
    return engine
