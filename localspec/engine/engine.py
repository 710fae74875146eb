"""Engine: a loaded target and its drafter, generating text."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Unpack

from localspec.control.adaptive import Explain
from localspec.control.pass_costs import PassCosts
from localspec.drafters.spec import DraftOption, DraftRequest, parse_draft
from localspec.engine.generation import Generation, Result
from localspec.engine.prompt import Prompt, prompt_tokens
from localspec.engine.recipe import Recipe
from localspec.engine.slot import Slot
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.llama import library
from localspec.llama.model import Model
from localspec.loading.calibration import forget
from localspec.loading.config import EngineConfig, RuntimeConfig
from localspec.loading.drafter_set import DrafterSet
from localspec.loading.loader import load_models
from localspec.models.pair_finder import pair_of
from localspec.stats import Seconds, Stats
from localspec.utils.fair_lock import FairLock
from localspec.utils.progress import watched


class Engine:
    """A target and its drafters, with their caches.

    Make it with `load`; close it (or use `with`) to free both models. One generation runs at a
    time: starting another closes the one before. What a new prompt shares with the text in the
    caches is not evaluated again. Several texts at a time are for `Session`.
    """

    def __init__(
        self,
        model: str | Path | None,
        draft: DraftRequest,
        runtime: RuntimeConfig,
        *,
        remember: bool = False,
    ) -> None:
        began = perf_counter()
        self._config = EngineConfig(model, draft, runtime, remember)
        self.lock = FairLock()
        self.slot = Slot(load_models(model, draft, runtime, remember=remember), self.lock)
        self._own_taken = False
        self._further: list[Slot] = []
        self._load_seconds = perf_counter() - began

    @property
    def notes(self) -> Sequence[str]:
        """What is less than could be expected, so that all fits in memory; a line each."""
        return self.slot.loaded.notes

    @property
    def model(self) -> Model:
        """The target."""
        return self.slot.target.model

    @property
    def drafter_set(self) -> DrafterSet:
        """The drafters of the engine's own text, or why there are none."""
        return self.slot.loaded.drafter_set

    @property
    def context(self) -> int:
        """How many tokens of text fit."""
        return self.slot.target.n_ctx

    @property
    def pass_costs(self) -> PassCosts | None:
        """Seconds of the target's passes by rows, as far as known; None if nothing drafts."""
        costs = self.slot.loaded.policies.costs
        return costs.passes if costs else None

    @property
    def plain_seconds(self) -> float | None:
        """What a plain step takes now, as far as is known; None if nothing drafts."""
        return self.pass_costs.seconds(1) if self.pass_costs else None

    @property
    def plan_ignored(self) -> str | None:
        """Why a stored plan does not count, once a generation has asked for one; else None."""
        return self.slot.loaded.policies.prior_ignored

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
        **options: Unpack[GenerationOptions],
    ) -> Result:
        """Generate to the end; `stream` says what the arguments mean.

        Log-probabilities are worked out only with `logprobs=True`.
        """
        return self._start(prompt, GenerationConfig.of(**options), cancel, explain).result()

    def stream(
        self,
        prompt: Prompt,
        *,
        cancel: threading.Event | None = None,
        explain: Explain | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Generation:
        """Generate token by token.

        prompt: a text to be continued, token ids, or chat messages for the model's template.
        cancel: set it, from any thread, to stop within one step.
        explain: called before each step with why it is planned as it is (not at a fixed depth).
        options: those of GenerationConfig and SamplingParams; the rest comes from the GGUF, else
        from the defaults. `logprobs` is on unless turned off.

        Raises InvalidValueError for a value that makes no sense and for a prompt that does not fit.
        """
        return self._start(
            prompt, GenerationConfig.of(**{"logprobs": True, **options}), cancel, explain
        )

    def _start(
        self,
        prompt: Prompt,
        settings: GenerationConfig,
        cancel: threading.Event | None,
        explain: Explain | None,
    ) -> Generation:
        stats = Stats(seconds=Seconds(load=self._load_seconds))
        cancelled = cancel.is_set if cancel else lambda: False
        with self.lock:
            tokens = prompt_tokens(prompt, self.model, self.slot.set_pass_width(settings))
            return self.slot.start(
                tokens, settings, stats=stats, cancelled=cancelled, explain=explain
            )

    def open_slot(self) -> Slot:
        """Caches for a text: the engine's own if no other text has them, else new ones.

        Give them back with `leave`. Raises ModelLoadError where memory does not hold new ones.
        """
        with self.lock:
            if not self._own_taken:
                self._own_taken = True
                return self.slot
            slot = Slot(self.slot.loaded.for_another_text(), self.lock)
            self._further.append(slot)
        return slot

    def leave(self, slot: Slot) -> None:
        """Nothing more is to be done with this text."""
        with self.lock:
            slot.stop()
            if slot is self.slot:
                self._own_taken = False
            elif slot in self._further:
                self._further.remove(slot)
                slot.loaded.close_caches()

    def switch(
        self,
        model: str | Path | None = None,
        draft: DraftOption | Sequence[DraftOption] | None = None,
    ) -> None:
        """Load another target, or other drafters, in place of these; what is None stays.

        The old ones are freed first. Where the new ones cannot be loaded, the old ones are loaded
        again, and the reason is raised. All texts of the engine go on with what is there then.
        """
        config = replace(
            self._config,
            model=self._config.model if model is None else model,
            draft=self._config.draft if draft is None else parse_draft(draft),
        )
        with self.lock:
            for slot in self._slots:
                slot.stop()
            before, self._config = self._config, config
            load = self._load_target if model is not None else self._load_drafters
            library.clear_pending_interrupt()
            try:
                load()
                library.raise_pending_interrupt()
            except BaseException:
                self._config = before
                with watched(None):
                    load()
                raise

    def close(self) -> None:
        """Free both models and their caches."""
        with self.lock:
            for slot in self._slots:
                slot.stop()
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
            self.slot.loaded.runtime,
            prompt=running.prompt,
            params=self.slot.params(settings),
            settings=settings,
            widths=running.stats.widths,
        )

    @property
    def _slots(self) -> list[Slot]:
        return [self.slot, *self._further]

    def _free(self) -> None:
        """Both models and all caches; those of the engine's own slot last."""
        loaded = self.slot.loaded
        if self.pass_costs and self.pass_costs.profile_is_wrong:
            forget(loaded.target, loaded.drafter_set.contexts, loaded.runtime)
        for slot in reversed(self._slots):
            slot.loaded.close_caches()
        loaded.drafters.close()
        loaded.target.model.close()

    def _load_target(self) -> None:
        self._free()
        config = self._config
        models = load_models(config.model, config.draft, config.runtime, remember=config.remember)
        self.slot.take(models)
        for slot in self._further:
            slot.take(self.slot.loaded.for_another_text())

    def _load_drafters(self) -> None:
        for slot in reversed(self._slots):
            slot.loaded.drafter_set.close()
        self.slot.loaded.drafters.close()
        self.slot.take(self.slot.loaded.with_drafters(self._config.draft))
        for slot in self._further:
            slot.take(self.slot.loaded.with_target(slot.target))


def load(
    model: str | Path | None = None,
    draft: DraftOption | Sequence[DraftOption] = "auto",
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
    The other options are those of RuntimeConfig; None leaves them to localspec.

    Raises ModelNotFoundError, ModelLoadError, DrafterMismatchError, InvalidValueError.
    """
    library.clear_pending_interrupt()
    runtime = RuntimeConfig(
        context, gpu_layers, threads, flash_attention, reproducible, kv_type, drafter_kv_type
    )
    engine = Engine(model, parse_draft(draft), runtime, remember=remember)
    try:
        library.raise_pending_interrupt()
    except KeyboardInterrupt:
        engine.close()
        raise
    return engine
