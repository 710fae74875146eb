"""Served summary: the figures of one server with one number of users."""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.bench.configurations import PLAIN
from localspec.bench.geometric_mean import mean_of, mean_or_none
from localspec.bench.grouped import by_prompt, grouped
from localspec.bench.served import ServedRun
from localspec.bench.servers import PEER
from localspec.forecast.confidence import ConfidenceInterval


@dataclass(frozen=True, slots=True)
class ServedSummary:
    """The figures of one server with one number of users who ask at the same time.

    runs: how often it was measured. tokens: of all texts. total: tokens per second of all users,
    from the request to the last token. plain_ratio: `total` over that of our plain decoding, with
    as many users in the same round. ours: `total` of our last server over that of this one, in the
    same round; None for that one itself. each: tokens per second of one user, from the first token
    on; None where all texts are too short to tell. first_token: seconds from the request of all
    users to a user's first token.
    """

    users: int
    configuration: str
    runs: int
    tokens: int
    total: ConfidenceInterval
    plain_ratio: ConfidenceInterval | None
    ours: ConfidenceInterval | None
    each: ConfidenceInterval | None
    first_token: ConfidenceInterval
    acceptance_rate: float | None

    @property
    def is_peer(self) -> bool:
        """Whether the server is not ours."""
        return self.configuration.startswith(PEER)


def summarise_served(runs: Sequence[ServedRun]) -> list[ServedSummary]:
    """A summary for each number of users and server; ours first, in the order of the first round.

    The last of ours, which is `auto` unless the user asks otherwise, is held against all others.
    """
    first = dict.fromkeys(run.configuration for run in runs if run.round == 0)
    names = sorted(first, key=lambda name: name.startswith(PEER))
    ours = [name for name in names if not name.startswith(PEER)][-1:]
    by_key = {(run.users, run.round, run.configuration): run for run in runs}
    return [
        _summary(own[name], by_key, ours[0] if ours else "")
        for count in grouped(runs, lambda run: run.users).values()
        for own in [grouped(count, lambda run: run.configuration)]
        for name in names
        if name in own
    ]


def fastest_peers(rows: Sequence[ServedSummary]) -> list[ServedSummary]:
    """For each number of users, the peer's row with which ours has the least ratio."""
    compared = [row for row in rows if row.is_peer and row.ours]
    return [
        min(own, key=lambda row: row.ours.value if row.ours else 0.0)
        for own in grouped(compared, lambda row: row.users).values()
    ]


def _summary(
    runs: Sequence[ServedRun], by_key: dict[tuple[int, int, str], ServedRun], ours: str
) -> ServedSummary:
    texts = [text for run in runs for text in run.texts]
    drafted = sum(text.drafted for text in texts)
    name = runs[0].configuration

    def ratios(other: str, *, upside_down: bool) -> ConfidenceInterval | None:
        """This server's speed over another's, or the other way round, by round."""
        pairs = [(run, by_key.get((run.users, run.round, other))) for run in runs]
        found = [
            run.tokens_per_second / partner.tokens_per_second for run, partner in pairs if partner
        ]
        return mean_or_none([[1 / each if upside_down else each for each in found]])

    return ServedSummary(
        users=runs[0].users,
        configuration=name,
        runs=len(runs),
        tokens=sum(text.tokens for text in texts),
        total=mean_of([[run.tokens_per_second for run in runs]]),
        plain_ratio=ratios(PLAIN, upside_down=False),
        ours=None if name == ours else ratios(ours, upside_down=True),
        each=mean_or_none(by_prompt(texts, lambda text: text.tokens_per_second)),
        first_token=mean_of(by_prompt(texts, lambda text: text.first_token)),
        acceptance_rate=(sum(text.accepted for text in texts) / drafted if drafted else None),
    )
