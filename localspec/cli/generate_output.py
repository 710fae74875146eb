"""What `localspec generate` shows: lines for people, records for programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from localspec.cli.output import Output, join_facts
from localspec.cli.thinking_options import TemplateOptions
from localspec.control.explanation import Explanation
from localspec.control.quick_target import too_quick_text
from localspec.conversation.incomplete_json import incomplete_json
from localspec.conversation.reasoned_text import ReasonedText
from localspec.conversation.reasoning import has_channels
from localspec.engine.engine import Engine
from localspec.engine.generation import Token
from localspec.engine.prompt import Chat, Prompt
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.speculation.drafter import Drafter
from localspec.speculation.equal_digits import EqualDigits
from localspec.stats import Stats
from localspec.utils.format import counted
from localspec.utils.option_names import have_no_effect

_RULE = "coupled"


def engine_line(engine: Engine, running: ReasonedText, *, bundled: bool) -> str:
    """Return one line: the target, what drafts and why, and the seed.

    bundled: no model was named, so the target is the bundled one.
    """
    drafting, settings = engine.drafter_set, running.settings
    if drafting.drafters:
        sure = drafting.one_hot and not settings.verification.same_text
        certain = f"rule {settings.rule} takes copies ({', '.join(drafting.one_hot)}) as certain"
        remarks = "; ".join(each for each in (drafting.reason, certain if sure else "") if each)
        reason = f" ({remarks})" if remarks else ""
        depth = _depth(drafting.drafters, settings.depth)
        drafter = f"draft: {' or '.join(drafting.names)}, {depth}{reason}"
    else:
        drafter = f"draft: off ({drafting.reason})"
    name = engine.model.path.stem
    target = f"no model named, so the bundled {name}" if bundled else name
    return join_facts(
        [target, drafter, reproducible_fact(engine, settings), f"seed {running.settings.seed}"]
    )


def _depth(drafters: Sequence[Drafter], asked: int | None) -> str:
    if asked is None:
        return "as deep as pays"
    deepest = max(each.traits.deepest or asked for each in drafters)
    return f"depth {asked}" if asked <= deepest else f"depth {deepest}, the most for this drafter"


def prompt_notes(
    engine: Engine,
    asked: Prompt,
    *,
    system: str | None,
    told: TemplateOptions,
    whose: str,
    limits: bool,
) -> Iterator[str]:
    """Yield what is not done as it was asked for: about a system prompt, and about reasoning.

    told: what the chat template is told. whose: that template, in words. limits: whether reasoning
    is to be limited or hidden.
    """
    if not isinstance(asked, Chat):
        if told.others:
            yield have_no_effect(
                ["--template-option"], "a text is continued; --chat asks the model"
            )
        if limits or told.think is not None or told.effort:
            yield "nothing is known of reasoning in a text that is continued; --chat asks the model"
        return
    if limits and has_channels(engine.model.chat_template):
        raise InvalidValueError(
            f"{engine.model.path.name} writes its reasoning into a channel, which --hide-thinking "
            "and --thinking-budget do not know; leave them out, or use localspec serve"
        )
    if system and asked.messages[0]["role"] != "system":
        yield "the chat template takes no system prompt; the question begins with it"
    yield from told.without_effect(engine.model.chat_template or "", whose)


def drafting_unused(engine: Engine, options: Mapping[str, Any], *more: str) -> Iterator[str]:
    """Yield which options about drafts have no effect, as nothing drafts.

    options: as of GenerationConfig. more: further ones that are given.
    """
    given = ["--depth"] if options.get("depth") else []
    given += ["--rule"] if options.get("rule", _RULE) != _RULE else []
    if (given or more) and not engine.drafter_set.drafters:
        yield have_no_effect([*given, *more], "nothing drafts")


def template_in_words(engine: Engine, given: str | None) -> str:
    """The chat template of a model, or the one that was given in its place, in words."""
    name = engine.model.path.name
    return "the chat template of --chat-template" if given else f"the chat template of {name}"


def cut_line(engine: Engine, running: ReasonedText) -> str:
    """Return why the text was cut off; empty if it was not."""
    settings, reason = running.settings, running.stop_reason
    if reason not in ("length", "context"):
        return ""
    thinking = ", while it was still thinking" if running.is_thinking else ""
    limit, way_out = "-n", "-n allows more"
    cut = f"cut off after {counted(len(running.tokens), 'token')}{thinking}"
    if reason == "context":
        limit, way_out = "--ctx", "--ctx makes it larger"
        # With `reproducible`, a text with deeper drafts may have a smaller one than the engine.
        cut = f"the context of {engine.slots.own.target.n_ctx} tokens is full{thinking}"
    if settings.grammar:
        cut += ", perhaps before the text satisfies the grammar"
    return f"{cut}; {incomplete_json(running.said, settings.schema, limit) or way_out}"


def reproducible_fact(engine: Engine, settings: GenerationConfig) -> str:
    """Return what `--reproducible` costs each pass; empty without it."""
    width = engine.slots.own.reproducible_width(settings)
    if not width:
        return ""
    rows, uniform = width.least_rows, width.is_uniform
    passes = f"all passes of {rows} rows, also of prompts" if uniform else f"passes of {rows} rows"
    short = uniform and (settings.depth or 0) >= rows
    limit = f", so drafts of {rows - 1} tokens at most" if short else ""
    return f"reproducible: {passes}, {width.cost:.2f} x the time of one{limit}"


class Decisions:
    """Shows why each step was drafted as it was (`--explain`).

    after_text: whether that waits for the end of the text, whose words it would cut in two.
    """

    def __init__(self, output: Output, *, after_text: bool) -> None:
        self._output = output
        self._after_text = after_text
        self._waiting: list[str] = []

    def add(self, decision: Explanation) -> None:
        """Show a decision now, or keep it for `show`."""
        line = decision_line(decision)
        if self._after_text:
            self._waiting.append(line)
        else:
            self._output.note(line)

    def show(self) -> None:
        """Show the decisions that waited."""
        for line in self._waiting:
            self._output.note(line)


def decision_line(decision: Explanation) -> str:
    """Return one line: what the next step does, and why (`--explain`)."""
    if decision.drafter is None:
        return f"plain ({decision.reason}; {decision.plain_rate:.1f} tok/s)"
    ready = f", {decision.ready} drawn ahead" if decision.ready else ""
    return (
        f"{decision.drafter}, depth {decision.depth}{ready} "
        f"({decision.reason}: {decision.expected:.1f} tokens at {decision.rate:.1f} tok/s, "
        f"plain {decision.plain_rate:.1f})"
    )


def stats_line(
    running: ReasonedText,
    digits: EqualDigits | None = None,
    plain_seconds: float | None = None,
    nothing_ahead: str | None = None,
    short_waits: int = 0,
) -> str:
    """Return one line of counts and times (`--stats`).

    digits: what a trial of the model found. plain_seconds: of a step without a draft, as measured.
    nothing_ahead: why nothing was drawn ahead, where that could be expected. short_waits: passes
    whose threads waited shortly.
    """
    stats, seconds = running.stats, running.stats.seconds
    ratio = (stats.tokens_per_second or 0) * (plain_seconds or 0)
    return join_facts(
        [
            f"{stats.generated_tokens} tokens, {_number(stats.tokens_per_second)} tok/s",
            _beside_plain(stats),
            f"stopped: {running.stop_reason}",
            f"accept {_percent(stats.acceptance_rate)}",
            f"{_number(stats.tokens_per_step)} tok/step in {stats.steps} steps",
            _ahead(stats, nothing_ahead),
            f"prompt {stats.prompt_tokens} ({stats.prompt_evaluated} evaluated)"
            f"{_prompt_speed(stats)}",
            f"load {seconds.load:.2f} s, prompt {seconds.prompt:.2f} s, "
            f"generate {seconds.generate:.2f} s = draft {seconds.draft:.2f} "
            f"+ verify {seconds.verify:.2f} + host {seconds.host:.2f}",
            f"{short_waits} passes so far with short waits beside busy programs"
            if short_waits
            else "",
            str(digits) if digits else "",
            too_quick_text(plain_seconds or 0, ratio),
        ]
    )


def _prompt_speed(stats: Stats) -> str:
    speed, first = stats.prompt_tokens_per_second, stats.seconds.first_token
    at = "" if speed is None else f" at {speed:.1f} tok/s"
    return at if first is None else f"{at}, first token after {first:.2f} s"


def generation_record(
    engine: Engine, running: ReasonedText, *, hides: bool = False
) -> dict[str, Any]:
    """Return the object that `--json` prints; generate.schema.json describes it.

    hides: whether the text is without its reasoning.
    """
    drafting = engine.drafter_set
    drafters = [str(path) for path in drafting.model_paths]
    record, recipe = running.result().to_dict(), engine.recipe(running.generation)
    for token in record["logprobs"] or ():
        for likely in token["top"]:
            likely["text"] = engine.model.piece_text(likely["id"])
    return {
        **record,
        "text": running.said if hides else record["text"],
        "thought": running.thought if running.is_reasoned else None,
        "model": {
            "target": str(engine.model.path),
            "drafter": drafters[0] if drafters else None,
            "drafters": drafters,
            "adapters": [
                {"file": str(each.path.absolute()), "scale": each.scale}
                for each in engine.model.loras
            ],
        },
        "speculation": {
            "active": bool(drafting.drafters),
            "drafters": drafting.names,
            "reason": drafting.reason,
        },
        "equal_digits": engine.equal_digits.as_dict() if engine.equal_digits else None,
        # Rows of images are numbers below 0 there.
        "recipe": asdict(replace(recipe, prompt_token_ids=[*map(int, recipe.prompt_token_ids)])),
    }


def token_record(token: Token) -> dict[str, Any]:
    """Return the object that `--stream --json` prints for each token."""
    return {
        "text": token.text,
        "id": token.id,
        "origin": token.origin,
        "logprob": token.logprob,
    }


def _beside_plain(stats: Stats) -> str:
    """Return how much faster than plain steps the text came; "" where that is not known."""
    gain, plain = stats.x_plain, stats.plain_tokens_per_second
    if gain is None or plain is None:
        return ""
    return f"{gain:.2f} x plain ({plain:.1f} tok/s by the measured time of a plain step)"


def _ahead(stats: Stats, nothing_ahead: str | None) -> str:
    """Return how many tokens were drawn ahead, or why none."""
    if stats.drafted_ahead:
        return f"{stats.drafted_ahead} drawn ahead, {stats.used_ahead} used"
    return f"nothing drawn ahead: {nothing_ahead}" if nothing_ahead else ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
