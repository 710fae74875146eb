"""Models of other tools at the terminal: `ls --others`, `pull --from`, and their use."""

import json
from pathlib import Path

import pytest
from fakes import mtp
from fakes.command_line import Done, localspec, own_folders
from fakes.eagle3 import write_head, write_target
from fakes.hub import Hub
from fakes.hub_disk import write_split
from fakes.hub_repo import Repo
from fakes.other_tools import OllamaStore, fill
from fakes.projectors import picture, tiny_projector
from fakes.tiny import tiny_model

from localspec.models.registry import bundled

TARGET = bundled().target


class Machine:
    """A home with other tools, and localspec in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "other tools"
        self.ollama = OllamaStore(self.home / ".ollama" / "models")
        self.studio = self.home / ".lmstudio" / "models"
        self.studio.mkdir(parents=True)
        cache = {
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "OLLAMA_MODELS": "",
            "LLAMA_CACHE": "",
        }
        self.environment = own_folders(folder) | cache | {"HOME": str(self.home)}

    def __call__(self, *arguments: str, **environment: str) -> Done:
        return localspec(*arguments, **self.environment, **environment)

    def record(self, *arguments: str) -> dict[str, dict[str, object]]:
        """The models that a command lists as JSON, by their names."""
        done = self(*arguments, "--json")
        assert done.code == 0, done.err
        return {each["name"]: each for each in json.loads(done.out)["models"]}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.slow
def test_what_others_have_is_listed_imported_and_used(machine: Machine) -> None:
    machine.ollama.add("owl:9m", {"model": TARGET, "projector": b"p"}, quant="Q8_0")
    listed = machine("ls", "--others")
    assert listed.code == 0, listed.err
    header, *rows = listed.out.splitlines()
    assert header.split() == ["name", "size", "tool", "what", "it", "is"]
    assert rows[0].split() == ["ollama:owl:9m", "9.3", "MB", "ollama", "model"]
    assert rows[1].endswith("left out: it is an image or audio encoder, not a model")
    assert "1 model can be used here without a copy" in listed.err

    tried = machine("pull", "--from", "ollama", "--dry-run")
    assert tried.code == 0 and not tried.out and "would be linked" in tried.err
    assert "ollama:owl:9m" not in machine.record("ls")

    pulled = machine("pull", "--from", "ollama")
    assert pulled.code == 0, pulled.err
    link = Path(pulled.out.strip())
    assert link.is_symlink() and link.resolve().parent == machine.ollama.folder / "blobs"
    assert "ollama:owl:9m:mmproj.gguf is left out: it is an image" in pulled.err
    assert 'next: localspec generate -m ollama:owl:9m "..."' in pulled.err
    assert machine.record("ls", "--others")["ollama:owl:9m"]["imported"]
    entry = machine.record("ls")["ollama:owl:9m"]
    assert entry["size"] == TARGET.stat().st_size and entry["quant"] == "Q8_0"

    options = ("-n", "8", "--seed", "1", "--threads", "1", "--ctx", "256")
    text = machine("generate", "-m", "ollama:owl:9m", "list files", *options)
    same = machine("generate", "-m", str(TARGET), "list files", *options)
    assert text.code == 0 and text.out == same.out
    pair = machine("pair", "ollama:owl:9m", str(bundled().drafter), "--json")
    assert json.loads(pair.out)["fits"]


@pytest.mark.slow
def test_a_drafter_beside_a_target_comes_with_it_and_drafts(
    machine: Machine, tmp_path: Path
) -> None:
    files = {
        "owl-Q8_0.gguf": write_target(tmp_path / "owl.gguf"),
        "eagle3-owl-Q8_0.gguf": write_head(tmp_path / "head.gguf"),
        "eagle3-owl-BF16.gguf": b"",
    }
    fill(machine.studio / "zoo" / "owl-GGUF", files)
    fill(machine.studio / "zoo" / "whole-GGUF", {"whole.gguf": mtp.write_target(tmp_path / "w")})
    kinds = {name: each["kind"] for name, each in machine.record("ls", "--others").items()}
    head = "lmstudio:zoo/owl-GGUF:eagle3-owl-Q8_0.gguf"
    assert kinds == {
        "lmstudio:zoo/owl-GGUF:Q8_0": "model",
        "lmstudio:zoo/owl-GGUF:eagle3-owl-BF16.gguf": None,
        head: "eagle3",
        "lmstudio:zoo/whole-GGUF:whole.gguf": "model with mtp heads",
    }
    done = machine("pull", "zoo/owl-GGUF:q8_0", "--from", "lmstudio")
    assert done.code == 0, done.err
    assert [Path(line).name for line in done.out.splitlines()] == [
        "owl-Q8_0.gguf",
        "eagle3-owl-Q8_0.gguf",
    ]
    assert "eagle3-owl-BF16.gguf is left out: it is empty" in done.err
    assert head in machine.record("ls")["lmstudio:zoo/owl-GGUF:Q8_0"]["drafters"]  # type: ignore[operator]
    text = machine(
        *("generate", "-m", "zoo/owl-GGUF", "ab", "-n", "8", "--seed", "1", "--threads", "1"),
        *("--ctx", "256", "--json"),
    )
    assert text.code == 0, text.err
    assert json.loads(text.out)["model"]["drafter"].endswith("eagle3-owl-Q8_0.gguf")


@pytest.mark.slow
def test_pull_fetches_only_what_was_not_imported(machine: Machine, tmp_path: Path) -> None:
    target, head = write_target(tmp_path / "owl.gguf"), write_head(tmp_path / "head.gguf")
    repo = Repo({"owl-Q8_0.gguf": target, "eagle3-owl-Q8_0.gguf": head})
    with Hub({"zoo/owl-GGUF": repo}) as hub:
        machine.environment |= {"HF_ENDPOINT": hub.endpoint}
        fill(machine.studio, {"zoo/owl-GGUF/owl-Q8_0.gguf": target})
        assert machine("pull", "--from", "lmstudio").code == 0
        pulled = machine("pull", "zoo/owl-GGUF")
        assert pulled.code == 0, pulled.err
        here, fetched = map(Path, pulled.out.splitlines())
        assert here.resolve().is_relative_to(machine.studio) and fetched.name.startswith("eagle3")
        assert hub.sent == head.stat().st_size
        # Another content of that name is fetched.
        (machine.studio / "zoo/owl-GGUF/owl-Q8_0.gguf").write_bytes(target.read_bytes()[:-1])
        again = machine("pull", "zoo/owl-GGUF", "--drafter", "none")
        assert Path(again.out.strip()).is_relative_to(tmp_path / "hub")
        assert hub.sent == head.stat().st_size + target.stat().st_size


@pytest.mark.slow
def test_a_pair_of_an_imported_target_is_known(machine: Machine, tmp_path: Path) -> None:
    target, head = write_target(tmp_path / "owl.gguf"), write_head(tmp_path / "head.gguf")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models.toml").write_text(
        '[pairs.owl]\ntarget = "zoo/owl-GGUF"\n'
        '[[pairs.owl.drafters]]\nkind = "eagle3"\nfile = "zoo/heads-GGUF:head.gguf"\n'
    )
    machine.ollama.add("hf.co/zoo/owl-GGUF:Q8_0", {"model": target})
    assert machine("pull", "--from", "ollama").code == 0
    with Hub({"zoo/heads-GGUF": Repo({"head.gguf": head})}) as hub:
        pulled = machine(
            "pull", "ollama:hf.co/zoo/owl-GGUF:Q8_0", "--json", HF_ENDPOINT=hub.endpoint
        )
    assert pulled.code == 0, pulled.err
    models = json.loads(pulled.out)["models"]
    assert [(each["role"], each["repository"]) for each in models] == [
        ("target", None),
        ("drafter", "zoo/heads-GGUF"),
    ]
    text = machine("generate", "-m", "owl", "ab", "-n", "8", "--threads", "1", "--json")
    assert text.code == 0, text.err
    assert json.loads(text.out)["model"]["drafter"].endswith("head.gguf")


@pytest.mark.slow
def test_a_file_that_vanishes_is_one_line_and_ls_goes_on(machine: Machine) -> None:
    machine.ollama.add("owl:9m", {"model": TARGET})
    fill(machine.studio, {"zoo/owl-GGUF/owl-Q8_0.gguf": TARGET})
    for source in ("ollama", "lmstudio"):
        assert machine("pull", "--from", source).code == 0
    for blob in (machine.ollama.folder / "blobs").iterdir():
        blob.unlink()
    listed = machine("ls")
    assert listed.code == 0 and "lmstudio:zoo/owl-GGUF:Q8_0" in listed.out
    [said] = [line for line in listed.lines if "is gone" in line]
    assert "ollama:owl:9m" in said and "localspec rm ollama:owl:9m" in said
    gone = machine("generate", "-m", "ollama:owl:9m", "x")
    assert gone.code == 3 and "its file is gone" in gone.err and len(gone.lines) == 1
    asked = machine("ls", "--others")
    assert asked.code == 0 and "ollama pull owl:9m fetches it again" in asked.out
    assert machine("rm", "ollama:owl:9m", "--yes").code == 0
    assert "is gone" not in machine("ls").err


def test_rm_deletes_the_link_and_keeps_the_file(machine: Machine) -> None:
    machine.ollama.add("owl:9m", {"model": TARGET})
    machine("pull", "--from", "ollama")
    tried = machine("rm", "ollama:owl:9m", "--dry-run")
    assert tried.code == 0 and "the file itself stays where it is" in tried.out
    assert machine("rm", "ollama:owl:9m").code == 2
    assert machine("rm", "ollama:owl:9m", "--yes").code == 0
    assert "ollama:owl:9m" not in machine.record("ls")
    assert "ollama:owl:9m" in machine.record("ls", "--others")
    again = machine("rm", "ollama:owl:9m", "--yes")
    assert again.code == 3 and "is not imported" in again.err


def test_what_reads_images_for_a_model_comes_with_it(machine: Machine, tmp_path: Path) -> None:
    model, eyes = tiny_model("llama"), tiny_projector("llama")
    machine.ollama.add("owl:9m", {"model": model, "projector": eyes})
    fill(
        machine.studio / "zoo" / "owl-GGUF",
        {"owl-Q8_0.gguf": model, "owl-Q4_0.gguf": model, "mmproj-owl-F16.gguf": eyes},
    )
    listed = machine("ls", "--others").out
    assert "model with mmproj.gguf\n" in listed and "encoder" not in listed
    image = tmp_path / "cat.png"
    image.write_bytes(picture())
    for tool, name, projector in (
        ("ollama", "ollama:owl:9m", "mmproj.gguf"),
        ("lmstudio", "lmstudio:zoo/owl-GGUF:Q8_0", "mmproj-owl-F16.gguf"),
    ):
        pulled = machine("pull", name.partition(":")[2], "--from", tool)
        assert pulled.code == 0 and f"{name}: model with {projector}, " in pulled.err, pulled.err
        link = Path(pulled.out.splitlines()[1])
        assert link.name == projector and link.read_bytes() == eyes.read_bytes()
        assert machine.record("ls")[name]["projector"] == str(link)
        options = ("-n", "2", "--ctx", "256", "--draft", "none", "--image", str(image))
        asked = machine("generate", "-m", name, "hi", *options)
        assert asked.code == 0, asked.err
        assert machine("rm", "--yes", name).code == 0
        assert not link.is_symlink() and eyes.is_file()


def test_an_ending_in_capitals_is_one(machine: Machine) -> None:
    fill(machine.studio / "zoo" / "owl-GGUF", {"owl-Q8_0.GGUF": TARGET})
    assert machine("pull", "--from", "lmstudio").code == 0
    done = machine(
        "generate", "-m", "lmstudio:zoo/owl-GGUF:Q8_0", "-n", "2", "--draft", "none", "x"
    )
    assert done.code == 0, done.err


def test_what_cannot_be_used_says_why(machine: Machine, tmp_path: Path) -> None:
    machine.ollama.write("owl:bad", "{")
    machine.ollama.add("owl:text", {"model": b"no model at all"})
    fill(machine.studio / "zoo" / "a-GGUF", {"a-Q8_0.gguf": TARGET.read_bytes()[:5000]})
    first, second = write_split(tmp_path / "owl-Q8_0")
    parts = {first.name: first, second.name: second}
    fill(machine.studio / "zoo" / "split-GGUF", {first.name: first, "mmproj-F16.gguf": b"x"})
    fill(machine.studio / "zoo" / "whole-GGUF", parts)
    (machine.studio / "zoo" / "gone-GGUF").mkdir()
    (machine.studio / "zoo" / "gone-GGUF" / "a-Q8_0.gguf").symlink_to(tmp_path / "nowhere.gguf")
    listed = machine("ls", "--others")
    problems = {
        row.split()[0]: row.partition("left out: it ")[2] for row in listed.out.splitlines()
    }
    said = {
        "ollama:owl:bad": "has a broken manifest",
        "ollama:owl:text": "is not a GGUF file",
        "lmstudio:zoo/a-GGUF:Q8_0": "is truncated",
        "lmstudio:zoo/split-GGUF:owl-Q8_0-00001-of-00002.gguf": (
            "lacks owl-Q8_0-00002-of-00002.gguf"
        ),
        "lmstudio:zoo/gone-GGUF:Q8_0": "is a link to a file that is gone; fetch it there again",
        "lmstudio:zoo/split-GGUF:mmproj-F16.gguf": "is an image or audio encoder",
        "lmstudio:zoo/whole-GGUF:Q8_0": "",
    }
    for name, reason in said.items():
        assert reason in problems[name], problems[name]
    none = machine("pull", "--from", "ollama")
    assert none.code == 3 and "nothing of ollama can be imported" in none.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("pull",), 2, "Missing argument 'NAME'"),
        (("pull", "--from", "nowhere"), 3, "there is no folder 'nowhere'"),
        (("pull", "--from", ""), 2, "--from is ''; it takes ollama, lmstudio, llama.cpp or a"),
        (("pull", "--from", "lmstudio"), 3, "has no GGUF models"),
        (("pull", "owl", "--from", "ollama"), 3, "has no model 'owl'; it has ollama:tiny:latest"),
        (("pull", "tiny", "--from", "ollama", "--drafter", "mtp"), 2, "--drafter fetches from"),
        (("generate", "-m", "ollama:owl", "x"), 3, "localspec pull --from ollama imports it"),
        (("show", "folder:a:b"), 3, "localspec pull --from FOLDER (its path) imports it"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_is_one_line(
    machine: Machine, arguments: tuple[str, ...], code: int, said: str
) -> None:
    machine.ollama.add("tiny:latest", {"model": TARGET})
    done = machine(*arguments)
    assert done.code == code and said in done.lines[-1] and not done.out


def test_imported_models_are_completed(machine: Machine) -> None:
    machine.ollama.add("owl:9m", {"model": TARGET})
    machine("pull", "--from", "ollama", "owl:9m")
    machine.environment |= {
        "_LOCALSPEC_COMPLETE": "zsh_complete",
        "COMP_WORDS": "localspec generate -m oll",
        "COMP_CWORD": "3",
    }
    assert "ollama:owl:9m" in machine("generate").out
    machine.environment["COMP_WORDS"] = "localspec pull --from l"
    assert "lmstudio" in machine("pull").out
