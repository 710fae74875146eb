"""Configurations: the ways of decoding that a benchmark compares, and their engines."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.bench.prompt_sets import Task
from localspec.drafters.model_free import MODEL_FREE
from localspec.drafters.spec import AUTO, NONE, DraftOption, DraftRequest, parse_draft
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine, load_with
from localspec.engine.prompt import TextPrompt, larger_context
from localspec.errors import DrafterMismatchError, InvalidValueError, ModelLoadError
from localspec.gguf.heads import MTP
from localspec.gguf.reader import read_header
from localspec.llama import extra_buffers
from localspec.loading.config import EngineConfig, RuntimeConfig
from localspec.memory.estimate import default_context
from localspec.models import registry
from localspec.models.locate import require_file
from localspec.models.own_drafters import own_drafters

PLAIN = "plain"
# In a list of drafts: the drafter that is a model.
_MODEL = "model"
_DEFAULT_DRAFTS = (*MODEL_FREE, _MODEL, AUTO)
# Tokens that a chat template may add to a prompt; contexts are multiples of the second.
_TEMPLATE, _CONTEXT_STEP = 256, 256


@dataclass(frozen=True, slots=True)
class Configuration:
    """A way of decoding: a drafter at a depth.

    name: in reports. draft: `none`, `suffix`, `lookup`, `ngram`, `model`, `auto` or the path of a
    GGUF. depth: tokens per draft; None is as many as pay.
    """

    name: str
    draft: str
    depth: int | None


@dataclass(frozen=True, slots=True)
class LoadedConfiguration:
    """A configuration and its engine. Configurations of the same draft share an engine."""

    configuration: Configuration
    engine: Engine

    @property
    def name(self) -> str:
        """The configuration's name in reports."""
        return self.configuration.name


@dataclass(frozen=True, slots=True)
class LoadedSweep:
    """The configurations of a sweep that could be loaded, plain decoding first.

    left_out: the drafts that cannot be used with the target, and why, a line each.
    """

    configurations: list[LoadedConfiguration]
    left_out: list[str]

    @property
    def plain(self) -> Engine:
        """The engine without a drafter."""
        return self.configurations[0].engine

    @property
    def notes(self) -> list[str]:
        """Requests that could not be met in full, one line each; those of one draft have its name.

        Of the build, as figures depend on it; of plain decoding; of all drafts; of single ones.
        """
        # A draft at several depths is one engine.
        names = dict[Engine, str]()
        for each in self.configurations[1:]:
            names.setdefault(each.engine, each.name)
        count = Counter(note for engine in names for note in set(engine.notes))
        common = dict.fromkeys([*extra_buffers.warnings(), *self.plain.notes])
        # An option for draft models is useless only where there is none.
        own = dict.fromkeys(
            note if count[note] == len(names) else f"{name}: {note}"
            for engine, name in names.items()
            for note in engine.notes
            if note not in common and (count[note] == len(names) or engine.drafter_set.model_paths)
        )
        return [*common, *own, *self.left_out]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to compare with plain decoding: every draft at every depth, on one target.

    target, drafter: files; None is the bundled target, and the target's own drafter.
    drafts: as in Configuration; None is all there are. depths: one at least.
    """

    target: Path | None
    drafter: Path | None
    drafts: Sequence[str] | None
    depths: Sequence[int | None]

    @contextmanager
    def load(
        self, runtime: RuntimeConfig, tasks: Sequence[Task], tokens: int
    ) -> Iterator[LoadedSweep]:
        """Load all engines; they are closed with the context manager.

        runtime: its context may be None: then it has room for the longest task and an answer of
        `tokens` tokens.

        Raises what `engine.load` raises, but leaves out a draft that the user did not name.
        """
        target = self.target_file
        context = runtime.context or _context(target, runtime, tasks, tokens)
        runtime = replace(runtime, context=context)
        with ExitStack() as stack:
            alone = replace(runtime, drafter_placement=None)
            plain = stack.enter_context(load_with(EngineConfig(target, DraftRequest(), alone)))
            # Otherwise each would choose its own number on a busy machine.
            plain.slots.threads_are_fixed = True
            runtime = replace(runtime, most_threads=plain.threads)
            # Reproducible passes are as wide as the depth asks for, so it is the others' depth.
            configuration = Configuration(PLAIN, NONE, self.depths[0])
            loaded = LoadedSweep([LoadedConfiguration(configuration, plain)], [])
            for draft in dict.fromkeys(self.drafts or _DEFAULT_DRAFTS):
                if draft == NONE:
                    continue
                try:
                    choices = parse_draft(self.choices(draft))
                    config = EngineConfig(target, choices, runtime, weights=plain.model)
                    engine = load_with(config)
                except (DrafterMismatchError, ModelLoadError) as error:
                    if not self._is_optional(draft):
                        raise
                    loaded.left_out.append(f"{draft} is left out: {error}")
                    continue
                stack.enter_context(engine)
                name = self._name(draft, engine, {each.name for each in loaded.configurations})
                loaded.configurations.extend(
                    LoadedConfiguration(Configuration(at_depth(name, depth), draft, depth), engine)
                    for depth in self.depths
                )
            yield loaded

    def _is_optional(self, draft: str) -> bool:
        """Whether the user did not name this draft."""
        if self.drafter and draft in (_MODEL, AUTO):
            return False
        return self.drafts is None or draft == AUTO

    def _name(self, draft: str, engine: Engine, taken: set[str]) -> str:
        """A model has the name of its file, unless another configuration has that name."""
        if draft in (*MODEL_FREE, AUTO):
            return draft
        [name] = engine.drafter_set.names
        return draft if any(at_depth(name, depth) in taken for depth in self.depths) else name

    def choices(self, draft: str) -> list[DraftOption]:
        """What a draft means for the target. Raises DrafterMismatchError if there is no drafter."""
        match draft:
            case "auto":
                drafter = self.model_drafter
                return [Suffix.name, *([drafter] if drafter else [])]
            case "model":
                if self.model_drafter is None:
                    raise DrafterMismatchError(
                        f"no drafter is known for {self.target_file.name}; name one with --draft"
                    )
                return [self.model_drafter]
        return [draft]

    @property
    def target_file(self) -> Path:
        """The target."""
        return self.target or registry.bundled().target

    @property
    def model_drafter(self) -> DraftOption | None:
        """The drafter that is a model: the one asked for, else the target's own, if it has one."""
        return self.drafter or _own_drafter(self.target_file)


def tokenize_prompts(engine: Engine, tasks: Sequence[Task], tokens: int) -> list[list[int]]:
    """The token ids of each task's prompt.

    Raises InvalidValueError for a prompt that leaves no room for an answer of `tokens` tokens.
    """
    prompts = []
    for task in tasks:
        try:
            prompt = TextPrompt(task.prompt_for(engine)).tokens(engine.model, engine.context)
        except InvalidValueError as error:
            raise InvalidValueError(f"prompt {task.number} of {task.set}: {error}") from error
        if len(prompt) + tokens > engine.context:
            raise InvalidValueError(
                f"prompt {task.number} of {task.set} has {len(prompt)} tokens, and with "
                f"{tokens} of answer they are more than the context's {engine.context}; "
                f"lower --tokens, or {larger_context(engine.model, engine.context)}"
            )
        prompts.append(prompt)
    return prompts


def at_depth(name: str, depth: int | None) -> str:
    """The name of a configuration with this depth."""
    return name if depth is None else f"{name}, depth {depth}"


def _own_drafter(target: Path) -> DraftOption | None:
    """What to ask for the target's own drafter: the first on this disk, which may be inside it."""
    usable = [each for each in own_drafters(target) if not each.objection]
    here = next((each for each in usable if each.file), None)
    if here:
        return here.file if here.reference else MTP
    first = next((each.reference for each in usable if each.reference), None)
    return require_file(first) if first else None


def _context(target: Path, runtime: RuntimeConfig, tasks: Sequence[Task], tokens: int) -> int:
    """A context no larger than needed, because every configuration has one."""
    most = default_context(runtime.rope.context(read_header(target)))
    needed = max(task.bytes for task in tasks) + tokens + _TEMPLATE
    return max(2, min(most, -(-needed // _CONTEXT_STEP) * _CONTEXT_STEP))
