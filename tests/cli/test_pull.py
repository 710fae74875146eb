"""`localspec pull` at the terminal, from a Hub on this machine."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.command_line import Done
from fakes.hub import Hub
from fakes.hub_repo import Repo
from fakes.pycode import PYCODE
from fakes.terminal import on_terminal

from localspec.cli.fetch import quieten_hub
from localspec.cli.pull_output import ProgressLines
from localspec.hub.download import FileProgress
from localspec.hub.transfer import TransferState
from localspec.models.registry import bundled

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and terminals")
TARGET, DRAFTER = PYCODE
TARGET_SIZE, DRAFTER_SIZE = TARGET.stat().st_size, DRAFTER.stat().st_size
BOTH = TARGET_SIZE + DRAFTER_SIZE
SECRET = "hf_verySecretToken"
TERABYTE = 10**12
PAIRS = """
[pairs.snake]
target = "zoo/snake-7m-GGUF"
drafter = "zoo/snake-4m-GGUF"
prompt = "raw"

[pairs.alone]
target = "zoo/alone-GGUF"
no_drafter = "nothing smaller has its vocabulary"
"""
# Ends the program at the first socket that anything opens.
NO_SOCKET = """
import os, sys

def watch(event, arguments):
    if event.startswith("socket."):
        os.write(2, f"{event} {arguments}".encode())
        os._exit(99)

sys.addaudithook(watch)
from localspec.cli.main import main
main()
"""


class Shell:
    """Runs localspec with a home, a Hub and a Hub cache of its own."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.hub = hub
        self.cache = folder / "hf" / "hub"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HF_", "HUGGING", "LOCALSPEC_"))
            and name not in ("NO_COLOR", "FORCE_COLOR", "TERM")
        }
        self.environment |= {
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": str(folder / "hf"),
            "LOCALSPEC_HOME": str(folder / "localspec"),
            "PYTHONUTF8": "1",
        }
        (folder / "localspec").mkdir()
        (folder / "localspec" / "models.toml").write_text(PAIRS)

    @contextmanager
    def running(
        self, *arguments: str, start: tuple[str, ...] = ("-m", "localspec"), **environment: str
    ) -> Iterator[subprocess.Popen[str]]:
        """A run that goes on."""
        with subprocess.Popen(
            [sys.executable, *start, *arguments],
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def __call__(
        self, *arguments: str, start: tuple[str, ...] = ("-m", "localspec"), **environment: str
    ) -> Done:
        """A run to its end."""
        with self.running(*arguments, start=start, **environment) as process:
            return end_of(process)

    def pull(self, *arguments: str, **environment: str) -> Done:
        """A pull that must succeed."""
        done = self("pull", *arguments, **environment)
        assert done.code == 0, done.err
        return done

    def pull_rest(self, *arguments: str) -> tuple[Done, int]:
        """A pull that must succeed, and the bytes that were sent for it."""
        before = len(self.hub.requests)
        done = self.pull(*arguments)
        new = self.hub.requests[before:]
        return done, sum(request.sent for request in new if request.origin == "cdn")

    def kept(self) -> int:
        """Bytes of models on disk, whole and in part."""
        blobs = self.cache.glob("models--*/blobs/*")
        return sum(blob.stat().st_size for blob in blobs if blob.is_file())


def end_of(process: "subprocess.Popen[str]") -> Done:
    out, err = process.communicate()
    return Done(process.returncode, out, err)


def wait_for(reached: Callable[[], bool]) -> None:
    """Until it is so, for a minute at most."""
    for _ in range(6000):
        if reached():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to that")


@pytest.fixture
def hub() -> Iterator[Hub]:
    repos = {
        "zoo/snake-7m-GGUF": Repo({"snake-7m-Q8_0.gguf": TARGET, "mmproj-other-F16.gguf": DRAFTER}),
        "zoo/snake-4m-GGUF": Repo({"snake-4m-Q4_0.gguf": DRAFTER}),
        "zoo/alone-GGUF": Repo({"alone-Q8_0.gguf": TARGET, "low/alone-Q4_0.gguf": DRAFTER}),
        "zoo/gated-GGUF": Repo({"gated-Q4_0.gguf": DRAFTER}, gated=True, token=SECRET),
        "zoo/whale-GGUF": Repo({"whale-Q4_0.gguf": 10**6 * TERABYTE}),
    }
    with Hub(repos, strangers=["hf_strangerToken"]) as hub:
        yield hub


@pytest.fixture
def shell(tmp_path: Path, hub: Hub) -> Shell:
    return Shell(tmp_path, hub)


def test_a_pair_comes_whole_and_together(shell: Shell) -> None:
    done = shell.pull("snake")
    target, drafter = map(Path, done.out.splitlines())
    assert (target.name, drafter.name) == ("snake-7m-Q8_0.gguf", "snake-4m-Q4_0.gguf")
    assert target.read_bytes() == TARGET.read_bytes()
    assert drafter.read_bytes() == DRAFTER.read_bytes()
    assert target.is_relative_to(shell.cache) and shell.hub.sent == BOTH
    lines = done.err.splitlines()
    about = "target: snake-7m-Q8_0.gguf · Q8_0 · 8.1 MB · zoo/snake-7m-GGUF"
    assert lines[0] == f"localspec: {about}"
    assert lines[1].startswith("localspec: drafter: snake-4m-Q4_0.gguf · Q4_0 · 2.5 MB")
    assert lines[-1] == 'localspec: next: localspec generate -m snake "..."'
    assert all(line.startswith("localspec: ") for line in lines)


@pytest.mark.slow
@posix
def test_killed_at_half_it_goes_on_and_then_works_offline(shell: Shell) -> None:
    shell.hub.faults.bytes_per_second = 1e6
    with shell.running("pull", "snake") as process:
        wait_for(lambda: shell.kept() > BOTH // 2)
        process.kill()
        assert end_of(process).code == -signal.SIGKILL
    shell.hub.faults.bytes_per_second = None
    kept = shell.kept()
    assert BOTH // 2 < kept < BOTH
    done, rest = shell.pull_rest("snake")
    assert rest == BOTH - kept
    assert "of it here already" in done.err
    assert done.out.count("\n") == 2

    arguments = ("-n", "24", "--seed", "1", "--threads", "1", "--json")
    written = shell("generate", "-m", "snake", "def f(", *arguments, HF_HUB_OFFLINE="1")
    assert written.code == 0, written.err
    record = json.loads(written.out)
    assert record["text"] and record["speculation"]["active"]
    assert [record["model"]["target"], record["model"]["drafter"]] == done.out.splitlines()


@pytest.mark.slow
def test_what_is_here_is_not_fetched_again(shell: Shell) -> None:
    first = shell.pull("snake")
    again = shell.pull("snake")
    assert shell.hub.sent == BOTH and again.out == first.out
    assert again.err == "localspec: snake is here already\n"
    shell.pull("zoo/snake-4m-GGUF")
    assert shell.hub.sent == BOTH


@pytest.mark.slow
def test_offline_no_socket_is_opened(shell: Shell) -> None:
    start = ("-c", NO_SOCKET)
    missing = shell("pull", "snake", start=start, HF_HUB_OFFLINE="1")
    assert missing.code == 4
    [line] = missing.err.splitlines()
    assert line.startswith("localspec: error: ") and "HF_HUB_OFFLINE" in line
    paths = shell.pull("snake").out
    # The watch works:
    assert shell("pull", "snake", start=start).code == 99
    done = shell("pull", "snake", start=start, HF_HUB_OFFLINE="1")
    assert (done.code, done.out) == (0, paths), done.err
    [line] = done.err.splitlines()
    assert line.startswith("localspec: snake is here already; the Hub could not be asked")


def test_with_the_network_away_what_is_here_does(shell: Shell) -> None:
    away = "http://127.0.0.1:9"
    assert shell("pull", "snake", HF_ENDPOINT=away).code == 4
    paths = shell.pull("snake").out
    assert shell.pull("snake", HF_ENDPOINT=away).out == paths


@pytest.mark.parametrize(
    ("token", "status", "message"),
    [
        (None, 401, "zoo/gated-GGUF is gated; accept its conditions at"),
        ("hf_strangerToken", 403, "is gated, and the token in use has no access to it; accept its"),
        ("hf_noSuchToken", 401, "does not accept the token"),
    ],
)
@pytest.mark.parametrize("debug", [{}, {"LOCALSPEC_DEBUG": "1", "HF_DEBUG": "1"}])
def test_a_gated_repository_without_the_right_token(
    shell: Shell, token: str | None, status: int, message: str, debug: dict[str, str]
) -> None:
    tokens = {"HF_TOKEN": token} if token else {}
    done = shell("pull", "zoo/gated-GGUF", **tokens, **debug)
    assert done.out == "" and shell.hub.sent == 0
    assert status in [request.status for request in shell.hub.requests]
    assert token is None or token not in done.err
    last = done.err.splitlines()[-1]
    assert message in last and ("gated-GGUF" in done.err or "the token" in message)
    if debug:
        assert "Traceback" in done.err
    else:
        assert done.code == 4 and last.startswith("localspec: error: ")


def test_a_gated_repository_with_the_token(shell: Shell) -> None:
    debug = {"LOCALSPEC_DEBUG": "1", "HF_DEBUG": "1", "HF_HUB_VERBOSITY": "debug"}
    done = shell.pull("zoo/gated-GGUF", HF_TOKEN=SECRET, **debug)
    assert "generate -m zoo/gated-GGUF" in done.err
    assert SECRET not in done.out + done.err
    assert any(request.authorised for request in shell.hub.requests)
    assert not any(r.authorised for r in shell.hub.requests if r.origin == "cdn")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["zoo/alone-GGUF:Q5_K_M"], 3, "zoo/alone-GGUF has no Q5_K_M; it has Q8_0, Q4_0"),
        (["alone:Q5_K_M"], 3, "zoo/alone-GGUF has no Q5_K_M; it has Q8_0, Q4_0"),
        (["snaek"], 3, "there is no model 'snaek'; did you mean snake?"),
        (["snake", "--draft", "snaek"], 3, "there is no model 'snaek'; did you mean snake?"),
        (["nowhere.gguf"], 3, "there is no model file nowhere.gguf"),
        (["zoo/whale-GGUF"], 1, "1000000.00 TB"),
        ([], 2, "NAME"),
    ],
)
def test_what_cannot_be(shell: Shell, arguments: list[str], code: int, message: str) -> None:
    done = shell("pull", *arguments)
    assert (done.code, done.out, shell.hub.sent) == (code, "", 0)
    line = done.err.splitlines()[-1]
    assert line.startswith("localspec: error: ") and message in line
    assert shell.kept() == 0


def test_nothing_is_fetched_if_a_reference_is_wrong(shell: Shell) -> None:
    done = shell("pull", "snake", "--draft", "zoo/alone-GGUF:Q2_K")
    assert done.code == 3 and shell.hub.sent == 0


def test_a_dry_run_writes_nothing(shell: Shell) -> None:
    done = shell.pull("snake", "--dry-run")
    assert done.out == "" and shell.hub.sent == 0 and not shell.cache.exists()
    assert "snake-7m-Q8_0.gguf · Q8_0 · 8.1 MB" in done.err
    assert re.search(r"10\.6 MB would be fetched, and [\d.]+ GB are free in ", done.err)
    assert json.loads(shell.pull("snake", "--dry-run", "--json").out)["missing"] == BOTH
    assert not shell.cache.exists()


@pytest.mark.slow
def test_json_says_what_there_is(shell: Shell) -> None:
    record = json.loads(shell.pull("snake", "--json").out)
    target, drafter = record["models"]
    assert record["name"] == "snake"
    assert record["missing"] == record["fetched"] == BOTH
    assert [target["role"], drafter["role"]] == ["target", "drafter"]
    repository = shell.hub.repos["zoo/snake-7m-GGUF"]
    assert target["repository"] == "zoo/snake-7m-GGUF" and target["commit"] == repository.main
    assert (target["quant"], target["files"]) == ("Q8_0", ["snake-7m-Q8_0.gguf"])
    assert target["sizes"] == [TARGET_SIZE]
    assert [Path(path).stat().st_size for path in drafter["paths"]] == [DRAFTER_SIZE]
    again = json.loads(shell.pull("snake", "--json").out)
    assert again == record | {"missing": 0, "fetched": 0}


def names(done: Done) -> list[str]:
    """The files that a pull gave."""
    return [Path(line).name for line in done.out.splitlines()]


@pytest.mark.slow
def test_which_drafter_comes_with_a_target(shell: Shell) -> None:
    done = shell.pull("zoo/snake-7m-GGUF")
    assert names(done) == ["snake-7m-Q8_0.gguf", "snake-4m-Q4_0.gguf"]
    assert "zoo/snake-7m-GGUF is the target of snake, whose drafter comes with it" in done.err
    assert names(shell.pull("snake", "--draft", "none")) == ["snake-7m-Q8_0.gguf"]
    done = shell.pull("snake", "--draft", "zoo/alone-GGUF:q4_0")
    assert names(done) == ["snake-7m-Q8_0.gguf", "alone-Q4_0.gguf"]
    assert "8.1 MB · zoo/snake-7m-GGUF · here already\n" in done.err
    assert 'next: localspec generate -m snake "..."\n' in done.err


def test_why_no_drafter_comes(shell: Shell) -> None:
    done = shell.pull("alone:q4_0")
    assert names(done) == ["alone-Q4_0.gguf"]
    assert "no drafter: nothing smaller has its vocabulary" in done.err
    done = shell.pull("zoo/snake-4m-GGUF")
    assert "no drafter: none is known for zoo/snake-4m-GGUF; --drafter names one" in done.err


def test_a_split_model_is_one(shell: Shell) -> None:
    parts = {"big-Q8_0-00001-of-00002.gguf": TARGET, "big-Q8_0-00002-of-00002.gguf": DRAFTER}
    shell.hub.repos["zoo/big-GGUF"] = Repo(parts)
    done = shell.pull("zoo/big-GGUF")
    assert names(done) == [*parts] and shell.hub.sent == BOTH
    assert "big-Q8_0-00001-of-00002.gguf and 1 more · Q8_0 · 10.6 MB" in done.err
    again = shell.pull("zoo/big-GGUF", HF_HUB_OFFLINE="1")
    assert again.out == done.out


@pytest.mark.slow
def test_files_of_this_disk_need_no_hub(shell: Shell) -> None:
    done = shell.pull("terminal")
    assert done.out.split() == [*map(str, bundled())]
    assert "terminal is here already" in done.err
    assert shell.pull(str(DRAFTER)).out == f"{DRAFTER}\n"
    assert shell.hub.requests == []
    done = shell.pull(str(DRAFTER), "--draft", "zoo/snake-4m-GGUF")
    assert names(done) == [DRAFTER.name, "snake-4m-Q4_0.gguf"]


@pytest.mark.slow
@posix
def test_ctrl_c_keeps_what_was_fetched(shell: Shell) -> None:
    shell.hub.faults.bytes_per_second = 1e6
    with shell.running("pull", "snake") as process:
        wait_for(lambda: shell.kept() > BOTH // 4)
        process.send_signal(signal.SIGINT)
        done = end_of(process)
    assert (done.code, done.out) == (130, "")
    last = "what was fetched is kept; run the same command again to continue"
    assert done.err.splitlines()[-1] == f"localspec: {last}"
    assert "Traceback" not in done.err
    shell.hub.faults.bytes_per_second = None
    kept = shell.kept()
    _, rest = shell.pull_rest("snake")
    assert kept > BOTH // 4 and rest == BOTH - kept


def test_a_connection_that_breaks_goes_on_where_it_broke(shell: Shell) -> None:
    shell.hub.faults.cut_after, shell.hub.faults.cuts = 10**6, 3
    assert shell.pull("snake").err.count("MB") < 20
    assert shell.hub.sent == BOTH


def test_two_pulls_at_once_fetch_once(shell: Shell) -> None:
    shell.hub.faults.bytes_per_second = 8e6
    with shell.running("pull", "snake") as one, shell.running("pull", "snake") as other:
        ends = [end_of(one), end_of(other)]
    assert [end.code for end in ends] == [0, 0], ends
    assert ends[0].out == ends[1].out != ""
    assert shell.hub.sent == BOTH == shell.kept()


def test_a_file_that_is_not_what_was_promised_is_not_left_behind(shell: Shell) -> None:
    shell.hub.faults.wrong_bytes = True
    done = shell("pull", "zoo/snake-4m-GGUF")
    assert (done.code, done.out) == (4, "")
    assert done.err.splitlines()[-1].startswith("localspec: error: ")
    assert shell.kept() == 0 and not [*shell.cache.rglob("*.gguf")]
    shell.hub.faults.wrong_bytes = False
    assert names(shell.pull("zoo/snake-4m-GGUF")) == ["snake-4m-Q4_0.gguf"]


LIMITED = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({10**6}, {10**6}))
from localspec.cli.main import main
main()
"""


@posix
def test_a_disk_that_takes_no_more(shell: Shell) -> None:
    done = shell("pull", "zoo/snake-4m-GGUF", start=("-c", LIMITED))
    assert done.code == 1 and done.out == ""
    line = done.err.splitlines()[-1]
    assert line.startswith("localspec: error: ") and "unexpected" not in line
    shell.pull("zoo/snake-4m-GGUF")


@pytest.mark.slow
def test_lines_where_there_is_no_terminal(shell: Shell) -> None:
    shell.hub.faults.bytes_per_second = 2e6
    done = shell.pull("zoo/snake-7m-GGUF", "--draft", "none", FORCE_COLOR="1")
    lines = [line for line in done.err.splitlines() if "snake-7m-Q8_0.gguf: " in line]
    assert lines[0] == "localspec: snake-7m-Q8_0.gguf: fetching 8.1 MB"
    assert lines[-2:] == [
        "localspec: snake-7m-Q8_0.gguf: checking",
        "localspec: snake-7m-Q8_0.gguf: complete, its SHA-256 is right",
    ]
    share, rest = r"\d+% · .* of 8\.1 MB", r"[\d.]+ [kM]B/s · \d+ (s|min) left"
    step = rf"localspec: snake-7m-Q8_0\.gguf: {share} · {rest}"
    assert lines[1:-2] and all(re.fullmatch(step, line) for line in lines[1:-2])
    assert len(lines) <= 13 and "\x1b" not in done.err and "\r" not in done.err


def test_when_a_line_is_written() -> None:
    written: list[str] = []
    now = 0.0
    show = ProgressLines(written.append, lambda: now)
    happened: list[tuple[float, int, TransferState]] = [
        (0, 20, "waiting"),
        (0.2, 20, "waiting"),
        (0.3, 20, "asking"),  # and silence
        (1, 20, "fetching"),
        (1.5, 40, "fetching"),  # too soon
        (3.5, 70, "fetching"),
        (99, 75, "fetching"),  # no tenth more
        (99, 100, "checking"),
        (99, 100, "done"),
    ]
    for moment, done, state in happened:
        now = moment
        reason = "another process fetches it" if state == "waiting" else ""
        show(FileProgress("a.gguf", "zoo/a", done * 10**7, 10**9, state, reason))
    show(FileProgress("here.gguf", "zoo/a", 5, 5, "done"))
    waiting = "another process fetches it"
    step = "70% · 700.0 MB of 1.00 GB · 200.0 MB/s · 2 s left"
    said = [waiting, "fetching 1.00 GB", step, "checking", "complete, its SHA-256 is right"]
    assert written == [f"a.gguf: {each}" for each in said]


def pulled_on_terminal(shell: Shell, *arguments: str, **environment: str) -> str:
    """What a pull shows on a terminal; its paths go elsewhere."""
    env = shell.environment | {"TERM": "xterm-256color"} | environment
    code, shown = on_terminal("pull", *arguments, env=env, stdout=subprocess.DEVNULL)
    assert code == 0
    return shown


@pytest.mark.slow
@posix
def test_bars_on_a_terminal(shell: Shell) -> None:
    shell.hub.faults.bytes_per_second = 4e6
    shown = pulled_on_terminal(shell, "snake")
    assert "\x1b[" in shown and "━" in shown and "MB/s" in shown
    assert re.search(r"snake-7m-Q8_0\.gguf .*8\.1/8\.1 MB", shown)
    assert re.search(r"all .*10\.6/10\.6 MB", shown)
    dumb = pulled_on_terminal(shell, "alone", TERM="dumb")
    assert "alone-Q4_0.gguf: fetching" in dumb and "\x1b" not in dumb


def generated_on_terminal(
    shell: Shell, answer: bytes, model: str = "snake:q8_0", *more: str, **environment: str
) -> tuple[int, str]:
    """`localspec run` of a pair on a terminal, with an answer to its question."""
    arguments = ("generate", "-m", model, "def f(", "-n", "4", "--threads", "1", *more)
    env = shell.environment | {"TERM": "dumb"} | environment
    code, shown = on_terminal(*arguments, env=env, answer=answer, after=b"[y/N]")
    return code, shown.replace("\r\n", "\n")


@posix
def test_a_pair_that_is_not_here_is_fetched_where_the_user_agrees(shell: Shell) -> None:
    """Never offline, and never without a terminal."""
    sizes = PAIRS.replace('prompt = "raw"', 'prompt = "raw"\nsizes = { Q8_0 = 0.0081 }')
    (shell.cache.parents[1] / "localspec" / "models.toml").write_text(sizes)
    question = "snake:q8_0 is not on this machine; fetch about 8.1 MB now? [y/N]"
    refusal = "is not on this machine; localspec pull snake:q8_0 fetches it"
    code, shown = generated_on_terminal(shell, b"\n")
    assert code == 3 and question in shown and refusal in shown and shell.hub.requests == []
    for done in (shell("generate", "-m", "snake:q8_0", "def f("),
                 shell("chat", "--plain", "snake:q8_0")):  # fmt: skip
        assert "[y/N]" not in done.err and refusal in done.err
    code, shown = generated_on_terminal(shell, b"", HF_HUB_OFFLINE="1")
    assert code == 3 and "[y/N]" not in shown and refusal in shown
    code, shown = generated_on_terminal(shell, b"y\n", "snake:nope")
    assert code == 3 and "[y/N]" not in shown and shell.hub.requests == []
    assert "models.toml lists no nope of snake, but Q8_0; localspec pull snake:nope looks" in shown
    code, shown = generated_on_terminal(shell, b"y\n")
    assert code == 0 and question in shown and "next: " not in shown
    assert shell.hub.sent == BOTH
    code, shown = generated_on_terminal(shell, b"")
    assert code == 0 and "[y/N]" not in shown


@posix
def test_an_offered_fetch_has_the_drafter_that_is_asked_for(shell: Shell) -> None:
    for draft, refusal in (("nowhere.gguf", "nowhere.gguf"), ("none,suffix", "something else")):
        code, shown = generated_on_terminal(shell, b"y\n", "snake", "--draft", draft)
        assert code in (2, 3) and refusal in shown and "[y/N]" not in shown
    assert shell.hub.requests == []
    code, shown = generated_on_terminal(shell, b"y\n", "snake", "--draft", "none")
    assert code == 0 and "[y/N]" in shown
    assert shell.hub.sent == TARGET_SIZE


def test_warnings_of_huggingface_hub_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has one about links for every download on Windows without its developer mode."""
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "level", logging.ERROR)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        quieten_hub()
        for module in ("huggingface_hub.file_download", "another"):
            warnings.warn_explicit(module, UserWarning, "file.py", 1, module=module)
    assert [str(each.message) for each in shown] == ["another"]
