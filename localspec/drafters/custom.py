"""A Drafter object of the caller: whatever it returns or raises is one error with its name."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from operator import index
from typing import Any, TypeVar

from localspec.errors import DrafterMismatchError, InvalidValueError, LocalspecError
from localspec.sampling.distribution import Distribution
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import (
    Evaluated,
    HiddenReader,
    Limit,
    Outcome,
    Traits,
    runs_model,
)
from localspec.speculation.passes import Pass, Passes
from localspec.utils.media import knows_media, unmarked
from localspec.utils.tokens import common_prefix

T = TypeVar("T")

_LONGEST_NAME = 100


def checked(drafter: Any) -> "CustomDrafter":
    """A drafter that asks `drafter` and checks what it says.

    Raises InvalidValueError if it is a class, or its name or its traits are of no use.
    """
    if isinstance(drafter, type):
        name = drafter.__name__
        raise InvalidValueError(
            f"draft is the class {name}; pass an object of it, such as {name}()"
        )
    try:
        name, traits = drafter.name, drafter.traits
    except Exception as error:
        raise InvalidValueError(
            f"draft is {type(drafter).__name__!r}, whose name and traits cannot be read: "
            f"{_described(error)}"
        ) from error
    if not isinstance(name, str) or not 0 < len(name.strip()) <= _LONGEST_NAME:
        raise InvalidValueError(
            f"draft is {type(drafter).__name__!r}, whose name is {name!r:.80}; it must be a text "
            f"of at most {_LONGEST_NAME} characters"
        )
    if not isinstance(traits, Traits) or not _is_sound(traits):
        raise InvalidValueError(
            f"draft is {name!r}, whose traits are {traits!r:.80}; they must be a Traits, with "
            "numbers from 1 for branches and deepest"
        )
    if isinstance(drafter, HiddenReader):
        return _CustomHead(drafter, name, traits)
    return (
        _CustomModel(drafter, name, traits)
        if runs_model(drafter)
        else _Computed(drafter, name, traits)
    )


def _is_sound(traits: Traits) -> bool:
    asked = (traits.backlog, traits.end, traits.fits, traits.chances, traits.ready)
    return (
        isinstance(traits.branches, int)
        and traits.branches >= 1
        and (traits.deepest is None or (isinstance(traits.deepest, int) and traits.deepest >= 1))
        and all(each is None or callable(each) for each in (*asked, traits.computer))
    )


class CustomDrafter:
    """What all drafters have, of a caller's object."""

    def __init__(self, drafter: Any, name: str, traits: Traits) -> None:
        self.drafter, self.name = drafter, name
        self.traits = replace(
            traits,
            backlog=traits.backlog and self._checked("backlog", traits.backlog, _whole),
            end=traits.end and self._checked("end", traits.end, _whole_or_none),
            fits=traits.fits and self._checked("fits", traits.fits, _any),
            chances=traits.chances and self._checked("chances", traits.chances, _probabilities),
            computer=traits.computer and self._checked("computer", traits.computer, _any),
            ready=None,  # what is drawn ahead would not be checked
        )

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on a text."""
        with self._named("begin"):
            self.drafter.begin(tokens)

    def observe(self, outcome: Outcome) -> None:
        """Go on with a text."""
        with self._named("observe"):
            self.drafter.observe(outcome)

    @contextmanager
    def _named(self, doing: str) -> Iterator[None]:
        """Turn what the object raises into one error."""
        try:
            yield
        except LocalspecError:
            raise
        except Exception as error:
            raise DrafterMismatchError(
                f"drafter {self.name!r} failed in {doing}: {_described(error)}"
            ) from error

    def _checked(
        self, doing: str, ask: Callable[..., Any], check: Callable[[Any], T]
    ) -> Callable[..., T]:
        def asked(*arguments: Any) -> T:
            with self._named(doing):
                answer = ask(*arguments)
                return check(answer)

        return asked

    def _sound(self, proposal: Any, limit: Limit) -> Draft:
        """The draft, its tokens as Python's numbers."""
        if not isinstance(proposal, Draft):
            raise self._wrong(f"proposed {proposal!r:.80}, of type {type(proposal).__name__}")
        parts: list[Any] = [proposal.tokens, proposal.parents, proposal.probs]
        for part in parts:
            if part is not None and (not isinstance(part, Sequence) or isinstance(part, str)):
                raise self._wrong(f"proposed a Draft with {part!r:.80}, which is no list")
        for part in (proposal.parents, proposal.probs):
            if part is not None and len(part) != len(proposal.tokens):
                raise self._wrong(
                    f"proposed {len(proposal.tokens)} tokens with {len(part)} parents or probs"
                )
        # One that ignores its limit may have proposed millions.
        short = proposal.first(limit.depth)
        for probs in short.probs or ():
            if not isinstance(probs, Distribution):
                raise self._wrong(f"proposed a token with the probs {probs!r:.80}")
        try:
            tokens = [index(token) for token in short.tokens]
            parents = short.parents and [index(parent) for parent in short.parents]
        except TypeError as error:
            raise self._wrong(f"proposed the tokens {list(short.tokens)!r:.80}") from error
        return Draft(tokens, parents, short.probs)

    def _wrong(self, what: str) -> DrafterMismatchError:
        return DrafterMismatchError(
            f"drafter {self.name!r} {what}; it must be a Draft, with a list of token ids"
        )


class _Computed(CustomDrafter):
    def propose(self, limit: Limit) -> Draft:
        """Propose tokens."""
        with self._named("propose"):
            return self._sound(self.drafter.propose(limit), limit)


class _CustomModel(CustomDrafter):
    def passes(self, limit: Limit) -> Passes[Draft]:
        """Yield the passes of a proposal."""
        proposal = yield from self._each_pass("passes", lambda: self.drafter.passes(limit))
        with self._named("passes"):
            return self._sound(proposal, limit)

    def _each_pass(self, doing: str, ask: Callable[[], Any]) -> Passes[Any]:
        """Yield passes of the object; returns what it returns. doing: the method it is asked by."""
        with self._named(doing), closing(_yielded_from(ask)) as passes:
            ask_next = partial(next, passes)
            while True:
                try:
                    requested = ask_next()
                except StopIteration as end:
                    return end.value
                if not isinstance(requested, Pass):
                    raise TypeError(f"it yielded {requested!r:.80}, which is no Pass")
                try:
                    ask_next = partial(passes.send, (yield requested))
                except Exception as error:
                    ask_next = partial(passes.throw, error)


class _CustomHead(_CustomModel):
    """A head of the caller's, which need not know how words beside images are marked."""

    # The text that it began last, with marks.
    _text: Sequence[int] = ()

    def held(self, tokens: Sequence[int]) -> int:
        """Start on a text."""
        same = common_prefix(self._text, tokens)
        other_images = same < len(self._text) and knows_media((*self._text, *tokens))
        self._text = tokens
        with self._named("held"):
            if other_images:  # what it has read behind them is of no use
                self.drafter.held(unmarked(tokens[:same]))
            return _whole(self.drafter.held(unmarked(tokens)))

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on a text."""
        super().begin(unmarked(tokens))

    def read(self, evaluated: Evaluated) -> Passes[None]:
        """Yield the passes that read hidden rows."""
        shown = replace(evaluated, tokens=unmarked(evaluated.tokens))
        yield from self._each_pass("read", lambda: self.drafter.read(shown))


def _yielded_from(ask: Callable[[], Any]) -> Generator[Any, Any, Any]:
    return (yield from ask())


def _any(answer: Any) -> Any:
    return answer


def _whole(answer: Any) -> int:
    return max(0, index(answer))


def _whole_or_none(answer: Any) -> int | None:
    return None if answer is None else _whole(answer)


def _probabilities(answer: Any) -> list[float]:
    chances = [float(each) for each in answer]
    if not all(0 <= each <= 1 for each in chances):
        raise ValueError(f"{chances!r:.80} are no probabilities")
    return chances


def _described(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200].rstrip(": ")
