"""Price: what the screen costs the engine. `python -m localspec_tui.price TARGET DRAFTER`.

The same answers, by turns with the chat open (on a terminal that is not there) and without it.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from localspec.engine import load
from localspec.session import Session
from localspec_tui.start import Start
from localspec_tui.unattended import forget_home, rest, unattended

_ROUNDS = 7
_PROMPT = "def fibonacci(n):\n"
_SETTINGS = {"max_tokens": 256, "temperature": 0.0, "ignore_eos": True}
_RUNTIME = {"context": 1024}
_SIZE = (120, 40)


def main() -> None:
    """Prints a rate for each round, and the median of their ratios."""
    target, drafter = sys.argv[1:3]
    forget_home()
    ratios = []
    for number in range(1, _ROUNDS + 1):
        shown = asyncio.run(_with_screen(target, drafter))
        # Threads that compute stay with the thread that began them, and there may only be as many
        # as there are cores: more would wait for each other.
        with ThreadPoolExecutor() as thread:
            bare = thread.submit(_without, target, drafter).result()
        ratios.append(shown / bare)
        line = f"{number}: {shown:.1f} tok/s with the chat open, {bare:.1f} without: "
        print(f"{line}{shown / bare:.3f}")  # noqa: T201
    print(f"median {median(ratios):.3f}")  # noqa: T201


def _without(target: str, drafter: str) -> float:
    with (
        load(target, ["suffix", drafter], **_RUNTIME) as engine,  # type: ignore[arg-type]
        Session(engine, **_SETTINGS) as session,  # type: ignore[arg-type]
    ):
        answer = session.send(_PROMPT)
        answer.result()
    return answer.stats.tokens_per_second or 0.0


async def _with_screen(target: str, drafter: str) -> float:
    start = Start(target, f"suffix,{drafter}", runtime=_RUNTIME, sampling=_SETTINGS)
    async with unattended(start, _SIZE) as app:
        app.worker.send(_PROMPT)
        await rest(app)
        stats = app.worker.stats
    return (stats.tokens_per_second or 0.0) if stats else 0.0


if __name__ == "__main__":
    main()
