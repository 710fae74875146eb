"""Budget: how much text is written and how often it is trained on, and how long that takes."""

import math
from dataclasses import asdict, dataclass
from typing import Any

# Rounds where the time is given: writing is worth at least so many, and rarely more.
_FEWEST_ROUNDS, _MOST_ROUNDS = 4, 16
# Rounds where the tokens are given.
ROUNDS = 6
# The share of the time for texts that are written and read.
_TEXT_SHARE = 0.4
# Measuring after a round takes a third of training on the same texts: there is no way back.
_MEASURING = 1 / 3


@dataclass(frozen=True, slots=True)
class Speeds:
    """Seconds of a token: of writing, of reading, of training.

    trial: of the whole last trial. load: of loading the target, where it leaves its place to the
    drafter; 0 where both stay loaded.
    """

    write: float
    read: float
    train: float
    trial: float = 0.0
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class Budget:
    """waves: of texts to train on. rounds: over all of them."""

    waves: int
    rounds: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Waves:
    """The waves of texts. tokens, answers: of each one, all tokens and those of the answers.

    held_out: tokens of the held-out texts. most_waves: as many as the disk may hold; of more, some
    are read again in each round. written: the waves that are here already, of another training
    perhaps.
    """

    tokens: float
    answers: float
    held_out: float
    most_waves: float = math.inf
    written: int = 0


def budget_for_tokens(tokens: int, waves: Waves) -> Budget:
    """The budget for so many tokens of answers."""
    return Budget(max(1, math.ceil(tokens / waves.answers)), ROUNDS)


def budget_for_seconds(seconds: float, speeds: Speeds, waves: Waves) -> Budget:
    """The budget that takes so long from now on, as far as speeds tell.

    More rounds over fewer texts, until writing and reading take less than their share.
    """
    for rounds in range(_FEWEST_ROUNDS, _MOST_ROUNDS + 1):
        budget = Budget(_affordable(seconds, rounds, speeds, waves), rounds)
        text = forecast(budget, speeds, waves) - training_seconds(budget, speeds, waves)
        # One wave is all that there is time for: more rounds would take more than was asked for.
        if budget.waves == 1 or text - speeds.trial <= _TEXT_SHARE * seconds:
            break
    # Too little time for another wave is enough for more rounds, where there are few waves.
    while budget.rounds < _MOST_ROUNDS:
        longer = Budget(budget.waves, budget.rounds + 1)
        if forecast(longer, speeds, waves) > seconds:
            break
        budget = longer
    return budget


def _affordable(seconds: float, rounds: int, speeds: Speeds, waves: Waves) -> int:
    """The most waves for so many rounds; at least 1."""
    low, high = 1, 1 << 20
    while low < high:
        middle = (low + high + 1) // 2
        if forecast(Budget(middle, rounds), speeds, waves) <= seconds:
            low = middle
        else:
            high = middle - 1
    return low


def forecast(budget: Budget, speeds: Speeds, waves: Waves) -> float:
    """The seconds that a budget takes."""
    write = max(0, budget.waves - waves.written) * waves.answers * speeds.write
    once = 0 if _are_read_again(budget, waves) else budget.waves * waves.tokens
    read = (once + waves.held_out) * speeds.read
    return write + read + rounds_seconds(budget, speeds, waves) + speeds.trial


def rounds_seconds(budget: Budget, speeds: Speeds, waves: Waves) -> float:
    """The seconds of all rounds: of training, and of what the target reads in them."""
    return training_seconds(budget, speeds, waves) + reading_seconds(budget, speeds, waves)


def training_seconds(budget: Budget, speeds: Speeds, waves: Waves) -> float:
    """The seconds of all rounds, without the target."""
    train = budget.rounds * budget.waves * waves.tokens * speeds.train
    return train + (budget.rounds + 1) * waves.held_out * speeds.train * _MEASURING


def reading_seconds(budget: Budget, speeds: Speeds, waves: Waves) -> float:
    """The seconds in which the target reads, within the rounds; 0 where all rows have room.

    The disk holds the waves that come next, and a part of them comes first in the next round too.
    """
    if not _are_read_again(budget, waves):
        return 0.0
    count, room = budget.waves, math.floor(waves.most_waves)
    read = count + (budget.rounds - 1) * (count - room**2 / count)
    loads = budget.rounds * math.ceil(count / max(1, room))
    return read * waves.tokens * speeds.read + loads * speeds.load


def _are_read_again(budget: Budget, waves: Waves) -> bool:
    return budget.waves > waves.most_waves
