"""Files of draft heads with something wrong in them: each is refused in one line, or drafts.

    python -m fakes.broken_heads 500 [FIRST]        with the folder tests/ on PYTHONPATH

counts how so many of them end, and prints those that ended otherwise.
"""

import copy
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from fakes.broken_gguf import _DAMAGES, _dropped_tensor, _other_number, _other_shape, _rescaled
from fakes.drafter_kinds import EXACT, FIRST, PROMPT, write_pair
from fakes.gguf_document import Document, parse
from fakes.loader import Loader, serve

from localspec.gguf.types import ARRAY, UINT32

_LAYERS = (-1, 0, 1, 2, 3, 5, 6, 99, (1 << 31) - 1)
_TOKENS = (-1, 0, 5, 282, 283, 1 << 20, (1 << 31) - 1)
# Characters of a refusal, with the path of a file.
_LONGEST = 500


def broken_head(document: Document, draw: Random) -> bytes:
    """A copy with one or two things wrong."""
    document = copy.deepcopy(document)
    for _ in range(draw.choice((1, 1, 2))):
        damages = (_HEAD_DAMAGES, _HEAD_DAMAGES, _DAMAGES)
        draw.choice(draw.choice(damages))(document, draw)
    return document.assembled()


def _other_layers(document: Document, draw: Random) -> None:
    """The layers of the target that it reads."""
    entry = document.named(f"{document.architecture}.target_layers")
    if entry is None or entry.kind != ARRAY:
        return _other_number(document, draw)
    kind, layers = entry.value
    at = draw.randrange(len(layers) + 1)
    layers[at : at + draw.choice((0, 1, 1, 1))] = [draw.choice(_LAYERS)] * draw.choice((0, 1, 1))
    entry.value = draw.choice(((kind, layers), (kind, layers), (UINT32, [abs(n) for n in layers])))
    return None


def _other_vocabulary(document: Document, draw: Random) -> None:
    """Tokens that are missing, more, or others; the tokens that it names."""
    entries = [each for each in document.entries if b"tokenizer.ggml." in each.key]
    if not entries:
        return _other_number(document, draw)
    if draw.random() < 0.4:
        named = [each for each in entries if each.key.endswith(b"_token_id")]
        draw.choice(named or entries).value = abs(draw.choice(_TOKENS))
        return None
    lists = [each.value[1] for each in entries if each.kind == ARRAY and len(each.value[1]) > 200]
    count, change = draw.choice((1, 3, 100)), draw.randrange(3)
    for items in lists:
        if change == 0:
            del items[-count:]
        elif change == 1:
            new = [b"more%d" % number for number in range(count)]
            items += new if isinstance(items[0], bytes) else items[:1] * count
        else:
            items[50 : 50 + count] = items[50 : 50 + count][::-1]
    return None


def _other_map(document: Document, draw: Random) -> None:
    """The target's tokens that those of a head's own vocabulary are."""
    for tensor in document.tensors:
        if tensor.name == b"d2t":
            at = 8 * draw.randrange(len(tensor.data) // 8)
            number = draw.choice((*_TOKENS, 1 << 40, -(1 << 60)))
            changed = number.to_bytes(8, "little", signed=True)
            tensor.data = tensor.data[:at] + changed + tensor.data[at + 8 :]
            return
    _other_shape(document, draw)


def _other_weights(document: Document, draw: Random) -> None:
    """Some that are no numbers, or so large that what is computed with them is none."""
    tensor = draw.choice(document.tensors)
    filling = draw.choice((b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\x7f\x7f", b"\0\0\0\0"))
    tensor.data = filling * (len(tensor.data) // 4)


_HEAD_DAMAGES: tuple[Callable[[Document, Random], None], ...] = (
    *(_other_layers, _other_layers, _other_vocabulary, _other_vocabulary, _other_map),
    *(_other_weights, _other_number, _other_shape, _rescaled, _dropped_tensor, _dropped_tensor),
)


class BrokenHeads:
    """Breaks the heads of all kinds, and counts how they end.

    ends: how many drafted, and how many were refused. wrong: by number, what else came of a file.
    """

    def __init__(self, folder: Path) -> None:
        self.ends: Counter[str] = Counter()
        self.wrong: dict[int, str] = {}
        self._loader = Loader(__file__)
        self._cases = [_case(kind, family, folder / kind) for kind, family in FIRST]

    def run(self, count: int, *, first: int = 0) -> None:
        """Break so many heads, those of all kinds in turn. first: the number of the first."""
        for number in range(first, first + count):
            kind, document, target, draft, file = self._cases[number % len(self._cases)]
            file.write_bytes(broken_head(document, Random(number)))
            try:
                [answer] = self._loader.load(target, draft)
            except AssertionError as error:
                self.wrong[number] = f"{kind}: {error}"
                continue
            self.ends["drafted" if answer == "decoded" else "refused"] += 1
            if answer != "decoded" and not (file.name in answer and len(answer) < _LONGEST):
                self.wrong[number] = f"{kind}: {answer}"

    def close(self) -> None:
        self._loader.close()


def _case(kind: str, family: str, folder: Path) -> tuple[str, Document, Path, str, Path]:
    """What is broken of a kind: the sound file, its target, the option, and the broken file."""
    folder.mkdir()
    pair = write_pair(kind, family, folder)
    sound = pair.target if pair.draft == "mtp" else Path(pair.draft.rpartition(":")[2])
    broken = folder / f"broken-{sound.name}"
    target = broken if pair.draft == "mtp" else pair.target
    return kind, parse(sound), target, pair.draft.replace(str(sound), str(broken)), broken


def _draft(target: Path, draft: Path) -> None:
    """Load a head, and draft with it. Raises ValueError where that changes the text."""
    from localspec.engine.engine import load
    from localspec.errors import LocalspecError

    options: dict[str, Any] = {"max_tokens": 10, "seed": 1, "ignore_eos": True}
    try:
        with load(target, str(draft), **EXACT) as engine:
            for temperature in (0, 1):
                ends = [
                    engine.generate(PROMPT, temperature=temperature, depth=depth, **options)
                    for depth in (0, 5)
                ]
                if ends[0].token_ids != ends[1].token_ids:
                    raise ValueError("another text")
    except LocalspecError as error:
        if not str(error).isprintable():
            raise ValueError(f"not one line: {error}") from error
        raise


def main(count: int, first: int = 0) -> int:
    """Break so many heads; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCALSPEC_HOME"] = str(Path(folder) / "home")
        heads = BrokenHeads(Path(folder))
        for number in range(first, first + count):
            heads.run(1, first=number)
            if number in heads.wrong:
                sys.stdout.write(f"{number} {heads.wrong[number]}\n")
                sys.stdout.flush()
        heads.close()
    sys.stdout.write(f"{dict(heads.ends)}, {len(heads.wrong)} wrong\n")
    return bool(heads.wrong)


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(main(*map(int, sys.argv[1:])))
    serve(_draft)
