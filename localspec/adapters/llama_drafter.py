"""LlamaDrafter: a drafter for a `Llama` object of llama-cpp-python."""

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import cast

from localspec.control.candidate import Candidate
from localspec.control.drafter_cost import DrafterCost
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.model_free import MODEL_FREE, model_free_drafter
from localspec.drafters.spec import NAMES, DrafterSpec
from localspec.errors import DrafterMismatchError, InvalidValueError
from localspec.generation_config import require
from localspec.gguf.facts import facts_of
from localspec.gguf.vocabulary import HeaderVocabulary
from localspec.llama.draft_callback import DraftCallback
from localspec.llama.model import Model
from localspec.llama.placement import Placement
from localspec.loading.config import RuntimeConfig
from localspec.loading.drafter_finder import checked_drafter
from localspec.loading.gpu_check import check_gpus
from localspec.models.locate import locate
from localspec.models.vocabulary_match import mismatch
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import ComputedDrafter, Drafter, Limit, Outcome, proposal
from localspec.speculation.passes import run
from localspec.utils.closing import Closing
from localspec.utils.option_types import known_options, typed
from localspec.utils.tokens import common_prefix

# A token is drafted if all tokens up to it are accepted with this probability at least: `Llama`
# copies and samples each row in Python, so rows that will hardly be used cost too much.
_LEAST_SURVIVAL = 0.4
_GREEDY = Sampler(SamplingParams(temperature=0), Noise(0))


class LlamaDrafter(DraftCallback, Closing):
    """A drafter for one `Llama` object of llama-cpp-python; made by `draft_model`.

    It drafts as many tokens as are likely to be accepted, at most `depth`, which it learns from the
    texts that it is shown. drafted, accepted: the tokens so far, without the last draft of a text,
    of which it is not told what became. Close it (or use `with`) to free its model, if it has one,
    after the last use of its `Llama`.
    """

    def __init__(self, drafter: Drafter, depth: int, resources: ExitStack) -> None:
        super().__init__(self._propose)
        self.drafted = self.accepted = 0
        self._candidate = Candidate(drafter, DrafterCost())
        self._depth = depth
        self._resources = resources
        # A second thread, with another `Llama` or with `close`, would break the cache of a model.
        self._lock = Lock()
        self._text: list[int] = []
        self._draft: Sequence[int] = ()

    def __repr__(self) -> str:
        name = self._candidate.drafter.name
        return f"<LlamaDrafter {name}, {self.accepted} of {self.drafted} drafted tokens accepted>"

    def close(self) -> None:
        """Free the model of the drafter; it drafts nothing afterwards."""
        with self._lock:
            self._depth = 0
            self._resources.close()

    def _propose(self, text: list[int], room: int) -> Sequence[int]:
        with self._lock:
            if not self._depth:
                return ()
            self._follow(text)
            self._draft = self._drawn(text, min(self._depth, room)).tokens if text and room else ()
            return self._draft

    def _follow(self, text: list[int]) -> None:
        """Learn what has become of the last draft; begin anew where the text is another one."""
        drafter, known = self._candidate.drafter, len(self._text)
        new = text[known:]
        if not known or not new or text[:known] != self._text:
            drafter.begin(text)
        else:
            accepted = common_prefix(self._draft, new)
            self.drafted += len(self._draft)
            self.accepted += accepted
            self._candidate.learn(self._draft, new)
            drafter.observe(Outcome(new, accepted))
        self._text = text

    def _drawn(self, text: list[int], most: int) -> Draft:
        candidate, survival = self._candidate, 1.0
        limit = Limit(most, _GREEDY.prefix(text), _GREEDY)
        if candidate.cheap:
            survivals = candidate.survivals(limit)
            depth = sum(1 for _ in takewhile(lambda each: each >= _LEAST_SURVIVAL, survivals))
            if not depth:
                return NOTHING
            known = candidate.shadow_draft(depth)
            return known or cast(ComputedDrafter, candidate.drafter).propose(limit.to(depth))

        def go_on(margin: float) -> bool:
            nonlocal survival
            survival *= candidate.add_margin(margin)
            return survival >= _LEAST_SURVIVAL

        return run(proposal(candidate.drafter, limit.to(most, go_on)))


@known_options
def draft_model(
    draft: str | Path = "suffix",
    *,
    target: str | Path | None = None,
    depth: int = 8,
    context: int | None = None,
    gpu_layers: int | None = None,
    threads: int | None = None,
) -> LlamaDrafter:
    """Make a drafter for the option `draft_model` of llama-cpp-python's `Llama`.

    draft: `suffix`, `lookup` or `ngram`, which need no model, or a small model, as `localspec.load`
    takes it. target: the file of `Llama`'s model, which a small model is compared with. depth: the
    most tokens of a draft. context, gpu_layers, threads: of the small model, as in `load`; give it
    `Llama`'s `n_ctx`.

    Raises InvalidValueError, ModelNotFoundError, ModelLoadError, and DrafterMismatchError for a
    small model that cannot draft for the target, or a head.
    """
    numbers = {"depth": depth, "context": context, "gpu_layers": gpu_layers, "threads": threads}
    given = typed(numbers, draft_model)
    depth = require("depth", given["depth"], 1, 64)
    if not isinstance(draft, str | Path):
        raise InvalidValueError(
            f"draft is {draft!r:.60}; name one drafter: {', '.join(MODEL_FREE)}, or a small model"
        )
    if draft in MODEL_FREE:
        return LlamaDrafter(model_free_drafter(str(draft)), depth, ExitStack())
    if draft in NAMES:
        raise InvalidValueError(
            f"draft is {draft!r}; name {', '.join(MODEL_FREE)}, or a small model"
        )
    if target is None:
        raise InvalidValueError(
            f"draft is {str(draft)!r}, a model, and target is not given; name the file of Llama's "
            "model, so that the vocabularies can be compared"
        )
    placement = Placement(given["gpu_layers"])
    runtime = RuntimeConfig(context=given["context"], placement=placement, threads=given["threads"])
    path, target = locate(draft, NAMES), locate(target)
    found = checked_drafter(DrafterSpec("draft-model", path), path, target)
    if found.head or found.matrices:
        raise DrafterMismatchError(
            f"{path.name} is a head of kind {found.spec.kind}, which reads rows that Llama does "
            "not hand out; use localspec.load, or draft='suffix'"
        )
    check_gpus(runtime)
    header = facts_of(path).header
    vocabulary = HeaderVocabulary(facts_of(target).header)
    if differs := mismatch(vocabulary, HeaderVocabulary(header)):
        raise DrafterMismatchError(
            f"{path.name} cannot draft for {target.name}: {differs}; use a drafter of the same "
            "family, or draft='suffix'"
        )
    with ExitStack() as resources:
        model = resources.enter_context(Model(path, placement))
        params = runtime.context_params(runtime.context_size(header))
        cache = runtime.context_for(model, header, params)
        resources.callback(cache.close)
        n_vocab, stand_in = vocabulary.n_vocab, model.new_line
        drafter = DraftModel(cache, name=path.stem, n_vocab=n_vocab, stand_in=stand_in)
        return LlamaDrafter(drafter, depth, resources.pop_all())
