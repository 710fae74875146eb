"""Texts: what the target answers to prompts, drafts on and several at once.

Texts are written in waves. A wave is a function of its number: the same prompts, with the same
seed. So a training that was stopped goes on with the wave that is missing, and each of its answers
where that was.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from time import perf_counter
from typing import Any

from localspec.distillation.work_folder import BEGUN, WorkFolder
from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt, TextPrompt
from localspec.engine.side_by_side import side_by_side
from localspec.engine.texts import TextOptions
from localspec.errors import InvalidValueError
from localspec.gguf.fingerprint import fingerprint

# The most texts of a wave: enough that few threads wait for the last one.
WAVE = 32
# The most tokens of an answer.
ANSWER = 320
_SEEDS = 2**64
# Half of each wave is written at this temperature, the other as the model's file says: drafts are
# asked for at both, and all waves take about as long.
_WARM = 0.8


@dataclass(frozen=True, slots=True)
class Text:
    """tokens: of the prompt and of the answer. prompt: how many of them are the prompt's.

    ended: whether the last token ends the text, so that nothing is ever drafted behind it.
    """

    tokens: tuple[int, ...]
    prompt: int
    ended: bool = False

    @property
    def answer(self) -> int:
        """The tokens of the answer."""
        return len(self.tokens) - self.prompt


class Stopped(Exception):
    """The user asked to stop; what was written before is kept."""


@dataclass(slots=True)
class _Answer:
    """tokens: of an answer, so far. is_whole: whether that is all of it."""

    tokens: list[int] = field(default_factory=list)
    is_whole: bool = False


class TextWriter:
    """Writes the target's answers to prompts, wave by wave, or reads those that are here.

    engine: loads the target, where a wave is missing. target: its file. prompts: token ids. exact:
    how the target runs, where the digits that this decides matter. Where there are more texts than
    prompts, prompts are answered again with other seeds.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        target: Path,
        prompts: Sequence[Sequence[int]],
        seed: int,
        exact: Mapping[str, Any] | None = None,
    ) -> None:
        self._engine, self._prompts, self._seed = engine, prompts, seed
        request = [4, fingerprint(target), digest(prompts), seed, exact, WAVE, ANSWER]
        self.folder = WorkFolder(request)

    def wave(self, number: int, cancel: threading.Event) -> list[Text]:
        """The texts of one wave. Raises Stopped if `cancel` is set before it is whole."""
        found = self.kept(number)
        return self._write(number, cancel) if found is None else found

    def kept(self, number: int) -> list[Text] | None:
        """The texts of a wave that was written before; None if it is missing."""
        found = self.folder.read_json(_name(number))
        if found is None:
            return None
        return [Text(tuple(tokens), prompt, ended) for prompt, tokens, ended in found["texts"]]

    def seconds_per_token(self, number: int) -> float:
        """What a token of an answer took in a wave that is here."""
        found: dict[str, Any] = self.folder.read_json(_name(number))
        answers: int = sum(len(tokens) - prompt for prompt, tokens, _ in found["texts"])
        seconds: float = found["seconds"]
        return seconds / max(1, answers)

    @property
    def tokens(self) -> int:
        """The tokens of all answers that are here, also of those that were stopped."""
        numbers = takewhile(lambda number: self.kept(number) is not None, count())
        whole = sum(each.answer for number in numbers for each in self.kept(number) or [])
        begun = (self.folder.read_json(path.name) for path in self.folder.path.glob(f"*{BEGUN}"))
        answers = (tokens for each in begun if each for tokens, _ in each["answers"])
        return whole + sum(map(len, answers))

    def _write(self, number: int, cancel: threading.Event) -> list[Text]:
        size = min(WAVE, len(self._prompts))  # no prompt twice with one seed
        turns = [divmod(number * size + place, len(self._prompts)) for place in range(size)]
        prompts = [self._prompts[prompt] for _, prompt in turns]
        answers, seconds = self._begun(number, size)
        engine, began = self._engine(), perf_counter()

        def write(place: int, stopped: Callable[[], bool]) -> None:
            options: TextOptions = {"seed": (self._seed + number) % _SEEDS, "cancel": cancel}
            # A prompt that is answered again has its turn at the other temperature.
            if sum(turns[place]) % 2:
                options["temperature"] = _WARM
            _go_on(engine, prompts[place], answers[place], stopped, options)

        missing = [place for place, each in enumerate(answers) if not each.is_whole]
        try:
            side_by_side(missing, write, cancel.is_set)
        finally:
            seconds += perf_counter() - began
            if not all(each.is_whole for each in answers):
                begun = [[each.tokens, each.is_whole] for each in answers]
                name = _name(number) + BEGUN
                self.folder.write_json(name, {"answers": begun, "seconds": seconds})
        if cancel.is_set():
            raise Stopped
        ends = {*engine.model.end_tokens}
        texts = [
            Text((*prompt, *each.tokens), len(prompt), _ends(each.tokens, ends))
            for prompt, each in zip(prompts, answers, strict=True)
        ]
        written = [[each.prompt, each.tokens, each.ended] for each in texts]
        self.folder.write_json(_name(number), {"texts": written, "seconds": seconds})
        self.folder.delete(_name(number) + BEGUN)
        return texts

    def _begun(self, number: int, size: int) -> tuple[list[_Answer], float]:
        """The answers of a wave as far as they were written, and the seconds that took."""
        found = self.folder.read_json(_name(number) + BEGUN)
        if found is None:
            return [_Answer() for _ in range(size)], 0.0
        return [_Answer(*each) for each in found["answers"]], found["seconds"]


def _go_on(
    engine: Engine,
    prompt: Sequence[int],
    answer: _Answer,
    stopped: Callable[[], bool],
    options: TextOptions,
) -> None:
    """Write the rest of an answer, which is a function of the tokens before it and the seed."""
    options = {**options, "max_tokens": ANSWER - len(answer.tokens), "logprobs": False}
    with engine.stream([*prompt, *answer.tokens], **options) as running:
        for token in running:
            answer.tokens.append(token.id)
            if stopped():
                break
        answer.is_whole = running.stop_reason not in (None, "cancelled")


def tokenized(engine: Engine, prompts: Sequence[Prompt]) -> list[list[int]]:
    """The token ids of each prompt that leaves room for an answer, without doubles.

    Raises InvalidValueError if none does.
    """
    found: dict[tuple[int, ...], None] = {}
    for each in prompts:
        try:
            tokens = TextPrompt(each).tokens(engine.model, max(2, engine.context - ANSWER))
        except InvalidValueError:
            continue
        found.setdefault(tuple(tokens))
    if not found:
        raise InvalidValueError(
            f"no prompt leaves room for an answer of {ANSWER} tokens in a context of "
            f"{engine.context}; name shorter ones, or raise --ctx"
        )
    return [list(each) for each in found]


def digest(prompts: Sequence[Sequence[int]]) -> str:
    """A hash of all prompts."""
    return hashlib.sha256(json.dumps([list(each) for each in prompts]).encode()).hexdigest()


def _ends(tokens: Sequence[int], ends: Collection[int]) -> bool:
    return bool(tokens) and tokens[-1] in ends


def _name(number: int) -> str:
    return f"texts-{number:05}"
