"""`localspec pull` of what is here already, and has changed on the Hub since."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.command_line import Done
from fakes.hub import Hub
from fakes.hub_repo import Repo
from fakes.pycode import PYCODE

from localspec.errors import LocalspecError

from .test_pull import Shell, end_of, posix, wait_for

TARGET, DRAFTER = PYCODE
SIZE = TARGET.stat().st_size
SNAKE = "zoo/snake-GGUF"
FILE = "snake-Q8_0.gguf"


@pytest.fixture
def mended(tmp_path: Path) -> Path:
    """The same model, with other bytes behind its weights."""
    path = tmp_path / "mended.gguf"
    path.write_bytes(TARGET.read_bytes() + bytes(32))
    return path


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({SNAKE: Repo({FILE: TARGET, "snake-Q2_K.gguf": DRAFTER})}) as hub:
        yield hub


@pytest.fixture
def shell(tmp_path: Path, hub: Hub) -> Shell:
    return Shell(tmp_path, hub)


def pull(shell: Shell, *arguments: str) -> tuple[Path, str]:
    done = shell.pull(f"{SNAKE}:Q8_0", "--drafter", "none", *arguments)
    return Path(done.out.strip() or "."), done.err


def loaded(shell: Shell) -> str:
    done = shell("generate", "-m", SNAKE, "--json", "-n", "1", "a", HF_HUB_OFFLINE="1")
    assert done.code == 0, done.err
    return str(json.loads(done.out)["model"]["target"])


@posix
def test_what_was_begun_and_is_replaced_is_deleted_and_said(
    shell: Shell, hub: Hub, mended: Path
) -> None:
    hub.faults.bytes_per_second = SIZE / 2
    with shell.running("pull", f"{SNAKE}:Q8_0", "--drafter", "none") as process:
        wait_for(lambda: any(part.stat().st_size > 10**6 for part in parts(shell)))
        process.kill()
    hub.faults.bytes_per_second = None
    hub.repos[SNAKE].push({FILE: mended, "snake-Q2_K.gguf": DRAFTER})
    (begun,) = parts(shell)
    # What the Hub still has is kept, whoever wants it.
    small = hashlib.sha256(DRAFTER.read_bytes()).hexdigest()
    kept = begun.with_name(f"{small}.localspec.incomplete")
    kept.write_bytes(DRAFTER.read_bytes()[:1000])
    assert "deleted" not in pull(shell, "--dry-run")[1] and begun.exists()
    path, said = pull(shell)
    told = rf"{SNAKE}: [\d.]+ MB of an interrupted download were deleted, because the Hub has"
    assert re.search(told, said) and path.read_bytes() == mended.read_bytes()
    assert parts(shell) == [kept]


def test_a_former_name_finds_what_came_under_the_new_one(shell: Shell, hub: Hub) -> None:
    path, _ = pull(shell)
    hub.renamed["zoo/adder-gguf"] = SNAKE
    done = pull_as(shell, "zoo/adder-GGUF")
    assert f"zoo/adder-GGUF is called {SNAKE} on the Hub now" in done.err
    assert Path(done.out.strip()) == path and hub.sent == SIZE
    assert shell("show", "zoo/adder-GGUF").code == 0


def parts(shell: Shell) -> list[Path]:
    return [*shell.cache.glob("models--*/blobs/*.incomplete")]


def test_a_renamed_repository_says_its_new_name_and_answers_to_both(shell: Shell, hub: Hub) -> None:
    new = "zoo/python-GGUF"
    rename(hub, SNAKE, new)
    path, said = pull(shell)
    assert path.read_bytes() == TARGET.read_bytes()
    line = f"{SNAKE} is called {new} on the Hub now; here it answers to both names"
    assert said.count(line) == 1
    assert shell("show", new).code == shell("show", SNAKE).code == 0
    again = pull_as(shell, new)
    assert "is here already" in again.err and hub.sent == SIZE
    assert Path(again.out.strip()) == path


def test_a_repository_renamed_twice_is_not_fetched_again(shell: Shell, hub: Hub) -> None:
    second, third = "zoo/python-GGUF", "zoo/cobra-GGUF"
    rename(hub, SNAKE, second)
    path, _ = pull(shell)
    rename(hub, second, third)
    assert Path(pull_as(shell, second).out.strip()) == path
    assert shell("show", third).code == 0
    assert Path(pull_as(shell, third).out.strip()) == path and hub.sent == SIZE


@pytest.mark.slow
def test_a_former_name_that_another_repository_got_is_the_other_one(
    shell: Shell, hub: Hub, mended: Path
) -> None:
    new = "zoo/python-GGUF"
    rename(hub, SNAKE, new)
    first, _ = pull(shell)
    reuse(hub, SNAKE, Repo({"other-Q8_0.gguf": mended}))
    other, said = pull(shell)
    assert f"{SNAKE} is another repository on the Hub now, and no longer {new}" in said
    assert first.read_bytes() == TARGET.read_bytes() and loaded(shell) == str(other)
    for command in (["show"], ["generate", "a", "-m"], ["rm", "--yes"]):
        done = shell(*command, f"{new}:Q8_0", HF_HUB_OFFLINE="1")
        assert done.code == 3 and "is not on this machine" in done.err
    done = pull_as(shell, new)
    assert Path(done.out.strip()).read_bytes() == TARGET.read_bytes()
    assert "is another repository" not in pull(shell)[1] + done.err
    assert loaded(shell) == str(other)
    assert shell("rm", "--yes", new).code == 0 and first.exists() and other.exists()


@pytest.mark.slow
def test_another_repository_does_not_come_into_the_folder_of_the_renamed_one(
    shell: Shell, hub: Hub, mended: Path
) -> None:
    path, _ = pull(shell)
    former = "zoo/adder-GGUF"
    hub.renamed[former.lower()] = SNAKE
    assert Path(pull_as(shell, former).out.strip()) == path
    reuse(hub, former, Repo({FILE: mended}))
    done = pull_as(shell, former)
    assert f"{former} is another repository on the Hub now, and no longer {SNAKE}" in done.err
    assert Path(done.out.strip()).read_bytes() == mended.read_bytes()
    assert loaded(shell) == str(path) and pull(shell)[0] == path


@pytest.mark.slow
def test_a_name_in_between_that_another_repository_got_is_no_name_of_the_renamed_one(
    shell: Shell, hub: Hub, mended: Path
) -> None:
    """The repository was renamed twice, and nobody has asked by the name in between since then."""
    between = "zoo/python-GGUF"
    first, _ = pull(shell)
    rename(hub, SNAKE, between)
    pull(shell)
    assert shell("show", f"{between}:Q8_0").code == 0
    rename(hub, between, "zoo/cobra-GGUF")
    reuse(hub, between, Repo({FILE: mended}))
    done = pull_as(shell, between)
    assert f"{between} is another repository on the Hub now, and no longer {SNAKE.lower()}" in (
        done.err
    )
    other = Path(done.out.strip())
    assert other.read_bytes() == mended.read_bytes() and other.parent != first.parent
    assert loaded(shell) == str(first)
    assert "is another repository" not in pull_as(shell, between).err


@pytest.mark.slow
def test_what_another_repository_lacks_is_still_here_under_the_name_it_was_pulled_as(
    shell: Shell, hub: Hub
) -> None:
    new = "zoo/python-GGUF"
    rename(hub, SNAKE, new)
    first, _ = pull(shell)
    reuse(hub, SNAKE, Repo({"other-Q4_0.gguf": DRAFTER}))
    found, said = pull(shell)
    assert found == first and "has no Q8_0; it has Q4_0" in said
    assert said.count(f"{SNAKE} is another repository on the Hub now, and no longer {new}") == 1
    assert shell("show", new).code == 3 and loaded(shell) == str(first)


def rename(hub: Hub, old: str, new: str) -> None:
    hub.repos[new] = hub.repos.pop(old)
    hub.renamed = {name: new if to == old else to for name, to in hub.renamed.items()}
    hub.renamed[old.lower()] = new


def reuse(hub: Hub, name: str, repository: Repo) -> None:
    del hub.renamed[name.lower()]
    hub.repos[name] = repository


def pull_as(shell: Shell, name: str) -> Done:
    return shell.pull(f"{name}:Q8_0", "--drafter", "none")


def test_why_the_hub_is_asked_again_is_said(shell: Shell, hub: Hub) -> None:
    host, storage = (each.removeprefix("http://") for each in (hub.endpoint, hub.cdn))
    hub.faults.statuses |= {"hub": [429], "cdn": [503]}
    hub.faults.retry_after = 1
    said = pull(shell)[1].splitlines()
    assert said.count(f"localspec: {host} got too many requests (429); asked again in 1 s") == 1
    assert said.count(f"localspec: {FILE}: {storage} has an error (503); asked again in 0.5 s") == 1


@pytest.mark.slow
def test_new_files_come_and_it_is_said(shell: Shell, hub: Hub, mended: Path) -> None:
    old, said = pull(shell)
    assert "has changed" not in said
    hub.repos[SNAKE].push({FILE: mended})
    assert loaded(shell) == str(old)
    asked, said = pull(shell, "--dry-run")
    assert f"{SNAKE}:Q8_0 has changed on the Hub since it was pulled" in said
    assert loaded(shell) == str(old) and asked == Path()
    new, said = pull(shell)
    assert f"{SNAKE}:Q8_0 has changed on the Hub since it was pulled" in said
    assert new.read_bytes() == mended.read_bytes() and old.read_bytes() == TARGET.read_bytes()
    assert loaded(shell) == str(new)
    again, said = pull(shell)
    assert again == new and said.endswith("is here already\n") and said.count("\n") == 1


def test_what_has_not_changed_is_not_fetched_and_nothing_is_said(shell: Shell, hub: Hub) -> None:
    old, _ = pull(shell)
    hub.repos[SNAKE].push({FILE: TARGET, "README.md": Path(__file__)})
    new, said = pull(shell)
    assert new.samefile(old) and hub.sent == SIZE and "changed" not in said


def test_a_cache_that_cannot_be_written_is_of_use_where_nothing_is_missing(
    shell: Shell, hub: Hub
) -> None:
    """As one that an administrator fills: a file stands in for what root may write as well."""
    old, _ = pull(shell)
    hub.repos[SNAKE].push({FILE: TARGET, "README.md": Path(__file__)})
    old.parents[1].joinpath(hub.repos[SNAKE].main).touch()
    done = shell.pull(f"{SNAKE}:Q8_0", "--drafter", "none")
    assert done.code == 0 and Path(done.out.strip()) == old
    assert "cannot write to " in done.err and done.err.endswith("; what is here is used\n")
    hub.repos[SNAKE].push({FILE: DRAFTER})
    old.parents[1].joinpath(hub.repos[SNAKE].main).touch()
    done = shell("pull", f"{SNAKE}:Q8_0", "--drafter", "none")
    assert done.code == LocalspecError.exit_code


@pytest.mark.slow
@posix
def test_interrupted_in_between_nothing_is_lost(shell: Shell, hub: Hub, mended: Path) -> None:
    old, _ = pull(shell)
    hub.repos[SNAKE].push({FILE: mended})
    hub.faults.bytes_per_second = 1e6
    with shell.running("pull", f"{SNAKE}:Q8_0") as process:
        wait_for(lambda: shell.kept() > SIZE + SIZE // 4)
        process.kill()
        end_of(process)
    hub.faults.bytes_per_second = None
    kept = shell.kept() - SIZE
    assert loaded(shell) == str(old)
    done, sent = shell.pull_rest(f"{SNAKE}:Q8_0", "--drafter", "none")
    assert Path(done.out.strip()).read_bytes() == mended.read_bytes()
    assert sent == SIZE + 32 - kept and "has changed on the Hub" in done.err


@pytest.mark.slow
def test_another_model_of_a_newer_commit_changes_no_name(
    shell: Shell, hub: Hub, mended: Path
) -> None:
    shell.pull(f"{SNAKE}:Q2_K", "--drafter", "none")
    hub.repos[SNAKE].push({FILE: mended, "snake-Q4_0.gguf": DRAFTER, "snake-Q2_K.gguf": TARGET})
    pull(shell)
    assert loaded(shell).endswith(FILE)  # Q8_0 is preferred to Q2_K, from whichever commit
    shell.pull(f"{SNAKE}:Q4_0", "--drafter", "none")
    assert loaded(shell).endswith("snake-Q4_0.gguf")
    hub.repos[SNAKE].push({FILE: TARGET})
    pull(shell)
    assert loaded(shell).endswith("snake-Q4_0.gguf")


@pytest.mark.parametrize("how", ["file", "repository"])
def test_what_the_hub_has_no_longer_is_still_here(shell: Shell, hub: Hub, how: str) -> None:
    old, _ = pull(shell)
    if how == "file":
        hub.repos[SNAKE].push({"snake-Q4_0.gguf": DRAFTER})
    else:
        del hub.repos[SNAKE]
    found, said = pull(shell)
    remark = "the Hub has it no longer" if how == "file" else "the Hub does not show it"
    assert found == old and f"is here already; {remark}" in said
    why = "has no Q8_0; it has Q4_0" if how == "file" else f"has no model {SNAKE}, or it is private"
    assert why in said
    assert shell("pull", f"{SNAKE}:Q3_K_M").code == 3


def test_several_models_of_one_label_are_no_lost_model(shell: Shell, hub: Hub) -> None:
    pull(shell)
    hub.repos[SNAKE].push({FILE: TARGET, "python-Q8_0.gguf": DRAFTER})
    done = shell("pull", f"{SNAKE}:Q8_0")
    assert done.code == 3 and f"several models of that kind (python-Q8_0.gguf, {FILE})" in done.err


def test_a_drafter_that_is_gone_is_not_its_target(shell: Shell, hub: Hub) -> None:
    hub.repos["zoo/worm-GGUF"] = Repo({"worm-Q8_0.gguf": DRAFTER})
    both = ("pull", f"{SNAKE}:Q8_0", "--drafter", "zoo/worm-GGUF")
    before = shell(*both)
    del hub.repos["zoo/worm-GGUF"]
    after = shell(*both)
    assert (after.code, after.out) == (0, before.out) and before.out.count("\n") == 2
    assert "zoo/worm-GGUF is taken as it is here: " in after.err
    assert after.err.endswith(f"{SNAKE}:Q8_0 is here already\n")


@pytest.mark.slow
def test_without_the_hub_several_models_that_begin_so_are_named(shell: Shell, hub: Hub) -> None:
    hub.repos["zoo/two-GGUF"] = Repo({"small-Q4_0.gguf": TARGET, "large-Q4_0.gguf": DRAFTER})
    for name in ("small", "large"):
        shell.pull(f"zoo/two-GGUF:{name}-Q4_0.gguf", "--drafter", "none")
    for command in (["pull"], ["generate", "a", "-m"]):
        done = shell(*command, "zoo/two-GGUF:Q4", HF_HUB_OFFLINE="1")
        assert done.code == 3 and "(large-Q4_0.gguf, small-Q4_0.gguf)" in done.err


@pytest.mark.slow
def test_the_bare_name_loads_what_was_pulled_under_it(shell: Shell, hub: Hub) -> None:
    def bare_pull() -> str:
        return shell.pull(SNAKE, "--drafter", "none").out.strip()

    hub.repos[SNAKE] = Repo({"snake-Q4_K_M.gguf": TARGET})
    old = bare_pull()
    assert loaded(shell) == old
    hub.repos[SNAKE].push({"snake-UD-Q4_K_XL.gguf": DRAFTER, "mtp-snake-Q4_K_M.gguf": DRAFTER})
    shell.pull(SNAKE, "--dry-run")
    assert loaded(shell) == old
    new = bare_pull()
    assert new.endswith("snake-UD-Q4_K_XL.gguf") and loaded(shell) == new
    assert bare_pull() == shell.pull(SNAKE, HF_HUB_OFFLINE="1").out.splitlines()[0] == new
    assert shell("rm", "--yes", f"{SNAKE}:UD-Q4_K_XL").code == 0
    assert loaded(shell) == old
