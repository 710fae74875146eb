"""Engine: a loaded target and its drafter, generating text."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import index
from pathlib import Path
from time import perf_counter
from typing import Unpack, cast

from localspec import drafting
from localspec.drafters.base import Drafter
from localspec.drafting import Drafting
from localspec.errors import InvalidValueError
from localspec.generation import Generation, Result
from localspec.llama import library
from localspec.llama.chat_template import Message, render
from localspec.llama.context import Context, Rollback
from localspec.llama.model import Model
from localspec.llama.width import WidthClass, probe
from localspec.models import gguf_check, registry
from localspec.models.gguf import Header
from localspec.recipe import Recipe
from localspec.runtime import Runtime
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Constraint
from localspec.sampling.sampler import Sampler
from localspec.settings import SettingOptions, Settings, require
from localspec.speculation.loop import Loop
from localspec.stats import Seconds, Stats

_NEVER = 2**63
# A text to be continued, the token ids of one, or the messages of a chat to be answered.
Prompt = str | Sequence[int] | Sequence[Message]


class Engine:
    """A target and at most one drafter, with their caches.

    Make it with `load`; close it (or use `with`) to free both models. One generation runs at a
    time: starting another closes the one before. What a new prompt shares with the text in the
    caches is not evaluated again.
    """

    def __init__(
        self,
        target: Context,
        header: Header,
        runtime: Runtime,
        drafted: Drafting,
        load_seconds: float,
    ) -> None:
        self._runtime = runtime
        self.drafting = drafted
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
    def prefers_chat(self) -> bool:
        """Whether a bare prompt is best taken as a chat turn: the GGUF has a template for it."""
        pair = registry.pair_of(self.model.path)
        return self.model.chat_template is not None and (pair is None or pair.prompt == "chat")

    def generate(
        self,
        prompt: Prompt,
        *,
        cancel: threading.Event | None = None,
        **options: Unpack[SettingOptions],
    ) -> Result:
        """Generate to the end; `stream` says what the arguments mean.

        Log-probabilities are worked out only with `logprobs=True`.
        """
        return self._start(prompt, Settings.of(**options), cancel).result()

    def stream(
        self,
        prompt: Prompt,
        *,
        cancel: threading.Event | None = None,
        **options: Unpack[SettingOptions],
    ) -> Generation:
        """Generate token by token.

        prompt: a text to be continued, token ids, or chat messages for the model's template.
        cancel: set it, from any thread, to stop within one step.
        options: those of Settings and SamplingParams; what is not given comes from the GGUF, else
        from the defaults. `logprobs` is on unless turned off.

        Raises InvalidValueError for a value that makes no sense and for a prompt that does not fit.
        """
        return self._start(prompt, Settings.of(**{"logprobs": True, **options}), cancel)

    def _start(
        self, prompt: Prompt, settings: Settings, cancel: threading.Event | None
    ) -> Generation:
        cancelled = cancel.is_set if cancel else lambda: False
        self._target.least_rows = self._least_rows(settings.depth)
        tokens = self._tokens(prompt)
        loop = Loop(
            self._target,
            self.drafting.drafter,
            settings.verification,
            self.sampler(settings, len(tokens)),
            settings.depth,
            tokens,
            Stats(seconds=Seconds(load=self._load_seconds)),
            settings.logprobs,
            settings.top_logprobs,
            cancelled,
        )
        if self._running:
            self._running.close()
        self._running = Generation(loop, self._target, self.model, settings, context=self.context)
        return self._running

    def close(self) -> None:
        """Free both models and their caches."""
        if self._running:
            self._running.close()
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

    def width_class(self, depth: int) -> WidthClass | None:
        """How wide passes must be for a reproducible text at this depth; None if none is asked for.

        Found out at the first generation of each depth; it empties the cache.
        """
        if not self._runtime.reproducible or self._target.rollback is not Rollback.PARTIAL:
            return None
        if depth not in self._widths:
            self._widths[depth] = probe(self._target, 1 + depth)
        return self._widths[depth]

    def new_context(self, depth: int) -> Context:
        """Another cache of the target, set up as its own is for this depth; close it."""
        context = self._runtime.context_for(self.model, self._header, self.context)
        context.least_rows = self._least_rows(depth)
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
        )

    def _least_rows(self, depth: int) -> int:
        width = self.width_class(depth)
        return width.least_rows if width else 1

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

    def _tokens(self, prompt: Prompt) -> list[int]:
        tokens = self._tokenized(prompt)
        if not tokens:
            raise InvalidValueError("the prompt is empty; give some text to go on from")
        if len(tokens) >= self.context:
            raise InvalidValueError(
                f"the prompt has {len(tokens)} tokens and the context holds {self.context}; "
                "shorten it or raise --ctx"
            )
        return tokens

    def _tokenized(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self._text_tokens(prompt)
        items = list(prompt) if isinstance(prompt, Iterable) else [None]
        if items and all(isinstance(item, Mapping) for item in items):
            return self._chat_tokens(cast("list[Message]", items))
        try:
            ids = [index(cast("int", item)) for item in items]
        except TypeError as error:
            raise InvalidValueError(
                f"the prompt is {prompt!r:.60}; it must be a text, token ids, or chat messages"
            ) from error
        for token in ids:
            require("prompt token", token, 0, self.model.n_vocab - 1)
        return ids

    def _text_tokens(self, text: str) -> list[int]:
        try:
            return self.model.tokenize(text)
        except UnicodeEncodeError as error:
            raise InvalidValueError(
                f"the prompt is no valid Unicode: character {error.start} is {text[error.start]!r}"
            ) from error

    def _chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        model = self.model
        if not model.chat_template:
            raise InvalidValueError(
                f"{model.path.name} has no chat template; give it a raw prompt (--raw)"
            )
        bos, eos = (
            model.piece_text(token) if token >= 0 else "" for token in (model.bos, model.eos)
        )
        tokens = self._text_tokens(render(model.chat_template, messages, bos=bos, eos=eos))
        # Many templates write BOS themselves, and then the tokenizer adds a second one.
        return tokens[1:] if tokens[:2] == [model.bos] * 2 else tokens


def load(
    model: str | Path | None = None,
    draft: str | Path | Drafter = "auto",
    *,
    context: int | None = None,
    gpu_layers: int | None = None,
    threads: int | None = None,
    flash_attention: bool | None = None,
    reproducible: bool = False,
) -> Engine:
    """Load a target and its drafter; use the result in a `with`.

    model: the path of a GGUF; None is the bundled one. draft: `auto`, `none`, `lookup`, `ngram`,
    the path of a GGUF, or any object with the Drafter protocol. The options are those of Runtime;
    None leaves them to localspec.

    Raises ModelNotFoundError, ModelLoadError, DrafterMismatchError, InvalidValueError.
    """
    began = perf_counter()
    library.forget_interrupt()
    runtime = Runtime(context, gpu_layers, threads, flash_attention, reproducible)
    path = registry.default_pair().target if model is None else Path(model)
    header = gguf_check.check_generative(path)
    loaded = Model(path, gpu_layers=gpu_layers)
    target: Context | None = None
    try:
        target = runtime.context_for(loaded, header, runtime.context_size(loaded))
        drafted = drafting.choose(draft, target, runtime)
    except BaseException:
        if target:
            target.close()
        loaded.close()
        raise
    engine = Engine(target, header, runtime, drafted, perf_counter() - began)
    try:
        library.raise_interrupt()
    except KeyboardInterrupt:
        engine.close()
        raise
    return engine
