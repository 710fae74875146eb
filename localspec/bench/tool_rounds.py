"""Tool rounds: our configurations and each kind of drafts of llama.cpp's tool, by turns.

What decides is the time of a whole answer, from the first token of its prompt: the tool counts what
a drafter does with the prompt as reading, and localspec as writing, which makes ours look slower
where the written part is compared alone.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from localspec.bench.configurations import LoadedConfiguration
from localspec.bench.peer_drafts import PeerDraft
from localspec.bench.prompt_sets import Task
from localspec.bench.runner import warm_up, write_text
from localspec.bench.tool import Tool, ToolFailed, ToolPrompt
from localspec.bench.tool_ratios import (
    LEAST_ROUNDS,
    ToolRun,
    best_ratio,
    clearly_behind,
    is_known,
)
from localspec.bench.workload import Workload
from localspec.engine.engine import Engine
from localspec.engine.prompt import TextPrompt


@dataclass(frozen=True, slots=True)
class ToolLoad:
    """The tool with its drafts, and what all contenders write.

    prompts: those of the workload, as the tool reads them.
    """

    tool: Tool
    drafts: Sequence[PeerDraft]
    prompts: Sequence[ToolPrompt]
    workload: Workload


def tool_prompt(task: Task, engine: Engine, tokens: Sequence[int]) -> ToolPrompt | None:
    """A prompt as a text that the tool's tokenizer makes these tokens of; None if there is none."""
    prompt, model = task.prompt_for(engine), engine.model
    text = prompt if isinstance(prompt, str) else TextPrompt(prompt).wording(model) or ""
    if model.adds_bos:
        # The tool puts it in front of templates that write it, too.
        text = text.removeprefix(model.piece_text(model.bos))
    return ToolPrompt(text, len(tokens)) if model.tokenize(text) == list(tokens) else None


def run_beside_tool(
    configurations: Sequence[LoadedConfiguration],
    load: ToolLoad,
    cancel: threading.Event,
    left_out: Callable[[PeerDraft, ToolFailed], None],
) -> Iterator[ToolRun]:
    """Yield each run as it ends, until the ratio is known, or `cancel` is set.

    configurations: the last one is held against the tool. Every other round has the contenders in
    reverse order. Drafts that are clearly behind on a prompt are not repeated there. left_out: is
    told of drafts with which the tool fails, which are not asked for again; it may raise.
    """
    for own in configurations:
        options = load.workload.options_of(0)
        warm_up(own.engine, cancel, **options, depth=own.configuration.depth)
    ours = configurations[-1].name
    runs: list[ToolRun] = []
    failed: set[str] = set()
    for number in range(load.workload.rounds):
        for task in range(len(load.prompts)):
            behind = clearly_behind([run for run in runs if run.task == task])
            tried = [each for each in load.drafts if each.name not in failed | behind]
            contenders: list[LoadedConfiguration | PeerDraft] = [*configurations, *tried]
            for each in contenders if number % 2 == 0 else reversed(contenders):
                try:
                    run = _run(each, load, task, number, cancel)
                except ToolFailed as error:
                    assert isinstance(each, PeerDraft)
                    left_out(each, error)
                    failed.add(each.name)
                    continue
                if run is None or cancel.is_set():
                    return
                runs.append(run)
                yield run
        if number + 1 >= LEAST_ROUNDS and is_known(best_ratio(runs, ours)):
            return


def _run(
    contender: LoadedConfiguration | PeerDraft,
    load: ToolLoad,
    task: int,
    number: int,
    cancel: threading.Event,
) -> ToolRun | None:
    """One run; None, or one that does not count, if `cancel` is set meanwhile."""
    options = load.workload.options_of(number * len(load.prompts) + task)
    if isinstance(contender, PeerDraft):
        written = load.tool.write(contender, load.prompts[task], options["seed"], cancel)
        if written is None:
            return None
        times = written.seconds, written.writing
        counts = written.tokens, written.drafted, written.accepted
        figures = written.tokens, *times, *counts
    else:
        stats = write_text(contender, load.workload.prompts[task], options, cancel).stats
        times = stats.seconds.prompt + stats.seconds.generate, stats.seconds.generate
        counts = stats.generated_tokens - 1, stats.drafted, stats.accepted
        figures = stats.generated_tokens, *times, *counts
    is_ours = not isinstance(contender, PeerDraft)
    return ToolRun(contender.name, is_ours, task, number, *figures)
