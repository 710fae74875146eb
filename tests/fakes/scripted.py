"""An engine that says what a script tells it, for tests of the chat.

Only the models are made up: the real `Session` runs over it, so turns,
events, statistics, thoughts and a full context are the real thing.

    script = Script(answers=["Hello.", "Bye."], rate=300)
    worker = Worker(script.load)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
from fakes.machine import FakeClock

from localspec.engine.begun import Begun
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Generation
from localspec.engine.prompt import Wording
from localspec.engine.scheduler import Scheduler
from localspec.engine.slot_loan import SlotLoan
from localspec.generation_config import GenerationConfig
from localspec.llama.context_params import ContextParams
from localspec.llama.rollback import Rollback
from localspec.loading.drafter_set import DrafterSet, SequenceDrafter
from localspec.models import registry
from localspec.speculation.emission import Emission
from localspec.speculation.equal_digits import EqualDigits
from localspec.speculation.passes import Compute, Pass, Scores
from localspec.stats import Stats
from localspec.utils.running_clock import running_clock
from localspec.utils.tokens import common_prefix

MISMATCH = "vocabulary differs at token 151,643"
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
_END = 0
_BYTES_PER_TOKEN = 4


@dataclass
class Script:
    """What engines loaded from it do; all of it may be changed while they run.

    answers: in turn, again from the first after the last; the same prompt with the same seed gets
    the same answer. `<think>` works in them. rate: tokens per second, at most; 0 is as fast as can
    be.
    plain_seconds: of one plain step; None: not measured. clock: advanced by as much in each step,
    in place of the rate.
    origins: of one token after another; `draft` stands for the drafter's name, and any other ends
    a step. Without drafters all tokens are plain. names, reason: of the drafting that `auto` gives.
    metadata: of the model's file. listed: the sampling that models.toml recommends.
    fails: what is raised at `load`, `send`, `answer` (after its second token) or `switch`.
    engines: those that were loaded, in order.
    """

    answers: Sequence[str] = ("Hello, I am a script.",)
    rate: float = 0.0
    origins: Sequence[str] = ("draft", "draft", "corrected", "draft", "bonus", "plain")
    names: Sequence[str] = ("suffix",)
    reason: str | None = None
    notes: Sequence[str] = ()
    context: int = 8192
    template: str | None = TEMPLATE
    plain_seconds: float | None = 0.0055
    clock: FakeClock | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    listed: dict[str, float] = field(default_factory=dict)
    digits: EqualDigits | None = None
    fails: dict[str, Exception] = field(default_factory=dict)
    engines: list["ScriptedEngine"] = field(default_factory=list)

    def load(
        self,
        model: str | Path | None = None,
        draft: Any = "auto",
        *,
        context: int | None = None,
        **options: Any,
    ) -> "ScriptedEngine":
        """In place of `localspec.engine.engine.load`."""
        self.require("load")
        self.engines.append(ScriptedEngine(self, model, draft, context or self.context, options))
        return self.engines[-1]

    def require(self, what: str) -> None:
        """Raise what this fails with, if it does."""
        if what in self.fails:
            raise self.fails[what]

    def drafter_set(self, draft: Any) -> DrafterSet:
        """The drafters that `draft` asks for."""
        if draft == "none":
            return DrafterSet((), "drafting was turned off")
        names = self.names if draft == "auto" else str(draft).split(",")
        drafters: list[Any] = [SimpleNamespace(name=name) for name in names]
        members = tuple(SequenceDrafter(drafter) for drafter in drafters)
        return DrafterSet(members, self.reason if draft == "auto" else None)


class ScriptedEngine:
    """As `Engine`. options: those that it was loaded with, for tests to read."""

    def __init__(
        self, script: Script, model: str | Path | None, draft: Any, context: int, options: Any
    ) -> None:
        self.options = {**options, "context": context}
        self.context = context
        self.closed = False
        self._script = script
        self._take(model, draft, options.get("chat_template"))
        self.slots = ScriptedSlots(script, self)

    @property
    def notes(self) -> Sequence[str]:
        return self._script.notes

    @property
    def equal_digits(self) -> EqualDigits | None:
        return self._script.digits

    @property
    def prefers_chat(self) -> bool:
        return self.model.chat_template is not None

    def switch(self, model: str | Path | None = None, draft: Any = None) -> None:
        self.slots.own.stop()
        self._script.require("switch")
        self._take(model or self._name, draft or self._draft)
        if model:
            self.slots.own.target = ScriptedTarget(self.model, self.context)

    def close(self) -> None:
        self.slots.own.stop()
        self.closed = True

    def _take(self, model: str | Path | None, draft: Any, template: str | None = None) -> None:
        self._name, self._draft = model, draft
        path = Path(model or registry.bundled().target)
        self.model = ScriptedModel(path, template or self._script.template)
        self.drafter_set = self._script.drafter_set(draft)


class ScriptedModel:
    """As `localspec.llama.model.Model`: a few bytes of text are a token, whatever they are."""

    vocabulary_fingerprint = "scripted"
    size = 0
    n_ctx_train = 32_768
    rotates = True
    bos = eos = -1
    projector: Any = None
    adapters: Sequence[Any] = ()

    def __init__(self, path: Path, template: str | None) -> None:
        self.path = path
        self.chat_template = template

    def tokenize(self, text: str) -> list[int]:
        data, size = text.encode(), _BYTES_PER_TOKEN
        chunks = (data[start : start + size] for start in range(0, len(data), size))
        return [int.from_bytes(b"\x01" + chunk) for chunk in chunks]

    def count_tokens(self, text: str) -> int:
        return len(self.tokenize(text))

    def tokenize_after(self, text: str, *, parse_special: bool = True) -> list[int]:
        return self.tokenize(text)

    spell_after = tokenize_after

    def piece(self, token: int) -> bytes:
        return token.to_bytes(_BYTES_PER_TOKEN + 1).lstrip(b"\x00")[1:]

    def piece_text(self, token: int) -> str:
        return self.piece(token).decode("utf-8", "replace")

    def ends_generation(self, token: int) -> bool:
        return token == _END


class ScriptedTarget:
    """A cache as `localspec.llama.sequence.KVSequence`, which counts what it has to evaluate."""

    most_kept = 64
    takes_back = None
    scores_drafts = True
    rollback = Rollback.PARTIAL

    def __init__(self, model: ScriptedModel, n_ctx: int) -> None:
        self.model = model
        self.n_ctx = n_ctx
        self.n_vocab = 1 << 8 * (_BYTES_PER_TOKEN + 1)
        self.cache: list[int] = []
        self.params = ContextParams(n_ctx)

    def shared(self, tokens: Sequence[int]) -> int:
        return common_prefix(self.cache, tokens)

    def truncate(self, length: int) -> int:
        del self.cache[length:]
        return length

    @property
    def context(self) -> "ScriptedTarget":
        return self

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        for each in passes:
            self.cache += each.tokens
        return [Scores(np.empty((0, 0), np.float32)) for _ in passes]

    def rows_of(self, requested: Pass) -> int:
        return len(requested)

    def mark(self) -> None:
        pass


class ScriptedSlots:
    """As `Slots`: all sessions have the same slot."""

    failures = None

    def __init__(self, script: Script, engine: ScriptedEngine) -> None:
        self.scheduler = Scheduler()
        self.lock = self.scheduler.lock
        self.own = ScriptedSlot(script, engine, self.scheduler)

    def fit_threads(self) -> None:
        pass

    def lend(self, _session: object) -> SlotLoan:
        own = self.own
        return SlotLoan(own, lambda: self.leave(own))  # type: ignore[arg-type]

    def leave(self, slot: "ScriptedSlot") -> None:
        slot.stop()


class ScriptedSlot:
    """As `Slot`. started: the settings of every generation, for tests to read."""

    def __init__(self, script: Script, engine: ScriptedEngine, scheduler: Scheduler) -> None:
        self.target = ScriptedTarget(engine.model, engine.context)
        self.started: list[GenerationConfig] = []
        self.lock = scheduler.lock
        self.scheduled = scheduler.new_text()
        self.loaded = SimpleNamespace(
            apart=None,
            threads_note=None,
            notes=(),
            drafters=SimpleNamespace(lost=None),
            longest_context=ScriptedModel.n_ctx_train,
            header=SimpleNamespace(metadata=script.metadata),
            listed=script.listed,
        )
        self._script = script
        self._engine = engine
        self._scheduler = scheduler
        self._running: Generation | None = None
        self._of: Stats | None = None
        self._text = ""
        self._said: dict[tuple[tuple[int, ...], int], str] = {}

    @property
    def drafter_set(self) -> DrafterSet:
        return self._engine.drafter_set

    @property
    def is_closed(self) -> bool:
        return self._scheduler.closed

    def require_open(self) -> None:
        self._scheduler.require_open()

    def set_pass_width(self, _settings: GenerationConfig) -> int:
        self._script.require("send")
        return self.target.n_ctx

    def reword(self, prompt: Sequence[int], wording: Wording) -> None:
        """Its drafters have no vocabulary of their own."""

    def start(
        self,
        tokens: Sequence[int],
        settings: GenerationConfig,
        *,
        stats: Stats,
        detokenizer: Detokenizer,
        cancelled: Callable[[], bool],
        begun: Begun,
    ) -> Generation:
        self.stop()
        self.started.append(settings)
        if stats is not self._of:  # else it is a further part of the same answer
            following = self._script.answers[len(self._said) % len(self._script.answers)]
            self._text = self._said.setdefault((tuple(tokens), settings.seed), following)
            self._of = stats
        loop: Any = ScriptedDecoder(
            self._script,
            self.target,
            list(tokens),
            stats,
            cancelled,
            words=self.target.model.tokenize(self._text),
            names=[] if settings.depth == 0 else self.drafter_set.names,
        )
        self._running = Generation(
            loop,
            self.target.model,
            settings,
            context=self.target.n_ctx,
            steps=self.scheduled,
            detokenizer=detokenizer,
        )
        return self._running

    def stop(self) -> None:
        if self._running:
            self._running.close()
        self._running = None


@dataclass
class ScriptedDecoder:
    """As `Decoder`: it writes its words, token by token, at the rate."""

    script: Script
    target: ScriptedTarget
    text: list[int]
    stats: Stats
    cancelled: Callable[[], bool]
    words: Sequence[int]
    names: Sequence[str]

    @property
    def unread(self) -> int:
        return len(self.text) - 1 - len(self.target.cache)

    def begin(self, _max_tokens: int) -> None:
        self.target.truncate(self.target.shared(self.text[:-1]))
        self.stats.prompt_tokens = len(self.text)

    def next_pass(self) -> Pass | None:
        held = len(self.target.cache)
        chunk = self.text[held:-1][: self.target.most_kept]
        self.stats.prompt_evaluated += len(chunk)
        return None if self.cancelled() else Pass(self.target, chunk)

    def advance(self, compute: Compute) -> list[Emission]:
        if requested := self.next_pass():
            compute(requested)
        return []

    def end(self) -> None:
        pass

    def tell_drafters(self) -> None:
        pass

    def run(self, max_tokens: int, _compute: Compute) -> Iterator[Emission]:
        self.stats.prompt_evaluated += 1
        left = [*self.words, _END][self.stats.generated_tokens :][:max_tokens]
        for token, (origin, position) in zip(left, self._places(), strict=False):
            self._wait(drafted=position is not None)
            if self.cancelled():
                return
            if self.stats.generated_tokens == 2:
                self.script.require("answer")
            self.target.cache.append(self.text[-1])
            self.text.append(token)
            self.stats.count_token(position)
            self.stats.add_plain(1, self.script.plain_seconds if self.names else None)
            yield Emission(token, origin)

    def _places(self) -> Iterator[tuple[str, int | None]]:
        """Origins, and where in its step's draft each token was; steps are counted on the way."""
        for step in _steps(self.script.origins if self.names else ["plain"]):
            drafted = len(step) - (step[-1] != "corrected")
            self.stats.count_step(drafted, 1 + drafted)
            for position in range(len(step) - 1):
                yield self.names[position % len(self.names)], position
            yield step[-1], None

    def _wait(self, *, drafted: bool) -> None:
        seconds = self.stats.seconds
        if self.script.clock:
            took = 0.0 if drafted else self.script.plain_seconds or 0.0
            self.script.clock.now += took
            seconds.steps += took
            return
        with self.stats.timing("draft" if drafted else "verify", running_clock):
            sleep(1 / self.script.rate if self.script.rate else 0)
        seconds.steps = seconds.verify


def _steps(origins: Sequence[str]) -> Iterator[list[str]]:
    step: list[str] = []
    for origin in cycle(origins):
        step.append(origin)
        if origin != "draft":
            yield step
            step = []
