"""`localspec bench` without a peer: plain decoding and each drafter, in this process."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from localspec.bench import (
    BenchmarkReport,
    Conditions,
    LoadedSweep,
    Run,
    Task,
    Workload,
    bounds,
    build_report,
    open_slots,
    run_rounds,
    tokenize_prompts,
)
from localspec.cli.bench_choice import Measurement
from localspec.cli.bench_output import about_run, with_progress
from localspec.cli.bench_users import measure_users
from localspec.cli.interrupt import cancel_first, exit_at_once, on_interrupt
from localspec.cli.status_line import loading_shown
from localspec.utils.busy_cores import BusyCores


def measure_drafters(asked: Measurement, users: Sequence[int]) -> tuple[BenchmarkReport, list[Run]]:
    """Measure all configurations by turns; return the runs, too, which are none with `users`.

    Raises what `Sweep.load` and `open_slots` raise.
    """
    choice, runtime, settings = asked.choice, asked.runtime, asked.settings
    tasks, cancel = choice.tasks, asked.cancel
    with ExitStack() as stack:
        with on_interrupt(exit_at_once), loading_shown():
            loaded = stack.enter_context(choice.sweep.load(runtime, tasks, settings.max_tokens))
            prompts = tokenize_prompts(loaded.plain, tasks, settings.max_tokens)
            slots = stack.enter_context(open_slots(loaded, max(users, default=0)))
        conditions = Conditions.of(loaded, runtime, settings, choice.rounds, tasks)
        asked.check(build_report(loaded, tasks, [], conditions, interrupted=False))
        for line in (*filter(None, [choice.note]), *loaded.notes):
            asked.note(line)
        workload = Workload(prompts, choice.rounds, asked.options, settings.seed)
        others = BusyCores()
        with on_interrupt(cancel_first(cancel)):
            runs = [] if users else list(_measure(loaded, tasks, workload, cancel))
            left = (
                bounds(
                    loaded.configurations,
                    tasks,
                    workload,
                    runs,
                    cancelled=cancel.is_set,
                    progress=asked.note,
                )
                if runs and not cancel.is_set() and settings.verification.same_text
                else []
            )
            user_runs = measure_users(loaded, slots, users, workload, cancel) if users else []
        report = build_report(
            loaded,
            tasks,
            runs,
            conditions,
            interrupted=cancel.is_set(),
            users=user_runs,
            bounds=left,
            busy_cores=others.mean(),
        )
    return report, runs


def _measure(
    loaded: LoadedSweep, tasks: Sequence[Task], workload: Workload, cancel: threading.Event
) -> Iterator[Run]:
    running = run_rounds(loaded.configurations, workload, cancel)
    count = workload.rounds * len(tasks) * len(loaded.configurations)
    return with_progress(running, lambda run: about_run(run, tasks), count)
