"""Drafters of the caller that return and raise anything: one error with their name, or the text."""

from functools import cache
from random import Random
from typing import Any

import numpy as np
from fakes.toy import ToyModel, ToyTarget, fixed

from localspec.drafters.spec import parse_draft
from localspec.errors import LocalspecError
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Traits
from localspec.speculation.rules import RULES
from localspec.stats import Stats

NAME, PROMPT, LENGTH, VOCABULARY = "mine", [0, 1, 2, 1], 12, 4


def _values() -> list[Any]:
    """Things that are no draft, and some that are."""
    tokens: list[Any] = [
        [1, 2], (1,), [], "12", b"12", {1, 2}, {1: 2}, iter([1]), (each for each in [1]), range(3),
        np.array([1, 2]), np.array([]), [np.int64(1)], [1.0], [1.5], [float("nan")], ["1"], [None],
        [True], [[1]], [-1], [4], [10**30], [1] * 100, range(10**9), None, 3, 1.5, object(),
        [1, "x"],
    ]  # fmt: skip
    parents: list[Any] = [None, [], [-1], [-1, 0], [5, 5], "ab", np.array([-1, 0]), [None, 0], 7]
    probs: list[Any] = [None, [], [None], "ab", [0.5, 0.5], np.array([0.5]), [[0.5]], 7]
    drafts = [Draft(each) for each in tokens]
    drafts += [Draft([1, 2], each) for each in parents] + [Draft([1], each) for each in parents]
    drafts += [Draft([1, 2], None, each) for each in probs] + [
        Draft([1], None, each) for each in probs
    ]
    return [*tokens, *drafts, NotImplemented, Draft, type]


_ERRORS = [
    ValueError("two\nlines"), ZeroDivisionError(), KeyError("k"), RecursionError(), MemoryError(),
    StopIteration(), StopIteration(3), RuntimeError("x" * 10_000), OSError(5, "no"),
    AttributeError("passes"), AssertionError("\x1b]0;title\x07"), TypeError(), IndexError("é"),
]  # fmt: skip
_TRAITS: list[Any] = [
    Traits(), Traits(cheap=True), Traits(deepest=1), Traits(gives_probs=True), Traits(branches=3),
    Traits(deepest=0), Traits(deepest="x"), Traits(branches=None), None, {}, Traits,  # type: ignore[arg-type]
    Traits(chances=lambda limit: None), Traits(chances=lambda limit: [float("nan")]),  # type: ignore[arg-type, return-value]
    Traits(chances=lambda limit: [2.0]), Traits(backlog=lambda: "x"), Traits(chances=7),  # type: ignore[arg-type, return-value]
]  # fmt: skip


class Garbage:
    """A drafter that is sound until its `after`th call of one method, which returns or raises."""

    def __init__(self, random: Random) -> None:
        self.name: Any = NAME
        if random.random() < 0.05:
            self.name = random.choice([None, "", 3, b"x", "x" * 10_000, "\x1b[2J"])
        self.traits = random.choice(_TRAITS) if random.random() < 0.3 else Traits()
        self._method = random.choice(["begin", "observe", "propose", "propose", "propose"])
        self._raises = random.random() < 0.4 or self._method in ("begin", "observe")
        values = _ERRORS if self._raises else _values()
        self._value = random.choice(values)
        self._left = random.randrange(4) if self._method != "begin" else 0
        self.calls = 0

    def _act(self, method: str, sound: Any) -> Any:
        self.calls += 1
        if method != self._method:
            return sound
        self._left -= 1
        if self._left >= 0:
            return sound
        if self._raises:
            raise self._value
        return self._value

    def begin(self, tokens: Any) -> None:
        return self._act("begin", None)

    def observe(self, outcome: Any) -> None:
        return self._act("observe", None)

    def propose(self, limit: Any) -> Any:
        return self._act("propose", Draft([1, 2][: limit.depth]))


def _text(drafter: Any, depth: int, rule: str) -> list[int]:
    table = np.random.default_rng(0).normal(size=(VOCABULARY,) * 3).astype(np.float32)
    chosen, text = RULES[rule], list(PROMPT)
    sampler = Sampler(SamplingParams(temperature=1.0), chosen.randomness(1))
    policy = fixed(drafter, depth)
    target = ToyTarget(ToyModel(table), text)
    return [each.id for each in Decoder(target, policy, chosen, sampler, text, Stats()).run(LENGTH)]


@cache
def _plain() -> list[int]:
    return _text(None, 0, "coupled")


def drafter_case(number: int) -> str:
    """A drafter of garbage decodes a text."""
    random = Random(number)
    garbage = Garbage(random)
    rule = random.choice(["coupled", "coupled", "token"])
    try:
        [spec] = parse_draft(garbage).specs  # type: ignore[arg-type]
        tokens = _text(spec.custom, random.choice([1, 2, 8]), rule)
    except LocalspecError as error:
        message = str(error)
        assert "\n" not in message and len(message) < 500, message
        assert repr(garbage.name)[:40] in message or "Garbage" in message, message
        return "refused"
    assert len(tokens) == LENGTH
    assert rule != "coupled" or tokens == _plain()
    return "text"
