"""README and docs cannot drift: their Python runs, what they name exists."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from fakes.tiny import tiny_model
from platformdirs.api import PlatformDirsABC
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from localspec.cli.main import localspec

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in FILES}
README = PAGES["README.md"]
PYTHON = [
    code for page in PAGES.values() for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
]
# Options of other programs in the README: of pip, pipx and uv.
FOREIGN = {"--force-reinstall", "--no-cache-dir", "--no-cache", "--force", "--reinstall"}
FOREIGN |= {"--extra-index-url", "--index", "--chat-template-file"}
# Of converters, ours and llama.cpp's.
FOREIGN |= {"--targets-output", "--target-model-dir", "--outtype"}
ALIASES = {"run": "generate"}
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def options_of(name: str) -> set[str]:
    """All spellings of a command's options."""
    # With a prompt, `run` is `generate`.
    command = localspec.get_command(click.Context(localspec), ALIASES.get(name, name))
    assert command is not None, f"there is no command {name!r}"
    spellings = [each for every in command.params for each in (*every.opts, *every.secondary_opts)]
    return {"-h", "--help", *spellings}


def code_in(page: str) -> list[str]:
    """The spans of code in running text, and the lines of blocks, without their comments."""
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", page, re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    return [*spans, *(line.partition("  #")[0] for block in blocks for line in block.splitlines())]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the models that examples name."""
    for name in ("model.gguf", "small.gguf"):
        shutil.copy(tiny_model("llama"), tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("code", PYTHON)
def test_its_python_runs(code: str, folder: Path) -> None:
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


@pytest.mark.parametrize("page", PAGES)
def test_its_commands_take_the_options_it_gives_them(page: str) -> None:
    for code in code_in(PAGES[page]):
        for name, arguments in re.findall(r"(?:^|\s|/)localspec ([a-z]+)\b([^|]*)", code):
            given = OPTION.findall(re.sub(r'"[^"]*"', "", arguments))
            assert {*given} <= options_of(name), code


@pytest.mark.parametrize("page", PAGES)
def test_every_option_it_names_exists(page: str) -> None:
    known = FOREIGN.union(*map(options_of, localspec.list_commands(click.Context(localspec))))
    for code in code_in(PAGES[page]):
        if code.startswith("--"):
            assert {*OPTION.findall(code)} <= known, code


def test_its_table_names_options_of_generate() -> None:
    table = README.split("| option of `localspec generate` |")[1].split("\n\n")[0]
    named = {*OPTION.findall(" ".join(re.findall(r"`([^`]+)`", table)))}
    assert len(named) > 12
    assert named <= options_of("generate")


@pytest.mark.parametrize("page", PAGES)
def test_every_module_it_runs_exists(page: str) -> None:
    modules = re.findall(r"python -m (localspec[\w.]*)", PAGES[page])
    assert [name for name in modules if find_spec(name) is None] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    for link in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if not link.startswith("http"):
            path, _, heading = link.partition("#")
            target = folder / path if path else ROOT / page
            assert target.exists(), link
            assert not heading or heading in headings(target), link


def headings(file: Path) -> set[str]:
    """The headings of a page as links name them."""
    lines = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


def test_it_says_how_many_targets_are_listed_and_for_which_machines() -> None:
    pairs = tomllib.loads((ROOT / "models.toml").read_text(encoding="utf-8"))["pairs"].values()
    listed = [each for each in pairs if not each["target"].startswith("bundled:")]
    # "for 16 GB", "on 8 to 16 GB"; what a drafter adds is no whole number.
    memory = [int(n) for each in listed for n in re.findall(r"(?<![.\d])(\d+) GB", each["note"])]
    said = f"lists {len(listed)} targets, for machines with {min(memory)} to {max(memory)} GB,"
    assert said in README


def test_two_commands_and_the_second_is_the_one_ci_runs() -> None:
    commands = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert len(commands) == 2
    assert commands[1].endswith("pytest -n auto")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "python3 -m venv .*pytest" in ci


@pytest.mark.parametrize("system", [Unix, MacOS])
def test_what_to_delete_when_uninstalling(
    system: type[PlatformDirsABC], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    folders = system("localspec", appauthor=False)
    own = [folders.user_config_path, folders.user_data_path, folders.user_cache_path]
    for folder in own:
        assert f"`~/{folder.relative_to(Path.home()).as_posix()}`" in README
    if system is Unix:
        names = (f"~/{folder.relative_to(Path.home()).as_posix()}" for folder in own)
        assert f"rm -r {' '.join(names)}\n" in README
