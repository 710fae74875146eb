"""A child process that loads one model after another, as the smoke test and the engine do.

It may use a gigabyte, and a minute for each. What it does with a line is in the file that it runs,
which is this one or another.
"""

import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_SECONDS = 60
_MOST_BYTES = 1 << 30


class Loader:
    """Loads files in a child, which is started again when it dies. program: its file."""

    def __init__(self, program: str = __file__) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._program = program

    def load(self, *names: Path | str) -> list[str]:
        """What came of it, the smoke test's way and the engine's: "decoded", or why it was refused.

        Raises AssertionError with the last words of a child that died or was silent.
        """
        child = self._child = self._child or _start(self._program)
        assert child.stdin
        child.stdin.write(b"\t".join(map(os.fsencode, names)) + b"\n")
        child.stdin.flush()
        answer = _line(child)
        if answer is None:
            raise AssertionError(self._last_words())
        return answer.split("\t")

    def close(self) -> None:
        if self._child:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _last_words(self) -> str:
        child, self._child = self._child, None
        assert child
        silent = child.poll() is None
        child.kill()
        complaints = child.communicate()[1].decode("utf-8", "replace")
        return f"{'silent' if silent else child.returncode}: {complaints[-300:]}"


def _start(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GGML_NO_BACKTRACE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _line(child: subprocess.Popen[bytes]) -> str | None:
    """A whole line; None when the child is dead or silent."""
    assert child.stdout
    text, end = b"", time.monotonic() + _SECONDS
    while not text.endswith(b"\n"):
        left = end - time.monotonic()
        if left < 0 or not select.select([child.stdout], [], [], left)[0]:
            return None
        more = os.read(child.stdout.fileno(), 1 << 16)
        if not more:
            child.wait()
            return None
        text += more
    return text.decode("utf-8", "replace").rstrip("\n")


def _by_the_engine(path: Path) -> None:
    from localspec.llama.context import single_sequence
    from localspec.llama.context_params import ContextParams
    from localspec.llama.model import Model
    from localspec.llama.placement import ON_PROCESSOR
    from localspec.llama.rollback import SNAPSHOTS, Rollback
    from localspec.speculation.draft import NOTHING, Draft

    params = ContextParams(n_ctx=64, threads=1, snapshots=SNAPSHOTS)
    with Model(path, ON_PROCESSOR) as model, single_sequence(model, params) as context:
        context.extend(model.tokenize("an as <s>hello\n")[:30] or [0])
        context.score(0, NOTHING if context.rollback is Rollback.NOTHING else Draft((1, 2)))
        context.commit(())
        assert model.vocabulary_fingerprint
        assert len([model.piece(token) for token in range(model.n_vocab)]) == model.n_vocab
        _ = model.end_tokens, model.suppressed_tokens, model.chat_template


def serve(*uses: Callable[..., None]) -> None:
    """Answer each line of standard input, the names of files, with what came of each use."""
    from localspec.errors import LocalspecError

    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    for line in sys.stdin.buffer:
        names, answers = [Path(name) for name in os.fsdecode(line.rstrip(b"\n")).split("\t")], []
        for use in uses:
            try:
                use(*names)
                answers.append("decoded")
            except LocalspecError as error:
                answers.append(" ".join(str(error).split()))
        os.write(1, "\t".join(answers).encode("utf-8", "replace") + b"\n")


if __name__ == "__main__":
    from localspec.llama.smoke_test import smoke_test

    serve(smoke_test, _by_the_engine)
