"""`localspec bench --peer` with a llama-server: both servers under the same load."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from localspec.bench import (
    BenchmarkReport,
    Conditions,
    ServedLoad,
    ServedRun,
    build_report,
    run_served,
)
from localspec.bench.configurations import tokenize_prompts
from localspec.bench.peer_drafts import NO_REPACK
from localspec.bench.report import drafter_footprint
from localspec.bench.served_summary import summarise_served
from localspec.bench.servers import (
    PEER,
    OwnServer,
    PeerServer,
    ServedModel,
    own_servers,
    peer_servers,
)
from localspec.cli.bench_choice import Measurement
from localspec.cli.bench_output import with_progress
from localspec.cli.bench_peer import Peer
from localspec.cli.interrupt import cancel_first, exit_at_once, on_interrupt
from localspec.cli.output import join_facts
from localspec.drafters.spec import MTP, NONE
from localspec.llama import extra_buffers
from localspec.llama.placement import ON_PROCESSOR
from localspec.utils.busy_cores import BusyCores
from localspec.utils.format import counted


def measure_servers(asked: Measurement, peer: Peer) -> BenchmarkReport:
    """Measure our servers and the peer's by turns.

    Raises what `own_servers`, `peer_servers` and `run_served` raise.
    """
    report, servers, load = _prepared(asked, peer)
    asked.check(report)
    for line in extra_buffers.warnings():
        asked.note(f"{line}; {PEER} is started with {NO_REPACK}")
    left_out: list[str] = []
    others = BusyCores(children=True)

    def leave_out(line: str) -> None:
        left_out.append(line)
        asked.note(line)

    with on_interrupt(cancel_first(asked.cancel)):
        running = run_served(servers, load, asked.cancel, leave_out)
        runs = list(with_progress(running, _about, load.rounds * len(peer.users) * len(servers)))
    return replace(
        report,
        left_out=left_out,
        interrupted=asked.cancel.is_set(),
        served=summarise_served(runs),
        busy_cores=others.mean(),
    )


def _prepared(
    asked: Measurement, peer: Peer
) -> tuple[BenchmarkReport, Sequence[OwnServer | PeerServer], ServedLoad]:
    """The report without figures, the servers, and what they are asked for."""
    choice, runtime, settings = asked.choice, asked.runtime, asked.settings
    sweep, tasks, tokens = choice.sweep, choice.tasks, settings.max_tokens
    # It reads the prompts only, so no GPU is needed; it is closed before the servers start.
    reader = replace(sweep, drafts=[NONE])
    with ExitStack() as stack, on_interrupt(exit_at_once):
        here = replace(runtime, placement=ON_PROCESSOR)
        loaded = stack.enter_context(reader.load(here, tasks, tokens))
        prompts = tokenize_prompts(loaded.plain, tasks, tokens)
        params = loaded.plain.slots.own.loaded.params(settings)
        conditions = Conditions.of(loaded, runtime, settings, choice.rounds, tasks)
        # Our servers look at the machine for themselves; the peer gets the usual number.
        conditions = replace(conditions, threads=runtime.threads_of(loaded.plain.model))
        report = build_report(loaded, tasks, [], conditions, interrupted=False)
    model = ServedModel(
        sweep.target_file,
        conditions.context,
        conditions.threads,
        runtime,
        repack=extra_buffers.usable(),
    )
    ours = own_servers(sweep, model, settings.rule)
    drafter = sweep.model_drafter
    theirs = peer_servers(peer.program.binary, peer.drafts, drafter, model)
    load = ServedLoad(prompts, peer.users, choice.rounds, tokens, params, settings.seed)
    files = [] if drafter in (None, MTP) else [drafter_footprint(Path(str(drafter)))]
    drafters = {
        **{each.name: [str(draft) for draft in each.draft if draft != NONE] for each in ours},
        **{each.name: [] if each.draft.type == NONE else [each.draft.type] for each in theirs},
    }
    return replace(report, draft_models=files, drafters=drafters), [*ours, *theirs], load


def _about(run: ServedRun) -> str:
    return join_facts([f"round {run.round + 1}", counted(run.users, "user"), run.configuration])
