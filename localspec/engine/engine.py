"""Engine: a loaded target and its drafters, which generate text."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from weakref import finalize

from localspec.control.pass_costs import PassCosts
from localspec.drafters.spec import DraftOption, parse_draft
from localspec.engine.generation import Generation
from localspec.engine.interruption import CLOSED, SWITCHED, WARMED_UP
from localspec.engine.recipe import Recipe
from localspec.engine.slots import Slots
from localspec.engine.texts import Texts
from localspec.errors import WorkerError
from localspec.generation_config import require
from localspec.llama.model import Model
from localspec.llama.placement import LOAD_MODES, SPLIT_MODES
from localspec.llama.rollback import Rollback
from localspec.loading.config import EngineConfig, RuntimeConfig
from localspec.loading.copied_texts import read_texts
from localspec.loading.drafter_set import DrafterSet
from localspec.loading.drawing_ahead import crowded_note
from localspec.loading.given_template import read_template
from localspec.loading.loader import load_models
from localspec.loading.warm_up import warm_up
from localspec.models.pair_finder import pair_of
from localspec.speculation.equal_digits import EqualDigits
from localspec.utils.closing import Closing
from localspec.utils.option_types import typed_options
from localspec.utils.progress import watched


class Engine(Closing, Texts):
    """A target and its drafters, with their KV caches.

    Make an engine with `load`; close it (or use `with`) to free all models: one that is forgotten
    is freed with a ResourceWarning, and keeps nothing of what it learnt. It may be used from
    several threads: texts that are written at the same time share decodes. The prefix that a new
    prompt shares with the text before is not evaluated again. For a conversation, use a `Session`.
    """

    def __init__(self, config: EngineConfig) -> None:
        began = perf_counter()
        self._config = config
        slots = Slots(load_models(config))
        super().__init__(slots, load_seconds=perf_counter() - began)
        # Runs when the engine is garbage-collected without `close`; a text holds its engine.
        self._forgotten = finalize(self, slots.free_forgotten, config.weights)
        self._forgotten.atexit = False

    def __repr__(self) -> str:
        drafting = self.drafter_set
        draft = " or ".join(drafting.names) or f"off ({drafting.reason})"
        closed = self.slots.scheduler.closed
        state = "closed" if closed else f"draft: {draft}, context {self.context}"
        return f"<Engine {self.model.path.stem}, {state}>"

    @property
    def notes(self) -> Sequence[str]:
        """Requests that could not be met in full, one line each.

        Also why texts share no decode, why nothing is drawn ahead beside others, and how often a
        device has failed, or a decode of a drafter was refused.
        """
        apart = dict.fromkeys(each.loaded.apart for each in self.slots.further)
        crowded = crowded_note(self.drafter_set, len(self.slots.all))
        further = (*apart, crowded, self.slots.failures, *self.slots.refusals)
        return (*self.slots.own.loaded.notes, *(note for note in further if note))

    @property
    def model(self) -> Model:
        """The target."""
        return self.slots.own.target.model

    @property
    def drafter_set(self) -> DrafterSet:
        """The drafters of the engine's own slot, or the reason why there are none."""
        return self.slots.own.loaded.drafter_set

    @property
    def context(self) -> int:
        """The most tokens of a text, prompt included; with `reproducible`, without the padding."""
        return self.slots.own.loaded.n_ctx

    @property
    def threads(self) -> int:
        """The number of CPU threads of the target."""
        return self.slots.own.loaded.runtime.threads_of(self.model)

    @property
    def pass_costs(self) -> PassCosts | None:
        """Measured seconds of a target pass by its rows; None if there is no drafter."""
        costs = self.slots.own.loaded.policies.costs
        return costs.passes if costs else None

    @property
    def plain_seconds(self) -> float | None:
        """Seconds of a step without a draft, by measurement; None if there is no drafter."""
        return self.pass_costs.seconds(1) if self.pass_costs else None

    @property
    def equal_digits(self) -> EqualDigits | None:
        """In which passes the target's logits have equal bits; None if that was never tried."""
        return self.slots.own.loaded.digits

    @property
    def plan_ignored(self) -> str | None:
        """Why a stored plan was not used; None if it was, or before the first generation."""
        return self.slots.own.loaded.policies.prior_ignored

    @property
    def prefers_chat(self) -> bool:
        """Whether a plain text prompt is best sent as a chat message: the model has a template."""
        if self._config.chat_template:
            return True
        pair = pair_of(self.model.path)
        return self.model.chat_template is not None and (pair is None or pair.prompt == "chat")

    @typed_options
    def switch(
        self,
        model: str | Path | None = None,
        draft: DraftOption | Sequence[DraftOption] | None = None,
    ) -> None:
        """Replace the target or the drafters, in all slots of the engine; None keeps them.

        Texts that are being written end with a LocalspecError. The old models are freed first. A
        target that was loaded without its heads is loaded again for them. If the new models cannot
        be loaded, the old ones are loaded again and the error is raised.
        """
        self.slots.scheduler.require_open()
        self.slots.scheduler.require_no_step("an engine cannot be switched")
        config = replace(
            self._config,
            model=self._config.model if model is None else model,
            draft=self._config.draft if draft is None else parse_draft(draft),
            chat_template=self._config.chat_template if model is None else None,
            mmproj=self._config.mmproj if model is None else None,
            runtime=self._config.runtime if model is None else self._config.runtime.without_loras(),
        )
        with self.slots.scheduler.exclusive():
            self.slots.stop(SWITCHED)
            again = model is not None or self.slots.own.loaded.must_load_again(config.draft)
            load = self._load_target if again else self._load_drafters
            before, self._config = self._config, config
            try:
                load()
            except BaseException:
                self._config = before
                with watched(None):
                    self._load_again(load)
                raise

    def warm_up(self) -> None:
        """Have a GPU's driver compile what reading long prompts takes, once for each model.

        Else it may do that, with Vulkan for minutes, while the first long prompt waits. A text of
        the engine's own slot ends with a LocalspecError, and what its cache holds is lost.
        """
        with self.slots.scheduler.exclusive():
            self.slots.scheduler.require_open()
            own = self.slots.own
            own.stop(WARMED_UP)
            # Where a GPU computes, reproducible passes are uniform.
            partial = own.target.rollback is Rollback.PARTIAL
            is_uniform = own.loaded.runtime.reproducible and partial
            warm_up(own.target, self.drafter_set, is_uniform=is_uniform)

    def close(self) -> None:
        """Free all models, for good; texts that are being written end with a LocalspecError."""
        self.slots.scheduler.require_no_step("an engine cannot be closed")
        self.slots.scheduler.closed = True
        if self.slots.lock.is_forked:  # all of it is the other process's
            return
        with self.slots.scheduler.exclusive():
            self.slots.stop(CLOSED)
            self.slots.scheduler.end_thread()
            if self._forgotten.alive:  # until all is freed, also where that is interrupted
                self.slots.free(self._config.weights)
                self._forgotten.detach()

    def recipe(self, running: Generation) -> Recipe:
        """The recipe of a generation: everything that decides its text."""
        settings, cache = running.settings, self.slots.own.target.context
        return Recipe.of(
            self.model.path,
            self.slots.own.loaded.runtime,
            prompt=running.prompt,
            params=self.slots.own.params(settings),
            settings=settings,
            stats=running.stats,
            adapters=self.model.adapters,
            shared_cache=cache.params.texts > 1 or cache.params.branches > 0,
            cache_tokens=cache.params.texts * cache.n_cells,
        )

    def _load_target(self) -> None:
        self.slots.free(self._config.weights)
        self.slots.replace_models(load_models(self._config))

    def _load_again(self, load: Callable[[], None]) -> None:
        """Load what was there before; without drafters, if their machine is gone."""
        try:
            load()
        except WorkerError:
            self._config = replace(self._config, draft=parse_draft("none"))
            load()

    def _load_drafters(self) -> None:
        self.slots.replace_drafters(self._config.draft)


@typed_options
def load(
    model: str | Path | None = None,
    draft: DraftOption | Sequence[DraftOption] = "auto",
    *,
    context: int | None = None,
    gpu_layers: int | None = None,
    threads: int | None = None,
    flash_attention: bool | None = None,
    reproducible: bool = False,
    kv_type: str = "f16",
    drafter_kv_type: str = "f16",
    most_threads: int | None = None,
    rpc: Sequence[str] = (),
    device: Sequence[str] | None = None,
    split_mode: str = SPLIT_MODES[0],
    tensor_split: Sequence[float] = (),
    cpu_moe: int = 0,
    draft_device: Sequence[str] | None = None,
    draft_gpu_layers: int | None = None,
    ubatch: int | None = None,
    rope_scaling: str | None = None,
    rope_scale: float | None = None,
    rope_freq_base: float | None = None,
    yarn_orig_ctx: int | None = None,
    draft_rope_scale: float | None = None,
    lora: str | Path | Sequence[str | Path] = (),
    load_mode: str = LOAD_MODES[0],
    remember: bool = False,
    copy_from: str | Path | Sequence[str | Path] = (),
    copied_texts: str | Sequence[str] = (),
    earlier_texts: str | Sequence[str] = (),
    texts: int = 1,
    chat_template: str | Path | None = None,
    mmproj: str | Path | None = None,
) -> Engine:
    """Load a target and its drafters; use the engine in a `with`.

    model: a path, the name of a pair, or `user/repo[:quant]`; None is the bundled model.
    draft: `auto`, `none`, `suffix`, `lookup`, `ngram`, `mtp`, a draft model named as above, any
    object with the Drafter protocol, or a list of these to choose from at each step.
    remember: save the texts of this engine, up to a size limit, in the user's cache folder, and let
    the suffix drafter copy from the texts saved there; `localspec forget` deletes them.
    copy_from: text files, which are in no prompt, that the suffix drafter may copy from.
    copied_texts: further such texts, themselves; a string is one text.
    earlier_texts: such as those of earlier conversations, the oldest first, of which the suffix
    drafter may copy from the latest, up to 65,536 tokens.
    texts: how many will be written at once: caches have room for as many of them as fit in memory.
    Without it they grow when further texts begin, for which old and new must fit side by side.
    chat_template: a chat template in Jinja, or the Path of its file, that stands for the GGUF's.
    mmproj: the file that reads images and sounds for the target, or "none"; None: the one beside
    it, if any. One that is named has room on a GPU before layers of the target.
    gpu_layers, rpc to cpu_moe: where the target is; draft_device, draft_gpu_layers: where draft
    models are; see Placement. `device=["none"]` is the processor. rope_scaling to yarn_orig_ctx:
    see RopeScaling. lora: LoRA adapters for the target, each as FILE or FILE:SCALE; they are on for
    all texts. The others are those of RuntimeConfig; None lets localspec choose.

    Raises ModelNotFoundError, ModelLoadError, DrafterMismatchError, InvalidValueError, WorkerError.
    """
    runtime = RuntimeConfig.of(
        context=context,
        gpu_layers=gpu_layers,
        threads=threads,
        flash_attention=flash_attention,
        reproducible=reproducible,
        kv_type=kv_type,
        drafter_kv_type=drafter_kv_type,
        most_threads=most_threads,
        rpc=rpc,
        device=device,
        split_mode=split_mode,
        tensor_split=tensor_split,
        cpu_moe=cpu_moe,
        draft_device=draft_device,
        draft_gpu_layers=draft_gpu_layers,
        ubatch=ubatch,
        rope_scaling=rope_scaling,
        rope_scale=rope_scale,
        rope_freq_base=rope_freq_base,
        yarn_orig_ctx=yarn_orig_ctx,
        draft_rope_scale=draft_rope_scale,
        lora=lora,
        load_mode=load_mode,
    )
    texts = require("texts", texts, 1, 1024)
    further, earlier = (
        (given,) if isinstance(given, str) else tuple(given)
        for given in (copied_texts, earlier_texts)
    )
    copied, template = (*read_texts(copy_from), *further), read_template(chat_template)
    drafting = parse_draft(draft)
    return load_with(
        EngineConfig(
            model,
            drafting,
            runtime,
            remember,
            copied,
            earlier,
            texts=texts,
            chat_template=template,
            mmproj=mmproj,
        )
    )


def load_with(config: EngineConfig) -> Engine:
    """Load as `load` does, with options that were checked, and files that were read."""
    return Engine(config)
