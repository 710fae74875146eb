"""Engine: a loaded target and its drafter, generating text."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Unpack

from localspec import drafting
from localspec.drafters.suffix_store import PastTexts
from localspec.drafting import Choice, Drafting
from localspec.generation import Generation, Result
from localspec.llama import library
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.rollback import Rollback
from localspec.llama.width import WidthClass, probe
from localspec.models import registry
from localspec.models.gguf import Header
from localspec.models.locate import locate, pair_of
from localspec.pace import forget, pace
from localspec.planning import Planning
from localspec.prompt import Prompt, prompt_tokens
from localspec.recipe import Recipe
from localspec.runtime import Runtime
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Constraint
from localspec.sampling.sampler import Sampler
from localspec.settings import SettingOptions, Settings, require
from localspec.speculation.controller import Explain
from localspec.speculation.costs import Widths
from localspec.speculation.loop import Loop
from localspec.stats import Seconds, Stats
from localspec.trial import sound_header

_NEVER = 2**63


class Engine:
    """A target and at most one drafter, with their caches.

    Make it with `load`; close it (or use `with`) to free both models. One generation runs at a
    time: starting another closes the one before. What a new prompt shares with the text in the
    caches is not evaluated again.

    notes: what is less than could be expected, so that all fits in memory; a line each.
    """

    def __init__(
        self,
        target: Context,
        header: Header,
        runtime: Runtime,
        planning: Planning,
        *,
        load_seconds: float,
        notes: Sequence[str] = (),
    ) -> None:
        self.notes = notes
        self._runtime = runtime
        self.drafting = planning.drafting
        self._planning = planning
        self._target = target
        self._header = header
        self._load_seconds = load_seconds
        self._running: Generation | None = None
        self._widths: dict[int, WidthClass] = {}

    @property
    def model(self) -> Model:
        """The target."""
        return self._target.model

    @property
    def context(self) -> int:
        """How many tokens of text fit."""
        return self._target.n_ctx

    @property
    def widths(self) -> Widths | None:
        """What passes of the target take, by width, as far as is known; None if nothing drafts."""
        return self._planning.widths

    @property
    def plan_ignored(self) -> str | None:
        """Why a stored plan does not count, once a generation has asked for one; else None."""
        return self._planning.plan_ignored

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
        cancelled = cancel.is_set if cancel else lambda: False
        deepest = self._deepest(settings)
        self._target.least_rows = self._least_rows(deepest)
        tokens = prompt_tokens(prompt, self.model, self.context)
        sampler = self.sampler(settings, len(tokens))
        planner = self._planning.planner(settings, sampler.params, deepest, explain)
        loop = Loop(
            self._target,
            planner,
            settings.verification,
            sampler,
            tokens,
            Stats(seconds=Seconds(load=self._load_seconds)),
            settings.logprobs,
            settings.top_logprobs,
            cancelled,
        )
        self._end_running()
        self._running = Generation(loop, self._target, self.model, settings, context=self.context)
        return self._running

    def close(self) -> None:
        """Free both models and their caches."""
        self._end_running()
        if self.widths and self.widths.proved_wrong:
            forget(self._target, self.drafting.context, self._runtime)
        self.drafting.close()
        self._target.close()
        self.model.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def sampler(self, settings: Settings, prompt_tokens: int) -> Sampler:
        """How tokens are chosen after a prompt of so many tokens."""
        endless = settings.ignore_eos or settings.min_tokens
        return Sampler(
            self._params(settings),
            settings.verification.randomness(settings.seed),
            ends=self.model.ends_text if endless else (),
            earliest_end=_NEVER if settings.ignore_eos else prompt_tokens + settings.min_tokens,
            constraint=self._constraint(settings),
        )

    def reproducible_width(self, settings: Settings) -> WidthClass | None:
        """How wide passes are for a reproducible text; None if none is asked for."""
        return self.width_class(self._deepest(settings))

    def width_class(self, depth: int) -> WidthClass | None:
        """How wide passes must be for a reproducible text at this depth; None if none is asked for.

        Found out at the first generation of each depth; it empties the cache.
        """
        if not self._runtime.reproducible or self._target.rollback is not Rollback.PARTIAL:
            return None
        if depth not in self._widths:
            self._widths[depth] = probe(self._target, 1 + depth)
        return self._widths[depth]

    def new_context(self, settings: Settings) -> Context:
        """Another cache of the target, set up as its own is with these settings; close it."""
        context = self._runtime.context_for(
            self.model, self._header, self.context, snapshots=self._target.snapshots
        )
        context.least_rows = self._least_rows(self._deepest(settings))
        return context

    def recipe(self, running: Generation) -> Recipe:
        """All that decides this generation's text."""
        settings = running.settings
        return Recipe.of(
            self.model.path,
            self._runtime,
            prompt=running.prompt,
            params=self._params(settings),
            settings=settings,
            widths=running.stats.widths,
        )

    def _deepest(self, settings: Settings) -> int:
        return Planning.deepest(settings, reproducible=self._runtime.reproducible)

    def _least_rows(self, depth: int) -> int:
        width = self.width_class(depth)
        return width.least_rows if width else 1

    def _end_running(self) -> None:
        if not self._running:
            return
        self._running.close()
        if self.drafting.past:
            text = [*self._running.prompt, *(token.id for token in self._running.tokens)]
            self.drafting.past.add(text)
        self._running = None

    def _constraint(self, settings: Settings) -> Constraint | None:
        compiled = settings.compiled_grammar()
        if compiled is None:
            return None
        from localspec.llama.grammar import Grammar  # see Settings.compiled_grammar

        return Grammar.begin(compiled, self.model)

    def _params(self, settings: Settings) -> SamplingParams:
        params = settings.params(self._header.metadata)
        for token in params.logit_bias:
            require("logit_bias token", token, 0, self.model.n_vocab - 1)
        never = dict.fromkeys(self.model.suppressed, float("-inf"))
        return replace(params, logit_bias={**params.logit_bias, **never})


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
    began = perf_counter()
    library.forget_interrupt()
    runtime = Runtime(context, gpu_layers, threads, flash_attention, reproducible, kv_type)
    path = registry.bundled().target if model is None else locate(model)
    header = sound_header(path)
    plan = drafting.plan_memory(draft, path, header, runtime)
    runtime = replace(runtime, drafter_kv_type=plan.drafter_kv_type)
    loaded = Model(path, gpu_layers=gpu_layers)
    target: Context | None = None
    drafted: Drafting | None = None
    try:
        snapshots = drafting.snapshots(draft)
        target = runtime.context_for(loaded, header, plan.context, snapshots=snapshots)
        past = PastTexts(loaded.vocabulary) if remember else None
        drafted = drafting.choose(draft, target, runtime, past, plan.no_drafter)
        measured = pace(target, drafted.context, runtime) if drafted.drafters else None
    except BaseException:
        if drafted:
            drafted.close()
        if target:
            target.close()
        loaded.close()
        raise
    planning = Planning(target, drafted, measured)
    engine = Engine(
        target, header, runtime, planning, load_seconds=perf_counter() - began, notes=plan.notes
    )
    try:
        library.raise_interrupt()
    except KeyboardInterrupt:
        engine.close()
        raise
    return engine
