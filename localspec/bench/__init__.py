"""Benchmarks: plain decoding against every drafter, by turns, on the same prompts.

    with Sweep(target, drafter, drafts, depths).load(runtime, tasks, tokens) as sweep:
        workload = Workload(tokenize_prompts(sweep.plain, tasks, tokens), ...)
        runs = list(run_rounds(sweep.configurations, workload, cancel))
        report = build_report(sweep, tasks, runs, ...)

`experiments` holds other measurements, each run with `python -m`.
"""

from localspec.bench.bound import bounds
from localspec.bench.configurations import LoadedSweep, Sweep, tokenize_prompts
from localspec.bench.equality import require_same_texts
from localspec.bench.page import html_page
from localspec.bench.prompt_sets import (
    LONG,
    SETS,
    TERMINAL,
    Task,
    bundled_tasks,
    default_sets,
    load_tasks,
)
from localspec.bench.report import BenchmarkReport, Conditions, build_report
from localspec.bench.report_text import facts
from localspec.bench.runner import Run, run_rounds
from localspec.bench.section import sections
from localspec.bench.served import ServedLoad, ServedRun, run_served
from localspec.bench.served_summary import ServedSummary
from localspec.bench.summary import Summary
from localspec.bench.users import MOST_USERS, UsersRun, open_slots, run_users
from localspec.bench.users_summary import UsersSummary
from localspec.bench.workload import Workload

__all__ = [
    "LONG",
    "MOST_USERS",
    "SETS",
    "TERMINAL",
    "BenchmarkReport",
    "Conditions",
    "LoadedSweep",
    "Run",
    "ServedLoad",
    "ServedRun",
    "ServedSummary",
    "Summary",
    "Sweep",
    "Task",
    "UsersRun",
    "UsersSummary",
    "Workload",
    "bounds",
    "build_report",
    "bundled_tasks",
    "default_sets",
    "facts",
    "html_page",
    "load_tasks",
    "open_slots",
    "require_same_texts",
    "run_rounds",
    "run_served",
    "run_users",
    "sections",
    "tokenize_prompts",
]
