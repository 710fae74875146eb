"""A drafter of the caller: what it returns or raises wrongly is one error with its name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes.pycode import load
from fuzz.campaign import Campaign
from fuzz.drafters import drafter_case

from localspec.drafters.custom import checked
from localspec.errors import DrafterMismatchError, InvalidValueError, LocalspecError
from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Evaluated, Limit, Outcome, Traits
from localspec.speculation.passes import Pass, run

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


class Head:
    """A drafter of the caller that reads hidden rows. raises: the error of every method."""

    name = "own head"

    def __init__(self, raises: Exception | None = None, held: Any = 3, **traits: Any) -> None:
        self.traits, self.raises, self.answer = Traits(reads_hidden=(2,), **traits), raises, held

    def _do(self, answer: Any = None) -> Any:
        if self.raises:
            raise self.raises
        return answer

    def begin(self, tokens: Any) -> None:
        self._do()

    def observe(self, outcome: Any) -> None:
        self._do()

    def held(self, tokens: Any) -> Any:
        return self._do(self.answer)

    def read(self, evaluated: Any) -> Any:
        yield from ()
        self._do()

    def passes(self, limit: Any) -> Any:
        yield from ()
        return self._do(Draft([5]))


def wrapped(drafter: object) -> Any:
    return checked(drafter)


SAMPLER = Sampler(SamplingParams(), Noise(1))
LIMIT = Limit(3, SAMPLER.prefix([1]), SAMPLER)
SURE = Distribution(np.zeros(1, np.float32), np.array([7]))


def test_a_sound_draft_is_taken_as_it_is() -> None:
    draft = Draft([np.int64(7), 8, 9], [np.int64(-1), -1, 0], [SURE, SURE, SURE])  # type: ignore[list-item]
    found = wrapped(Own(draft)).propose(LIMIT)
    assert (found.tokens, found.parents, found.probs) == ([7, 8, 9], [-1, -1, 0], [SURE] * 3)
    assert [type(each) for each in (*found.tokens, *found.parents)] == [int] * 6
    assert wrapped(Own(Draft([1, 2, 3, 4]))).propose(LIMIT).tokens == [1, 2, 3]


UNSOUND: list[Any] = [
    Draft("12"),  # type: ignore[arg-type]
    Draft([1, 2], [-1]),
    Draft([1, 2], [-1, 0, 1]),
    Draft([1, 2], None, [SURE]),
    Draft([1], None, [0.5]),  # type: ignore[list-item]
    Draft([1], [-1.0]),  # type: ignore[list-item]
    Draft([1], 5),  # type: ignore[arg-type]
    Draft([1], None, 5),  # type: ignore[arg-type]
    Draft([1], "a"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("draft", UNSOUND, ids=range(len(UNSOUND)))
def test_an_unsound_draft_is_refused(draft: Any) -> None:
    with pytest.raises(DrafterMismatchError, match=r"^drafter 'own' proposed"):
        wrapped(Own(draft)).propose(LIMIT)


def test_what_its_methods_raise_is_one_error() -> None:
    head = wrapped(Head(ValueError("two\n lines")))
    asked: dict[str, Callable[[], object]] = {
        "begin": lambda: head.begin([1]),
        "observe": lambda: head.observe(Outcome([1], 0)),
        "held": lambda: head.held([1]),
        "read": lambda: run(head.read(Evaluated(0, [1], {}))),
        "passes": lambda: run(head.passes(LIMIT)),
    }
    for method, ask in asked.items():
        with pytest.raises(DrafterMismatchError) as error:
            ask()
        assert str(error.value) == f"drafter 'own head' failed in {method}: ValueError: two lines"
    head = wrapped(Head(InvalidValueError("one of ours")))
    with pytest.raises(InvalidValueError, match=r"^one of ours$"):
        head.begin([1])


@pytest.mark.parametrize("method", ["passes", "read"])
@pytest.mark.parametrize("yielded", [None, "nonsense", 3, [Pass], Draft([3])])
def test_what_is_yielded_instead_of_a_pass_is_named(method: str, yielded: Any) -> None:
    closed: list[bool] = []

    class Yields(Head):
        def passes(self, limit: Any) -> Any:
            try:
                yield yielded
            finally:
                closed.append(True)

        read = passes

    head = wrapped(Yields())
    ask = {"passes": lambda: head.passes(LIMIT), "read": lambda: head.read(Evaluated(0, [1], {}))}
    with pytest.raises(DrafterMismatchError) as error:
        run(ask[method]())
    said = f"failed in {method}: TypeError: it yielded {yielded!r:.80}, which is no Pass"
    assert str(error.value) == f"drafter 'own head' {said}"
    assert closed


@pytest.mark.parametrize("method", ["passes", "read"])
def test_what_is_no_generator_of_passes_is_named(method: str) -> None:
    class Returns(Head):
        def passes(self, limit: Any) -> Any:
            return answer

        read = passes

    head = wrapped(Returns())
    ask = {"passes": lambda: head.passes(LIMIT), "read": lambda: head.read(Evaluated(0, [1], {}))}
    answer: Any = 3
    with pytest.raises(DrafterMismatchError, match=rf"failed in {method}: TypeError: .* iterable"):
        run(ask[method]())
    answer = ()
    if method == "read":  # nothing to compute
        assert run(ask[method]()) is None


def test_a_pass_gets_its_scores_or_its_error() -> None:
    requested, got = Pass(None, [1]), list[Any]()  # type: ignore[arg-type]

    class Asks(Head):
        def passes(self, limit: Any) -> Any:
            got.append((yield requested))
            try:
                yield requested
            except ValueError as error:
                got.append(error)
            return Draft([3])

    passes, lost = wrapped(Asks()).passes(LIMIT), ValueError("lost")
    assert next(passes) is requested
    assert passes.send("scores") is requested
    with pytest.raises(StopIteration) as end:
        passes.throw(lost)
    assert got == ["scores", lost] and end.value.value == Draft([3])


@pytest.mark.parametrize(("said", "held"), [(np.int64(3), 3), (0, 0), (-2, 0), (2.5, None)])
def test_what_it_holds_is_a_whole_number(said: Any, held: int | None) -> None:
    head = wrapped(Head(held=said, backlog=lambda: said, end=lambda: said))
    traits = head.traits
    if held is not None:
        assert head.held([1]) == traits.backlog() == traits.end() == held
        return
    asked = {"held": lambda: head.held([1]), "backlog": traits.backlog, "end": traits.end}
    for doing, ask in asked.items():
        with pytest.raises(DrafterMismatchError, match=f"failed in {doing}: TypeError"):
            ask()


def test_whether_all_of_the_text_fits_is_asked_of_it() -> None:
    assert wrapped(Head(fits=lambda: False)).traits.fits() is False
    assert wrapped(Head()).traits.fits is None
    with pytest.raises(DrafterMismatchError, match="failed in fits: ZeroDivisionError"):
        wrapped(Head(fits=lambda: 1 // 0)).traits.fits()


def test_there_may_be_no_end_to_draft_from() -> None:
    assert wrapped(Head(end=lambda: None)).traits.end() is None
    assert wrapped(Head()).traits.end is None


@pytest.mark.parametrize("chances", [[0, 0.5, 1], [], [-0.1], [1.1], [0.5, float("nan")], [None]])
def test_chances_are_probabilities(chances: Any) -> None:
    own = wrapped(Own(traits=Traits(chances=lambda limit: chances)))
    assert own.traits.chances is not None
    if all(each is not None and 0 <= each <= 1 for each in chances):
        assert own.traits.chances(LIMIT) == chances
        return
    with pytest.raises(DrafterMismatchError, match="failed in chances"):
        own.traits.chances(LIMIT)


def test_what_computes_its_passes_is_asked_in_the_same_way() -> None:
    computer = object()
    head = wrapped(Head(computer=lambda: computer, ready=lambda: 2))
    assert head.traits.computer() is computer
    assert head.traits.ready is None and not hasattr(head, "passes_ahead")
    with pytest.raises(DrafterMismatchError, match="failed in computer: ZeroDivisionError"):
        wrapped(Head(computer=lambda: 1 // 0)).traits.computer()


NAMES = {"x": True, "x" * 100: True, "": False, " \n ": False, "x" * 101: False, 3: False}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_text_of_100_characters_at_most(name: Any) -> None:
    own = Own()
    own.name = name
    if NAMES[name]:
        assert wrapped(own).name == name
        return
    with pytest.raises(InvalidValueError, match=r"whose name is .* of at most 100 characters"):
        wrapped(own)


TRAITS: dict[str, Any] = {
    "branches": [0, -1, 1.5, None],
    "deepest": [0, -3, "x", 2.0],
    "backlog": [7],
    "end": [64],
    "chances": ["x"],
    "ready": [2],
    "computer": [object()],
}


@pytest.mark.parametrize("trait", TRAITS)
def test_traits_of_no_use_are_refused(trait: str) -> None:
    for value in TRAITS[trait]:
        with pytest.raises(InvalidValueError, match=r"^draft is 'own', whose traits are Traits"):
            wrapped(Own(traits=Traits(**{trait: value})))
    own = Own()
    own.traits = {}  # type: ignore[assignment]
    with pytest.raises(InvalidValueError, match=r"whose traits are {}; they must be a Traits"):
        wrapped(own)


def test_a_long_error_is_cut() -> None:
    with pytest.raises(DrafterMismatchError) as error:
        wrapped(Own(OSError("x" * 10_000))).propose(LIMIT)
    assert len(str(error.value)) < 250


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
