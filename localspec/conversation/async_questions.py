"""Async questions: the questions of a session, for an event loop."""

import threading
from abc import ABC, abstractmethod
from typing import Unpack

from localspec.conversation.answer import Answer, AsyncAnswer
from localspec.conversation.turns import Role
from localspec.generation_config import GenerationOptions


class AsyncQuestions(ABC):
    """The questions of a session for an event loop, which goes on meanwhile.

    `await` the answer for the whole turn, or read its events with `async for`. The first `await`
    asks the question, and raises its errors.
    """

    def __init__(self) -> None:
        # Held while one of several threads asks.
        self._asking = threading.Lock()

    @abstractmethod
    def send(
        self, text: str, *, role: Role = "user", **options: Unpack[GenerationOptions]
    ) -> Answer:
        """Add a message and return its answer."""

    @abstractmethod
    def regenerate(self, **options: Unpack[GenerationOptions]) -> Answer:
        """Answer the last question again."""

    @abstractmethod
    def edit(self, number: int, text: str, **options: Unpack[GenerationOptions]) -> Answer:
        """Replace a question and return the new answer."""

    @abstractmethod
    def continue_answer(self, **options: Unpack[GenerationOptions]) -> Answer:
        """Continue the last answer, and return it."""

    def asend(
        self, text: str, *, role: Role = "user", **options: Unpack[GenerationOptions]
    ) -> AsyncAnswer:
        """`send` for an event loop."""
        return AsyncAnswer.of(lambda: self.send(text, role=role, **options), self._asking)

    def aregenerate(self, **options: Unpack[GenerationOptions]) -> AsyncAnswer:
        """`regenerate` for an event loop."""
        return AsyncAnswer.of(lambda: self.regenerate(**options), self._asking)

    def aedit(self, number: int, text: str, **options: Unpack[GenerationOptions]) -> AsyncAnswer:
        """`edit` for an event loop."""
        return AsyncAnswer.of(lambda: self.edit(number, text, **options), self._asking)

    def acontinue_answer(self, **options: Unpack[GenerationOptions]) -> AsyncAnswer:
        """`continue_answer` for an event loop."""
        return AsyncAnswer.of(lambda: self.continue_answer(**options), self._asking)
