"""`localspec ls` at the terminal and in a pipe."""

import json
import os
import re
from pathlib import Path

import pytest
from fakes.command_line import Done, localspec, own_folders
from fakes.hub import Hub
from fakes.hub_disk import HubDisk
from fakes.hub_repo import Repo
from fakes.terminal import on_terminal
from fakes.vocabularies import words, write_model

from localspec.hub.partial_files import record_download
from localspec.models.registry import bundled

REPO = "zoo/tiny-GGUF"


def run(folder: Path, *arguments: str, **environment: str) -> Done:
    """`localspec ls`, with nothing on this machine but what is in the folder."""
    return localspec("ls", *arguments, **{**own_folders(folder), **environment})


def write_pairs(folder: Path, text: str) -> None:
    (folder / "home").mkdir(exist_ok=True)
    (folder / "home" / "models.toml").write_text(text)


@pytest.fixture
def disk(tmp_path: Path) -> HubDisk:
    return HubDisk(tmp_path / "hub")


def test_lines_in_a_pipe(disk: HubDisk, tmp_path: Path) -> None:
    target, drafter = bundled()
    disk.add(REPO, {"tiny-Q8_0.gguf": target, "tiny-Q4_0.gguf": drafter})
    disk.add("zoo/other-GGUF", {"other-Q8_0.gguf": write_model(tmp_path / "o.gguf", words())})
    write_pairs(tmp_path, f'[pairs.mine]\ntarget = "{REPO}:Q8_0"\n')
    done = run(tmp_path, FORCE_COLOR="1")
    assert done.code == 0, done.err
    assert "\x1b" not in done.out
    header, *rows = done.out.splitlines()
    assert header.split("  ")[0] == "name"
    cells = {row.split()[0]: row for row in rows}
    assert [*cells] == ["zoo/other-GGUF:Q8_0", f"{REPO}:Q4_0", "mine", "terminal", drafter.stem]
    # Both drafters are the same file; what is as large as the target cannot draft for it.
    assert re.search(rf"Q8_0 +- +{REPO}:Q4_0, {drafter.stem}$", cells["mine"])
    assert "9.3 MB  Q8_0" in cells["mine"]
    assert cells[f"{REPO}:Q4_0"].endswith("-")
    # Another vocabulary.
    assert cells["zoo/other-GGUF:Q8_0"].endswith("-")
    assert "localspec: 5 models, 2" in done.err and str(disk.folder) in done.err


def test_json_and_what_is_incomplete(
    disk: HubDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = disk.add(REPO, {"tiny-Q8_0.gguf": bundled().target})
    disk.part("zoo/big-GGUF", "b" * 64, 1_200_000, "localspec.incomplete")
    disk.part("zoo/big-GGUF", "a" * 64, 2_000, "12345678.incomplete")
    done = run(tmp_path, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    model = record["models"][0]
    assert model["name"] == f"{REPO}:Q8_0" and model["repository"] == REPO
    assert model["files"] == [str(snapshot / "tiny-Q8_0.gguf")]
    assert model["size"] == bundled().target.stat().st_size
    assert model["drafters"] == [bundled().drafter.stem]
    assert [part["size"] for part in record["incomplete"]] == [2_000, 1_200_000]
    both = sum(path.stat().st_size for path in bundled())
    assert record["size"] == both + model["size"] + 1_202_000
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    record_download("zoo/big-GGUF", "c" * 64, "zoo/big-GGUF:Q8_0", 4_700_000_000)
    disk.part("zoo/big-GGUF", "c" * 64, 1_500_000, "localspec.incomplete")
    said = run(tmp_path).err
    assert (
        "zoo/big-GGUF:Q8_0: incomplete, 1.5 MB of 4.70 GB kept; "
        "localspec pull zoo/big-GGUF:Q8_0 continues it"
    ) in said
    assert "zoo/big-GGUF: incomplete, 1.2 MB kept; localspec pull zoo/big-GGUF continues it" in said
    assert "zoo/big-GGUF: 2.0 kB left by a download that cannot be continued" in said


@pytest.mark.slow
def test_the_last_use_is_when_localspec_loaded_a_model(disk: HubDisk, tmp_path: Path) -> None:
    target, drafter = bundled()
    disk.add(REPO, {"tiny-Q8_0.gguf": target, "tiny-Q4_0.gguf": drafter})
    own = own_folders(tmp_path)
    arguments = ("-m", f"{REPO}:Q8_0", "--draft", f"{REPO}:Q4_0", "-n", "1")
    assert localspec("generate", *arguments, "hi", **own).code == 0
    models = json.loads(run(tmp_path, "--json").out)["models"]
    uses = {each["name"]: each["last_use"] for each in models}
    assert uses[f"{REPO}:Q8_0"] and uses[f"{REPO}:Q4_0"] and uses["terminal"] is None
    rows = {row.split()[0]: row for row in run(tmp_path).out.splitlines()}
    assert "just now" in rows[f"{REPO}:Q8_0"] and "just now" not in rows["terminal"]


def test_what_is_read_once_is_remembered(disk: HubDisk, tmp_path: Path) -> None:
    disk.add(REPO, {"tiny-Q8_0.gguf": bundled().target, "no-Q4_0.gguf": b"no model"})
    first = run(tmp_path)
    assert first.code == 0, first.err
    kept = [*(tmp_path / "home" / "cache" / "summaries").iterdir()]
    assert len(kept) == 4
    for file in kept:
        file.write_text("null")
    # What is remembered is believed: as no model speaks any more, nothing fits anything.
    rows = run(tmp_path).out.splitlines()[1:]
    assert [row.split()[-1] for row in rows] == ["-"] * 4
    for file in kept:
        file.write_text("{damaged")
    assert run(tmp_path).out == first.out


def test_every_pair(disk: HubDisk, tmp_path: Path) -> None:
    disk.add(REPO, {"tiny-Q8_0.gguf": bundled().target})
    write_pairs(
        tmp_path,
        f'[pairs.mine]\ntarget = "{REPO}"\ndrafter = "zoo/none-GGUF"\nnote = "Trying."\n'
        '[pairs.none]\ntarget = "zoo/none-GGUF"\nsizes = { Q8_0 = 9.5 }\n'
        '[pairs.huge]\ntarget = "zoo/huge-GGUF"\nsizes = { Q8_0 = 900000 }\n'
        '[pairs.unknown]\ntarget = "zoo/unknown-GGUF"\n',
    )
    done = run(tmp_path, "--all")
    assert done.code == 0, done.err
    rows = {row.split()[0]: row for row in done.out.splitlines()}
    assert "target only" in rows["mine"] and rows["mine"].endswith("Trying.")
    assert rows["none"].split()[1:4] == ["no", "9.50", "GB"]
    assert rows["terminal"].split()[1:5] == ["yes", "12.1", "MB", "yes"]
    assert rows["huge"].split()[4] == "no" and rows["unknown"].split()[1:4] == ["no", "-", "-"]
    assert "memory that are free; tight: without the drafter" in done.err
    record = json.loads(run(tmp_path, "--all", "--json").out)
    [mine] = [pair for pair in record["pairs"] if pair["name"] == "mine"]
    assert mine["drafter"] == "zoo/none-GGUF" and mine["files"]["drafter"] is None
    assert mine["files"]["target"].endswith("tiny-Q8_0.gguf")
    fits = {pair["name"]: (pair["fits"], pair["needed"]) for pair in record["pairs"]}
    assert mine["fits"] == "yes" and mine["needed"] > bundled().target.stat().st_size
    assert fits["huge"][0] == "no" and fits["huge"][1] > 9e14 and fits["unknown"] == (None, None)


@pytest.fixture
def own_pairs_only(tmp_path: Path) -> None:
    """In place of every curated pair, one that needs no Hub: only the user's are asked about."""
    listed = json.loads(run(tmp_path, "--all", "--json").out)["pairs"]
    target = bundled().target
    write_pairs(
        tmp_path, "".join(f'[pairs."{each["name"]}"]\ntarget = "{target}"\n' for each in listed)
    )


@pytest.mark.slow
@pytest.mark.usefixtures("own_pairs_only")
def test_whether_the_hub_has_them(disk: HubDisk, tmp_path: Path) -> None:
    pairs = tmp_path / "home" / "models.toml"
    with pairs.open("a") as file:
        file.write(f'[pairs.mine]\ntarget = "{REPO}"\ndrafter = "zoo/drafter-GGUF"\n')
    repos = {REPO: Repo({"tiny-Q8_0.gguf": bundled().target})}
    with Hub(repos) as hub:
        hub.faults.statuses["hub"], hub.faults.retry_after = [429], 1
        missing = run(tmp_path, "--remote", HF_ENDPOINT=hub.endpoint)
        assert "got too many requests (429); asked again in 1 s" in missing.err
        assert missing.code == 3, missing.err
        good, bad = missing.out.splitlines()[1:]
        assert good.split()[:3] == ["mine", "target", REPO] and good.endswith("ok, 9.3 MB")
        assert "drafter" in bad and "no model zoo/drafter-GGUF" in bad
        assert "1 of 2 models are on the Hub" in missing.err
        hub.repos["zoo/drafter-GGUF"] = Repo({"drafter-Q8_0.gguf": bundled().drafter})
        whole = run(tmp_path, "--remote", "--json", HF_ENDPOINT=hub.endpoint)
        assert whole.code == 0
        entries = json.loads(whole.out)["entries"]
        assert [entry["error"] for entry in entries] == [None, None]
        assert entries[1]["size"] == bundled().drafter.stat().st_size
    assert run(tmp_path, "--remote", HF_ENDPOINT=hub.endpoint).code == 4
    assert run(tmp_path, "--remote", HF_HUB_OFFLINE="1").code == 4


@pytest.mark.skipif(os.name != "posix", reason="POSIX terminals")
def test_a_table_on_a_terminal(tmp_path: Path) -> None:
    env = {**os.environ, **own_folders(tmp_path), "COLUMNS": "120", "TERM": "xterm"}
    code, shown = on_terminal("ls", env=env)
    assert code == 0 and "─" in shown and "terminal-5m-q4_0" in shown
