"""Drafting: which drafters a target gets, or why it gets none."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.drafters.draft_model import DraftModel
from localspec.drafters.ngram import Ngram
from localspec.drafters.prompt_lookup import PromptLookup
from localspec.drafters.suffix import Suffix
from localspec.drafters.suffix_store import PastTexts
from localspec.errors import DrafterMismatchError, InvalidValueError, LocalspecError
from localspec.gguf.facts import facts_of
from localspec.gguf.reader import Header
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.rollback import SNAPSHOTS, Rollback
from localspec.loading.config import RuntimeConfig
from localspec.loading.kv_precision import choose_kv_type
from localspec.loading.load_check import loadable_header
from localspec.memory.plan import MemoryPlan, MemoryRequest, memory_plan
from localspec.models import locate, pair_finder
from localspec.models.vocabulary_match import mismatch
from localspec.speculation.drafter import MEMBERS, Drafter

MODEL_FREE = {"suffix": Suffix, "lookup": PromptLookup, "ngram": Ngram}
AUTO, NONE = "auto", "none"

# A name, the path of a GGUF, or an object with the Drafter protocol.
Choice = str | Path | Drafter


@dataclass(frozen=True, slots=True)
class Drafting:
    """What was decided.

    drafters: those that may draft, the free ones first; none when drafting is off. reason: why it
    is off, or why a drafter that `auto` looked for is missing. context: the cache of the drafter
    that is a model, if one is; header: that model's; kv_type: what its keys and values are kept as;
    loaded_here: whether the model is freed with it. past: where texts are kept to draft from later,
    if they are. notes: what is not as wished, a line each.
    """

    drafters: tuple[Drafter, ...]
    reason: str | None = None
    context: Context | None = None
    past: PastTexts | None = None
    header: Header | None = None
    kv_type: str = "f16"
    loaded_here: bool = True
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """What the drafters are called."""
        return [drafter.name for drafter in self.drafters]

    @property
    def one_hot(self) -> list[str]:
        """Those whose tokens come without probabilities, which rules then take as sure."""
        free = tuple(MODEL_FREE.values())
        return [drafter.name for drafter in self.drafters if isinstance(drafter, free)]

    @property
    def model_path(self) -> Path | None:
        """The drafter's file, if one is a model."""
        return self.context.model.path if self.context else None

    def for_text(self, target: Context, runtime: RuntimeConfig) -> "Drafting":
        """The same drafters for another text of the same target; its model may not be freed first.

        Raises InvalidValueError for a drafter that somebody else made, as that follows one text.
        """
        for drafter in self.drafters:
            self._require_ours(drafter)
        context = None
        if self.context and self.header:
            context = runtime.context_for(
                self.context.model, self.header, target.n_ctx, self.kv_type
            )
        drafters = tuple(
            DraftModel(context, name=each.name, n_vocab=target.n_vocab)
            if context and isinstance(each, DraftModel)
            else _free_drafter(each.name, self.past)
            for each in self.drafters
        )
        return replace(self, drafters=drafters, context=context, loaded_here=False)

    def _require_ours(self, drafter: Drafter) -> None:
        is_free = isinstance(drafter, tuple(MODEL_FREE.values()))
        if not is_free and not (self.context and isinstance(drafter, DraftModel)):
            raise InvalidValueError(
                f"drafter {drafter.name!r} is an object of yours and follows one text; "
                "load another engine with another one of it"
            )

    def close(self) -> None:
        """Free the cache of the drafter that is a model, and the model if it was loaded for it."""
        if self.context:
            self.context.close()
            if self.loaded_here:
                self.context.model.close()


def choose(
    draft: Choice | Sequence[Choice],
    target: Context,
    runtime: RuntimeConfig,
    past: PastTexts | None = None,
    no_model: str | None = None,
    *,
    kv_type_fits: bool = False,
) -> Drafting:
    """The drafters for a target.

    draft: `auto`, `none`, `suffix`, `lookup`, `ngram`, the path of a GGUF, a drafter of your own,
    or several of these (a list, or names with commas), of which at most one is a model.
    past: earlier texts, for the suffix drafter to copy from as well.
    no_model: why `auto` must do without a drafter model, if it must. kv_type_fits: whether only the
    runtime's drafter_kv_type fits in memory; else it gives way to f16 if drafts suffer from it.
    `auto` is the suffix drafter and the target's own drafter model, if it has one; it never fails.
    Raises DrafterMismatchError for a drafter asked for that cannot draft here.
    """
    choices = _listed(draft)
    if not choices:
        raise InvalidValueError("draft is an empty list; name none, to decode plainly")
    if NONE in choices:
        if any(choice != NONE for choice in choices):
            raise InvalidValueError("draft names none and something else; choose one")
        return Drafting((), "drafting was turned off")
    if target.rollback is Rollback.NOTHING:
        reason = f"this model's cache can forget {target.rollback.value}"
        if all(choice == AUTO for choice in choices):
            return Drafting((), reason)
        raise DrafterMismatchError(f"{reason}; use --draft none")
    return _Assembly(target, runtime, past, no_model, kv_type_fits=kv_type_fits).of(choices)


def snapshots(draft: Choice | Sequence[Choice]) -> int:
    """How many snapshots of a running state a target should make.

    They make drafts cheaper and every plain pass a little dearer, so only where somebody asked for
    drafts; else checkpoints have to do.
    """
    choices = _listed(draft)
    return 0 if NONE in choices or AUTO in choices else SNAPSHOTS


def plan_memory(
    draft: Choice | Sequence[Choice], target: Path, header: Header, runtime: RuntimeConfig
) -> MemoryPlan:
    """What of a target, its drafter and their caches fits; nothing is loaded.

    Raises ModelLoadError where what was asked for does not.
    """
    drafter, optional = _model_of(_listed(draft), target)
    request = MemoryRequest(
        target=facts_of(target),
        context=runtime.context_size(header),
        fixed_context=runtime.context is not None,
        drafter=facts_of(drafter) if drafter else None,
        optional_drafter=optional,
        kv_type=runtime.kv_type,
        drafter_kv_type=runtime.drafter_kv_type,
        gpu_layers=runtime.gpu_layers,
        flash_attention=runtime.flash,
        snapshots=snapshots(draft),
    )
    return memory_plan(request)


def _model_of(choices: Sequence[Choice], target: Path) -> tuple[Path | None, bool]:
    """The drafter that is a model, if one will be; whether it is `auto` that looked for it."""
    if NONE in choices:
        return None, True
    for choice in choices:
        if isinstance(choice, (str, Path)) and choice not in (AUTO, *MODEL_FREE):
            path = _locate(choice)
            loadable_header(path)
            return path, False
    if AUTO in choices:
        pair = pair_finder.pair_of(target)
        # What is wrong with it is said where it would be loaded.
        with suppress(LocalspecError):
            if pair and pair.drafter:
                path = locate.require_file(pair.drafter, pair.name)
                loadable_header(path)
                return path, True
    return None, True


def _locate(name: str | Path) -> Path:
    return locate.locate(name, (AUTO, NONE, *MODEL_FREE))


def _listed(draft: Choice | Sequence[Choice]) -> list[Choice]:
    if isinstance(draft, str):
        # A path may hold a comma; then it is taken whole.
        names = [draft] if Path(draft).exists() else [name.strip() for name in draft.split(",")]
        if not all(names):
            raise InvalidValueError(f"draft is {draft!r}, with an empty name in it; try auto")
        return list(names)
    if isinstance(draft, (list, tuple)):
        return [one for each in draft for one in _listed(each)]
    return [draft]  # type: ignore[list-item]


def _free_drafter(name: str, past: PastTexts | None) -> Drafter:
    return Suffix(past=past.load()) if name == Suffix.name and past else MODEL_FREE[name]()


class _Assembly:
    """Puts the drafters of one target together."""

    def __init__(
        self,
        target: Context,
        runtime: RuntimeConfig,
        past: PastTexts | None,
        no_model: str | None,
        *,
        kv_type_fits: bool,
    ) -> None:
        self._target = target
        self._past = past
        self._no_model = no_model
        self._runtime = runtime
        self._free: list[Drafter] = []
        self._others: list[Drafter] = []
        self._reason: str | None = None
        self._context: Context | None = None
        self._header: Header | None = None
        self._kv_type = runtime.drafter_kv_type
        self._kv_type_fits = kv_type_fits
        self._notes: tuple[str, ...] = ()

    def of(self, choices: Sequence[Choice]) -> Drafting:
        """All of them, or none if one is refused."""
        try:
            # What is asked for by name comes before what `auto` would add.
            for choice in sorted(choices, key=lambda choice: choice == AUTO):
                self._add(choice)
        except BaseException:
            if self._context:
                Drafting((), context=self._context).close()
            raise
        return Drafting(
            (*self._free, *self._others),
            self._reason,
            self._context,
            self._past,
            self._header,
            self._kv_type,
            notes=self._notes,
        )

    def _add(self, choice: Choice) -> None:
        if choice == AUTO:
            self._add_automatic()
        elif isinstance(choice, str) and choice in MODEL_FREE:
            self._add_free(choice)
        elif isinstance(choice, (str, Path)):
            self._add_model(_locate(choice))
        elif all(hasattr(choice, member) for member in MEMBERS):
            if any(choice.name == each.name for each in (*self._free, *self._others)):
                raise InvalidValueError(f"draft names two drafters called {choice.name!r}")
            (self._free if choice.traits.cheap else self._others).append(choice)
        else:
            raise InvalidValueError(
                f"draft is {choice!r}; choose {', '.join((AUTO, NONE, *MODEL_FREE))}, a model, or "
                "an object: it needs name, begin, propose and observe"
            )

    def _add_free(self, name: str) -> None:
        if name in (drafter.name for drafter in self._free):
            return
        self._free.append(_free_drafter(name, self._past))

    def _add_automatic(self) -> None:
        self._add_free("suffix")
        if self._context:
            return
        path = self._target.model.path
        pair = pair_finder.pair_of(path)
        if pair is None or pair.drafter is None:
            because = pair and pair.no_drafter
            self._reason = because or f"no drafter is known for {path.name}"
            return
        if self._no_model:
            self._reason = self._no_model
            return
        try:
            self._add_model(locate.require_file(pair.drafter, pair.name))
        except LocalspecError as error:
            self._reason = f"{pair.drafter} cannot be used: {error}"

    def _add_model(self, path: Path) -> None:
        target = self._target
        if self._context:
            raise InvalidValueError(
                f"draft names two models, {self._context.model.path.name} and {path.name}; "
                "choose one"
            )
        header = loadable_header(path)
        model = Model(path, gpu_layers=self._runtime.gpu_layers)
        try:
            if reason := mismatch(target.model, model):
                raise DrafterMismatchError(
                    f"{path.name} cannot draft for {target.model.path.name}: {reason}; "
                    "use a drafter of the same family, or --draft suffix"
                )
            self._choose_kv_type(model, header)
            context = self._runtime.context_for(model, header, target.n_ctx, self._kv_type)
            if context.rollback is Rollback.NOTHING:
                context.close()
                raise DrafterMismatchError(
                    f"{path.name} cannot draft: its cache can forget {context.rollback.value}; "
                    "use --draft suffix"
                )
        except BaseException:
            model.close()
            raise
        self._context, self._header = context, header.without_vocabulary()
        self._others.append(DraftModel(context, name=path.stem, n_vocab=target.n_vocab))

    def _choose_kv_type(self, model: Model, header: Header) -> None:
        """As wished, if the drafter is of use with it."""
        if not self._kv_type_fits:
            wished = self._runtime.drafter_kv_type
            self._kv_type, note = choose_kv_type(model, self._runtime, header, wished)
            self._notes = (note,) if note else ()
