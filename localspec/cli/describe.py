"""What was done, in words for people and as records for programs."""

from dataclasses import asdict
from typing import Any

from localspec.cli.output import joined
from localspec.engine import Engine
from localspec.generation import Generation, Token


def describe_engine(engine: Engine, running: Generation, *, bundled: bool) -> str:
    """One line: which target, what drafts and why, which seed."""
    drafting = engine.drafting
    if drafting.drafter:
        rule = running.settings.rule
        sure = drafting.is_one_hot and not running.settings.verification.same_text
        certain = f"rule {rule} takes what it copies as certain" if sure else ""
        remarks = "; ".join(each for each in (drafting.reason, certain) if each)
        reason = f" ({remarks})" if remarks else ""
        drafter = f"draft: {drafting.drafter.name}, depth {running.settings.depth}{reason}"
    else:
        drafter = f"draft: off ({drafting.reason})"
    name = engine.model.path.stem
    target = f"no model named, so the bundled {name}" if bundled else name
    made_for = engine.model.n_ctx_train
    beyond = f"context {engine.context} is beyond the model's {made_for}"
    warning = beyond if engine.context > made_for else ""
    return joined(
        [target, drafter, warning, _reproducible(engine, running), f"seed {running.settings.seed}"]
    )


def _reproducible(engine: Engine, running: Generation) -> str:
    width = engine.width_class(running.settings.depth)
    if not width:
        return ""
    return f"reproducible: passes of {width.least_rows} rows, {width.cost:.2f} x the time of one"


def describe_stats(running: Generation) -> str:
    """One line of counts and times."""
    stats, seconds = running.stats, running.stats.seconds
    return joined(
        [
            f"{stats.generated_tokens} tokens, {_number(stats.tokens_per_second)} tok/s",
            f"stopped: {running.stop_reason}",
            f"accept {_percent(stats.acceptance_rate)}",
            f"{_number(stats.tokens_per_step)} tok/step in {stats.steps} steps",
            f"prompt {stats.prompt_tokens} ({stats.prompt_evaluated} evaluated)",
            f"load {seconds.load:.2f} s, prompt {seconds.prompt:.2f} s, "
            f"generate {seconds.generate:.2f} s = draft {seconds.draft:.2f} "
            f"+ verify {seconds.verify:.2f} + host {seconds.host:.2f}",
        ]
    )


def record(engine: Engine, running: Generation) -> dict[str, Any]:
    """The object `--json` prints; generate.schema.json describes it."""
    result = running.result()
    drafting = engine.drafting
    model_path = drafting.model_path
    return {
        "text": result.text,
        "token_ids": result.token_ids,
        "origins": result.origins,
        "logprobs": _logprobs(engine, running) if running.settings.logprobs else None,
        "stop_reason": result.stop_reason,
        "seed": result.seed,
        "rule": result.rule,
        "model": {
            "target": str(engine.model.path),
            "drafter": str(model_path) if model_path else None,
        },
        "speculation": {
            "active": drafting.drafter is not None,
            "drafter": drafting.drafter.name if drafting.drafter else None,
            "reason": drafting.reason,
        },
        "stats": result.stats.as_dict(),
        "recipe": asdict(engine.recipe(running)),
    }


def _logprobs(engine: Engine, running: Generation) -> list[dict[str, Any]]:
    return [
        {
            "id": token.id,
            "logprob": token.logprob,
            "top": [
                {"id": other, "text": engine.model.piece_text(other), "logprob": logprob}
                for other, logprob in token.top
            ],
        }
        for token in running.tokens
    ]


def token_record(token: Token) -> dict[str, Any]:
    """The object `--stream --json` prints for each token."""
    return {
        "text": token.text,
        "id": token.id,
        "origin": token.origin,
        "logprob": token.logprob,
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
