"""Served: texts of several users at once over HTTP, from our server and from llama-server.

The same client asks every server for the same texts, so all pay for HTTP. Every measurement has a
server of its own, started for it: no server knows a text from an earlier one. Servers take turns.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from localspec.bench.load_client import LoadClient, Refused
from localspec.bench.server_process import ServerFailed, running_server
from localspec.bench.servers import Server
from localspec.bench.workload import speed_behind_first
from localspec.engine.side_by_side import side_by_side
from localspec.sampling.params import SamplingParams
from localspec.sampling.request_members import request_members

# What each user asks for before it counts: another text, so that first passes do not count and
# `auto` knows both models a little. Each server gets it.
_FIRST_PROMPT, _FIRST_TOKENS = "def main():\n", 64
# The seeds that both servers take as they are.
_SEEDS = 2**31


@dataclass(frozen=True, slots=True)
class ServedText:
    """The text of one user.

    task: index of the prompt. tokens: how many were written. first_token, last_token: seconds from
    the moment when all users asked. drafted, accepted: as the server counts them.
    """

    task: int
    tokens: int
    first_token: float
    last_token: float
    drafted: int
    accepted: int

    @property
    def tokens_per_second(self) -> float | None:
        """The speed of the text from its first token on; None if it is too short to tell."""
        return speed_behind_first(self.tokens, self.first_token, self.last_token)


@dataclass(frozen=True, slots=True)
class ServedRun:
    """The texts of some users of one server in one round, from 0. configuration: its name."""

    configuration: str
    users: int
    round: int
    texts: list[ServedText]

    @property
    def tokens_per_second(self) -> float:
        """The speed of all texts together, reading the prompts included."""
        tokens = sum(each.tokens for each in self.texts)
        return tokens / max(each.last_token for each in self.texts)


@dataclass(frozen=True, slots=True)
class ServedLoad:
    """What the users ask for.

    users: the numbers of users. params: how tokens are drawn. seed: of the first user in the first
    round; each further user and round has the next, and the next prompt.
    """

    prompts: Sequence[Sequence[int]]
    users: Sequence[int]
    rounds: int
    tokens: int
    params: SamplingParams
    seed: int

    def bodies(self, count: int, number: int) -> list[dict[str, Any]]:
        """The requests of so many users in a round."""
        first = self.seed + number * max(self.users)
        return [
            {
                **self._common(self.tokens),
                "prompt": list(self.prompts[self.task_of(user, number)]),
                "seed": (first + user) % _SEEDS,
            }
            for user in range(count)
        ]

    def task_of(self, user: int, number: int) -> int:
        """The index of a user's prompt in a round."""
        return (number + user) % len(self.prompts)

    def warm_up(self, count: int) -> list[dict[str, Any]]:
        """The requests of so many users that do not count."""
        body = {**self._common(min(_FIRST_TOKENS, self.tokens)), "prompt": _FIRST_PROMPT}
        return [{**body, "seed": user} for user in range(count)]

    def _common(self, tokens: int) -> dict[str, Any]:
        return {"max_tokens": tokens, "ignore_eos": True, **request_members(self.params)}


def run_served(
    servers: Sequence[Server],
    load: ServedLoad,
    cancel: threading.Event,
    left_out: Callable[[str], None],
) -> Iterator[ServedRun]:
    """Yield each run as it ends, until `cancel` is set; a run cancelled halfway is not yielded.

    Every other round has the servers in reverse order. left_out: gets a line about an optional
    server that does not start or fails; it is not asked again. Raises ServerFailed for others.
    """
    failed: set[str] = set()
    for number in range(load.rounds):
        for count in load.users:
            for server in servers if number % 2 == 0 else reversed(servers):
                if server.name in failed:
                    continue
                try:
                    texts = _texts(server, load, count, number, cancel)
                except ServerFailed as error:
                    if cancel.is_set():
                        return
                    if not server.is_optional:
                        raise
                    failed.add(server.name)
                    left_out(f"{server.name} is left out: {error}")
                    continue
                if cancel.is_set():
                    return
                yield ServedRun(server.name, count, number, texts)


def _texts(
    server: Server, load: ServedLoad, count: int, number: int, cancel: threading.Event
) -> list[ServedText]:
    def command(port: int) -> list[str]:
        return server.command(port, count)

    with running_server(server.name, command, cancel.is_set) as client:
        more = server.members()
        _ask(client, load.warm_up(count), more, cancel)
        asked = [] if cancel.is_set() else load.bodies(count, number)
        texts = _ask(client, asked, more, cancel)
    return [ServedText(load.task_of(user, number), *figures) for user, figures in enumerate(texts)]


def _ask(
    client: LoadClient,
    bodies: Sequence[Mapping[str, Any]],
    more: Mapping[str, Any],
    cancel: threading.Event,
) -> list[tuple[int, float, float, int, int]]:
    """Ask for all at once; the figures of ServedText after the task, for each."""
    began = perf_counter()

    def write(
        body: Mapping[str, Any], stopped: Callable[[], bool]
    ) -> tuple[int, float, float, int, int]:
        first, last, timings = 0.0, 0.0, dict[str, Any]()
        for event in client.events({**body, **more}):
            last = perf_counter() - began
            first = first or (last if _has_text(event) else 0.0)
            timings = event.get("timings") or timings
            if stopped():
                return 0, first, last, 0, 0
        if "predicted_n" not in timings:
            raise Refused("a text came without its number of tokens")
        counts = [int(timings.get(name, 0)) for name in _COUNTS]
        return counts[0], first or last, last, counts[1], counts[2]

    return side_by_side(bodies, write, cancel.is_set)


_COUNTS = ("predicted_n", "draft_n", "draft_n_accepted")


def _has_text(event: Mapping[str, Any]) -> bool:
    return any(choice.get("text") for choice in event.get("choices", ()))
