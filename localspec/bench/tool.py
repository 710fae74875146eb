"""Tool: llama.cpp's llama-speculative-simple, which writes one text with one kind of drafts.

It loads the models for each text. The times are those that it prints, which begin after that.
"""

import re
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from localspec.bench.peer_drafts import (
    NO_REPACK,
    PeerDraft,
    as_words,
    drafter_options,
    peer_draft,
    target_options,
    usual_type,
)
from localspec.bench.peer_program import PeerProgram
from localspec.bench.peer_sampling import command_words
from localspec.bench.program_log import last_line, variables_of_programs
from localspec.drafters.spec import DraftOption
from localspec.errors import InvalidValueError, LocalspecError
from localspec.loading.config import RuntimeConfig
from localspec.sampling.params import SamplingParams
from localspec.utils.child_program import ChildProgram

TOOL = "llama-speculative-simple"
# Of a draft model or head; where the best one is depends on the pair and the text.
DEPTHS = (3, 5, 7)
_COPIES = "ngram-"
# It loads the GPU's code before its clock starts, as localspec does.
_VARIABLES = {"CUDA_MODULE_LOADING": "EAGER"}
# Its last draft may be longer than the text was to be, and its batch holds the prompt.
_LONGEST_DRAFT, _LEAST_BATCH = 64, 2048
_LONGEST_SECONDS, _POLL_SECONDS = 1800.0, 0.02
# After a very short text the end of what it prints may be missing, though it did not fail.
_ATTEMPTS = 8
# The seeds that it takes; its largest one would mean any.
_SEEDS = 2**32 - 1
_READ = re.compile(r"encoded +(\d+) tokens in +([\d.]+) seconds")
_WRITTEN = re.compile(r"decoded +(\d+) tokens in +([\d.]+) seconds")
_DRAFTED = re.compile(r"n_drafted += +(\d+)")
_ACCEPTED = re.compile(r"n_accept += +(\d+)")


class ToolFailed(LocalspecError):
    """The tool ended without the figures of a text."""


@dataclass(frozen=True, slots=True)
class ToolText:
    """A text that the tool wrote.

    tokens: at most as many as were asked for. seconds: from the prompt's first token to the last
    one. writing: those after the prompt.
    """

    tokens: int
    seconds: float
    writing: float
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class ToolPrompt:
    """A prompt as the tool reads it, and how many tokens it must have."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Tool:
    """The tool, with the options of all texts. threads: of the target. The others are as in ours.

    repack: whether weights may be rearranged for faster kernels; not where this build crashes.
    """

    program: PeerProgram
    target: Path
    context: int
    threads: int
    tokens: int
    runtime: RuntimeConfig
    params: SamplingParams
    repack: bool = True

    def write(
        self, draft: PeerDraft, prompt: ToolPrompt, seed: int, cancel: threading.Event
    ) -> ToolText | None:
        """Write a text; None if `cancel` is set meanwhile. Raises ToolFailed."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "prompt.txt"
            # It drops one line break at the end.
            file.write_bytes(f"{prompt.text}\n".encode())
            command = self.command(draft, file, seed)
            for _ in range(_ATTEMPTS):
                with tempfile.TemporaryFile() as log:
                    code = _exit_code(command, log, cancel)
                    if cancel.is_set():
                        return None
                    if text := _text(log, draft, prompt):
                        # The last draft may go on behind the text that was asked for.
                        return replace(text, tokens=min(text.tokens, self.tokens))
                    if code:
                        why = last_line(log) or f"exit code {code}"
                        raise ToolFailed(f"{TOOL} {draft.name} failed: {why}")
        raise ToolFailed(f"{TOOL} {draft.name} printed no times")

    def command(self, draft: PeerDraft, prompt: Path, seed: int) -> list[str]:
        """The command that writes a text."""
        options: dict[str, object] = {
            "--model": self.target,
            "--spec-type": draft.type,
            "--spec-draft-n-max": draft.depth,
            "--file": prompt,
            # It writes one token more.
            "--predict": self.tokens - 1,
            "--seed": seed % _SEEDS,
            "--threads": self.threads,
            "--threads-batch": self.threads,
            "--ctx-size": self.context + _LONGEST_DRAFT,
            "--batch-size": max(_LEAST_BATCH, self.context),
            **target_options(self.runtime),
            **drafter_options(draft.drafter, self.runtime),
        }
        sampling = command_words(self.params, self.context)
        flags = ["--ignore-eos", "--no-escape", *([] if self.repack else [NO_REPACK])]
        return [str(self.program.binary), *as_words(options), *sampling, *flags]


def tool_drafts(
    program: PeerProgram, names: Sequence[str], target: Path, drafter: DraftOption | None
) -> list[PeerDraft]:
    """The tool's drafts of these names, else all of its types that can work for the pair.

    Those are the type of the drafter at each of DEPTHS, and each kind of n-grams. drafter: ours, if
    it is a model. Raises InvalidValueError for a name that is none of its types.
    """
    usual = usual_type(target, drafter)
    usual_names = [f"{usual}:{depth}" for depth in DEPTHS if usual in program.types]
    copies = [name for name in program.types if name.startswith(_COPIES)]
    drafts = [peer_draft(name, drafter) for name in dict.fromkeys(names or usual_names + copies)]
    for each in drafts:
        if each.type not in program.types or each.type == "none":
            choices = ", ".join(name for name in program.types if name != "none")
            raise InvalidValueError(f"--peer-drafts {each.name}: this {TOOL} has {choices}")
    return drafts


def _exit_code(command: Sequence[str], log: IO[bytes], cancel: threading.Event) -> int | None:
    """Run the tool; what it ended with, None where it was not waited for."""
    ends = monotonic() + _LONGEST_SECONDS
    try:
        program = ChildProgram(command, log=log, environment=variables_of_programs() | _VARIABLES)
    except OSError as error:
        raise ToolFailed(f"{TOOL} did not start: {error.strerror}") from error
    with program:
        while not program.has_ended and not cancel.is_set():
            if monotonic() > ends:
                raise ToolFailed(f"{TOOL} did not end within {_LONGEST_SECONDS:.0f} s")
            sleep(_POLL_SECONDS)
        return program.exit_code


def _text(log: IO[bytes], draft: PeerDraft, prompt: ToolPrompt) -> ToolText | None:
    """What it printed of the text; None if that is not complete."""
    log.seek(0)
    printed = log.read().decode("utf-8", "replace")
    # The text itself, which comes before, may look like such a line.
    found = [each.findall(printed)[-1:] for each in (_READ, _WRITTEN, _DRAFTED, _ACCEPTED)]
    if not all(found):
        return None
    (read, reading), (written, writing) = found[0][0], found[1][0]
    if int(read) != prompt.tokens:
        raise ToolFailed(
            f"{TOOL} {draft.name} read {read} tokens of a prompt that has {prompt.tokens}"
        )
    seconds = float(reading) + float(writing)
    if not int(written) or not seconds:
        raise ToolFailed(f"{TOOL} {draft.name} wrote nothing")
    counts = int(found[2][0]), int(found[3][0])
    return ToolText(int(written), seconds, float(writing), *counts)
