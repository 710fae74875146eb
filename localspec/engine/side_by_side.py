"""Side by side: several texts, each in a thread of its own."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from functools import partial
from threading import Thread
from typing import TypeVar

from localspec.llama.compute_thread import Task, shielded
from localspec.utils.stop_flag import StopFlag

_Prompt = TypeVar("_Prompt")
_Result = TypeVar("_Result")

# The most texts at once; the others wait.
AT_ONCE = 16


def side_by_side(
    prompts: Sequence[_Prompt],
    write: Callable[[_Prompt, Callable[[], bool]], _Result],
    cancelled: Callable[[], bool],
) -> list[_Result]:
    """Write the text of each prompt; returns the results in the order of the prompts.

    write: given a prompt, and a function that tells whether to stop. The first error stops the
    other texts and is raised; so does an interrupt of the calling thread.
    """
    if not prompts:
        return []
    stop = StopFlag()

    def stopped() -> bool:
        return stop.is_set() or cancelled()

    # A pool that is interrupted while it starts a thread does not wait for that.
    writing = Task(partial(_written, prompts, write, stopped, stop), _start)
    return shielded(writing.result, stop=stop.set)


def _start(work: Callable[[], object]) -> None:
    # A thread that `threading` knows, as those that start others are asked for there.
    Thread(target=work, name="localspec-texts", daemon=False).start()


def _written(
    prompts: Sequence[_Prompt],
    write: Callable[[_Prompt, Callable[[], bool]], _Result],
    stopped: Callable[[], bool],
    stop: StopFlag,
) -> list[_Result]:
    def begin(prompt: _Prompt) -> _Result:
        if stop.is_set():
            raise CancelledError  # so that the texts behind it are cancelled at once
        return write(prompt, stopped)

    with ThreadPoolExecutor(min(len(prompts), AT_ONCE), "localspec-text") as pool:
        try:
            texts = [pool.submit(begin, prompt) for prompt in prompts]
            ended = wait(texts, return_when=FIRST_EXCEPTION).done
            for text in ended:
                text.result()  # raises the error of the text
            return [text.result() for text in texts]
        finally:
            try:
                # First, so that no other text begins when one ends.
                pool.shutdown(wait=False, cancel_futures=True)
            finally:
                stop.set()
