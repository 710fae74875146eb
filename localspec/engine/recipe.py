"""Recipe: everything that decides a text, recorded so that anybody can audit the text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.llama import unfit_gpus
from localspec.llama.context_params import CHUNK
from localspec.llama.devices import usual_gpus
from localspec.llama.placement import Placement, is_address
from localspec.loading.config import RuntimeConfig
from localspec.loading.fingerprints import fingerprint, gpus, versions
from localspec.sampling.params import SamplingParams
from localspec.stats import Stats
from localspec.utils.format import counted
from localspec.utils.option_names import option

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decided a text.

    prompt_token_ids: the prompt's token ids. sampling: all fields of SamplingParams, with the
    GGUF's own values. grammar, schema: as in GenerationConfig. widths: the number of rows of each
    pass. decode_rows: those of the decode that each pass was in, with the rows of other texts.
    shared_cache: whether the cache had room for other texts or for branches of drafts, so that the
    text's tokens may lie there in another order. cache_tokens: how many tokens it had room for in
    all. reproducible, flash_attention, kv_type: as in RuntimeConfig. ubatch: the most rows that
    were computed at once. fingerprint: the fingerprint of the target's file. versions: the versions
    of the software that computed the text. gpus: those that the target was on, none if it was on
    the processor. placement: the options of `load` that put the target there; None where workers,
    whose addresses are not recorded, had a part of it. rope: the options of `load` that scale its
    rotations. adapters: of each LoRA adapter the fingerprint of its file, and its scale.
    """

    prompt_token_ids: list[int]
    sampling: dict[str, Any]
    min_tokens: int
    ignore_eos: bool
    grammar: str | None
    schema: str | None
    depth: int | None
    widths: list[int]
    reproducible: bool
    flash_attention: bool | None
    fingerprint: str
    versions: dict[str, str]
    kv_type: str
    decode_rows: list[int]
    shared_cache: bool
    cache_tokens: int
    gpus: list[str]
    placement: dict[str, Any] | None
    ubatch: int
    rope: dict[str, Any]
    adapters: list[dict[str, Any]]

    @classmethod
    def of(
        cls,
        target: Path,
        runtime: RuntimeConfig,
        *,
        prompt: list[int],
        params: SamplingParams,
        settings: GenerationConfig,
        stats: Stats,
        adapters: list[dict[str, Any]],
        shared_cache: bool,
        cache_tokens: int,
    ) -> "Recipe":
        """The recipe of a generation with this target."""
        sampling = asdict(params)
        del sampling["dry_breaker_tokens"]  # the model's
        # JSON has neither whole-number keys nor infinities.
        bias = [[t, None if b == _NEVER else b] for t, b in params.logit_bias.items()]
        return cls(
            prompt_token_ids=prompt,
            sampling={**sampling, "logit_bias": bias},
            min_tokens=settings.min_tokens,
            ignore_eos=settings.ignore_eos,
            grammar=settings.grammar,
            schema=settings.schema,
            depth=settings.depth,
            widths=stats.widths,
            decode_rows=stats.decode_rows,
            shared_cache=shared_cache,
            cache_tokens=cache_tokens,
            reproducible=runtime.reproducible,
            flash_attention=runtime.flash_attention,
            fingerprint=fingerprint(target),
            versions=versions(constrained=settings.compiled_grammar() is not None),
            kv_type=runtime.kv_type,
            gpus=gpus(runtime.placement),
            placement=_options(runtime.placement),
            ubatch=runtime.ubatch or CHUNK,
            rope=runtime.rope.options,
            adapters=adapters,
        )

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> "Recipe":
        """A recipe from JSON. Raises InvalidValueError if it has other fields."""
        try:
            recipe = cls(**record)
            _require_local(recipe.placement)
            _require_rope(recipe.rope)
            _require_adapters(recipe.adapters)
            for name in ("cache_tokens", "ubatch"):
                if not isinstance(value := getattr(recipe, name), int):
                    raise TypeError(f"its {name} is {value!r:.80}")
            rows: Any = recipe.decode_rows
            if not isinstance(rows, list) or not all(isinstance(each, int) for each in rows):
                raise TypeError(f"its decode_rows is {rows!r:.80}")
            return recipe
        except TypeError as error:
            raise InvalidValueError(f"this is not a recipe of localspec: {error}") from error

    def settings(self, *, seed: int, rule: str) -> GenerationConfig:
        """The settings that the text was generated with."""
        bias = {token: _NEVER if b is None else b for token, b in self.sampling["logit_bias"]}
        return GenerationConfig.of(
            **{**self.sampling, "logit_bias": bias},
            max_tokens=max(1, self.min_tokens),
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            grammar=self.grammar,
            schema=self.schema,
            depth=self.depth,
            seed=seed,
            rule=rule,
        )

    def require_same_model(self, target: Path) -> None:
        """Raise InvalidValueError unless this file and these versions made the text."""
        if self.fingerprint != fingerprint(target):
            raise InvalidValueError(
                f"{target} is another model than the one that wrote this text; "
                f"name that one with {option('model')}"
            )
        current = versions(constrained=self.grammar is not None or self.schema is not None)
        if self.versions != current:
            theirs, ours = (_named(each) for each in (self.versions, current))
            raise InvalidValueError(
                f"the text was made with {theirs}, and this is {ours}: "
                "another version may compute another text without a bug"
            )

    def require_same_adapters(self, here: Sequence[Mapping[str, Any]]) -> None:
        """Raise InvalidValueError unless the text was made with these adapters."""
        if self.adapters != here:
            theirs, ours = (_counted(each) for each in (self.adapters, here))
            raise InvalidValueError(
                f"the text was made with {theirs}, and this is with {ours}; name the same files, "
                f"at the same scales, with {option('lora')}"
            )

    def require_same_gpus(self, placement: Placement) -> None:
        """Raise InvalidValueError unless these GPUs made the text."""
        here = gpus(placement)
        if self.gpus != here:
            raise InvalidValueError(
                f"the text was computed on {_places(self.gpus)}, and this is {_places(here)}: its "
                f"kernels may compute another text without a bug; {option('device')}, "
                f"{option('gpu_layers')} and {option('cpu_moe')} choose"
            )


def _counted(adapters: Sequence[Mapping[str, Any]]) -> str:
    """How many adapters these are, with the beginnings of their fingerprints."""
    names = ", ".join(f"{each['fingerprint'][:8]} at {each['scale']:g}" for each in adapters)
    return f"{counted(len(adapters), 'LoRA adapter')} ({names})" if adapters else "no LoRA adapter"


def _require_adapters(adapters: Any) -> None:
    """Raise TypeError unless these are the adapters of a recipe."""
    if not isinstance(adapters, list) or not all(
        isinstance(each, Mapping)
        and each.keys() == {"fingerprint", "scale"}
        and isinstance(each["fingerprint"], str)
        and isinstance(each["scale"], (int, float))
        for each in adapters
    ):
        raise TypeError(f"its adapters is {adapters!r:.80}")


def _require_rope(options: Any) -> None:
    """Raise InvalidValueError unless these are options of `load` that scale rotations."""
    kinds: dict[str, tuple[type, ...]] = {
        "rope_scaling": (str,),
        "rope_scale": (int, float),
        "rope_freq_base": (int, float),
        "yarn_orig_ctx": (int,),
    }
    if (
        not isinstance(options, Mapping)
        or not options.keys() <= kinds.keys()
        or not all(isinstance(value, kinds[name]) for name, value in options.items())
    ):
        raise InvalidValueError(f"this is not a recipe of localspec: its rope is {options!r:.200}")
    RuntimeConfig.of(**options)


def _require_local(options: Any) -> None:
    """Raise InvalidValueError unless these are the options of a placement on this machine.

    A record may come from anybody: it must not name another machine to compute on.
    """
    if options is None:
        return
    kinds: dict[str, tuple[type, ...]] = {
        "gpu_layers": (int, type(None)),
        "device": (list, type(None)),
        "split_mode": (str,),
        "tensor_split": (list,),
        "cpu_moe": (int,),
    }
    names = options.get("device") or [] if isinstance(options, Mapping) else []
    if (
        not isinstance(options, Mapping)
        or options.keys() != kinds.keys()
        or not all(isinstance(options[name], each) for name, each in kinds.items())
        or not all(isinstance(name, str) and not is_address(name) for name in names)
        or not all(isinstance(share, (int, float)) for share in options["tensor_split"])
    ):
        raise InvalidValueError(
            f"this is not a recipe of localspec: its placement is {options!r:.200}"
        )
    RuntimeConfig.of(**options)


def _options(placement: Placement) -> dict[str, Any] | None:
    """The options of `load` for this placement, also where other GPUs are found later."""
    if placement.workers:
        return None
    names, usual = placement.devices, usual_gpus()
    if names is None and (unfit_gpus.reasons() or not usual):
        names = tuple(usual)
    return {
        "gpu_layers": placement.gpu_layers,
        "device": names if names is None else [*names] or ["none"],
        "split_mode": placement.split_mode,
        "tensor_split": list(placement.tensor_split),
        "cpu_moe": placement.cpu_moe,
    }


def _places(gpus: Sequence[str]) -> str:
    return ", ".join(map(str, gpus)) or "the processor"


def _named(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
