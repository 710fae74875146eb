"""Texts: what the target answers to prompts, drafts on and several at once.

Texts are written in waves. A wave is a function of its number: the same prompts, with the same
seed. So a training that was stopped goes on with the wave that is missing.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from localspec.distillation.work_folder import WorkFolder
from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt, TextPrompt
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationOptions
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


class TextWriter:
    """Writes the target's answers to prompts, wave by wave, or reads those that are here.

    engine: loads the target, where a wave is missing. target: its file. prompts: token ids. Where
    there are more texts than prompts, prompts are answered again with other seeds.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        target: Path,
        prompts: Sequence[Sequence[int]],
        seed: int,
    ) -> None:
        self._engine, self._prompts, self._seed = engine, prompts, seed
        request = [3, fingerprint(target), digest(prompts), seed, WAVE, ANSWER]
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

    def _write(self, number: int, cancel: threading.Event) -> list[Text]:
        count = len(self._prompts)
        size = min(WAVE, count)  # no prompt twice with one seed
        places = range(number * size, (number + 1) * size)
        prompts = [list(self._prompts[place % count]) for place in places]
        seed, middle = (self._seed + number) % _SEEDS, size // 2
        own: GenerationOptions = {"max_tokens": ANSWER, "seed": seed}
        warm: GenerationOptions = {**own, "temperature": _WARM}
        # A prompt that is answered again has its turn at the other temperature.
        first, second = (warm, own) if number % 2 else (own, warm)
        began = perf_counter()
        results = [
            *self._engine().generate(prompts[:middle], cancel=cancel, **first),
            *self._engine().generate(prompts[middle:], cancel=cancel, **second),
        ]
        if cancel.is_set():
            raise Stopped
        ends = {*self._engine().model.end_tokens}
        texts = [
            Text((*prompt, *result.token_ids), len(prompt), _ends(result.token_ids, ends))
            for prompt, result in zip(prompts, results, strict=True)
        ]
        written = [[each.prompt, each.tokens, each.ended] for each in texts]
        seconds = perf_counter() - began
        self.folder.write_json(_name(number), {"texts": written, "seconds": seconds})
        return texts


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
