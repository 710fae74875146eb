"""Slot: a KV cache of the target, those of its drafters, and the generation that uses them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from weakref import ref

from localspec.control.explanation import Explain
from localspec.control.fixed_depth import FixedDepth
from localspec.control.policies import deepest_draft
from localspec.drafters.suffix import Suffix
from localspec.drafters.text_drafter import TextDrafter
from localspec.engine.begun import NOTHING_BEGUN, Begun, constraint_behind
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Generation, Token
from localspec.engine.interruption import Interruption
from localspec.engine.prompt import Wording
from localspec.engine.scheduler import Scheduler
from localspec.engine.slot_cache import STATE, SlotCache, unless_lost
from localspec.engine.state_store import PART, Origin, StateStore
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig, require
from localspec.llama.batch_invariance import InvariantWidth
from localspec.llama.dry_breakers import breaker_tokens
from localspec.llama.rollback import Rollback
from localspec.llama.sequence import KVSequence
from localspec.loading.invariant_widths import invariant_width
from localspec.loading.loader import LoadedModels
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.drafter import HiddenReader
from localspec.speculation.policy import Policy
from localspec.speculation.prompt_logprobs import PromptLogprobs
from localspec.stats import Stats
from localspec.utils.media import has_media, words_of

_NEVER = 2**63
# Of a token, on average over a long text.
_MOST_LETTERS = 16
# More log-probabilities of a prompt are not kept for the next one: they would be many megabytes.
_MOST_KEPT = 1 << 16


class _Text:
    """The text of a generation, which stays when its reader has forgotten the generation."""

    def __init__(self, generation: Generation) -> None:
        self.generation = ref(generation)
        self.prompt: list[int] = generation.prompt
        self.tokens: list[Token] = generation.tokens
        self.is_kept = False


class Slot:
    """The KV caches of one text, and the generation that runs on them.

    A new generation closes the one before. The passes of several slots share decodes, by the
    scheduler; its lock is held in each step.
    """

    def __init__(self, loaded: LoadedModels, scheduler: Scheduler) -> None:
        self.loaded = loaded
        self.lock = scheduler.lock
        self.scheduled = scheduler.new_text()
        # Whether an answer is being written, which may take several generations.
        self.in_answer = False
        self._scheduler = scheduler
        self._text: _Text | None = None
        # Of the last prompt for which they were asked.
        self._prompt_logprobs: PromptLogprobs | None = None

    @property
    def running(self) -> Generation | None:
        """The slot's last generation, until it is stopped or its reader has forgotten it."""
        return self._text.generation() if self._text else None

    @property
    def target(self) -> KVSequence:
        """The text in the target's KV cache."""
        return self.loaded.target

    @property
    def is_closed(self) -> bool:
        """Whether the engine was closed."""
        return self._scheduler.closed

    def require_open(self) -> None:
        """Raise LocalspecError where the engine was closed."""
        self._scheduler.require_open()

    def reusable(self, tokens: Sequence[int]) -> int:
        """About how many tokens of a prompt the target's cache need not evaluate."""
        return self.target.memory.left_by_cut(self.target.shared(tokens))

    @property
    def takes_beginnings(self) -> bool:
        """Whether a text takes a beginning that another slot holds, without evaluating it.

        A drafter that reads hidden rows needs those of the whole prompt.
        """
        reads = any(isinstance(each, HiddenReader) for each in self.loaded.drafter_set.drafters)
        return self.target.context.params.texts > 1 and not reads

    def start(
        self,
        tokens: Sequence[int],
        settings: GenerationConfig,
        *,
        stats: Stats | None = None,
        detokenizer: Detokenizer | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        explain: Explain | None = None,
        policy: Policy | None = None,
        begun: Begun = NOTHING_BEGUN,
    ) -> Generation:
        """Start a generation after these tokens; the slot's last generation is closed.

        stats, detokenizer: those of the earlier parts, for a text generated in several parts.
        policy: None is the one that the settings ask for. begun: what at the end of the tokens is
        of the text.
        """
        sampler = self.sampler(settings, len(tokens), begun)
        self.stop()
        self.set_pass_width(settings)
        target, deepest = self.target, self._deepest(settings)
        self.scheduled.rows.begin(target.context)
        self.loaded.watch_cores()
        self._predict(settings.prediction or "")
        policy = policy or self.loaded.policies.policy(
            settings,
            sampler.params,
            deepest=deepest,
            least_rows=target.least_rows,
            explain=explain,
            clock=self.scheduled.clock,
            rows=self.scheduled.rows,
        )
        target.padded, target.wants_padding = policy.padded, target.model.is_offloaded
        loop = Decoder(
            target,
            policy,
            settings.verification,
            sampler,
            list(tokens),
            Stats() if stats is None else stats,
            settings.logprobs,
            settings.top_logprobs,
            settings.post_sampling_probs,
            cancelled,
            target.model.ends_generation,
            quick_first_token=True,
            clock=self.scheduled.clock,
            # What was chosen for how a place copies weights costs as much for fewer rows.
            chunk=partial(self.scheduled.chunk, target.context.params.ubatch),
            prompt_logprobs=self._new_logprobs(tokens, settings),
        )
        generation = Generation(
            loop,
            target.model,
            settings,
            context=target.n_ctx,
            steps=self.scheduled,
            detokenizer=detokenizer,
            adapters=target.model.loras,
        )
        self._text = text = _Text(generation)
        generation.on_end = partial(self._keep, text)
        return generation

    def _predict(self, prediction: str) -> None:
        """Tell the drafters that copy what the next text is expected to be; "": nothing is known.

        Half of a surrogate pair is in no text. No more is used than fits in the context.
        """
        model, n_ctx = self.target.model, self.target.n_ctx
        known = prediction[: _MOST_LETTERS * n_ctx].encode(errors="replace").decode()
        for drafter in self.loaded.drafter_set.drafters:
            if isinstance(drafter, Suffix):
                tokens = known and model.tokenize_after(known, parse_special=False)[:n_ctx]
                drafter.predict(tokens or ())

    def _new_logprobs(
        self, tokens: Sequence[int], settings: GenerationConfig
    ) -> PromptLogprobs | None:
        """What takes the log-probabilities of a prompt; None where they are not asked for."""
        if not settings.prompt_logprobs:
            return None
        if has_media(tokens):
            raise InvalidValueError("prompt_logprobs is True; it must be False beside images")
        before, top = self._prompt_logprobs, settings.top_logprobs
        logprobs = PromptLogprobs(tokens, top, before)
        self._prompt_logprobs = logprobs if logprobs.size <= _MOST_KEPT else None
        return logprobs

    def reword(self, prompt: Sequence[int], wording: Wording) -> None:
        """Let drafters with a vocabulary of their own read a prompt as it is worded for them.

        prompt: the target's tokens, with which the next text begins.
        """
        for member in self.loaded.drafter_set.members:
            if isinstance(member.drafter, TextDrafter) and member.sequence:
                member.drafter.reword(words_of(prompt), wording(member.sequence.model))

    def closed_generation(
        self, tokens: Sequence[int], settings: GenerationConfig, stats: Stats
    ) -> Generation:
        """A generation that was cancelled before it began; it never uses the slot's caches."""
        stats.prompt_tokens = len(tokens)
        sampler = self.sampler(settings, len(tokens))
        policy = FixedDepth((), 0)
        loop = Decoder(self.target, policy, settings.verification, sampler, list(tokens), stats)
        generation = Generation(loop, self.target.model, settings, context=self.target.n_ctx)
        generation.close()
        return generation

    @property
    def is_writing(self) -> bool:
        """Whether a text has begun and not ended."""
        running = self.running
        return self.in_answer or (running is not None and running.stop_reason is None)

    @property
    def in_step(self) -> bool:
        """Whether a step of the running generation is in progress."""
        return self.scheduled.in_step

    def stop(self, interruption: Interruption | None = None) -> None:
        """Close the running generation. interruption: what has happened, if not its reader."""
        with self.lock:
            while text := self._text:
                if running := text.generation():
                    # This may wait for a step; meanwhile another thread may start a generation.
                    running.interrupt(interruption) if interruption else running.close()
                if self._text is text:
                    self._keep(text)
                    self._text = None

    def _keep(self, text: _Text) -> None:
        """Let other texts copy from one that has ended."""
        if not text.is_kept:
            text.is_kept = True
            self.loaded.drafter_set.keep(text.prompt, map(attrgetter("id"), text.tokens))

    def replace_models(self, loaded: LoadedModels) -> None:
        """Use other models or drafters; the caller has closed the ones before."""
        self.loaded = loaded
        self._prompt_logprobs = None

    def close(self) -> None:
        """Free the KV caches, but not the models."""
        self._scheduler.remove(self.scheduled)
        self.loaded.close_caches()

    def copy_from(self, other: "Slot") -> None:
        """Copy the KV caches of another slot of the same models."""
        with self.lock:
            self.stop()
            # A new slot lacks what is on a machine that is gone, or was lost with a device.
            own = {each.place: each for each in self._caches()}
            for theirs in other._caches():
                if theirs.is_lost or (mine := own.get(theirs.place)) is None:
                    continue
                with unless_lost(theirs):
                    theirs.sequence.roll_back()
                    if not mine.sequence.share(theirs.sequence, theirs.sequence.memory.length):
                        mine.sequence.restore(theirs.sequence.state())

    def save(self, key: str, store: StateStore) -> str | None:
        """Save all KV caches on disk; returns the reason if that fails, else None."""
        with self.lock:
            if has_media(self.target.tokens):
                return "texts with images are not saved"
            for cache in self._caches(key):
                with unless_lost(cache):
                    states = cache.states()
                    if self.target.tokens and not self.target.memory.length:
                        return "its cache has to be read again first"
                    if self.target.tokens and not states[STATE].tokens and not cache.of_drafter:
                        store.remove(cache.key)
                        return "its cache cannot be copied"
                    store.save(cache.key, cache.origin(self.loaded), states)
                if why := store.problem:
                    if cache.of_drafter:
                        store.remove(key)  # it is kept as a whole, or not at all
                    return why
        return None

    def load(self, key: str, store: StateStore) -> str | None:
        """Load the saved KV caches; returns the reason if the target's fails, else None."""
        failure = None
        with self.lock:
            self.stop()
            for cache in self._caches(key):
                states = store.load(cache.key, cache.origin(self.loaded))
                with unless_lost(cache):
                    if cache.restore(states):
                        continue
                if cache.sequence is self.target:
                    missing = (
                        "it does not fit this context"
                        if states
                        else "nothing was saved under this key"
                    )
                    failure = store.problem or missing
        return failure

    @property
    def origin(self) -> Origin:
        """What a saved KV cache of the target must have been made with."""
        return self._caches()[0].origin(self.loaded)

    def _caches(self, key: str = "") -> list[SlotCache]:
        """Every KV cache of this slot. key: the key that the text is saved under."""
        target = SlotCache(key, self.target, self.loaded.runtime.kv_type)
        # Keys do not name the drafters: the state of another drafter takes the place of this one's.
        drafters = [
            SlotCache(
                f"{key}{PART}drafter {number}", member.sequence, member.kv_type, member.drafter.name
            )
            for number, member in enumerate(self.loaded.drafter_set.members)
            if member.sequence
        ]
        return [target, *drafters]

    def set_pass_width(self, settings: GenerationConfig) -> int:
        """Set the least rows per pass for these settings; returns the context size in tokens."""
        self._set_width(self.target, settings)
        return self.target.n_ctx

    def sampler(
        self, settings: GenerationConfig, prompt_tokens: int, begun: Begun = NOTHING_BEGUN
    ) -> Sampler:
        """The sampler of a generation. prompt_tokens: the length of its prompt."""
        endless = settings.ignore_eos or settings.min_tokens
        return Sampler(
            self.params(settings),
            settings.verification.randomness(settings.seed),
            ends=self.target.model.end_tokens if endless else (),
            earliest_end=_NEVER if settings.ignore_eos else prompt_tokens + settings.min_tokens,
            constraint=constraint_behind(settings, self.target.model, begun.described),
            earlier=begun.sampler_state,
        )

    def params(self, settings: GenerationConfig) -> SamplingParams:
        """The sampling parameters for this model, suppressed tokens included."""
        model = self.target.model
        params = self.loaded.params(settings)
        for token in params.logit_bias:
            require("logit_bias token", token, 0, model.n_vocab - 1)
        never = dict.fromkeys(model.suppressed_tokens, float("-inf"))
        breakers = params.dry_sequence_breakers if params.has_dry else ()
        return replace(
            params,
            logit_bias={**params.logit_bias, **never},
            dry_breaker_tokens=breaker_tokens(model, breakers) if breakers else {},
        )

    def reproducible_width(self, settings: GenerationConfig) -> InvariantWidth | None:
        """The pass width of a reproducible text; None without `reproducible`."""
        return self.width_class(self._deepest_asked(settings))

    def width_class(self, depth: int) -> InvariantWidth | None:
        """The pass width of a reproducible text at this depth; None without `reproducible`.

        It is looked up at the first generation of each depth; a probe, where there was none,
        empties the KV cache.
        """
        if not self.loaded.runtime.reproducible or self.target.rollback is not Rollback.PARTIAL:
            return None
        known = self.loaded.widths
        if depth not in known:
            with self.lock:
                self.stop()
                # A policy of an earlier generation may have set a padding.
                self.target.padded = int
                known[depth] = invariant_width(self.target, 1 + depth, self.loaded.runtime)
        return known[depth]

    def new_context(self, settings: GenerationConfig, n_ctx: int | None = None) -> KVSequence:
        """Another context of the target, set up for these settings; the caller closes it.

        n_ctx: the most tokens of its text; None: as many as the target's. Raises ModelLoadError if
        it does not fit in memory.
        """
        context = self.loaded.new_target(n_ctx)
        self._set_width(context, settings)
        return context

    def _deepest(self, settings: GenerationConfig) -> int:
        deepest, width = self._deepest_asked(settings), self.reproducible_width(settings)
        return min(deepest, width.least_rows - 1) if width and width.is_uniform else deepest

    def _deepest_asked(self, settings: GenerationConfig) -> int:
        return deepest_draft(settings, reproducible=self.loaded.runtime.reproducible)

    def _set_width(self, context: KVSequence, settings: GenerationConfig) -> None:
        width = self.reproducible_width(settings) or InvariantWidth(1, 1.0)
        context.set_width(width.least_rows, is_uniform=width.is_uniform)
