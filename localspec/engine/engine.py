"""Engine: a loaded target and its drafters, which generate text."""

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
from localspec.engine.scheduler import Scheduler
from localspec.engine.slot import Slot
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.llama import compute_thread, library
from localspec.llama.model import Model
from localspec.loading.calibration import forget
from localspec.loading.config import EngineConfig, RuntimeConfig
from localspec.loading.drafter_set import DrafterSet
from localspec.loading.loader import load_models
from localspec.models.pair_finder import pair_of
from localspec.speculation.equal_digits import EqualDigits
from localspec.stats import Seconds, Stats
from localspec.utils.progress import watched


class Engine:
    """A target and its drafters, with their KV caches.

    Make an engine with `load`; close it (or use `with`) to free all models. One generation runs at
    a time: a new one closes the one before. The prefix that a new prompt shares with the cached
    text is not evaluated again. To generate several texts at a time, open a `Session` for each:
    their passes share decodes.
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
        self.scheduler = Scheduler()
        self.lock = self.scheduler.lock
        self.slot = Slot(load_models(model, draft, runtime, remember=remember), self.scheduler)
        self._own_slot_open = False
        self._further_slots: list[Slot] = []
        # Slots that are closed when the next one is opened.
        self._abandoned: list[Slot] = []
        self._load_seconds = perf_counter() - began

    @property
    def notes(self) -> Sequence[str]:
        """Requests that could not be met in full, and why texts share no decode, one line each."""
        apart = [each.loaded.apart for each in self._further_slots]
        return (*self.slot.loaded.notes, *dict.fromkeys(note for note in apart if note))

    @property
    def model(self) -> Model:
        """The target."""
        return self.slot.target.model

    @property
    def drafter_set(self) -> DrafterSet:
        """The drafters of the engine's own slot, or the reason why there are none."""
        return self.slot.loaded.drafter_set

    @property
    def context(self) -> int:
        """The context size in tokens."""
        return self.slot.target.n_ctx

    @property
    def pass_costs(self) -> PassCosts | None:
        """Measured seconds of a target pass by its rows; None if there is no drafter."""
        costs = self.slot.loaded.policies.costs
        return costs.passes if costs else None

    @property
    def plain_seconds(self) -> float | None:
        """Seconds of a step without a draft, by measurement; None if there is no drafter."""
        return self.pass_costs.of_decode(1) if self.pass_costs else None

    @property
    def equal_digits(self) -> EqualDigits | None:
        """In which passes the target's logits have equal bits; None if that was never tried."""
        return self.slot.loaded.digits

    @property
    def plan_ignored(self) -> str | None:
        """Why a stored plan was not used; None if it was, or before the first generation."""
        return self.slot.loaded.policies.prior_ignored

    @property
    def prefers_chat(self) -> bool:
        """Whether a plain text prompt is best sent as a chat message: the GGUF has a template."""
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
        """Generate the whole text. The arguments are those of `stream`.

        Log-probabilities are computed only with `logprobs=True`.
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

        prompt: a text to continue, token ids, or chat messages for the model's template.
        cancel: set this event, from any thread, to stop within one step.
        explain: called before each step with the reasons of the policy's decision (not at a fixed
        depth).
        options: the fields of GenerationConfig and SamplingParams. An option that is not given has
        the GGUF's value if there is one, else the default; `logprobs` is on by default.

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
        """A slot for one text: the engine's own if it is not in use, else a new one.

        Give the slot back with `leave`. Raises ModelLoadError if memory is too small for another.
        """
        while self._abandoned:
            self.leave(self._abandoned.pop())
        with self.lock:
            if not self._own_slot_open:
                self._own_slot_open = True
                return self.slot
        # More room for texts means other caches, which no step may be using.
        with self.scheduler.exclusive():
            slot = Slot(self.slot.loaded.for_another_text(), self.scheduler)
            if self.slot.loaded.runtime.threads_of(self.model) > 1:
                compute_thread.start()
            self._further_slots.append(slot)
        return slot

    def leave(self, slot: Slot) -> None:
        """Close a slot from `open_slot`; the KV caches of a further slot are freed."""
        if compute_thread.is_current():
            # The garbage collector runs in any thread; the lock's owner may wait for this one.
            self._abandoned.append(slot)
            return
        with self.lock:
            # The garbage collector may close an abandoned session during a step of the generation
            # that came after it in the same slot: that generation goes on.
            if not slot.in_step:
                slot.stop()
            if slot is self.slot:
                self._own_slot_open = False
            elif slot in self._further_slots:
                self._further_slots.remove(slot)
                slot.close()

    def switch(
        self,
        model: str | Path | None = None,
        draft: DraftOption | Sequence[DraftOption] | None = None,
    ) -> None:
        """Replace the target or the drafters, in all slots of the engine; None keeps them.

        The old models are freed first. If the new ones cannot be loaded, the old ones are loaded
        again and the error is raised.
        """
        config = replace(
            self._config,
            model=self._config.model if model is None else model,
            draft=self._config.draft if draft is None else parse_draft(draft),
        )
        with self.scheduler.exclusive():
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
        """Free all models and their KV caches."""
        with self.scheduler.exclusive():
            for slot in self._slots:
                slot.stop()
            self._free()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def recipe(self, running: Generation) -> Recipe:
        """The recipe of a generation: everything that decides its text."""
        settings = running.settings
        return Recipe.of(
            self.model.path,
            self.slot.loaded.runtime,
            prompt=running.prompt,
            params=self.slot.params(settings),
            settings=settings,
            stats=running.stats,
            shared_cache=self.slot.target.context.texts > 1,
        )

    @property
    def _slots(self) -> list[Slot]:
        return [self.slot, *self._further_slots]

    def _free(self) -> None:
        """Free all models and KV caches, those of the engine's own slot last."""
        loaded = self.slot.loaded
        if self.pass_costs and self.pass_costs.profile_is_wrong:
            forget(loaded.target, loaded.drafter_set.sequences, loaded.runtime)
        for slot in reversed(self._slots):
            slot.loaded.close_caches()
        loaded.drafters.close()
        loaded.target.model.close()

    def _load_target(self) -> None:
        self._free()
        config = self._config
        models = load_models(config.model, config.draft, config.runtime, remember=config.remember)
        self.slot.replace_models(models)
        for slot in self._further_slots:
            slot.replace_models(self.slot.loaded.for_another_text())

    def _load_drafters(self) -> None:
        for slot in reversed(self._slots):
            slot.loaded.drafter_set.close()
        self.slot.loaded.drafters.close()
        self.slot.replace_models(self.slot.loaded.with_drafters(self._config.draft))
        for slot in self._further_slots:
            slot.replace_models(self.slot.loaded.with_target(slot.target))


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
    """Load a target and its drafters; use the engine in a `with`.

    model: a path, the name of a pair, or `user/repo[:quant]`; None is the bundled model.
    draft: `auto`, `none`, `suffix`, `lookup`, `ngram`, a draft model named as above, any object
    with the Drafter protocol, or a list of these to choose from at each step.
    remember: save the texts of this engine, up to a size limit, in the user's cache folder, and let
    the suffix drafter copy from the texts saved there; `localspec forget` deletes them.
    The other options are those of RuntimeConfig; None lets localspec choose.

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
