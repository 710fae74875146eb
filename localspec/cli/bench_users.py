"""`localspec bench --users`: several users at once, for plain decoding and for each drafter."""

import threading
from collections.abc import Mapping, Sequence

from localspec.bench import LoadedSweep, UsersRun, UsersSummary, Workload, run_users
from localspec.cli.bench_output import with_progress
from localspec.cli.output import join_facts
from localspec.cli.users_option import users_option
from localspec.engine.slot import Slot
from localspec.errors import ExactnessError
from localspec.utils.format import counted

measured_users_option = users_option(
    "Measure so many users at once against the same users one after the other, such as "
    "1,2,4,8. [default drafter: auto]"
)


def measure_users(
    loaded: LoadedSweep,
    slots: Mapping[str, Sequence[Slot]],
    users: Sequence[int],
    workload: Workload,
    cancel: threading.Event,
) -> list[UsersRun]:
    """Return the runs with each of these numbers of users that there are slots for."""
    most = min(map(len, slots.values()))
    fitting = [count for count in users if count <= most]
    runs = run_users(loaded.configurations, slots, fitting, workload, cancel)
    count = workload.rounds * len(fitting) * len(loaded.configurations)
    return list(with_progress(runs, _about, count) if fitting else ())


def require_texts_alone(rows: Sequence[UsersSummary]) -> int:
    """Return how many texts were compared with those written alone.

    Raises ExactnessError, naming the first row in which a text differs in any token.
    """
    for row in rows:
        if row.same != row.compared:
            raise ExactnessError(
                f"{row.configuration} with {row.users} users gives {row.compared - row.same} of "
                f"{row.compared} texts other tokens than alone; please report this"
            )
    return sum(row.compared for row in rows)


def _about(run: UsersRun) -> str:
    return join_facts([f"round {run.round + 1}", counted(run.users, "user"), run.configuration])
