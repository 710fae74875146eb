"""Random patterns: what llguidance takes under one is what JavaScript's `RegExp` takes."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from fuzz.schemas import matching

from localspec.errors import InvalidValueError
from localspec.sampling.json_schema import compile_schema

# Reads [pattern, texts], a line each, and answers with whether each text matches, or null.
_PROGRAM = r"""
require("readline").createInterface({ input: process.stdin }).on("line", line => {
  const [pattern, texts] = JSON.parse(line);
  let regex = null;
  try { regex = new RegExp(pattern, "u"); } catch (error) {}
  process.stdout.write(JSON.stringify(regex && texts.map(text => regex.test(text))) + "\n");
});
"""
_PARTS = [
    *"ab1_&~-[]^$.|()*+?{},: \"/", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\n", "\\t", "\\/",
    "\\\\", "\\.", "\\-", "\\[", "\\]", "\\u0041", "\\x41", "\\u{1F600}", "{2}", "{0,1}", "{,2}",
    "[^", "[a-b]", "[^a]", "(?:", "(?i:", "(?s:", "a-b", "--", "&&", "~~", "[:alpha:]", "é", "😀",
    "\\p{L}", "\\P{L}", "\\p{Lu}", "\\p{Nd}", "\\p{Greek}", "\\pL", "\\p{Script=Greek}",
    "\\p{gc=Sc}", "\\p{ASCII}", "\\p{l}", "*?", "++", "\\v", "\\0", "\\b", "(?<n>", "Z",
    "\\P{P}", "\\p{Cc}", '[^"', "\\x00-\\x1f", "[\\x00-\\x1f]",
]  # fmt: skip
_LETTERS = (
    'aAbBzZ1٣_&~-[]^$.|()*+?{},: "/\\\n\r\t\v\x1f\x85\u2028\u2029\ufeff\u3000é\u0391\u03b1€😀ǅ'
)


def random_pattern(random: Random) -> str:
    parts = [random.choice(_PARTS) for _ in range(random.randint(1, 7))]
    return "^" + "".join(parts) + "$" if random.random() < 0.7 else "".join(parts)


def random_texts(random: Random) -> list[str]:
    words = ["".join(random.choices(_LETTERS, k=random.randint(0, 3))) for _ in range(20)]
    return [*_LETTERS, "", *words]


@contextmanager
def patterns() -> Iterator[Callable[[int], str]]:
    """The cases, judged by Node. Raises FileNotFoundError where there is none."""
    node = shutil.which("node")
    if node is None:
        raise FileNotFoundError("patterns are judged by Node; install it")
    with subprocess.Popen(
        [node, "-e", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as judge:

        def case(number: int) -> str:
            random = Random(number)
            pattern, texts = random_pattern(random), random_texts(random)
            try:
                grammar = compile_schema(json.dumps({"type": "string", "pattern": pattern}))
            except InvalidValueError as error:
                assert "\n" not in str(error) and len(str(error)) < 500
                return "refused"
            assert judge.stdin and judge.stdout
            judge.stdin.write(json.dumps([pattern, texts]) + "\n")
            judge.stdin.flush()
            matches = json.loads(judge.stdout.readline())
            if matches is None:
                return "no pattern of ECMAScript"
            takes = matching(grammar)
            for text, match in zip(texts, matches, strict=True):
                assert takes(text) == match, f"{pattern!r} on {text!r}: {match}"
            return "alike"

        try:
            yield case
        finally:
            judge.kill()
