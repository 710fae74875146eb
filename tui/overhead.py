"""Overhead: how much slower the engine is with the chat open.

`python -m localspec_tui.overhead TARGET DRAFTER` writes the same answers with the chat open (on no
terminal) and without it, by turns. The second answer of a conversation is measured, because the
engine still learns acceptance rates during the first.
"""

import asyncio
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter, thread_time

from localspec.conversation.session import Session
from localspec.engine.engine import load
from localspec_tui.headless import headless_chat, use_temporary_home, wait_until_idle
from localspec_tui.launch_options import LaunchOptions

_ROUNDS = 7
_PROMPTS = ("Show me how to use tar.", "Give me examples of find.")
# Beginning and ending an answer takes the screen a tenth of a second, and should not decide.
_SAMPLING = {"max_tokens": 768, "temperature": 0.0, "ignore_eos": True}
_RUNTIME = {"context": 2048}
_SIZE = (120, 40)


def main() -> None:
    """Print the two rates of each round, then the median ratio and the screen's share of a core."""
    parser = ArgumentParser(
        prog="python -m localspec_tui.overhead",
        description="Measure how much slower the engine is with the chat open: the same answers "
        f"are written with it and without it, {_ROUNDS} times by turns.",
        epilog="Each round prints tokens per second with the chat open and without it, the one by "
        "the other, and what part of a core the screen took; the last line has the medians.",
    )
    parser.add_argument("target", help="the model, as `localspec chat -m` takes it")
    parser.add_argument("drafter", help="a drafter beside suffix, as `--draft` takes it")
    models = parser.parse_args()
    target, drafter = models.target, models.drafter
    use_temporary_home()
    ratios, shares = [], []
    for number in range(1, _ROUNDS + 1):
        with_chat, share = asyncio.run(_with_chat(target, drafter))
        # A new thread: the compute threads of the library belong to the thread that started them,
        # and more compute threads than cores would wait for each other.
        with ThreadPoolExecutor() as thread:
            bare = thread.submit(_without_chat, target, drafter).result()
        ratios.append(with_chat / bare)
        shares.append(share)
        line = f"{number}: {with_chat:.1f} tok/s with the chat open, {bare:.1f} without: "
        print(f"{line}{with_chat / bare:.3f}, screen {share:.1%} of a core")  # noqa: T201
    print(f"medians {median(ratios):.3f}, {median(shares):.1%}")  # noqa: T201


def _without_chat(target: str, drafter: str) -> float:
    """Tokens per second."""
    with (
        load(target, ["suffix", drafter], **_RUNTIME) as engine,  # type: ignore[arg-type]
        Session(engine, **_SAMPLING) as session,  # type: ignore[arg-type]
    ):
        for prompt in _PROMPTS:
            answer = session.send(prompt)
            answer.result()
    return answer.stats.tokens_per_second or 0.0


async def _with_chat(target: str, drafter: str) -> tuple[float, float]:
    """Tokens per second, and the share of a core that the screen's thread used."""
    options = LaunchOptions(target, f"suffix,{drafter}", runtime=_RUNTIME, sampling=_SAMPLING)
    async with headless_chat(options, _SIZE) as app:
        for prompt in _PROMPTS:
            started, cpu_seconds = perf_counter(), thread_time()
            app.engine_thread.send(prompt)
            await wait_until_idle(app)
            share = (thread_time() - cpu_seconds) / (perf_counter() - started)
        stats = app.engine_thread.stats
    return (stats.tokens_per_second or 0.0) if stats else 0.0, share


if __name__ == "__main__":
    main()
