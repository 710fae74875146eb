"""Names that name nothing, in every place of the command line that takes one."""

from collections.abc import Callable
from random import Random

from fuzz.command import Command, sound

NAMES = [
    ".", "/", "..", "./", "//", " ", "\t", "-", "~", "~nouser", "~nouser/x.gguf", "~/nothing.gguf",
    "a" * 256, "a" * 300, "a" * 100_000, "a/" * 3000, "/" * 5000, f"a/{'b' * 300}",
    f"{'a' * 300}/b", f"{'a' * 300}.gguf", f"a/b:{'c' * 300}", f"a/b/{'c' * 300}.gguf", "é" * 200,
    "/dev/null", "/dev/full", "/proc/self/mem", "/proc/self/fd/99", "a\x1b[2Jb", "a\nb", "😀" * 90,
    "a:b:c", ":", "a/b:", "/a:b", "pard:", "pard=1:", f"pard={'9' * 400}:x", f"pard:{'a' * 300}",
    ",", "a,,b", "'", '"', "hf://a/b", "https://huggingface.co/a/b", "file:///etc/passwd",
    "../../etc", "*", "[", "%s", "{}", "\\", "C:\\x.gguf", "none,auto", f"none,{'a' * 300}", "nul",
    "a" * 4096, "\udcff\udcfe",
]  # fmt: skip
# Where a name goes; another place in the same command has a second one.
PLACES = [
    ["show", "NAME"], ["show", "--template", "NAME"], ["pair", "NAME"], ["pair", "NAME", "NAME"],
    ["generate", "-m", "NAME", "a"], ["generate", "--draft", "NAME", "-n", "1", "a"],
    ["generate", "--grammar", "NAME", "a"], ["generate", "--schema", "NAME", "a"],
    ["generate", "-m", "NAME", "--draft", "NAME", "a"], ["rm", "--yes", "NAME"],
    ["rm", "NAME", "NAME"], ["pull", "NAME"], ["pull", "--drafter", "NAME", "a/b"],
    ["pull", "--from", "NAME/nothing"], ["pull", "--from", "ollama", "NAME"], ["audit", "NAME"],
    ["audit", "-m", "NAME", "NAME"], ["convert", "NAME", "--target", "NAME"],
    ["convert", "NAME", "--target", "bundled", "-o", "NAME"], ["plan", "-m", "NAME"],
    ["plan", "-m", "NAME", "--prompts", "NAME"], ["bench", "-m", "NAME"],
    ["bench", "--prompts", "NAME"], ["bench", "-m", "NAME", "--html", "NAME"],
    ["config", "set", "model", "NAME"], ["config", "set", "NAME", "1"], ["NAME"],
    ["show", "--NAME"], ["serve", "--api-key-file", "NAME", "-m", "NAME", "--port", "x"],
    ["completion", "NAME"], ["generate", "--kv-type", "NAME", "a"], ["generate", "-n", "NAME", "a"],
]  # fmt: skip


def odd_arguments(number: int) -> list[str]:
    """The arguments of a case: all places, each with a name of NAMES."""
    random = Random(number)
    place = PLACES[number % len(PLACES)]
    return [each.replace("NAME", random.choice(NAMES)) for each in place]


def name_case(command: Command) -> Callable[[int], str]:
    """The case of a number: one line of error, or the help of an option that was hit."""

    def case(number: int) -> str:
        return sound(command(*odd_arguments(number)), codes=(0, 1, 2, 3, 4, 5, 6))

    return case
