"""Price: what the screen costs the engine. `python -m localspec_tui.overhead TARGET DRAFTER`.

The same answers, by turns with the chat open (on a terminal that is not there) and without it. What
counts is the second one of a conversation: in the first, drafters are still being got to know.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter, thread_time

from localspec.conversation.session import Session
from localspec.engine.engine import load
from localspec_tui.headless import forget_home, rest, unattended
from localspec_tui.launch_options import Start

_ROUNDS = 7
_FIRST, _PROMPT = "import os\n", "def fibonacci(n):\n"
_SETTINGS = {"max_tokens": 256, "temperature": 0.0, "ignore_eos": True}
_RUNTIME = {"context": 1024}
_SIZE = (120, 40)


def main() -> None:
    """Prints the rates of each round; then the medians of their ratio and of the screen's share."""
    target, drafter = sys.argv[1:3]
    forget_home()
    ratios, shares = [], []
    for number in range(1, _ROUNDS + 1):
        shown, share = asyncio.run(_with_screen(target, drafter))
        # Threads that compute stay with the thread that began them, and there may only be as many
        # as there are cores: more would wait for each other.
        with ThreadPoolExecutor() as thread:
            bare = thread.submit(_without, target, drafter).result()
        ratios.append(shown / bare)
        shares.append(share)
        line = f"{number}: {shown:.1f} tok/s with the chat open, {bare:.1f} without: "
        print(f"{line}{shown / bare:.3f}, screen {share:.1%} of a core")  # noqa: T201
    print(f"medians {median(ratios):.3f}, {median(shares):.1%}")  # noqa: T201


def _without(target: str, drafter: str) -> float:
    with (
        load(target, ["suffix", drafter], **_RUNTIME) as engine,  # type: ignore[arg-type]
        Session(engine, **_SETTINGS) as session,  # type: ignore[arg-type]
    ):
        for prompt in (_FIRST, _PROMPT):
            answer = session.send(prompt)
            answer.result()
    return answer.stats.tokens_per_second or 0.0


async def _with_screen(target: str, drafter: str) -> tuple[float, float]:
    """Tokens per second, and the share of a core that the screen's thread took."""
    start = Start(target, f"suffix,{drafter}", runtime=_RUNTIME, sampling=_SETTINGS)
    async with unattended(start, _SIZE) as app:
        for prompt in (_FIRST, _PROMPT):
            began, worked = perf_counter(), thread_time()
            app.worker.send(prompt)
            await rest(app)
            share = (thread_time() - worked) / (perf_counter() - began)
        stats = app.worker.stats
    return (stats.tokens_per_second or 0.0) if stats else 0.0, share


if __name__ == "__main__":
    main()
