"""A program that prints what llama.cpp's llama-speculative-simple prints, for tests of `bench`.

It writes no text: its times follow from its draft type.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

TYPES = "none,draft-simple,draft-eagle3,ngram-simple,ngram-mod"
VERSION = "0.5.0-dev (build 1, commit 0c1e570)"
_PROGRAM = """#!{python} -S
import json, os, sys

if "--help" in sys.argv:
    print("--color [on|off|auto]   Colorize output")
    print("--spec-type {types}\\n    types; there is no --port")
    sys.exit()
if "--version" in sys.argv:
    print("version: {version}\\nbuilt with GNU", file=sys.stderr)
    sys.exit()
flags = ("--ignore-eos", "--no-escape", "--no-repack")
words = [word for word in sys.argv[1:] if word not in flags]
given = dict(zip(words[::2], words[1::2], strict=True))
prompt = open(given["--file"], encoding="utf-8", newline="").read()
record = {{"argv": sys.argv[1:], "given": given, "prompt": prompt, "pid": os.getpid()}}
record["variables"] = [name for name in os.environ if name.startswith("LLAMA_")]
with open({log!r}, "a") as file:
    print(json.dumps(record), file=file)
kind = given["--spec-type"]
if {fails!r} in ("start", kind):
    sys.exit("error: failed to load the draft model")
read, tokens = {counts!r}[prompt[:-1]], int(given["--predict"]) + 1
if {fails!r} == "tokens":
    read += 1
print("decoded 1 tokens in 9.000 seconds, as a text may say")
print(f"0.00.001.000 I encoded {{read:4d}} tokens in    0.250 seconds, speed: 1.000 t/s")
if {fails!r} == "end":
    sys.exit()
seconds = {seconds!r}.get(kind, 1.0)
written = f"{{tokens + 31:4d}} tokens in {{seconds:8.3f}} seconds"
print(f"0.00.001.000 I decoded {{written}}, speed: 1.000 t/s")
print(f"n_drafted = {{2 * tokens}}\\nn_accept  = {{tokens}}\\naccept    = 50.000%")
"""


def write_llama_tool(
    folder: Path,
    counts: Mapping[str, int],
    *,
    fails: str = "",
    seconds: Mapping[str, float] | None = None,
    version: str = VERSION,
) -> Path:
    """Write the program; it appends what it was asked to `FOLDER/log`, a JSON object per line.

    counts: the tokens of each prompt. fails: "start", "tokens" (it reads others), "end" (it prints
    no end), or the draft type with which it fails. seconds: of a text, by draft type; each is 31
    tokens too long, as after a long draft.
    """
    program = folder / "speculative"
    text = _PROGRAM.format(
        python=sys.executable,
        types=TYPES,
        version=version,
        log=str(folder / "log"),
        fails=fails,
        counts=dict(counts),
        seconds=dict(seconds or {}),
    )
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return program
