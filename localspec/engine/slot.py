"""Slot: the caches of one text, and what runs over them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from localspec.control.adaptive import Explain
from localspec.control.policies import deepest_draft
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Generation
from localspec.engine.state_store import StateStore
from localspec.generation_config import GenerationConfig, require
from localspec.llama import library
from localspec.llama.batch_invariance import InvariantWidth, probe
from localspec.llama.context import Context
from localspec.llama.rollback import Rollback
from localspec.loading.fingerprints import fingerprint
from localspec.loading.loader import LoadedModels
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Constraint
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.stats import Stats
from localspec.utils.fair_lock import FairLock

_NEVER = 2**63
_STATE = "state"


@dataclass(frozen=True, slots=True)
class _Cache:
    """A cache that can be saved. key: its name on disk. kv_type: of its keys and values."""

    key: str
    context: Context
    kv_type: str


class Slot:
    """A cache of the target, the drafters that follow its text, and the generation that runs.

    Starting a generation closes the one before. Steps of several slots take turns.
    """

    def __init__(self, loaded: LoadedModels, lock: FairLock) -> None:
        self.loaded = loaded
        self.lock = lock
        self._running: Generation | None = None

    @property
    def target(self) -> Context:
        """The target's cache."""
        return self.loaded.target

    def start(
        self,
        tokens: Sequence[int],
        settings: GenerationConfig,
        *,
        stats: Stats | None = None,
        detokenizer: Detokenizer | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        explain: Explain | None = None,
    ) -> Generation:
        """Start a generation after these tokens; the slot's last generation is closed.

        stats, detokenizer: those of the earlier parts, for a text generated in several parts.
        """
        sampler = self.sampler(settings, len(tokens))
        self.stop()
        self.set_pass_width(settings)
        target, deepest = self.target, self._deepest(settings)
        policy = self.loaded.policies.policy(
            settings,
            sampler.params.temperature,
            deepest=deepest,
            least_rows=target.least_rows,
            explain=explain,
        )
        target.padded = policy.padded
        loop = Decoder(
            target,
            policy,
            settings.verification,
            sampler,
            list(tokens),
            Stats() if stats is None else stats,
            settings.logprobs,
            settings.top_logprobs,
            cancelled,
            target.model.ends_generation,
            quick_first_token=True,
        )
        self._running = Generation(
            loop,
            target,
            target.model,
            settings,
            context=target.n_ctx,
            lock=self.lock,
            detokenizer=detokenizer,
        )
        return self._running

    def stop(self) -> None:
        """End what runs; its text is kept to draft from, where texts are."""
        # The garbage collector may release an abandoned session in the middle of a step of the
        # generation that came after it: that one goes on.
        if self._running is None or self._running.in_step:
            return
        running, self._running = self._running, None
        running.close()
        if past := self.loaded.drafter_set.past:
            past.add([*running.prompt, *(token.id for token in running.tokens)])

    def take(self, loaded: LoadedModels) -> None:
        """Go on with other models or drafters; those before are closed already."""
        self.loaded = loaded

    def copy(self, other: "Slot") -> None:
        """Hold the text of another slot of the same models, without evaluating it."""
        with self.lock:
            self.stop()
            for mine, theirs in zip(self._caches(), other._caches(), strict=True):
                mine.context.restore(theirs.context.state())

    def save(self, key: str, store: StateStore) -> str | None:
        """Keep all caches on disk; returns why not, if not."""
        with self.lock:
            for cache in self._caches(key):
                store.save(cache.key, self._origin(cache), {_STATE: cache.context.state()})
                if store.problem:
                    return store.problem
        return None

    def load(self, key: str, store: StateStore) -> str | None:
        """Hold what was kept; returns why the target does not, if so."""
        failure = None
        with self.lock:
            self.stop()
            for cache in self._caches(key):
                state = store.load(cache.key, self._origin(cache)).get(_STATE)
                if state and cache.context.restore(state):
                    continue
                if cache.context is self.target:
                    missing = (
                        "it does not fit this context" if state else "nothing is kept by this name"
                    )
                    failure = store.problem or missing
        return failure

    def remove(self, key: str, store: StateStore) -> None:
        """Delete what was kept."""
        for cache in self._caches(key):
            store.remove(cache.key)

    def _caches(self, key: str = "") -> list[_Cache]:
        """Every cache of this slot. key: what its text is called on disk."""
        target = _Cache(key, self.target, self.loaded.runtime.kv_type)
        drafters = [
            _Cache(f"{key}, drafter {each.drafter.name}", each.context, each.kv_type)
            for each in self.loaded.drafter_set.members
            if each.context
        ]
        return [target, *drafters]

    def _origin(self, cache: _Cache) -> dict[str, object]:
        """What must be equal for a saved cache to be of use."""
        return {
            "model file": fingerprint(cache.context.model.path),
            "llama.cpp": library.version(),
            "kv type": cache.kv_type,
            "flash attention": self.loaded.runtime.flash,
            "snapshots": cache.context.snapshots,
        }

    def set_pass_width(self, settings: GenerationConfig) -> int:
        """How many tokens of text fit; from here on passes are as wide as these settings want."""
        self.target.least_rows = self._least_rows(self._deepest(settings))
        return self.target.n_ctx

    def sampler(self, settings: GenerationConfig, prompt_tokens: int) -> Sampler:
        """How tokens are chosen after a prompt of so many tokens."""
        endless = settings.ignore_eos or settings.min_tokens
        return Sampler(
            self.params(settings),
            settings.verification.randomness(settings.seed),
            ends=self.target.model.end_tokens if endless else (),
            earliest_end=_NEVER if settings.ignore_eos else prompt_tokens + settings.min_tokens,
            constraint=self._constraint(settings),
        )

    def params(self, settings: GenerationConfig) -> SamplingParams:
        """The sampler's settings for this model."""
        model = self.target.model
        params = settings.params(self.loaded.header.metadata)
        for token in params.logit_bias:
            require("logit_bias token", token, 0, model.n_vocab - 1)
        never = dict.fromkeys(model.suppressed_tokens, float("-inf"))
        return replace(params, logit_bias={**params.logit_bias, **never})

    def reproducible_width(self, settings: GenerationConfig) -> InvariantWidth | None:
        """How wide passes are for a reproducible text; None if none is asked for."""
        return self.width_class(self._deepest(settings))

    def width_class(self, depth: int) -> InvariantWidth | None:
        """How wide passes must be for a reproducible text at this depth; None if none is asked for.

        Found out at the first generation of each depth; it empties the cache.
        """
        if not self.loaded.runtime.reproducible or self.target.rollback is not Rollback.PARTIAL:
            return None
        known = self.loaded.widths
        if depth not in known:
            with self.lock:
                self.stop()
                known[depth] = probe(self.target, 1 + depth)
        return known[depth]

    def new_context(self, settings: GenerationConfig) -> Context:
        """Another cache of the target, set up as this one is with these settings; close it."""
        context = self.loaded.new_target()
        context.least_rows = self._least_rows(self._deepest(settings))
        return context

    def _deepest(self, settings: GenerationConfig) -> int:
        return deepest_draft(settings, reproducible=self.loaded.runtime.reproducible)

    def _least_rows(self, depth: int) -> int:
        width = self.width_class(depth)
        return width.least_rows if width else 1

    def _constraint(self, settings: GenerationConfig) -> Constraint | None:
        compiled = settings.compiled_grammar()
        if compiled is None:
            return None
        from localspec.llama.grammar import Grammar  # see GenerationConfig.compiled_grammar

        return Grammar.begin(compiled, self.target.model)
