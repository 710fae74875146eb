"""A running `localspec serve` under load: errors, memory, fairness, and clients that vanish.

    localspec serve --parallel 8 --port 8099 &
    python -m localspec.bench.experiments.server_load http://127.0.0.1:8099 [--clients 8]

Clients ask for mixed texts for some minutes: prompts, temperatures, seeds, lengths, stop strings;
some leave in mid-stream. Then each asks for the same text at the same time (fairness), a short
request comes while a prompt of the context's length is read, and many clients vanish. Exits with
code 1 if a request failed or a slot stayed busy.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from statistics import median
from threading import Event, Lock
from time import monotonic, perf_counter, sleep
from typing import Any

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.bench.load_client import LoadClient, Refused
from localspec.bench.prompt_sets import TERMINAL, bundled_tasks
from localspec.errors import LocalspecError

_MIB = 2**20
_TEMPERATURES = (0, 0.3, 0.8, 1.2)
_STOPS = (None, "\n\n", ["```", "zzz"])
_MOST_TOKENS = 96
# Tokens of each text where users want the same: many, as they begin a little apart.
_EQUAL_WORK = 512
# A slot must be free so many seconds after its client has gone.
_SOON = 30
_PROMPTS = [
    each.content if isinstance(each.content, str) else each.content[-1]["content"]
    for each in bundled_tasks(TERMINAL)
]


@dataclass
class _Counts:
    """What happened so far, for all clients."""

    done: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    tokens: int = 0
    lock: Lock = field(default_factory=Lock)

    def add(self, kind: str, tokens: int = 0) -> None:
        with self.lock:
            self.done[kind] += 1
            self.tokens += tokens

    def failed(self, error: Exception) -> None:
        with self.lock:
            self.errors.append(str(error))


def _mixed(random: Random) -> dict[str, Any]:
    """A request as some program may send it."""
    body = {
        "prompt": random.choice(_PROMPTS),
        "max_tokens": random.randrange(4, _MOST_TOKENS),
        "temperature": random.choice(_TEMPERATURES),
        "seed": random.randrange(2**32),
    }
    if stop := random.choice(_STOPS):
        body["stop"] = stop
    return body


def _ask_until(client: LoadClient, counts: _Counts, number: int, ended: Event) -> None:
    """Ask for one text after the other; one in five is left in mid-stream."""
    random = Random(number)
    while not ended.is_set():
        body, leaves = _mixed(random), random.random() < 0.2
        try:
            if not leaves and random.random() < 0.5:
                answer = client.post("/v1/completions", body)
                counts.add("whole", answer["usage"]["completion_tokens"])
                continue
            taken = _read(client, body, random.randrange(1, 9) if leaves else 2**31)
            counts.add("left" if leaves else "streamed", taken)
        except (Refused, OSError, ValueError, KeyError) as error:
            counts.failed(error)
            sleep(0.1)


def _read(client: LoadClient, body: dict[str, Any], most: int) -> int:
    """Read so many parts of a stream at most, then go away; return how many there were."""
    events: Iterator[Any] = client.events(body)
    taken = 0
    for _ in events:
        taken += 1
        if taken >= most:
            break
    events.close()  # type: ignore[attr-defined]
    return taken


def _load(client: LoadClient, clients: int, minutes: float) -> _Counts:
    """Put the load on the server, and print its memory and cache cells meanwhile."""
    counts, process, began = _Counts(), client.process(), monotonic()
    ended = Event()
    table = Table(("minute", "6.2f"), ("resident MiB", "12.1f"), ("cells", "6d"), ("texts", "6d"))
    with ThreadPoolExecutor(clients) as pool:
        running = [
            pool.submit(_ask_until, client, counts, number, ended) for number in range(clients)
        ]
        try:
            for sample in range(7):
                sleep(max(0.0, began + 60 * minutes * sample / 6 - monotonic()))
                cells = sum(slot["n_cached"] for slot in client.slots())
                resident = process.memory_info().rss / _MIB
                passed = (monotonic() - began) / 60
                table.print_row(passed, resident, cells, sum(counts.done.values()))
        finally:
            ended.set()
        for each in running:
            each.result()
    return counts


def _fairness(client: LoadClient, clients: int, rounds: int) -> list[float]:
    """The speed of the slowest user over that of the fastest, who all want the same text."""
    body = {"prompt": _PROMPTS[0], "max_tokens": _EQUAL_WORK, "seed": 1, "ignore_eos": True}
    found = []
    with ThreadPoolExecutor(clients) as pool:
        for _ in range(rounds):
            ends = [each for _, each in pool.map(client.seconds, [body] * clients)]
            found.append(min(ends) / max(ends))
    return found


def _beside_long_prompt(client: LoadClient, rounds: int) -> tuple[float, float, float]:
    """Seconds to the first token of a short request alone, and beside a long prompt; and of that.

    The long prompt fills the context but for a few tokens.
    """
    context = client.get("/props")["default_generation_settings"]["n_ctx"]
    words = client.post("/tokenize", {"content": " ".join(_PROMPTS)})["tokens"]
    short = {"prompt": "date", "max_tokens": 2}
    alone, beside, long = list[float](), list[float](), list[float]()
    with ThreadPoolExecutor(1) as pool:
        for number in range(rounds):
            # Other prompts each time, as their beginning must be in no cache.
            prompt = [words[(number + at * (number + 3)) % len(words)] for at in range(context - 8)]
            alone.append(client.seconds({**short, "prompt": f"date {number}"})[0])
            reading = pool.submit(client.seconds, {"prompt": prompt, "max_tokens": 1})
            sleep(0.1)
            beside.append(client.seconds({**short, "prompt": f"{number} date"})[0])
            long.append(reading.result()[0])
    return median(alone), median(beside), median(long)


def _vanish(client: LoadClient, count: int) -> tuple[Counter[str], float | None]:
    """Let so many clients vanish; return what they met, and after how long all slots were free."""
    met = Counter[str]()

    def go(number: int) -> str:
        random = Random(-number - 1)
        body = {**_mixed(random), "max_tokens": 1000, "ignore_eos": True, "stop": []}
        try:
            _read(client, body, random.randrange(1, 5))
        except (Refused, OSError) as error:
            return "told to come again" if " 429 " in str(error) else str(error)
        return "vanished"

    with ThreadPoolExecutor(min(count, 32)) as pool:
        met.update(pool.map(go, range(count)))
    began = perf_counter()
    while any(slot["is_processing"] for slot in client.slots()):
        if perf_counter() - began > _SOON:
            return met, None
        sleep(0.05)
    return met, perf_counter() - began


def main() -> int:
    """Print what each part found; the exit code."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=8, choices=range(1, 65), metavar="N")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5, choices=range(1, 101), metavar="N")
    parser.add_argument("--vanish", type=int, default=200, choices=range(1, 10_001), metavar="N")
    options = parser.parse_args()
    if not 0 < options.minutes <= 60:
        parser.error(f"minutes is {options.minutes}; it must be more than 0 and at most 60")
    client = LoadClient(options.url)
    client.wait_until_ready()
    counts = _load(client, options.clients, options.minutes)
    done = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.done.items()))
    print(f"texts: {done}; {counts.tokens} tokens; {len(counts.errors)} errors")
    for error in counts.errors[:10]:
        print(f"error: {error}")
    fair = _fairness(client, min(options.clients, len(client.slots())), options.rounds)
    print(f"fairness, slowest / fastest: median {median(fair):.2f}, least {min(fair):.2f}")
    alone, beside, long = _beside_long_prompt(client, options.rounds)
    print(
        f"first token of a short request: {1000 * alone:.0f} ms alone, {1000 * beside:.0f} ms "
        f"beside a prompt that takes {1000 * long:.0f} ms"
    )
    met, free = _vanish(client, options.vanish)
    print(", ".join(f"{number} {what}" for what, number in met.items()))
    print("slots stayed busy" if free is None else f"all slots free after {free:.2f} s")
    print(f"resident at the end: {client.process().memory_info().rss / _MIB:.1f} MiB")
    strange = met.keys() - {"vanished", "told to come again"}
    return 1 if counts.errors or strange or free is None else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LocalspecError, Refused) as error:
        sys.exit(f"server_load: {error}")
