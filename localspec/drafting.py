"""Drafting: which drafter a target gets, or why it gets none."""

from dataclasses import dataclass
from pathlib import Path

from localspec.drafters.base import Drafter
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.ngram import Ngram
from localspec.drafters.prompt_lookup import PromptLookup
from localspec.errors import (
    DrafterMismatchError,
    InvalidValueError,
    LocalspecError,
    ModelNotFoundError,
)
from localspec.llama.context import Context, Rollback
from localspec.llama.model import Model
from localspec.models import gguf_check, registry
from localspec.models.pairing import mismatch
from localspec.runtime import Runtime

MODEL_FREE = {"lookup": PromptLookup, "ngram": Ngram}


@dataclass(frozen=True, slots=True)
class Drafting:
    """What was decided.

    drafter: None when drafting is off. reason: why it is off, or why this drafter was chosen by
    `auto`; None when it was asked for. context: the drafter's own cache, if it is a model.
    """

    drafter: Drafter | None
    reason: str | None = None
    context: Context | None = None

    @property
    def is_one_hot(self) -> bool:
        """Whether its tokens come without probabilities, which rules then take as sure."""
        return isinstance(self.drafter, tuple(MODEL_FREE.values()))

    @property
    def model_path(self) -> Path | None:
        """The drafter's file, if it is a model."""
        return self.context.model.path if self.context else None

    def close(self) -> None:
        """Free the drafter's model."""
        if self.context:
            self.context.close()
            self.context.model.close()


def choose(draft: str | Path | Drafter, target: Context, runtime: Runtime) -> Drafting:
    """The drafter for a target.

    draft: `auto`, `none`, `lookup`, `ngram`, the path of a GGUF, or a drafter of your own.
    `auto` never fails. Raises DrafterMismatchError for a drafter asked for that cannot draft here.
    """
    if draft == "none":
        return Drafting(None, "drafting was turned off")
    if target.rollback is not Rollback.PARTIAL:
        reason = f"this model's cache can forget {target.rollback.value}"
        if draft == "auto":
            return Drafting(None, reason)
        raise DrafterMismatchError(f"{reason}; use --draft none")
    if draft == "auto":
        return _automatic(target, runtime)
    if isinstance(draft, str) and draft in MODEL_FREE:
        return Drafting(MODEL_FREE[draft]())
    if isinstance(draft, str) and not Path(draft).exists():
        raise ModelNotFoundError(
            f"there is no drafter {draft!r}; choose auto, none, {', '.join(MODEL_FREE)}, "
            "or the path of a GGUF"
        )
    if isinstance(draft, (str, Path)):
        return _model(Path(draft), target, runtime)
    if isinstance(draft, Drafter):
        return Drafting(draft)
    raise InvalidValueError(f"draft is {draft!r}; it needs name, begin, propose and observe")


def _automatic(target: Context, runtime: Runtime) -> Drafting:
    pair = registry.pair_of(target.model.path)
    if pair is None or pair.drafter is None:
        return Drafting(PromptLookup(), f"no drafter is known for {target.model.path.name}")
    try:
        return _model(pair.drafter, target, runtime)
    except LocalspecError as error:
        return Drafting(PromptLookup(), f"{pair.drafter.name} cannot be used: {error}")


def _model(path: Path, target: Context, runtime: Runtime) -> Drafting:
    header = gguf_check.check_generative(path)
    model = Model(path, gpu_layers=runtime.gpu_layers)
    try:
        if reason := mismatch(target.model, model):
            raise DrafterMismatchError(
                f"{path.name} cannot draft for {target.model.path.name}: {reason}; "
                "use a drafter of the same family, or --draft lookup"
            )
        context = runtime.context_for(model, header, target.n_ctx)
        if context.rollback is not Rollback.PARTIAL:
            context.close()
            raise DrafterMismatchError(
                f"{path.name} cannot draft: its cache can forget {context.rollback.value}; "
                "use --draft lookup"
            )
    except BaseException:
        model.close()
        raise
    return Drafting(DraftModel(context, name=path.stem, n_vocab=target.n_vocab), context=context)
