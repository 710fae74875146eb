"""Loaded drafter: a drafter with its model, which drafts for texts of its target."""

from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from localspec.drafters.assistant import Assistant
from localspec.drafters.dflash import Dflash
from localspec.drafters.dflash2 import Dflash2
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.dspark import Dspark
from localspec.drafters.eagle3 import Eagle3
from localspec.drafters.model_free import model_free_drafter
from localspec.drafters.mtp import ChainedMtp, Mtp
from localspec.drafters.pard import Pard
from localspec.drafters.spec import DrafterSpec
from localspec.drafters.text_drafter import TextDrafter
from localspec.drafters.translation import Translation
from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.gguf.assistant import ASSISTANT
from localspec.gguf.block_heads import DFLASH, DFLASH2, DSPARK
from localspec.gguf.heads import MTP, Head
from localspec.gguf.mixed_texts import mixes_texts
from localspec.gguf.reader import Header
from localspec.llama.devices import captures_graphs
from localspec.llama.model import Model
from localspec.llama.rollback import Rollback
from localspec.llama.rope import UNSCALED, RopeScaling
from localspec.llama.sequence import KVSequence
from localspec.llama.shared_context import SharedContext, SharedSequence
from localspec.loading.config import RuntimeConfig
from localspec.loading.copy_sources import CopySources
from localspec.loading.drafter_set import SequenceDrafter
from localspec.loading.drawing_ahead import SHARED_DEVICE, give_thread, obstacle
from localspec.loading.matrix_heads import LoadedMatrixHead
from localspec.loading.places import place_beside, sequence_beside
from localspec.models.kinds import THROUGH_TEXT
from localspec.speculation.drafter import Drafter
from localspec.utils.option_names import options

_BLOCK_DRAFTERS = {DFLASH: Dflash, DFLASH2: Dflash2, DSPARK: Dspark}


def _at_least_two(rows: int) -> int:
    """The rows of a draft model's pass where it costs time when they change.

    The first pass of a draft has two, where all drafted tokens were accepted.
    """
    return max(2, rows)


@dataclass(frozen=True, slots=True)
class LoadedDrafter:
    """A drafter with its model, if it has one; each text gets its own cache of the model.

    header: of the model's file. kv_type: the type of the keys and values in its caches. head: what
    a head reads of its target. inside: whether the model is the target's, which has the heads.
    matrices: a head that needs no cache. translation: between the vocabularies of target and
    drafter; None if they are the same. rope: as in ContextParams.
    """

    spec: DrafterSpec
    model: Model | None = None
    header: Header | None = None
    kv_type: str = "f16"
    head: Head | None = None
    inside: bool = False
    matrices: LoadedMatrixHead | None = None
    translation: Translation | None = None
    rope: RopeScaling = UNSCALED

    @property
    def is_lost(self) -> bool:
        """Whether it is on a machine that is gone."""
        return self.model is not None and self.model.is_lost

    def for_sequence(
        self,
        target: KVSequence,
        runtime: RuntimeConfig,
        sources: CopySources,
        beside: KVSequence | None = None,
    ) -> SequenceDrafter:
        """Make a drafter for the text in the target's cache.

        beside: another text in a cache of the draft model, which takes this text too. Raises
        DrafterMismatchError if the draft model's cache cannot be rolled back.
        """
        if self.spec.custom is not None:
            return SequenceDrafter(self.spec.custom)
        if self.matrices:
            drafter = self.matrices.drafter(target.n_vocab)
            return SequenceDrafter(drafter, matrices=self.matrices, kind=self.spec.kind)
        if self.model is None or self.header is None:
            return SequenceDrafter(model_free_drafter(self.spec.kind, sources.earlier))
        sequence = self._sequence(self.model, self.header, target, runtime, beside)
        if sequence.rollback is Rollback.NOTHING:
            sequence.close()
            raise DrafterMismatchError(
                f"{self.model.path.name} cannot draft: its cache can forget "
                f"{sequence.rollback.value}; use {options(draft='suffix')}"
            )
        is_offloaded = self.model.is_offloaded
        if self.head is None and is_offloaded and captures_graphs(self.model.placement):
            sequence.padded = _at_least_two
        kind = THROUGH_TEXT if self.translation else self.spec.kind
        why = obstacle(kind, sequence, target)
        if why is None:
            give_thread(self.model)
        drafter = self._model_drafter(sequence, target, self._name(self.model), ahead=why is None)
        not_ahead = None if why == SHARED_DEVICE else why
        return SequenceDrafter(drafter, sequence, self.kv_type, kind=kind, not_ahead=not_ahead)

    def _model_drafter(
        self, sequence: KVSequence, target: KVSequence, name: str, *, ahead: bool
    ) -> Drafter:
        """The drafter of this kind for a text in a cache of its model.

        ahead: whether it draws tokens ahead.
        """
        if self.head:
            return self._head_drafter(self.head, sequence, target, name)
        if self.translation:
            return TextDrafter(sequence, name=name, translation=self.translation)
        options: dict[str, Any] = {"name": name, "n_vocab": target.n_vocab}
        options["stand_in"] = sequence.model.new_line
        if self.spec.mask_token is not None:
            return Pard(sequence, mask=self.spec.mask_token, **options)
        return DraftModel(sequence, ahead=ahead, **options)

    @staticmethod
    def _head_drafter(head: Head, sequence: KVSequence, target: KVSequence, name: str) -> Drafter:
        """The drafter of a head for a text in its cache, or in its target's."""
        options: dict[str, Any] = {"name": name, "n_vocab": target.n_vocab, "layers": head.layers}
        if isinstance(sequence, SharedSequence):
            return Assistant(sequence, **options)
        if head.block:
            # All rows of an image may have one position: no sliding window ever passes them.
            options["reads_media"] = not target.model.tells_rows_apart
            return _BLOCK_DRAFTERS[head.kind](sequence, block=head.block, **options)
        if head.kind != MTP:
            return Eagle3(sequence, **options)
        options |= {"own": head.own, "width": head.width}
        if head.count > 1:
            return ChainedMtp(sequence, count=head.count, **options)
        return Mtp(sequence, **options)

    def _sequence(
        self,
        model: Model,
        header: Header,
        target: KVSequence,
        runtime: RuntimeConfig,
        beside: KVSequence | None,
    ) -> KVSequence:
        """Make room for a text in a cache of the model."""
        if self.head and self.head.kind == ASSISTANT:
            return self._shared(model, target, runtime)
        if self.head:
            # A head's cache is closed with the cache of its target.
            if beside and beside.context in target.context.head_contexts:
                place = place_beside(beside, header)
                if place:
                    return place
        elif beside:
            return sequence_beside(beside, header).sequence
        texts = 1 if mixes_texts(header) else target.context.params.texts
        if texts > 1:
            with suppress(ModelLoadError):  # without room for all of them, it grows later
                return self._cache_for(texts, model, header, target, runtime)
        return self._cache_for(1, model, header, target, runtime)

    def _cache_for(
        self, texts: int, model: Model, header: Header, target: KVSequence, runtime: RuntimeConfig
    ) -> KVSequence:
        """Make a cache of the model for so many texts."""
        params = runtime.context_params(target.n_ctx, self.kv_type)
        params = replace(params, texts=texts, rope=self.rope)
        if self.head:
            return runtime.head_context_for(model, header, self.head, target, params)
        setting = "drafter_kv_type"
        if (cells := self._cells(model, target)) > target.n_ctx:
            with suppress(ModelLoadError):  # the memory was planned for fewer
                longer = replace(params, n_ctx=cells)
                return runtime.context_for(model, header, longer, setting)
        return runtime.context_for(model, header, params, setting)

    def _cells(self, model: Model, target: KVSequence) -> int:
        """How many tokens of its own the drafter needs for the target's whole context."""
        if self.translation is None:
            return target.n_ctx
        needed = ceil(target.n_ctx * self.translation.lengthening)
        return min(needed, max(model.n_ctx_train, target.n_ctx))

    @staticmethod
    def _shared(model: Model, target: KVSequence, runtime: RuntimeConfig) -> KVSequence:
        """The place of an assistant in a text of its target: all texts of a cache have one each."""
        for each in target.context.head_contexts:
            if isinstance(each, SharedContext) and each.model is model:
                return each.sequence_beside(target)
        threads = runtime.threads_of(model)
        context = SharedContext(model, target=target.context, threads=threads)
        return context.sequence_beside(target)

    def _name(self, model: Model) -> str:
        return self.spec.kind if self.inside else model.path.stem

    def close(self) -> None:
        """Free the model, if it is not the target's; close its caches before."""
        if self.model and not self.inside:
            self.model.close()
