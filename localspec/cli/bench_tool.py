"""`localspec bench --peer` with llama-speculative-simple: text by text, with all of its drafts."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from localspec.bench import (
    BenchmarkReport,
    Conditions,
    LoadedSweep,
    Task,
    build_report,
    tokenize_prompts,
)
from localspec.bench.peer_drafts import PeerDraft
from localspec.bench.tool import TOOL, Tool, ToolFailed, ToolPrompt, tool_drafts
from localspec.bench.tool_ratios import ToolRun
from localspec.bench.tool_rounds import ToolLoad, run_beside_tool, tool_prompt
from localspec.bench.tool_summary import summarise_beside_tool
from localspec.bench.workload import Workload
from localspec.cli.bench_choice import Choice, Measurement
from localspec.cli.bench_output import with_progress
from localspec.cli.bench_peer import Peer
from localspec.cli.interrupt import cancel_first, exit_at_once, on_interrupt
from localspec.cli.output import join_facts
from localspec.errors import InvalidValueError, LocalspecError
from localspec.llama import extra_buffers
from localspec.utils.busy_cores import BusyCores

_Prompt = tuple[Task, list[int], ToolPrompt]


def measure_tool(asked: Measurement, peer: Peer) -> BenchmarkReport:
    """Measure ours and the tool by turns.

    Raises what `Sweep.load`, `tool_drafts` and `run_beside_tool` raise.
    """
    choice, runtime, settings = asked.choice, asked.runtime, asked.settings
    sweep, tokens, cancel = choice.sweep, settings.max_tokens, asked.cancel
    drafts = tool_drafts(peer.program, peer.drafts, sweep.target_file, sweep.model_drafter)
    left_out: list[str] = []

    def leave_out(line: str) -> None:
        left_out.append(line)
        asked.note(line)

    def failed(draft: PeerDraft, error: ToolFailed) -> None:
        if peer.drafts:
            raise error
        leave_out(f"{draft.name} is left out: {error}")

    with ExitStack() as stack:
        with on_interrupt(exit_at_once):
            loaded = stack.enter_context(sweep.load(runtime, choice.tasks, tokens))
            prompts = _prompts(loaded, choice, tokens, leave_out)
        for line in loaded.notes:
            asked.note(line)
        tasks = [task for task, _, _ in prompts]
        conditions = Conditions.of(loaded, runtime, settings, choice.rounds, tasks)
        tool = Tool(
            peer.program,
            sweep.target_file,
            conditions.context,
            conditions.threads,
            tokens,
            runtime,
            loaded.plain.slots.own.loaded.params(settings),
            repack=extra_buffers.usable(),
        )
        ids = [ids for _, ids, _ in prompts]
        workload = Workload(ids, choice.rounds, asked.options, settings.seed)
        load = ToolLoad(tool, drafts, [text for _, _, text in prompts], workload)
        ours = loaded.configurations
        running = run_beside_tool(ours, load, cancel, failed)
        most = choice.rounds * len(tasks) * (len(ours) + len(drafts))
        others = BusyCores(children=True)
        with on_interrupt(cancel_first(cancel)):
            runs = list(with_progress(running, lambda run: _about(run, tasks), most))
        report = build_report(
            loaded,
            tasks,
            [],
            conditions,
            interrupted=cancel.is_set(),
            busy_cores=others.mean(),
        )
    found = summarise_beside_tool(runs, tasks, peer.program, ours[-1].name)
    if found is None and not cancel.is_set():
        raise LocalspecError(f"{TOOL} wrote no text with any of its drafts")
    return replace(
        report,
        left_out=[*report.left_out, *left_out],
        drafters={**report.drafters, **{each.name: [each.type] for each in drafts}},
        tool=found,
    )


def _prompts(
    loaded: LoadedSweep, choice: Choice, tokens: int, leave_out: Callable[[str], None]
) -> list[_Prompt]:
    """The prompts that the tool reads as ours does. Raises InvalidValueError if there is none."""
    prompts: list[_Prompt] = []
    ids = tokenize_prompts(loaded.plain, choice.tasks, tokens)
    for task, own in zip(choice.tasks, ids, strict=True):
        if text := tool_prompt(task, loaded.plain, own):
            prompts.append((task, own, text))
        else:
            leave_out(f"{task.set} {task.number} is left out: {TOOL} makes other tokens of it")
    if not prompts:
        raise InvalidValueError(
            f"{TOOL} makes other tokens of every prompt than the chat template does; take others "
            "with --prompts"
        )
    return prompts


def _about(run: ToolRun, tasks: list[Task]) -> str:
    task = tasks[run.task]
    who = run.contender if run.is_ours else f"{TOOL} {run.contender}"
    return join_facts([f"round {run.round + 1}", f"{task.set} {task.number}", who])
