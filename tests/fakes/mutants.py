"""Mistakes planted in the real code: its modules with some lines replaced, and what they then say.

The enumeration is that of `fakes.enumeration`; here are toys that make mistakes loud, and sources
of randomness that mistakes need and the real rules never ask for.
"""

import inspect
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
from fakes.enumeration import Branches, Drawn, SharedNoise, exact, total_variation
from fakes.laws import PROMPT, product_law
from fakes.toy import Scripted, ToyCache, ToyModel, ToyTarget, fixed
from fakes.trees import TreeDrafter

from localspec.drafters.draft_model import DraftModel
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit
from localspec.speculation.rules import RULES, Rule
from localspec.stats import Stats

Law = dict[tuple[int, ...], float]


@dataclass(frozen=True)
class Edit:
    """In the source of the function or class `where`, `new` stands for `old`."""

    where: Callable[..., Any]
    old: str
    new: str


class Code:
    """The package's modules, with mistakes.

    An edit fits exactly one place or fails: a mutant whose line has changed must be planted anew.
    """

    def __init__(self, *edits: Edit) -> None:
        sources: dict[str, str] = {}
        bodies: dict[Callable[..., Any], str] = {}
        for edit in edits:
            name = edit.where.__module__
            body = bodies.get(edit.where) or inspect.getsource(edit.where)
            source = sources.get(name) or inspect.getsource(_module(edit.where))
            assert body.count(edit.old) == 1 == source.count(body), (
                f"{name}.{edit.where.__qualname__} does not hold this exactly once any more, "
                f"so the mistake must be planted anew:\n{edit.old}"
            )
            bodies[edit.where] = body.replace(edit.old, edit.new)
            sources[name] = source.replace(body, bodies[edit.where])
        self._copies: dict[str, ModuleType] = {}
        for name, source in sources.items():
            # What a module imports from one that was edited before it is that one's copy.
            with patch.dict(sys.modules, self._copies):
                self._copies[name] = _executed(name, source)

    def of(self, thing: Any) -> Any:
        """A function or class of the package, as these modules have it."""
        name = thing.__module__
        for base in reversed(getattr(thing, "__mro__", (thing,))[1:]):
            if base.__module__.startswith("localspec."):
                self.of(base)
        if name not in self._copies and self._imports_a_copy(_module(thing)):
            # Classes are derived from those of the copies.
            with patch.dict(sys.modules, self._copies):
                self._copies[name] = _executed(name, inspect.getsource(_module(thing)))
            for used in self._imports_a_copy(self._copies[name]):
                setattr(self._copies[name], used.__name__, self.of(used))
        return getattr(self._copies.get(name) or _module(thing), thing.__name__)

    def _imports_a_copy(self, module: ModuleType) -> list[Any]:
        """What a module imports from those that have mistakes."""
        return [
            each
            for each in vars(module).values()
            if getattr(each, "__module__", None) in self._copies and hasattr(each, "__name__")
        ]

    def rule(self, name: str) -> Rule:
        """A rule of the package, as these modules have it."""
        return replace(RULES[name], verify=self.of(RULES[name].verify))


def _module(thing: Any) -> ModuleType:
    module = inspect.getmodule(thing)
    assert module is not None
    return module


def _executed(name: str, source: str) -> ModuleType:
    copy = ModuleType(name)
    exec(compile(source, f"<{name} with a mistake>", "exec"), copy.__dict__)
    return copy


class KeyedDraws(Drawn):
    """Draws among which `below` asks for a number that a key decides, once and for all."""

    def __init__(self, branches: Branches) -> None:
        super().__init__(branches)
        self._between: dict[Hashable, tuple[float, float]] = {}

    def below(self, key: Hashable, p: float) -> bool:
        """Whether the uniform number of this key is below p; what that tells is remembered."""
        low, high = self._between.get(key, (0.0, 1.0))
        if not low < p < high:
            return p >= high
        below = self.bern((p - low) / (high - low))
        self._between[key] = (low, p) if below else (p, high)
        return below


class SharedThenDrawn(SharedNoise):
    """Tokens are chosen with shared noise, all else is drawn independently."""

    def __init__(self, branches: Branches) -> None:
        super().__init__(branches)
        drawn = Drawn(branches)
        self.bern, self.cat = drawn.bern, drawn.cat


class OneBuffer(ToyCache):
    """A drafter's cache that writes all its logits to one place, as a real one does."""

    def __init__(self, model: ToyModel) -> None:
        super().__init__(model)
        self._row = np.empty(model.n_vocab, np.float32)

    def extend(self, tokens: list[int]) -> np.ndarray:  # type: ignore[override]
        self._row[:] = super().extend(tokens)
        return self._row


def _toy(*rows: list[float]) -> ToyModel:
    """Probabilities for each last token but one; a single row is for all of them."""
    return ToyModel(np.log([[row] * 3 for row in (rows if len(rows) == 3 else rows * 3)]))


# Target and drafter. loud: two likely tokens ranked the other way round. unequal: of two tokens
# left to the residual, the drafter finds one far less likely. flat: one law everywhere.
TOYS = {
    "loud": (
        _toy([0.5, 0.3, 0.2], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]),
        _toy([0.15, 0.25, 0.6], [0.6, 0.25, 0.15], [0.5, 0.3, 0.2]),
    ),
    "unequal": (_toy([0.35, 0.6, 0.05]), _toy([0.01, 0.43, 0.56])),
    "flat": (_toy([0.5, 0.3, 0.2]), _toy([0.6, 0.25, 0.15])),
    "same": (_toy([0.5, 0.3, 0.2]), _toy([0.5, 0.3, 0.2])),
}
FULL = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)
SAMPLERS = {
    "full": FULL,
    "top-k": replace(FULL, top_k=2),
    "penalties": replace(FULL, repeat_penalty=1.5, presence_penalty=0.4),
    "xtc": replace(FULL, xtc_probability=0.5, xtc_threshold=0.2),
    "adaptive-p": replace(FULL, adaptive_target=0.4, adaptive_decay=0.5),
}


@dataclass(frozen=True)
class Trial:
    """What the loop runs with, and how many tokens it says."""

    rule: str = "token"
    toy: str = "loud"
    sampler: str = "full"
    drafter: str = "model"
    depth: int = 2
    length: int = 4
    noise: type = Drawn


def spoken(trial: Trial, code: Code, rule: Rule | None = None) -> Law:
    """The exact distribution of what the loop says. rule: in place of the trial's."""
    target, _ = TOYS[trial.toy]

    def run(branches: Branches) -> tuple[int, ...]:
        text = list(PROMPT)
        loop = code.of(Decoder)(
            ToyTarget(target, text),
            fixed(_drafter(trial, code), trial.depth),
            rule or code.rule(trial.rule),
            code.of(Sampler)(SAMPLERS[trial.sampler], trial.noise(branches)),
            text,
            Stats(),
        )
        return tuple(emission.id for emission in loop.run(trial.length))

    return exact(run)  # type: ignore[arg-type, return-value]


def _drafter(trial: Trial, code: Code) -> Drafter:
    small = TOYS[trial.toy][1]
    drafters: dict[str, Callable[[], Drafter]] = {
        "model": lambda: code.of(DraftModel)(OneBuffer(small), name="small", n_vocab=3),
        "constant": lambda: Scripted(lambda text, limit: Draft([1] * limit.depth)),
        "siblings": lambda: TreeDrafter(small, (2,)),
        "late siblings": lambda: TreeDrafter(small, (1, 2)),
        "top candidate": lambda: Scripted(lambda text, limit: _top_candidate(small, text, limit)),
    }
    return drafters[trial.drafter]()


def _top_candidate(small: ToyModel, text: list[int], limit: Limit) -> Draft:
    """The likeliest token, never drawn, with the law it was not drawn from."""
    law = limit.sampler.distribution(small.logits(text), limit.prefix)
    return Draft([law.token(int(law.logits.argmax()))], probs=[law])


@cache
def wanted(toy: str, sampler: str, length: int) -> Law:
    """The target's own law: the probability of each text of this length, multiplied out."""
    return product_law(TOYS[toy][0], SAMPLERS[sampler], length)


def variation(trial: Trial, code: Code) -> float:
    """How far what the loop says is from the target's own law."""
    law = wanted(trial.toy, trial.sampler, trial.length)
    return total_variation(spoken(trial, code), law)  # type: ignore[arg-type]


@cache
def variation_without_mistake(trial: Trial) -> float:
    """The same of the real code."""
    return variation(trial, Code())
