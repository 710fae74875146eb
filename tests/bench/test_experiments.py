"""The measuring scripts run and measure the real thing."""

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.eagle3 import write_head, write_target
from fakes.pycode import PYCODE
from fakes.served import serving

from localspec.bench import experiments
from localspec.bench.experiments.first_text import speeds
from localspec.bench.experiments.simulated_drafter import COSTS


def printed(module: str, *options: str | Path) -> list[list[str]]:
    run = subprocess.run(
        [sys.executable, "-m", f"localspec.bench.experiments.{module}", *map(str, options)],
        check=True,
        capture_output=True,
        text=True,
    )
    return [line.split() for line in run.stdout.splitlines()]


FILES = Path(next(iter(experiments.__path__))).glob("*.py")
NAMES = sorted(file.stem for file in FILES if "def main(" in file.read_text(encoding="utf-8"))


HELP = """
import runpy, sys
for name in sys.argv[1:]:
    sys.argv = [name, "--help"]
    try:
        runpy.run_module(name, run_name="__main__")
    except SystemExit as ended:
        assert not ended.code, name
"""


def test_no_experiment_is_forgotten() -> None:
    assert len(NAMES) == 19


def test_help_says_how_an_experiment_is_run() -> None:
    """All in one process, as what they import takes longer than they do."""
    modules = [f"localspec.bench.experiments.{name}" for name in NAMES]
    run = subprocess.run(
        [sys.executable, "-c", HELP, *modules], check=True, capture_output=True, text=True
    )
    helps = run.stdout.split("usage: ")[1:]
    assert [each.split()[:3] for each in helps] == [["python", "-m", name] for name in modules]


def test_how_often_a_draft_model_is_right_behind_the_end_of_a_prompt(tmp_path: Path) -> None:
    """The drafter is the target, so it is right wherever it has read all."""
    file = tmp_path / "file.py"
    file.write_text("def value(items):\n    return [item + 1 for item in items]\n\n\n" * 9)
    few = [
        "--prompt",
        "130",
        "--ends",
        "16",
        "--tokens",
        "8",
        "--temperatures",
        "0",
        "--threads",
        "1",
    ]
    models = ["--model", PYCODE.target, "--draft", PYCODE.target]
    heading, end, whole = printed("prompt_ends", *models, *few, "--", file)
    assert heading == ["temperature", "read", "right"]
    assert end[:2] == ["0.0", "16"] and 0 < float(end[2]) <= 1
    assert whole == ["0.0", "all", "1.000"]
    file.write_text("x = 1")
    with pytest.raises(subprocess.CalledProcessError) as error:
        printed("prompt_ends", *models, *few, "--", file)
    assert "it has less than twice --ends 16 tokens to read" in error.value.stderr


@pytest.mark.slow
def test_rules_side_by_side_with_their_prediction() -> None:
    few = ["--tokens", "4", "--depth", "1", "--seeds", "1", "--prompts", "2"]
    lines = printed("rules", *few)
    found = {tuple(line[1:3]) for line in lines if len(line) > 4}
    rules = ("coupled", "token", "block")
    assert {(drafter, rule) for drafter in ("model", "lookup") for rule in rules} <= found
    assert ("model", "match") in found


def test_drafters_of_any_kind_beside_each_other(tmp_path: Path) -> None:
    target, head = write_target(tmp_path / "target.gguf"), write_head(tmp_path / "head.gguf")
    files = ["--model", target, "--draft", head, "--draft", "suffix", "--threads", "1"]
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("abc def", encoding="utf-8")
    few = ["--file", prompts, "--tokens", "16", "--depth", "2", "--rounds", "1"]
    _title, _more, _header, *rows = printed("drafters", *files, *few)
    found = {(line[0], line[1]): line for line in rows if line[2] != "match"}
    matched = {line[0]: line for line in rows if line[2] == "match"}
    assert found.keys() == {(t, name) for t in ("0.0", "0.7", "1.0") for name in ("head", "suffix")}
    assert matched.keys() == {"0.0", "0.7", "1.0"}
    # At temperature 0 the most probable tokens are the coupled ones.
    assert matched["0.0"][3:6] == found["0.0", "head"][2:5]
    assert all(float(line[-1].rstrip(")")) > 0 for line in found.values())


@pytest.mark.slow
def test_host_time_covers_every_budget() -> None:
    _title, _header, *rows = printed(
        "host_time", "--vocabulary", "4096", "--depth", "4", "--users", "2", "--steps", "6"
    )
    assert len(rows) == 12
    assert all(float(cell) > 0 for row in rows for cell in row[-3:])


def test_several_texts_share_decodes_and_are_what_they_are_alone() -> None:
    lines = printed(
        "several_texts", "--model", PYCODE.target, "--tokens", "12", "--rounds", "2", "--texts", "3"
    )
    rounds = [line for line in lines if len(line) == 4 and line[0] != "by"]
    assert len(rounds) == 4
    for before, after, ratio, _share in rounds:
        assert float(after) / float(before) == pytest.approx(float(ratio), rel=0.01, abs=0.006)
    ends = [line for line in lines if line[0] == "median"]
    assert len(ends) == 2
    for words in ends:
        assert words[words.index("by") - 1] == "0", words


@pytest.mark.slow
def test_a_server_under_load() -> None:
    with serving("--threads", "1", "--parallel", "3", "--ctx", "512") as served:
        few = ["--clients", "3", "--minutes", "0.02", "--rounds", "1", "--vanish", "6"]
        lines = [" ".join(line) for line in printed("server_load", served.url, *few)]
    assert len([line for line in lines if line.count(" ") == 3 and line[0].isdigit()]) == 7
    assert any(line.startswith("texts: ") and line.endswith(" 0 errors") for line in lines)
    [fair] = [line for line in lines if line.startswith("fairness")]
    assert 0 < float(fair.split()[-1]) <= 1
    assert any("vanished" in line for line in lines)
    assert any(line.startswith("all slots free after") for line in lines)


@pytest.mark.parametrize("url", ["http://example.org:80", "127.0.0.1", "file:///etc"])
def test_a_load_is_for_servers_of_this_machine(url: str) -> None:
    module = "localspec.bench.experiments.server_load"
    run = subprocess.run([sys.executable, "-m", module, url], capture_output=True, text=True)
    assert run.returncode == 1
    assert f"url is {url!r}; it must be that of a server on this machine" in run.stderr


def test_plain_decoding_is_held_against_the_library_s_own_loop() -> None:
    for temperature in ("0", "0.8"):
        options = ["--tokens", "8", "--rounds", "3", "--threads", "1", "--temperature", temperature]
        header, *rounds, last = printed("plain_loop", *options)
        assert len(rounds) == 3 and header == ["localspec", "library", "ratio"]
        ratios = sorted(float(ours) / float(theirs) for ours, theirs, _ratio in rounds)
        assert float(last[-1]) == pytest.approx(ratios[1], abs=0.02)


@pytest.mark.slow
def test_cold_texts_beside_warm_ones() -> None:
    files = ["--model", PYCODE.target, "--draft", PYCODE.drafter, "--threads", "1"]
    _header, *rows, last = printed(
        "cold_and_warm", *files, "--texts", "2", "--tokens", "8", "--rounds", "2"
    )
    assert [row[:2] for row in rows] == [["1", "1"], ["1", "2"], ["2", "1"], ["2", "2"]]
    assert all(float(cold) > 0 and float(warm) > 0 for _, _, cold, warm, _ in rows)
    assert last[:4] == ["cold", "/", "warm:", "mean"]


@pytest.mark.slow
def test_the_first_text_beside_later_ones() -> None:
    few = ["--tokens", "24", "--texts", "2", "--costs", "F16 A"]
    _header, *rows = printed("first_text", *few)
    assert len(rows) == 18
    for row in rows:
        new, cold, warm, ratio, misled = map(float, row[-5:])
        assert min(new, cold, warm, misled) > 0.5
        assert ratio == pytest.approx(cold / warm, abs=0.03)
    useless, good = rows[0], rows[-3]
    assert float(useless[-3]) <= 1 < float(good[-3])


def test_the_next_run_knows_what_a_wrong_profile_hides() -> None:
    """The profile says that rows cost three times what they do, and earlier texts found it out."""
    found = speeds(COSTS["Q4_0 A"], 0.7, 96, texts=6, error=3.0)
    assert 1.04 * found.new < found.cold
    assert found.cold > 0.95 * found.warm


@pytest.mark.slow
def test_nobody_is_faster_than_the_clairvoyant() -> None:
    files = ["--model", PYCODE.target, "--draft", PYCODE.drafter, "--threads", "1"]
    lines = printed("left_to_gain", *files, "--tokens", "24", "--sets", "code", "--costs", "F16 A")
    split = lines.index([])
    rates, rows = lines[1:split], lines[split + 2 :]
    assert len(rates) == 5 and len(rows) == 2
    for *_, best, clairvoyant, share in rates:
        assert 1 <= float(best) < float(clairvoyant)
        assert float(share) == pytest.approx(float(best) / float(clairvoyant), abs=0.01)
    for row in rows:
        assert row[:1] == ["code"] and row[2:4] == ["F16", "A"]
        auto, fixed, clairvoyant, share = (float(row[i]) for i in (4, 5, 8, 9))
        assert max(auto, fixed) <= clairvoyant + 0.01
        assert share == pytest.approx(auto / clairvoyant, abs=0.01)
        lost = sum(float(each.rstrip("%")) for each in row[10:])
        assert lost == pytest.approx(100 * (1 - share), abs=1)


def two_versions(folder: Path) -> tuple[Path, Path]:
    before, after = folder / "before", folder / "after"
    for version, name in ((before, "total"), (after, "amount")):
        version.mkdir()
        for file in ("a", "b"):
            lines = [f"    {name} = {name} + {file}[{each}] * {each}" for each in range(60)]
            text = "\n".join([f"def {file}({name}):", *lines])
            (version / f"{file}.py").write_text(text, encoding="utf-8")
    return before, after


@pytest.mark.slow
def test_copies_behind_differences_gain_in_edits(tmp_path: Path) -> None:
    before, after = two_versions(tmp_path)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("def f(x):\n---\nimport os\n---\nclass A:\n---\nx = 1", encoding="utf-8")
    files = ["--model", PYCODE.target, "--draft", PYCODE.drafter, "--file", prompts]
    few = ["--texts", "2", "--earlier", "2", "--chats", "2", "--tokens", "10", "--threads", "1"]
    few += ["--slots", "2"]
    sets = ["--set", "rename", "records", "code", "--versions", before, after]
    header, *rows = printed("copies", *files, *few, *sets, "--costs", "GPU")
    assert header[:4] == ["texts", "number", "tokens", "costs"]
    titles = [" ".join(row[: row.index("GPU") - 2]) for row in rows]
    chats = [
        f"{what} at {temperature}, {names}"
        for temperature in (0.0, 0.8)
        for names in ("suffix", "suffix,model")
        for what in ("chats", "drawn, chats", "drawn, runs", "2 slots", "drawn, 2 slots")
        if temperature or not what.startswith("drawn")
    ]
    written = ["edit: rename", "edit: records", "code at 0.0", "code at 0.8", "versions"]
    assert titles == [*written, *chats]
    gains = {title: float(row[-3].rstrip("%")) for title, row in zip(titles, rows, strict=True)}
    assert gains["edit: rename"] > 0
    assert all(float(cell) > 0 for row in rows for cell in row[-5:-3])


@pytest.mark.slow
def test_a_file_to_copy_from_gains_where_it_was_edited_and_costs_nothing_elsewhere(
    tmp_path: Path,
) -> None:
    few = ["--set", "constants", "records", "--texts", "2", "--costs", "GPU", "--threads", "1"]
    versions = ["--versions", *two_versions(tmp_path)]
    header, *rows = printed("file_copies", "--model", PYCODE.target, *few, *versions)
    assert header[:4] == ["texts", "number", "tokens", "costs"]
    titles = [" ".join(row[: row.index("GPU") - 2]) for row in rows]
    ways = ("edited file", "another file", "another kind", "predicted", "in the prompt")
    kinds = ("constants", "records", "versions")
    assert titles == [f"{kind}, {way}" for kind in kinds for way in ways]
    gains = {title: float(row[-3].rstrip("%")) for title, row in zip(titles, rows, strict=True)}
    for kind in kinds:
        assert gains[f"{kind}, edited file"] > 45, kind
        assert gains[f"{kind}, in the prompt"] > 50, kind
        assert gains[f"{kind}, predicted"] > 45, kind
        assert abs(gains[f"{kind}, another kind"]) < 1, kind
