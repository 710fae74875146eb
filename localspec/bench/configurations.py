"""Contenders: what is compared, each with an engine of its own or one of another depth."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.bench.prompt_sets import Task
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine, load
from localspec.errors import DrafterMismatchError, InvalidValueError, ModelLoadError
from localspec.gguf.reader import read_header
from localspec.loading.config import RuntimeConfig
from localspec.loading.drafter_loader import AUTO, MODEL_FREE, NONE, Choice
from localspec.memory.estimate import default_context
from localspec.models import registry
from localspec.models.locate import require_file
from localspec.models.pair_finder import pair_of

# In a list of drafts, the drafter that is a model.
MODEL = "model"
DEFAULT_DRAFTS = (NONE, *MODEL_FREE, MODEL, AUTO)
PLAIN = "plain"
# What a chat template may add to a prompt, and a round number to grow to.
_TEMPLATE, _ROUND = 256, 256


@dataclass(frozen=True, slots=True)
class Contender:
    """What is to be compared.

    draft: `none`, `suffix`, `lookup`, `ngram`, `model`, `auto` or the path of a GGUF.
    depth: tokens per draft; None is as many as pay.
    """

    name: str
    draft: str
    depth: int | None


@dataclass(frozen=True, slots=True)
class Lane:
    """A contender at the start: its engine is loaded, maybe together with one of another depth."""

    contender: Contender
    engine: Engine

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return self.contender.name


@dataclass(frozen=True, slots=True)
class Field:
    """Who takes part, plain decoding first, and who was left out and why, a line each."""

    lanes: list[Lane]
    left_out: list[str]

    @property
    def plain(self) -> Engine:
        """The engine that drafts nothing."""
        return self.lanes[0].engine


@dataclass(frozen=True, slots=True)
class Entry:
    """Who is to take part.

    target, drafter: the files; None is the bundled target, and the target's own drafter.
    drafts: what may draft, as in Contender; None is all there are. depths: each makes a contender
    of its own of whatever drafts.
    """

    target: Path | None
    drafter: Path | None
    drafts: Sequence[str] | None
    depths: Sequence[int | None]

    @contextmanager
    def opened(self, runtime: RuntimeConfig, tasks: Sequence[Task], tokens: int) -> Iterator[Field]:
        """Load them. runtime.context: None is as much as the longest task and its answer take.

        Raises what `load` raises. Who was not asked for by name and cannot draft is left out.
        """
        target = self.target or registry.bundled().target
        runtime = replace(runtime, context=runtime.context or _room(target, tasks, tokens))
        with ExitStack() as stack:
            plain = stack.enter_context(_loaded(target, [NONE], runtime))
            # The same depth as the first contender's: reproducible passes are as wide as it asks.
            field = Field([Lane(Contender(PLAIN, NONE, self.depths[0]), plain)], [])
            for draft in dict.fromkeys(self.drafts or DEFAULT_DRAFTS):
                if draft == NONE:
                    continue
                try:
                    engine = _loaded(target, self._choices(draft, target), runtime)
                except (DrafterMismatchError, ModelLoadError) as error:
                    if not self._optional(draft):
                        raise
                    field.left_out.append(f"{draft} is left out: {error}")
                    continue
                stack.enter_context(engine)
                name = self._name(draft, engine, {lane.name for lane in field.lanes})
                field.lanes.extend(
                    Lane(Contender(_at_depth(name, depth), draft, depth), engine)
                    for depth in self.depths
                )
            yield field

    def _optional(self, draft: str) -> bool:
        """Whether nobody asked for this one in particular."""
        if self.drafter and draft in (MODEL, AUTO):
            return False
        return self.drafts is None or draft == AUTO

    def _name(self, draft: str, engine: Engine, taken: set[str]) -> str:
        """A model is called like its file, as long as that tells it from the others."""
        if draft in (*MODEL_FREE, AUTO):
            return draft
        [name] = engine.drafting.names
        return draft if any(_at_depth(name, depth) in taken for depth in self.depths) else name

    def _choices(self, draft: str, target: Path) -> list[Choice]:
        drafter = self.drafter or _own_drafter(target)
        match draft:
            case "suffix":
                return [_forgetful()]
            case "auto":
                return [_forgetful(), *([drafter] if drafter else [])]
            case "model":
                if drafter is None:
                    raise DrafterMismatchError(
                        f"no drafter is known for {target.name}; name one with --draft"
                    )
                return [drafter]
        return [draft]


def _loaded(target: Path, choices: list[Choice], runtime: RuntimeConfig) -> Engine:
    return load(
        target,
        choices,
        context=runtime.context,
        gpu_layers=runtime.gpu_layers,
        threads=runtime.threads,
        reproducible=runtime.reproducible,
    )


def _at_depth(name: str, depth: int | None) -> str:
    return name if depth is None else f"{name}, depth {depth}"


def _forgetful() -> Suffix:
    """Of earlier texts it keeps nothing: it must not copy this prompt's answer of last round."""
    return Suffix(spare=0)


def _own_drafter(target: Path) -> Path | None:
    pair = pair_of(target)
    return require_file(pair.drafter) if pair and pair.drafter else None


def _room(target: Path, tasks: Sequence[Task], tokens: int) -> int:
    """A context no larger than needed: every contender has one."""
    header = read_header(target)
    most = default_context(header)
    needed = max(task.bytes for task in tasks) + tokens + _TEMPLATE
    return max(2, min(most, -(-needed // _ROUND) * _ROUND))


def tokens_of(engine: Engine, tasks: Sequence[Task], tokens: int) -> list[list[int]]:
    """Each task's prompt in token ids.

    Raises InvalidValueError for one that leaves no room for so many tokens of answer.
    """
    prompts = []
    for task in tasks:
        with engine.stream(task.prompt_for(engine), max_tokens=1) as running:
            prompts.append(running.prompt)
        if len(running.prompt) + tokens > engine.context:
            raise InvalidValueError(
                f"prompt {task.number} of {task.set} has {len(running.prompt)} tokens, and with "
                f"{tokens} of answer they are more than the context's {engine.context}; "
                "raise --ctx, or lower --tokens"
            )
    return prompts
