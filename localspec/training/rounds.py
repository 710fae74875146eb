"""Rounds: trains a drafter on shards, measures it after each round, and keeps the best.

What happens is a function of the seed and of the place in the training. The state is saved now and
then, so that a training that was killed goes on as if nothing had happened.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from localspec.distillation.row_cache import RowCache
from localspec.distillation.shard import Shard
from localspec.distillation.texts import Stopped
from localspec.distillation.work_folder import WorkFolder
from localspec.errors import LocalspecError
from localspec.training.acceptance_loss import NONE, Agreement
from localspec.training.device import give_back_memory, low_precision, wait_for
from localspec.training.drafter_kind import TrainableDrafter
from localspec.training.examples import Batch, batches
from localspec.training.optimizers import optimizers, remembered, set_rate
from localspec.utils.host_memory import host_memory

_STATE, _BEST, _FLOAT = "state", "best", 4
# The state is saved once in so many seconds; a large one less often, so that saving takes 1 in 20.
_SAVE_SECONDS, _SAVING = 60.0, 20
# The learning rate rises for a share of all steps, stays, and falls to zero from another one on.
_WARM_UP, _CONSTANT = 0.02, 0.4
# The highest learning rate of a model of this width; wider ones have less.
_RATE, _WIDTH = 2e-3, 256
# Rounds without a better one after which it ends.
_PATIENCE = 3


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """share: of all steps. tokens_per_second: of training. rates: the last measured acceptance.

    seconds: since it began or went on, without those of the target.
    """

    share: float
    tokens_per_second: float
    rates: Sequence[float]
    seconds: float


@dataclass(slots=True)
class _Place:
    """Where the training is. batch: of the shard. step: of all steps. worse: rounds since the best.

    history: the rates after each round.
    """

    round: int = 0
    shard: int = 0
    batch: int = 0
    step: int = 0
    worse: int = 0
    history: list[list[float]] = field(default_factory=list)

    @property
    def best(self) -> int:
        """The number of the best round so far; 0 is the untrained drafter."""
        return max(range(len(self.history)), key=lambda number: self.history[number][0])


class Rounds:
    """A training. held_out: shards that are only measured on. rounds, steps: of all of it.

    free_target: frees the device that the target was on for reading shards again. say: called with
    a line about what happens once it is stopped.
    """

    def __init__(
        self,
        drafter: TrainableDrafter,
        shards: RowCache,
        held_out: Sequence[Shard],
        folder: WorkFolder,
        *,
        rounds: int,
        steps: int,
        seed: int,
        width: int,
        free_target: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.drafter, self._shards, self._held_out = drafter, shards, held_out
        self._folder, self._seed = folder, seed
        self._rounds, self._steps = rounds, steps
        self._device = next(drafter.parameters()).device
        self._width, self._free_target, self._say = width, free_target, say
        self._rate = _RATE * math.sqrt(min(1.0, _WIDTH / width))
        self._optimizers = optimizers(drafter, self._rate)
        self._place = _Place()
        self._saved, self._saving = monotonic(), 0.0
        # Since it began or went on: tokens and seconds of training, seconds of the target.
        self._tokens, self._seconds, self._away = 0, 0.0, 0.0

    @property
    def planned(self) -> int:
        """How many rounds there are, unless it ends earlier."""
        return self._rounds

    @property
    def share(self) -> float:
        """The share of all steps that were taken."""
        return min(1.0, self._place.step / self._steps)

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return len(self._shards)

    @property
    def history(self) -> Sequence[Sequence[float]]:
        """The held-out acceptance by place of a draft: untrained, then after each round."""
        return self._place.history

    @staticmethod
    def saved_in(folder: WorkFolder) -> bool:
        """Whether a training of this folder was saved."""
        return folder.size(_STATE) is not None

    @staticmethod
    def checkpoint_bytes(drafter: TrainableDrafter) -> int:
        """The most bytes of what is saved: the best weights, and the state, old and new at once."""
        trained = sum(each.numel() for each in drafter.parameters() if each.requires_grad)
        return _FLOAT * (trained + 2 * (trained + remembered(optimizers(drafter, 0.0))))

    @staticmethod
    def checkpoints_in(folder: WorkFolder) -> int:
        """The bytes of what was saved in a folder."""
        return sum(folder.size(name) or 0 for name in (_STATE, _BEST))

    def release(self) -> None:
        """Free the device: the drafter goes to main memory, and trains no more."""
        self._optimizers = []
        self.drafter.to("cpu")
        give_back_memory()

    def resume(self) -> bool:
        """Go on where a training of this folder was saved; False if there is none."""
        saved = self._loaded(_STATE)
        if saved is None:
            return False
        self._set_weights(saved["weights"])
        for optimizer, state in zip(self._optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self._place = _Place(**saved["place"])
        return True

    def run(
        self, watch: Callable[[RoundProgress], None], stopped: Callable[[], bool] = lambda: False
    ) -> bool:
        """Train to the end; the drafter has the best weights afterwards, also if it was stopped.

        Returns whether it came to the end. Raises Stopped before anything was learnt.
        """
        self._began = perf_counter()
        try:
            if not self._place.history:
                self._end_round(stopped)
            self._train(watch, stopped)
        except Stopped:
            if not self._place.step:
                raise
            if not self._is_better_after_all():
                self._restore_best()
            return False
        self._restore_best()
        return True

    @property
    def best(self) -> Sequence[float]:
        """The held-out acceptance of the best round so far, by place of a draft."""
        return self._place.history[self._place.best]

    def _train(self, watch: Callable[[RoundProgress], None], stopped: Callable[[], bool]) -> None:
        place = self._place
        while place.round < self._rounds and place.worse < _PATIENCE:
            order = self._order(place.round, 0).permutation(len(self._shards)).tolist()
            while place.shard < len(order):
                shard = self._shard(order[place.shard :])
                self._train_on(shard, order[place.shard], watch, stopped)
                del shard  # before the next one is read
                place.shard, place.batch = place.shard + 1, 0
            self._end_round(stopped)
            place.round, place.shard = place.round + 1, 0
            self._save()

    def _shard(self, order: Sequence[int]) -> Shard:
        """The first of these shards; the target reads it again if it is missing. Raises Stopped."""
        kept = self._shards.kept(order[0])
        if kept is not None:
            return kept
        with self._target_turn():
            return self._shards.read(order)

    @contextmanager
    def _target_turn(self) -> Iterator[None]:
        """Leave the device to the target inside the block, where main memory has the room."""
        began = perf_counter()
        remembered = (value for _, _, value in self._remembered())
        moved = sum(each.nbytes for each in [*self.drafter.parameters(), *remembered])
        if moved <= host_memory():
            self._move(torch.device("cpu"))
        give_back_memory()
        try:
            yield
        finally:
            self._free_target()
            self._move(self._device)
            self._away += perf_counter() - began

    def _remembered(self) -> Iterator[tuple[dict[str, Any], str, Tensor]]:
        """What the optimizers remember of the weights: where it is, its name, and itself."""
        for optimizer in self._optimizers:
            for state in optimizer.state.values():
                for name, value in [*state.items()]:
                    # AdamW counts its steps in main memory.
                    if isinstance(value, Tensor) and value.dim():
                        yield state, name, value

    def _move(self, device: torch.device) -> None:
        """Move the drafter, and what its optimizers remember."""
        self.drafter.to(device)
        for state, name, value in self._remembered():
            state[name] = value.to(device)

    def _train_on(
        self,
        shard: Shard,
        number: int,
        watch: Callable[[RoundProgress], None],
        stopped: Callable[[], bool],
    ) -> None:
        """Train on the batches of a shard from the place on. Raises Stopped."""
        place, last = self._place, perf_counter()
        rng = self._order(place.round, number + 1)
        for batch in islice(batches(shard, self._device, rng, self._width), place.batch, None):
            if stopped():
                raise Stopped
            seed = self._order(place.round, number + 1, place.batch + 1).integers(2**63)
            torch.manual_seed(int(seed))
            self._step(batch)
            place.batch += 1
            now = perf_counter()
            self._tokens += batch.tokens.numel()
            self._seconds += now - last
            speed, taken = self._tokens / self._seconds, now - self._began - self._away
            watch(RoundProgress(self.share, speed, self._place.history[-1], taken))
            self._save_sometimes()
            last = perf_counter()

    def _step(self, batch: Batch) -> None:
        set_rate(self._optimizers, self._rate * _schedule(self._place.step / self._steps))
        _update(self.drafter, self._optimizers, batch)
        self._place.step += 1

    def _end_round(self, stopped: Callable[[], bool]) -> None:
        """Measure; keep the weights if they are the best. Raises Stopped."""
        place = self._place
        place.history.append(self._measured(stopped))
        is_best = place.best == len(place.history) - 1
        place.worse = 0 if is_best else place.worse + 1
        if is_best:
            self._store(_BEST, self._weights())

    def _measured(self, stopped: Callable[[], bool] = lambda: False) -> list[float]:
        """The acceptance on the held-out texts, by place of a draft. Raises Stopped."""
        self.drafter.eval()
        found: list[Agreement] = []
        for shard in self._held_out:
            for batch in batches(shard, self._device, np.random.default_rng(0), self._width):
                if stopped():
                    raise Stopped
                with torch.no_grad(), _precision(self._device):
                    own = self.drafter.agreement(batch)
                found = [
                    (found[number] if number < len(found) else NONE) + each
                    for number, each in enumerate(own)
                ]
        return [each.rate for each in found]

    def _restore_best(self) -> None:
        best = self._loaded(_BEST)
        if best is not None:
            self._set_weights(best)

    def _weights(self) -> dict[str, Tensor]:
        named = self.drafter.named_parameters()
        return {name: weight.detach() for name, weight in named if weight.requires_grad}

    def _set_weights(self, weights: dict[str, Tensor]) -> None:
        own = dict(self.drafter.named_parameters())
        with torch.no_grad():
            for name, weight in weights.items():
                own[name].copy_(weight)

    def _save_sometimes(self) -> None:
        if monotonic() - self._saved > max(_SAVE_SECONDS, _SAVING * self._saving):
            self._save()

    def _is_better_after_all(self) -> bool:
        """Save where it was stopped; whether a part of a round has learnt more than the best round.

        A KeyboardInterrupt leaves out what is not done yet: what was saved before is kept.
        """
        try:
            self._save_at_last()
            self._say("stopped; measuring what was learnt last: Ctrl-C again leaves it out")
            return self._measured()[0] > self.best[0]
        except KeyboardInterrupt:
            self._say("what was learnt after the best round is left out")
            return False

    def _save_at_last(self) -> None:
        try:
            self._save()
        except LocalspecError as error:
            self._say(f"{error}; --resume goes on from an earlier place")

    def _save(self) -> None:
        place, began = self._place, monotonic()
        state = {
            "weights": self._weights(),
            "optimizers": [each.state_dict() for each in self._optimizers],
            "place": {name: getattr(place, name) for name in _Place.__slots__},
        }
        self._store(_STATE, state)
        self._saved = monotonic()
        self._saving = self._saved - began

    def _store(self, name: str, value: Any) -> None:
        # Part by part: there may be no room for a copy of it.
        self._folder.write_parts(name, partial(torch.save, value))

    def _loaded(self, name: str) -> Any:
        """What was stored; None if it is missing or damaged."""
        with self._folder.open(name) as file:
            # Into main memory: a GPU may have no room for it beside what is trained there.
            return file and torch.load(file, map_location="cpu", weights_only=True)

    def _order(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *numbers])


def seconds_per_token(drafter: TrainableDrafter, sample: Sequence[Batch]) -> float:
    """What a token of training takes here, measured; no weight changes."""
    made = optimizers(drafter, 0.0)
    _update(drafter, made, sample[0])  # the first takes longer
    began = monotonic()
    for batch in sample:
        _update(drafter, made, batch)
    wait_for(sample[0].tokens.device)
    return (monotonic() - began) / sum(int(batch.tokens.numel()) for batch in sample)


def _update(drafter: TrainableDrafter, made: Sequence[torch.optim.Optimizer], batch: Batch) -> None:
    """One step of all optimizers."""
    drafter.train()
    with _precision(batch.tokens.device):
        loss = drafter.loss(batch)
    loss.backward()
    nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
    for optimizer in made:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _precision(device: torch.device) -> torch.autocast:
    """The floats that are computed with: of 16 bits where the hardware has them."""
    return torch.autocast(device.type, torch.bfloat16, enabled=low_precision(device))


def _schedule(share: float) -> float:
    """The learning rate, as a share of the highest."""
    if share < _WARM_UP:
        return max(share, 1e-3) / _WARM_UP
    return 1.0 if share < _CONSTANT else max(0.0, (1 - share) / (1 - _CONSTANT))
