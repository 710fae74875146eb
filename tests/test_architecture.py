"""docs/architecture.md shows the folders and files that exist; the public names are all there."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from inspect import signature
from pathlib import Path

import grimp

import localspec
from localspec.generation_config import GenerationOptions
from localspec.utils.option_names import option, typed_options

ROOT = Path(__file__).parents[1]


PACKAGES = ("localspec", "tui")


def drawn() -> set[str]:
    """The packages in the tree of the architecture page, as paths."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.split("## The packages")[1].split("```")[1]
    paths, rooms = set(), [""]
    for line in tree.splitlines()[1:]:
        depth, name = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        rooms[depth:] = [name]
        paths.add("".join(rooms))
    return paths


def modules() -> dict[str, Path]:
    """All modules by their paths."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path for path in found}


def test_the_tree_shows_the_folders() -> None:
    assert drawn() == {path.rpartition("/")[0] + "/" for path in modules()}


def test_every_file_the_page_names_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    room = ""
    for line in page.split("## The packages")[1].split("```")[1].splitlines()[1:]:
        depth = (len(line) - len(line.lstrip())) // 2
        room = "/".join([*room.split("/")[:depth], line.split()[0].rstrip("/")])
        for name in re.findall(r"\b\w+\.py\b", line):
            assert (ROOT / room / name).exists(), f"{room}/{name}"
    paths = re.findall(r"`([\w/]+/[\w/]*\.(?:py|toml)|[\w/]+/)`", page)
    assert len(paths) > 12
    for path in paths:
        assert (ROOT / path).exists() or (ROOT / "localspec" / path).exists(), path


def test_no_module_lies_beside_the_rooms_but_these() -> None:
    loose = {path for path in modules() if path.count("/") == 1 and path.startswith("localspec/")}
    names = ("__init__", "__main__", "errors", "generation_config", "stats")
    assert loose == {f"localspec/{name}.py" for name in names}


def test_no_file_has_more_than_400_lines() -> None:
    sizes = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    assert {name: size for name, size in sizes.items() if size > 400} == {}


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("localspec", "localspec_tui", exclude_type_checking_imports=True)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert [*TopologicalSorter(imports).static_order()]


def test_public_names() -> None:
    assert sorted(localspec.__all__) == localspec.__all__
    assert set(localspec._HOMES) == set(localspec.__all__)
    for name in localspec.__all__:
        assert getattr(localspec, name).__name__ == name


# What a program imports; the others are for people at a terminal.
FOR_PROGRAMS = (
    "adapters", "control", "conversation", "drafters", "engine", "gguf", "hub", "llama", "loading",
    "memory", "models", "sampling", "speculation",
)  # fmt: skip


def messages(path: Path) -> set[str]:
    """The strings of a module but its docstrings."""
    tree = ast.parse(path.read_text())
    docs = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    texts = (each for each in ast.walk(tree) if isinstance(each, ast.Constant))
    return {each.value for each in texts if isinstance(each.value, str) and id(each) not in docs}


def test_messages_of_rooms_for_programs_leave_the_names_of_options_to_one_place() -> None:
    """See utils/option_names.py."""
    parameters = {*signature(localspec.load).parameters, *GenerationOptions.__annotations__}
    with typed_options():
        named = {option(each) for each in parameters - {"drafter"}} | {"--raw"}  # pull --drafter
    for name, path in modules().items():
        if name.removeprefix("localspec/").partition("/")[0] in FOR_PROGRAMS:
            for message in messages(path):
                assert not named & {*re.findall(r"(?<![\w-])--[a-z-]+", message)}, (name, message)


PURE = [
    "localspec.drafters.draft_model",
    "localspec.drafters.ngram",
    "localspec.drafters.prompt_lookup",
    "localspec.drafters.suffix",
    "localspec.drafters.suffix_store",
    "localspec.gguf.check",
    "localspec.sampling.sampler",
    "localspec.generation_config",
    "localspec.control.adaptive",
    "localspec.speculation.decoder",
]


def test_the_pure_rooms_run_without_llama_cpp() -> None:
    code = f"""
import sys
sys.modules["llama_cpp"] = None
for name in {PURE!r}:
    __import__(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_localspec_costs_nothing() -> None:
    code = "import localspec, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert not {"numpy", "llama_cpp", "jinja2", "click"} & {*loaded}
