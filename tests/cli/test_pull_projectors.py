"""`localspec pull` and the file that reads images for a model: fetched, shown, used, deleted."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hub import Hub
from fakes.hub_repo import Repo
from fakes.projectors import picture, tiny_projector
from fakes.tiny import tiny_model

from localspec.utils.format import format_bytes

from .test_pull import Shell, names

EYES, OTHER_EYES = tiny_projector("llama"), tiny_projector("gemma3")
SIZE = EYES.stat().st_size


@pytest.fixture(scope="module")
def target() -> Path:
    return tiny_model("llama")


@pytest.fixture
def hub(target: Path) -> Iterator[Hub]:
    layouts: dict[str, dict[str, Path | int]] = {
        "owl": {
            "owl-Q8_0.gguf": target,
            "owl-Q4_K_M.gguf": target,
            "mmproj-F16.gguf": EYES,
            "mmproj-BF16.gguf": OTHER_EYES,
        },
        "deep": {"Q8_0/owl-Q8_0.gguf": target, "mmproj-BF16.gguf": EYES},
        "blind": {"owl-Q8_0.gguf": target, "mmproj-Other-F16.gguf": EYES},
        "empty": {"owl-Q8_0.gguf": target, "mmproj-F16.gguf": 0},
    }
    with Hub({f"zoo/{name}": Repo(files) for name, files in layouts.items()}) as hub:
        yield hub


@pytest.fixture
def shell(tmp_path: Path, hub: Hub) -> Shell:
    return Shell(tmp_path, hub)


def models_in(shell: Shell) -> dict[str, str | None]:
    """The models on this disk, each with the name of its projector."""
    rows = json.loads(shell("ls", "--json").out)["models"]
    return {
        each["name"]: each["projector"] and Path(each["projector"]).name
        for each in rows
        if each["repository"]
    }


def test_it_comes_with_its_model_and_reads_images_offline(shell: Shell, tmp_path: Path) -> None:
    tried = shell.pull("zoo/owl:Q8_0", "--dry-run")
    said = f"projector: mmproj-F16.gguf · F16 · {format_bytes(SIZE)} · zoo/owl · it reads images or"
    assert said in tried.err and "--mmproj none leaves it out" in tried.err
    done = shell.pull("zoo/owl:Q8_0", "--json")
    record = json.loads(done.out)
    own, eyes = record["models"]
    assert (own["role"], eyes["role"], eyes["files"]) == (
        "target",
        "projector",
        ["mmproj-F16.gguf"],
    )
    assert Path(eyes["paths"][0]).read_bytes() == EYES.read_bytes()
    assert record["fetched"] == sum(own["sizes"]) + SIZE
    assert 'next: localspec generate -m zoo/owl:Q8_0 "..."\n' in done.err
    again = shell.pull("zoo/owl:Q8_0", HF_HUB_OFFLINE="1")
    assert names(again) == ["owl-Q8_0.gguf", "mmproj-F16.gguf"]
    image = tmp_path / "cat.png"
    image.write_bytes(picture())
    options = ("-n", "2", "--ctx", "256", "--draft", "none", "--image", str(image), "--json")
    asked = shell("generate", "-m", "zoo/owl:Q8_0", "hi", *options, HF_HUB_OFFLINE="1")
    assert asked.code == 0, asked.err
    prompt = json.loads(asked.out)["recipe"]["prompt_token_ids"]
    assert sum(token < 0 for token in prompt) == 16


@pytest.mark.parametrize(
    ("arguments", "fetched"),
    [
        (("zoo/owl:Q8_0", "--mmproj", "none"), ["owl-Q8_0.gguf"]),
        (("zoo/owl:Q8_0", "--mmproj", "mmproj-BF16.gguf"), ["owl-Q8_0.gguf", "mmproj-BF16.gguf"]),
        (("zoo/owl:Q8_0", "--draft", "none"), ["owl-Q8_0.gguf", "mmproj-F16.gguf"]),
        (("zoo/deep",), ["owl-Q8_0.gguf", "mmproj-BF16.gguf"]),
        (("zoo/blind",), ["owl-Q8_0.gguf"]),
        (("zoo/empty",), ["owl-Q8_0.gguf"]),
    ],
)
def test_which_one_is_fetched(shell: Shell, arguments: tuple[str, ...], fetched: list[str]) -> None:
    done = shell.pull(*arguments)
    assert names(done) == fetched
    [found] = models_in(shell).values()
    assert [found] == (fetched[1:] or [None])
    assert ("mmproj-F16.gguf" in done.err) == (
        arguments == ("zoo/empty",) or found == "mmproj-F16.gguf"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("zoo/owl", "--mmproj", "owl-Q8_0.gguf"),
            "zoo/owl has no mmproj file 'owl-Q8_0.gguf'; it",
        ),
        (("zoo/owl", "--mmproj", "mmproj-Q4.gguf"), "it has mmproj-BF16.gguf, mmproj-F16.gguf"),
        (("zoo/empty", "--mmproj", "mmproj-F16.gguf"), "does not say the size and the hash of mm"),
        (("--from", "ollama", "--mmproj", "none"), "--mmproj is for the Hub"),
    ],
)
def test_what_is_refused(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    done = shell("pull", *arguments)
    assert done.code in (2, 3, 4) and said in done.err, done.err


def test_it_is_listed_shown_and_deleted_with_its_last_model(shell: Shell) -> None:
    shell.pull("zoo/owl:Q8_0")
    shell.pull("zoo/owl:Q4_K_M")
    shell.pull("zoo/deep", "--mmproj", "none")
    assert models_in(shell) == {
        "zoo/deep:Q8_0": None,
        "zoo/owl:Q4_K_M": "mmproj-F16.gguf",
        "zoo/owl:Q8_0": "mmproj-F16.gguf",
    }
    listed = shell("ls").err
    assert (
        f"({format_bytes(SIZE)}) reads images or sounds for zoo/owl:Q4_K_M and zoo/owl:Q8_0\n"
        in listed
    )
    assert "text, images by mmproj-F16.gguf (" in shell("show", "zoo/owl:Q8_0").out
    record = json.loads(shell("show", "zoo/owl:Q8_0", "--json").out)["projector"]
    assert record["images"] and record["memory"] > record["size"] > SIZE // 2
    assert f"takes {format_bytes(record['memory'])} of memory" in shell("show", "zoo/owl:Q8_0").out
    assert "\nreads          text\n" in shell("show", "zoo/deep:Q8_0").out
    assert shell("rm", "--yes", "zoo/owl:Q8_0").code == 0
    assert models_in(shell)["zoo/owl:Q4_K_M"] == "mmproj-F16.gguf"
    last = shell("rm", "--yes", "zoo/owl:Q4_K_M")
    assert "mmproj-F16.gguf, owl-Q4_K_M.gguf" in last.err, last.err
    assert not (shell.cache / "models--zoo--owl").exists()
