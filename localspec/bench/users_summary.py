"""Users summary: the figures of one configuration with one number of users."""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.bench.configurations import PLAIN
from localspec.bench.geometric_mean import mean_of, mean_or_none
from localspec.bench.grouped import by_prompt, grouped
from localspec.bench.users import UsersRun, total_speed
from localspec.forecast.confidence import ConfidenceInterval


@dataclass(frozen=True, slots=True)
class UsersSummary:
    """The figures of one configuration with one number of users who ask at the same time.

    Figures that end in `_in_turn` are of the same texts, written one after the other.

    runs: how often they were measured. tokens: of all texts together. total: tokens per second of
    all users, from the request to the last token. ratio: `total` over `total_in_turn` of the same
    round. plain_ratio: `total` over that of plain decoding, with as many users in the same round.
    each: tokens per second of one user, from the first token on; None where all texts are too short
    to tell. first_token: seconds from the
    request of all users to a user's first token; in turn, the texts of earlier users are part of
    it. compared, same: how many texts were compared with those written alone, and were equal.
    near_ties: how many of the others differ by rounding alone, as an audit shows.
    """

    users: int
    configuration: str
    runs: int
    tokens: int
    total: ConfidenceInterval
    total_in_turn: ConfidenceInterval
    ratio: ConfidenceInterval
    plain_ratio: ConfidenceInterval | None
    each: ConfidenceInterval | None
    each_in_turn: ConfidenceInterval | None
    first_token: ConfidenceInterval
    first_token_in_turn: ConfidenceInterval
    acceptance_rate: float | None
    compared: int
    same: int
    near_ties: int


def summarise_users(runs: Sequence[UsersRun]) -> list[UsersSummary]:
    """A summary for each number of users and configuration, in the order of the runs."""
    plain = {(run.users, run.round): run for run in runs if run.configuration == PLAIN}
    groups = grouped(runs, lambda run: run.users)
    return [
        _summary(own, plain)
        for of_count in groups.values()
        for own in grouped(of_count, lambda run: run.configuration).values()
    ]


def _summary(runs: Sequence[UsersRun], plain: dict[tuple[int, int], UsersRun]) -> UsersSummary:
    together = [text for run in runs for text in run.together]
    in_turn = [text for run in runs for text in run.in_turn]
    total = [total_speed(run.together) for run in runs]
    total_in_turn = [total_speed(run.in_turn) for run in runs]
    partners = [(run, plain.get((run.users, run.round))) for run in runs]
    plain_ratios = [
        run.tokens_per_second / partner.tokens_per_second for run, partner in partners if partner
    ]
    drafted = sum(text.stats.drafted for text in together)
    accepted = sum(text.stats.accepted for text in together)
    return UsersSummary(
        users=runs[0].users,
        configuration=runs[0].configuration,
        runs=len(runs),
        tokens=sum(len(text.token_ids) for text in together),
        total=mean_of([total]),
        total_in_turn=mean_of([total_in_turn]),
        ratio=mean_of([[a / b for a, b in zip(total, total_in_turn, strict=True)]]),
        plain_ratio=mean_or_none([plain_ratios]),
        each=mean_or_none(by_prompt(together, lambda text: text.tokens_per_second)),
        each_in_turn=mean_or_none(by_prompt(in_turn, lambda text: text.tokens_per_second)),
        first_token=mean_of(by_prompt(together, lambda text: text.first_token)),
        first_token_in_turn=mean_of(by_prompt(in_turn, lambda text: text.first_token)),
        acceptance_rate=accepted / drafted if drafted else None,
        compared=sum(run.compared for run in runs),
        same=sum(run.same for run in runs),
        near_ties=sum(run.near_ties for run in runs),
    )
