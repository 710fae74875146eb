"""Options: the settings of a text, read from the members that several protocols share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.server.constraint import Constraint
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.logit_bias import Tokenize, logit_bias
from localspec.server.sampler_order import settings_of_order

_RULES = ("coupled", "token", "block")
# A random seed, in llama-server's words.
_RANDOM = -1
_MOST_STOPS = 256
_LEAST_TOP_P = 1e-9
_MOST_BREAKERS = 64
# Members of other servers that would change the text, and what they are where they change nothing.
_NOT_HERE: dict[str, tuple[Any, ...]] = {
    "min_keep": (0, 1),
    "grammar_lazy": (False,),
    "grammar_triggers": ([],),
    "top_a": (0,),
    "smoothing_factor": (0,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "no_repeat_ngram_size": (0,),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "allowed_token_ids": (),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "truncate_prompt_tokens": (-1,),
    "prompt_logprobs": (),
    "logits_processors": ([],),
    "options": ({},),
    "format": ("",),
    "tfs_z": (1,),
    "typ_p": (1,),
    "n_probs": (0,),
    "guided_whitespace_pattern": (),
    "bad_words": ([],),
    "stop_token_ids": ([],),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSettings(GenerationConfig):
    """The settings of a text that a request asks for.

    not_enforced: what of its schemas the text is not held to, a line for each of them. not_used:
    what else of the request has no effect, a line for each. of_all:
    whether the grammar describes reasoning and calls too, and not only an answer in their place.
    """

    not_enforced: tuple[str, ...] = ()
    not_used: tuple[str, ...] = ()
    of_all: bool = False

    @property
    def describes_answer(self) -> bool:
        """Whether a schema or a grammar describes the answer; reasoning before it is free."""
        return not (self.is_free or self.of_all)


def settings_of(
    body: Fields,
    usual: GenerationOptions,
    tokenize: Tokenize,
    *,
    formats: Mapping[str, Mapping[str, Any] | None] = {},
    not_used: Iterable[str] = (),
    **given: Any,
) -> TextSettings:
    """The settings that a body asks for. given: settings that the protocol has read itself.

    tokenize: the model's, for a bias of texts. formats: what the answer is to be in the form of
    OpenAI's `response_format`, by the protocol's member that says so. not_used: what of the request
    has no effect, a line for each. A setting that the body leaves out is the `usual` one, else the
    pair's, else the GGUF's, else the default. Raises ApiError.
    """
    body.refuse(_NOT_HERE)
    if body.values.get("lora") not in (None, []):
        raise body.wrong("lora", "left out: adapters are those of --lora, the same for all texts")
    try:
        constraint = Constraint.of(body, formats)
    except InvalidValueError as error:
        raise ApiError.of(error) from error
    options: dict[str, Any] = {
        "temperature": body.number("temperature", 0, 100),
        "dynatemp_range": body.number("dynatemp_range", 0, 100),
        "dynatemp_exponent": body.number("dynatemp_exponent", 0, 100),
        "top_n_sigma": _top_n_sigma(body),
        "top_p": _top_p(body),
        "top_k": _top_k(body),
        "min_p": body.number("min_p", 0, 1),
        "typical_p": body.number("typical_p" if "typical_p" in body else "typical", 0, 1),
        # OpenAI has -2 to 2, and llama-server no bounds.
        "frequency_penalty": body.number("frequency_penalty", -100, 100),
        "presence_penalty": body.number("presence_penalty", -100, 100),
        "repeat_penalty": body.number(
            "repeat_penalty" if "repeat_penalty" in body else "repetition_penalty", 0, 100
        ),
        "penalty_window": body.whole("repeat_last_n", -1, 2**31 - 1),
        **_dry(body),
        "xtc_probability": body.number("xtc_probability", 0, 1),
        "xtc_threshold": body.number("xtc_threshold", 0, 1),
        "mirostat": body.whole("mirostat" if "mirostat" in body else "mirostat_mode", 0, 2),
        "mirostat_tau": body.number("mirostat_tau", 0, 100),
        "mirostat_eta": body.number("mirostat_eta", 0, 100),
        "adaptive_target": body.number("adaptive_target", -(2**31), 1),
        "adaptive_decay": body.number("adaptive_decay", 0, 1),
        "seed": _seed(body),
        "stop": [each for each in body.texts("stop") if each] or None,  # "" is the end of no text
        "logit_bias": logit_bias(body, tokenize),
        "ignore_eos": body.flag("ignore_eos"),
        "min_tokens": body.whole("min_tokens", 0),
        "post_sampling_probs": body.flag("post_sampling_probs"),
        **constraint.options,
        **_speculation(body),
        **{name: value for name, value in given.items() if value is not None},
    }
    # Each token's text is compared with all of them.
    if (count := len(options["stop"] or ())) > _MOST_STOPS:
        raise ApiError(400, f"there are {count} stop strings; send {_MOST_STOPS} at most")
    chosen = {name: value for name, value in options.items() if value is not None}
    if body.values.get("seed") == _RANDOM:
        usual = usual.copy()
        usual.pop("seed", None)
    chosen |= settings_of_order(body, {**usual, **chosen})
    try:
        settings = TextSettings.of(**{**usual, **chosen})
        return replace(
            settings,
            not_enforced=constraint.not_enforced,
            not_used=(*not_used,),
            of_all=constraint.of_all,
        )
    except InvalidValueError as error:
        raise ApiError.of(error) from error


def most_tokens(body: Fields, *names: str, context: int, least: int = 1) -> int:
    """The most tokens of the answer: the first of these members that is there, else the context."""
    for name in names:
        asked = body.whole(name, -1, 2**31 - 1)
        if asked is not None and 0 <= asked < least:
            raise body.wrong(name, f"at least {least}")
        if asked is not None and asked >= 0:
            return asked
    return context


def _top_p(body: Fields) -> float | None:
    """0 keeps the likeliest token alone."""
    return _LEAST_TOP_P if (given := body.number("top_p", 0, 1)) == 0 else given


def _top_n_sigma(body: Fields) -> float | None:
    """Below 0 is off, as 0 is."""
    given = body.number("top_n_sigma", -(2**31), 2**31)
    return None if given is None else max(given, 0.0)


def _top_k(body: Fields) -> int | None:
    """Below 0 is off, as 0 is."""
    given = body.whole("top_k", -(2**31), 2**31 - 1)
    return None if given is None else max(given, 0)


def _dry(body: Fields) -> dict[str, Any]:
    base = body.number("dry_base", 0)
    body.items("dry_sequence_breakers")  # a list, and no text
    breakers = body.texts("dry_sequence_breakers")
    if len(breakers) > _MOST_BREAKERS:
        raise body.wrong("dry_sequence_breakers", f"{_MOST_BREAKERS} texts at most")
    return {
        "dry_multiplier": body.number("dry_multiplier", 0),
        "dry_base": base if base and base >= 1 else None,  # the default, as on llama-server
        "dry_allowed_length": body.whole("dry_allowed_length", 0, 2**31 - 1),
        "dry_penalty_last_n": body.whole("dry_penalty_last_n", -1, 2**31 - 1),
        "dry_sequence_breakers": breakers if "dry_sequence_breakers" in body else None,
    }


def _seed(body: Fields) -> int | None:
    seed = body.whole("seed", -(2**63), 2**64 - 1)
    return None if seed is None or seed == _RANDOM else seed % 2**64


def _speculation(body: Fields) -> dict[str, Any]:
    """How to draft: `localspec`, and llama-server's names. What cannot be honoured is refused."""
    options = _llama_speculation(body)
    if name := body.text("draft_model"):
        options["drafter"] = name
    ours = body.member("localspec")
    if ours is not None:
        unknown = ours.values.keys() - {"draft", "depth", "rule", "origins"}
        if unknown:
            raise ApiError(400, f"localspec has no member {min(unknown)!r}", param="localspec")
        if (depth := ours.whole("depth", 0, 64)) is not None:
            options["depth"] = depth
        if (rule := ours.one_of("rule", _RULES)) is not None:
            options["rule"] = rule
        match ours.text("draft"):
            case "none":
                options["depth"] = 0
            case str(name) if name != "auto":
                if options.setdefault("drafter", name) != name:
                    raise body.wrong("draft_model", f"what localspec.draft names, {name:.80}")
    return options


def _llama_speculation(body: Fields) -> dict[str, Any]:
    """llama-server's members, which are names with a dot or an object."""
    dotted = {
        name.removeprefix("speculative."): value
        for name, value in body.values.items()
        if name.startswith("speculative.")
    }
    given = body.member("speculative") or Fields(dotted, "speculative")
    if unknown := given.values.keys() - {"n_max", "type"}:
        raise given.wrong(min(unknown), "left out: this server has n_max and type")
    depth, kind = given.whole("n_max", 0, 64), given.text("type")
    if kind not in (None, "none"):
        raise given.wrong("type", "none; other drafters are chosen when it starts")
    if kind == "none":
        depth = 0
    return {} if depth is None else {"depth": depth}
