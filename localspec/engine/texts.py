"""Texts: what an engine writes for a prompt or for many, at once, in parts, or in an event loop."""

import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Unpack, overload

from localspec.control.explanation import Explain
from localspec.engine.background import Background
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Generation, Result, Token
from localspec.engine.prompt import (
    Prompt,
    Prompts,
    TextPrompt,
    checked_ids,
    prompts_of,
    text_tokens,
)
from localspec.engine.side_by_side import side_by_side
from localspec.engine.slot_loan import SlotLoan
from localspec.engine.slots import Slots
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig, GenerationOptions, concrete
from localspec.llama.model import Model
from localspec.stats import Seconds, Stats
from localspec.utils.option_types import typed_options

Cancelled = Callable[[], bool]

_IN_LOOP = "a text of an event loop cannot be written"


class TextOptions(GenerationOptions, total=False):
    """The keyword arguments of `Texts.generate`, as a type."""

    cancel: threading.Event | None
    explain: Explain | None
    template_options: Mapping[str, Any] | None


class AsyncGeneration(Background[Token, Result]):
    """A text for `async for`, token by token; `await` it for the whole `Result`.

    `Engine.astream` returns it. It is written in a thread of its own, a few tokens ahead. To stop,
    cancel the task that reads it, call `aclose`, or leave the `async with`: the text ends within
    one step, and the KV caches stay consistent.
    """


class Texts:
    """The texts of an engine: `generate` and `stream`, `agenerate` and `astream`.

    slots: where texts are written; sessions and servers keep some of them. load_seconds: what
    loading took, for the texts' stats.
    """

    def __init__(self, slots: Slots, load_seconds: float) -> None:
        self.slots = slots
        self._load_seconds = load_seconds

    @overload
    def generate(self, prompt: Prompt, **options: Unpack[TextOptions]) -> Result: ...

    @overload
    def generate(self, prompt: Prompts, **options: Unpack[TextOptions]) -> list[Result]: ...

    def generate(
        self,
        prompt: Prompt | Prompts,
        *,
        cancel: threading.Event | None = None,
        explain: Explain | None = None,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Result | list[Result]:
        """Generate the whole text. The arguments are those of `stream`.

        prompt: also a list of prompts. Their texts are written side by side; the results come in
        the order of the prompts. A list of messages is one prompt, and so is a list of token ids;
        an empty list is no prompt, and its result is [].
        Log-probabilities are computed only with `logprobs=True`.

        The first error of one of several texts stops the others, and is raised. Raises
        LocalspecError if the engine is closed or switched before the text has ended: `cancelled` is
        a text that `cancel` has ended.
        """
        asked = _asked(cancel, explain)
        return self._generate(prompt, concrete(options), asked, explain, template_options)

    def stream(
        self,
        prompt: Prompt,
        *,
        cancel: threading.Event | None = None,
        explain: Explain | None = None,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Generation:
        """Generate token by token.

        prompt: a text to continue, token ids, or chat messages for the model's template.
        cancel: set this event, from any thread, to stop within one step.
        explain: called before each step with the reasons of the policy's decision (not at a fixed
        depth), in the thread that writes.
        template_options: further variables of the chat template, such as `enable_thinking`; only
        for messages.
        options: the fields of GenerationConfig and SamplingParams. An option that is not given has
        the value of the target's pair, else the GGUF's, else the default; `logprobs` is on by
        default.

        The stream may be left at any token: close it, or forget it. Other texts may be written
        meanwhile; each has KV caches of its own. Where memory has no room for more, a new text
        waits until another one has ended.

        Raises InvalidValueError for a value that makes no sense and for a prompt that does not fit;
        ModelLoadError if there is no room for another text, and nothing to wait for; LocalspecError
        in an `explain`, which cannot wait. The stream raises LocalspecError if the engine is closed
        or switched before its end.
        """
        cancelled = _asked(cancel, explain)
        settings = GenerationConfig.of(**{"logprobs": True, **options})
        asked = TextPrompt(prompt, template_options)
        return self._start(asked, settings, cancelled, explain)

    @overload
    async def agenerate(self, prompt: Prompt, **options: Unpack[TextOptions]) -> Result: ...

    @overload
    async def agenerate(self, prompt: Prompts, **options: Unpack[TextOptions]) -> list[Result]: ...

    async def agenerate(
        self,
        prompt: Prompt | Prompts,
        *,
        cancel: threading.Event | None = None,
        explain: Explain | None = None,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Result | list[Result]:
        """`generate` for an event loop, which goes on meanwhile.

        Cancelling the task ends the text within one step.
        """
        given = concrete(options)
        GenerationConfig.of(**given)
        _asked(cancel, explain)
        self.slots.scheduler.require_no_step(_IN_LOOP)

        def work(stopped: Cancelled) -> Generator[None, None, Result | list[Result]]:
            yield from ()
            asked = _asked(cancel, explain, stopped)
            return self._generate(prompt, given, asked, explain, template_options)

        return await Background(work)

    def astream(
        self,
        prompt: Prompt,
        *,
        cancel: threading.Event | None = None,
        explain: Explain | None = None,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> AsyncGeneration:
        """`stream` for an event loop: `async for token in engine.astream(...)`.

        An error of the prompt is raised by the first `await`.
        """
        settings = GenerationConfig.of(**{"logprobs": True, **options})
        asked = TextPrompt(prompt, template_options)
        _asked(cancel, explain)
        self.slots.scheduler.require_no_step(_IN_LOOP)

        def work(stopped: Cancelled) -> Generator[Token, None, Result]:
            either = _asked(cancel, explain, stopped)
            with self._start(asked, settings, either, explain) as running:
                yield from running
                return running.result()

        return AsyncGeneration(work)

    def go_on(
        self,
        ended: Generation,
        tokens: Sequence[int],
        settings: GenerationConfig,
        *,
        cancel: threading.Event | None = None,
        explain: Explain | None = None,
    ) -> Generation:
        """Go on with a text that was closed; stats and detokenizer go on from where they were.

        tokens: the whole text so far, the prompt included. settings: those of the rest.
        """
        prompt = TextPrompt(tokens)
        return self._start(prompt, settings, _asked(cancel, explain), explain, ended)

    @typed_options
    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        """The token ids of a text.

        add_special: add the tokens that begin and end a text, where the model wants them, as
        `generate` does with a text to continue.
        """
        with self.slots.lock:
            model = self._model
            return text_tokens(text, lambda each: model.tokenize(each, add_special=add_special))

    def detokenize(self, ids: Iterable[int]) -> str:
        """The text of token ids; control tokens, such as those that end a text, have none.

        Raises InvalidValueError for a token id that the model does not have.
        """
        with self.slots.lock:
            model = self._model
            try:
                known = checked_ids("token", ids, model)
            except TypeError as error:
                raise InvalidValueError(f"ids is {ids!r:.60}; it must be token ids") from error
            text = Detokenizer()
            return "".join([text.push(model.piece(token)) for token in known]) + text.flush()

    def _generate(
        self,
        prompt: Prompt | Prompts,
        options: GenerationOptions,
        cancelled: Cancelled,
        explain: Explain | None,
        template_options: Mapping[str, Any] | None,
    ) -> Result | list[Result]:
        def write(each: TextPrompt, stopped: Cancelled) -> Result:
            settings = GenerationConfig.of(**options)
            running = self._start(each, settings, stopped, explain)
            try:
                return running.result()
            finally:
                running.close()

        several = prompts_of(prompt)
        if several is None:
            return write(TextPrompt(prompt, template_options), cancelled)
        GenerationConfig.of(**options)  # also where there is no prompt
        self.slots.scheduler.require_no_step("several texts cannot be written")
        return side_by_side(self._checked(several, template_options), write, cancelled)

    def _checked(
        self, prompts: Sequence[Prompt], template_options: Mapping[str, Any] | None
    ) -> list[TextPrompt]:
        """The prompts, tokenized. Raises InvalidValueError before any text is begun."""
        checked = [TextPrompt(prompt, template_options) for prompt in prompts]
        with self.slots.lock:
            for number, prompt in enumerate(checked):
                try:
                    self._check(prompt)
                except InvalidValueError as error:
                    raise InvalidValueError(f"in the list, number {number}: {error}") from error
        return checked

    @property
    def _model(self) -> Model:
        """The target. Raises LocalspecError where the engine was closed."""
        self.slots.scheduler.require_open()
        return self.slots.own.target.model

    def _check(self, prompt: TextPrompt) -> list[int]:
        """The token ids of a prompt that has no slot yet; the lock is held."""
        return prompt.tokens(self._model, self.slots.own.target.n_cells)

    def _start(
        self,
        prompt: TextPrompt,
        settings: GenerationConfig,
        cancelled: Cancelled,
        explain: Explain | None,
        before: Generation | None = None,
    ) -> Generation:
        """Begin a text; one that is cancelled while it waits for a slot has ended already.

        before: the part of the text before this one.
        """
        slots = self.slots
        stats = before.stats if before else Stats(seconds=Seconds(load=self._load_seconds))
        loan: SlotLoan | None = None
        try:
            with slots.lock:
                tokens = self._check(prompt)
                if before is None:  # in a text the threads stay: digits depend on them
                    slots.fit_threads()
                loan = slots.lend_to_text(cancelled)
                if loan is None:
                    return slots.own.closed_generation(tokens, settings, stats)
                slot = loan.slot
                # The model may be another one by now.
                tokens = prompt.tokens(slot.target.model, slot.set_pass_width(settings))
                slot.reword(tokens, prompt.wording)
                generation = slot.start(
                    tokens,
                    settings,
                    stats=stats,
                    detokenizer=before.detokenizer if before else None,
                    cancelled=cancelled,
                    explain=explain,
                )
                slots.leave_at_end(loan, generation)
                generation.engine = self
        except BaseException:
            if loan:
                loan.give_back()
            raise
        return generation


def _asked(
    cancel: threading.Event | None, explain: Explain | None, stopped: Cancelled = lambda: False
) -> Cancelled:
    """Whether a text shall end. Raises InvalidValueError for no event, and for no function."""
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise InvalidValueError(f"cancel is {cancel!r:.60}; it must be a threading.Event")
    if explain is not None and not callable(explain):
        raise InvalidValueError(f"explain is {explain!r:.60}; it must be a function")
    return stopped if cancel is None else lambda: cancel.is_set() or stopped()
