"""A drafter of the caller: what it returns or raises wrongly is one error with its name."""

from typing import Any

import pytest
from fakes.pycode import load
from fuzz.campaign import Campaign
from fuzz.drafters import drafter_case

from localspec.errors import DrafterMismatchError, InvalidValueError, LocalspecError
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Traits

LOAD: dict[str, Any] = {"threads": 1, "context": 128}


class Own:
    """A drafter that counts how often it is asked. returns: its proposal; an error is raised."""

    name, traits = "own", Traits()

    def __init__(self, returns: Any = None, traits: Traits | None = None) -> None:
        self.returns, self.traits, self.calls = returns, traits or Traits(), 0

    def begin(self, tokens: Any) -> None:
        self.calls += 1

    def observe(self, outcome: Any) -> None:
        self.calls += 1

    def propose(self, limit: Any) -> Any:
        self.calls += 1
        if isinstance(self.returns, Exception):
            raise self.returns
        return self.returns


def test_garbage_is_one_error_or_the_text() -> None:
    campaign = Campaign().run(drafter_case, range(800))
    assert not campaign.faults, campaign.report()
    assert campaign.ends["text"] > 20 and campaign.ends["refused"] > 600


WRONG = [None, [1, 2], {1}, Draft([1.5]), OSError("x")]  # type: ignore[list-item]


@pytest.mark.parametrize("returns", WRONG, ids=range(len(WRONG)))
@pytest.mark.parametrize("depth", [2, None])
def test_an_engine_names_the_drafter_and_goes_on(returns: Any, depth: int | None) -> None:
    own = Own(returns, Traits(cheap=True))
    with load(draft=own, **LOAD) as engine:
        with pytest.raises(DrafterMismatchError, match=r"^drafter 'own' "):
            engine.generate([7, 8, 9], max_tokens=40, depth=depth, ignore_eos=True)
        own.returns = Draft([])
        going_on = engine.generate([7, 8, 9], max_tokens=4, depth=depth, ignore_eos=True)
        assert len(going_on.token_ids) == 4


def test_a_class_is_no_drafter() -> None:
    with pytest.raises(InvalidValueError, match=r"the class Own; pass an object of it, .* Own\(\)"):
        load(draft=Own, **LOAD)  # type: ignore[arg-type]


def test_at_depth_0_it_is_not_asked_at_all() -> None:
    own = Own(ValueError("asked"))
    with load(draft=own, **LOAD) as engine:
        asked = own.calls
        plain = engine.generate([7, 8, 9], max_tokens=8, depth=0, seed=1)
        assert own.calls == asked
        own.returns = Draft(plain.token_ids[:1])
        drafted = engine.generate([7, 8, 9], max_tokens=8, depth=1, seed=1)
    assert own.calls > asked
    assert drafted.token_ids == plain.token_ids
    assert drafted.origins[0] == "own"


def test_a_closed_engine_is_not_loaded_again() -> None:
    engine = load(**LOAD)
    engine.close()
    for switch in ({"draft": "suffix"}, {"model": engine.model.path}, {}):
        with pytest.raises(LocalspecError, match="the engine was closed"):
            engine.switch(**switch)  # type: ignore[arg-type]
    with pytest.raises(LocalspecError, match="closed"):
        engine.generate([1, 2], max_tokens=2)
