"""`localspec pull` from repositories of every layout, and the drafter that the first text has."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import mtp
from fakes.dflash import BlockShape, write_block_head
from fakes.eagle3 import write_head, write_target
from fakes.fork_heads import split_in_two, write_fork_head
from fakes.hub import Hub
from fakes.hub_repo import Repo

from localspec.errors import HubError
from localspec.models.registry import user_file

from .test_pull import Shell, names

PAIRS = """
[pairs.listed]
target = "zoo/listed-GGUF"
[[pairs.listed.drafters]]
kind = "medusa"
file = "zoo/nowhere-GGUF"
[[pairs.listed.drafters]]
kind = "dflash"
file = "zoo/heads-GGUF:dflash-owl.gguf"
loses = "it was slower than plain decoding"
[[pairs.listed.drafters]]
kind = "eagle3"
file = "zoo/missing-GGUF:eagle3-owl.gguf"
[[pairs.listed.drafters]]
kind = "eagle3"
file = "zoo/heads-GGUF:eagle3-owl.gguf"
sha256 = "abababababababababababababababababababababababababababababababab"

[pairs.whole]
target = "zoo/whole-MTP-GGUF"
without_heads = ["zoo/plain-GGUF"]
drafters = [{ kind = "mtp", file = "in the target" }]
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    target = write_target(folder / "owl.gguf")
    parts = split_in_two(target)
    return {
        "target": target,
        "part 1": parts[0],
        "part 2": parts[1],
        "eagle3": write_head(folder / "eagle3.gguf"),
        "dflash": write_block_head(folder / "dflash.gguf"),
        "dspark": write_block_head(folder / "dspark.gguf", BlockShape(markov=4)),
        "fork": write_fork_head(folder / "fork.gguf"),
        "inside": mtp.write_target(folder / "inside.gguf"),
        "trunk": mtp.write_target(folder / "trunk.gguf", heads=0),
        "mtp": mtp.write_sidecar(folder / "mtp.gguf"),
    }


@pytest.fixture
def hub(models: dict[str, Path]) -> Iterator[Hub]:
    target, eagle3, dflash = models["target"], models["eagle3"], models["dflash"]
    layouts: dict[str, dict[str, Path | int]] = {
        "root": {"owl-Q8_0.gguf": target, "eagle3-owl-Q8_0.gguf": eagle3},
        "root-mtp": {"owl-Q8_0.gguf": models["trunk"], "mtp-owl-Q8_0.gguf": models["mtp"]},
        "dspark": {"owl-Q8_0.gguf": target, "dspark-owl-Q8_0.gguf": models["dspark"]},
        "deep": {
            "Q8_0/owl-Q8_0.gguf": target,
            "Q8_0/eagle3-owl-BF16.gguf": eagle3,
            "eagle3-owl-Q8_0.gguf": models["fork"],
        },
        "folder": {"owl-Q8_0.gguf": target, "EAGLE3/owl-Q4_0.gguf": eagle3},
        "other-quant": {
            "owl-Q4_K_M.gguf": target,
            "eagle3-owl-Q5_0.gguf": eagle3,
            "eagle3-owl-BF16.gguf": dflash,
        },
        "split": {
            "Q8_0/owl-Q8_0-00001-of-00002.gguf": models["part 1"],
            "Q8_0/owl-Q8_0-00002-of-00002.gguf": models["part 2"],
            "dflash-owl-Q8_0.gguf": dflash,
        },
        "inside": {"owl-Q8_0.gguf": models["inside"]},
        "MTP": {
            "owl-Q4_K_M.gguf": models["trunk"],
            "MTP/mtp-owl-Q8_0.gguf": models["mtp"],
            "MTP/mtp-owl-Q4_0.gguf": models["mtp"],
        },
        "fork": {"owl-Q8_0.gguf": target, "dflash-owl-Q8_0.gguf": models["fork"]},
        "plain": {"owl-Q8_0.gguf": target},
        "whole-MTP": {"owl-Q8_0.gguf": target},
        "empty": {
            "owl-Q8_0.gguf": target,
            "dflash-owl-Q8_0.gguf": 0,
            "eagle3-owl-Q8_0.gguf": eagle3,
        },
        "both": {"owl-Q8_0.gguf": target, "dflash-owl.gguf": dflash, "eagle3-owl.gguf": eagle3},
        "two": {
            "owl-Q8_0.gguf": target,
            "owl-Q4_K_M.gguf": target,
            "dflash-owl.gguf": dflash,
        },
        "Qwen3-8B-DFlash": {"Qwen3-8B-DFlash.Q8_0.gguf": dflash},
        "heads": {"dflash-owl.gguf": dflash, "eagle3-owl.gguf": eagle3},
        "listed": {"owl-Q8_0.gguf": target, "dspark-owl.gguf": dflash},
    }
    with Hub({f"zoo/{name}-GGUF": Repo(files) for name, files in layouts.items()}) as hub:
        yield hub


@pytest.mark.parametrize("how", ["gated", "disabled"])
def test_a_drafter_that_the_hub_refuses_is_left_out(shell: Shell, hub: Hub, how: str) -> None:
    heads = hub.repos["zoo/heads-GGUF"]
    heads.token = "hf_somebodyElses"
    setattr(heads, how, True)
    done = shell.pull("listed")
    assert f"zoo/heads-GGUF:eagle3-owl.gguf is left out: zoo/heads-GGUF is {how}" in done.err
    assert len(done.out.splitlines()) == 2  # the target, and the next drafter
    named = shell("pull", "listed", "--drafter", "zoo/heads-GGUF:eagle3-owl.gguf")
    assert named.code == HubError.exit_code and f"is {how}" in named.err and not named.out


@pytest.fixture
def shell(tmp_path: Path, hub: Hub) -> Shell:
    shell = Shell(tmp_path, hub)
    (tmp_path / "localspec" / user_file().name).write_text(PAIRS)
    return shell


def drafter_of(shell: Shell, name: str) -> tuple[str | None, str | None]:
    """The drafter of a text that is written without the Hub, and why there is no other."""
    arguments = ("-n", "8", "--seed", "1", "--threads", "1", "--ctx", "256", "--json")
    done = shell("generate", "-m", name, "ab", *arguments, HF_HUB_OFFLINE="1")
    assert done.code == 0, done.err
    drafter = json.loads(done.out)["model"]["drafter"]
    return (Path(drafter).name if drafter else None), done.err


@pytest.mark.parametrize(
    ("name", "fetched"),
    [
        ("zoo/root-GGUF", ["owl-Q8_0.gguf", "eagle3-owl-Q8_0.gguf"]),
        ("zoo/root-mtp-GGUF", ["owl-Q8_0.gguf", "mtp-owl-Q8_0.gguf"]),
        ("zoo/dspark-GGUF", ["owl-Q8_0.gguf", "dspark-owl-Q8_0.gguf"]),
        ("zoo/deep-GGUF", ["owl-Q8_0.gguf", "eagle3-owl-BF16.gguf"]),
        ("zoo/folder-GGUF", ["owl-Q8_0.gguf", "owl-Q4_0.gguf"]),
        ("zoo/other-quant-GGUF", ["owl-Q4_K_M.gguf", "eagle3-owl-Q5_0.gguf"]),
        ("zoo/MTP-GGUF", ["owl-Q4_K_M.gguf", "mtp-owl-Q4_0.gguf"]),
        ("zoo/inside-GGUF", ["owl-Q8_0.gguf"]),
        (
            "zoo/split-GGUF",
            [
                "owl-Q8_0-00001-of-00002.gguf",
                "owl-Q8_0-00002-of-00002.gguf",
                "dflash-owl-Q8_0.gguf",
            ],
        ),
    ],
)
def test_the_drafter_beside_a_target_comes_with_it_and_drafts(
    shell: Shell, name: str, fetched: list[str]
) -> None:
    done = shell.pull(name)
    assert names(done) == fetched
    listings = [each for each in shell.hub.requests if each.path.startswith("/api/models")]
    assert len(listings) == 1, "one listing tells all"
    assert drafter_of(shell, name)[0] == fetched[-1]
    assert names(shell.pull(name, HF_HUB_OFFLINE="1")) == fetched


@pytest.mark.slow
def test_a_drafter_that_was_named_drafts_until_it_is_deleted(shell: Shell) -> None:
    done = shell.pull("zoo/plain-GGUF", "--drafter", "zoo/heads-GGUF:dflash-owl.gguf")
    said = "zoo/heads-GGUF:dflash-owl.gguf drafts for zoo/plain-GGUF from now on (--draft auto)"
    assert said in done.err
    assert drafter_of(shell, "zoo/plain-GGUF")[0] == "dflash-owl.gguf"
    shown = shell("show", "zoo/plain-GGUF").out
    assert "dflash zoo/heads-GGUF:dflash-owl.gguf, pulled with the target\n" in shown
    # Another one that is named later comes first.
    shell.pull("zoo/plain-GGUF", "--drafter", "zoo/heads-GGUF:eagle3-owl.gguf")
    assert drafter_of(shell, "zoo/plain-GGUF")[0] == "eagle3-owl.gguf"
    assert shell("rm", "--yes", "zoo/heads-GGUF:eagle3-owl.gguf").code == 0
    assert drafter_of(shell, "zoo/plain-GGUF")[0] == "dflash-owl.gguf"
    assert shell("rm", "--yes", "zoo/plain-GGUF").code == 0
    shell.pull("zoo/plain-GGUF")
    assert drafter_of(shell, "zoo/plain-GGUF")[0] is None, "a deleted target's pair is forgotten"


def test_a_drafter_that_was_named_is_that_of_other_quantisations(shell: Shell) -> None:
    """And none that `auto` would not take is fetched beside it."""
    done = shell.pull("zoo/two-GGUF:Q8_0", "--drafter", "zoo/heads-GGUF:eagle3-owl.gguf")
    assert "eagle3-owl.gguf drafts for zoo/two-GGUF from now on (--draft auto)\n" in done.err
    assert 'next: localspec generate -m zoo/two-GGUF:Q8_0 "..."\n' in done.err
    assert names(shell.pull("zoo/two-GGUF")) == ["owl-Q4_K_M.gguf", "eagle3-owl.gguf"]
    assert drafter_of(shell, "zoo/two-GGUF")[0] == "eagle3-owl.gguf"


@pytest.mark.slow
def test_what_would_be_fetched_is_not_remembered(shell: Shell) -> None:
    shell.pull("zoo/plain-GGUF")
    shell.pull("zoo/heads-GGUF:dflash-owl.gguf")
    shell.pull("zoo/plain-GGUF", "--drafter", "zoo/heads-GGUF:dflash-owl.gguf", "--dry-run")
    assert drafter_of(shell, "zoo/plain-GGUF")[0] is None


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("zoo/Qwen3-8B-DFlash-GGUF:Qwen3-8B-DFlash.Q8_0.gguf", "Qwen3-8B-DFlash.Q8_0.gguf"),
        ("zoo/both-GGUF:eagle3-owl.gguf", "eagle3-owl.gguf"),
        ("zoo/MTP-GGUF:mtp-owl-Q8_0.gguf", "mtp-owl-Q8_0.gguf"),
        ("zoo/heads-GGUF:dflash-owl.gguf", "dflash-owl.gguf"),
    ],
)
def test_a_drafter_comes_alone(shell: Shell, name: str, file: str) -> None:
    done = shell.pull(name)
    assert names(done) == [file]
    assert f"no drafter: {name} is a drafter itself\n" in done.err
    assert f'next: localspec generate -m TARGET --draft {name} "..."' in done.err
    assert "left out" not in done.err
    assert names(shell.pull(name, HF_HUB_OFFLINE="1")) == [file]


@pytest.mark.slow
def test_a_file_of_a_fork_is_fetched_and_refused_by_name(shell: Shell) -> None:
    shell.pull("zoo/fork-GGUF")
    pair = shell("pair", "zoo/fork-GGUF", "zoo/fork-GGUF:dflash-owl-Q8_0.gguf", "--json")
    record = json.loads(pair.out)
    assert pair.code == 6 and record["checks"][0]["name"] == "architecture"
    assert "(dflash-draft) that only a fork of llama.cpp loads" in record["conclusion"]
    drafter, said = drafter_of(shell, "zoo/fork-GGUF")
    assert drafter is None and "only a fork of llama.cpp loads" in said


@pytest.mark.slow
def test_a_twin_without_heads_is_told_where_they_are(shell: Shell) -> None:
    done = shell.pull("zoo/plain-GGUF")
    assert names(done) == ["owl-Q8_0.gguf"]
    where = "has no MTP heads inside; the file with heads is in zoo/whole-MTP-GGUF"
    assert f"localspec: zoo/plain-GGUF {where}\n" in done.err
    assert f"owl-Q8_0.gguf {where}" in shell("show", "zoo/plain-GGUF").out
    drafter, said = drafter_of(shell, "zoo/plain-GGUF")
    assert drafter is None and "localspec pull whole fetches one that has" in said


def test_a_sidecar_of_no_bytes_is_left_out(shell: Shell) -> None:
    done = shell.pull("zoo/empty-GGUF")
    assert names(done) == ["owl-Q8_0.gguf", "eagle3-owl-Q8_0.gguf"]
    assert "dflash-owl-Q8_0.gguf is left out: " in done.err
    named = shell("pull", "zoo/empty-GGUF", "--drafter", "dflash")
    assert named.code == 4 and "does not say the size and the hash of dflash-owl" in named.err


@pytest.mark.slow
def test_which_drafter_is_fetched_can_be_said(shell: Shell) -> None:
    name = "zoo/both-GGUF"
    assert names(shell.pull(name, "--drafter", "none")) == ["owl-Q8_0.gguf"]
    done = shell.pull(name, "--drafter", "eagle3")
    assert names(done) == ["owl-Q8_0.gguf", "eagle3-owl.gguf"]
    assert "drafter (eagle3): eagle3-owl.gguf" in done.err
    assert "-m zoo/both-GGUF --draft suffix,zoo/both-GGUF:eagle3-owl" in done.err
    done = shell.pull(name, "--drafter", "dflash-owl.gguf", "--json")
    target, drafter = json.loads(done.out)["models"]
    assert (target["kind"], drafter["files"]) == (None, ["dflash-owl.gguf"])
    # Offline, each of them is here.
    for kind in ("eagle3", "dflash"):
        offline = shell.pull(name, "--drafter", kind, HF_HUB_OFFLINE="1")
        assert names(offline) == ["owl-Q8_0.gguf", f"{kind}-owl.gguf"]
    missing = shell("pull", name, "--drafter", "mtp")
    assert missing.code == 3
    assert "no mtp drafter is known for zoo/both-GGUF; it has dflash, eagle3" in missing.err


@pytest.mark.slow
def test_of_listed_drafters_the_first_that_is_there_and_pays(shell: Shell) -> None:
    done = shell.pull("listed")
    assert names(done) == ["owl-Q8_0.gguf", "eagle3-owl.gguf"]
    lines = done.err.splitlines()
    assert any(
        "dflash zoo/heads-GGUF:dflash-owl.gguf is left out: it was slower" in x for x in lines
    )
    assert any("eagle3 zoo/missing-GGUF:eagle3-owl.gguf is left out: " in x for x in lines)
    assert any("eagle3-owl.gguf has another content than models.toml describes" in x for x in lines)
    assert drafter_of(shell, "listed")[0] == "eagle3-owl.gguf"
    named = shell.pull("listed", "--drafter", "dflash")
    assert names(named)[1] == "dflash-owl.gguf" and "it was slower" in named.err


def test_heads_are_listed_shown_and_completed(shell: Shell) -> None:
    shell.pull("zoo/both-GGUF")
    rows = {each["name"]: each for each in json.loads(shell("ls", "--json").out)["models"]}
    head = "zoo/both-GGUF:dflash-owl.gguf"
    assert rows[head]["kind"] == "dflash" and rows[head]["drafters"] == []
    assert rows["zoo/both-GGUF:Q8_0"]["drafters"][0] == head
    assert f"drafter         dflash {head}, found with the target" not in shell("ls").out
    shown = shell("show", "zoo/both-GGUF").out
    assert "dflash" in shown and "found with the target" in shown
    assert "DFlash head" in shell("show", head).out
    environment = {
        "_LOCALSPEC_COMPLETE": "zsh_complete",
        "COMP_WORDS": "localspec generate --draft zoo/both",
        "COMP_CWORD": "3",
    }
    assert head in shell("generate", **environment).out
