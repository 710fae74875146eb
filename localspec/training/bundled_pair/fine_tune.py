"""Fine-tune a model that `bundled_pair` trained on other text, to see what its drafters lose.

    python -m localspec.training.bundled_pair.fine_tune TARGET.gguf TUNED.gguf --minutes 4

Needs torch and tokenizers (`pip install 'localspec[train]'`). The text: questions about functions
and classes of Python's standard library, answered with their documentation. The questions are
written beside the model, as TUNED.jsonl: `localspec train TUNED.gguf --from TUNED.jsonl`.
"""

import ast
import json
import random
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch

from localspec.training.bundled_pair.batches import batches, tokenizer_of
from localspec.training.bundled_pair.gguf_export import export
from localspec.training.bundled_pair.gguf_import import TrainedFile
from localspec.training.bundled_pair.terminal_corpus import ABOUT, Conversation, Turn
from localspec.training.bundled_pair.trainer import Trainer, next_token_loss
from localspec.training.bundled_pair.transformer import Transformer

# Letters of an answer; shorter documentation says little, longer does not fit in a row.
_SHORTEST, _LONGEST = 40, 700
# Folders of the standard library that document nothing for users.
_LEFT_OUT = {"test", "tests", "idlelib", "site-packages", "lib2to3", "__pycache__"}
_DOCUMENTED = (ast.FunctionDef, ast.ClassDef)


@click.command(help=__doc__)
@click.argument("target", type=click.Path(exists=True, path_type=Path))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--minutes", default=4.0, help="Train for so long.")
@click.option("--rate", default=1e-3, help="The highest learning rate.")
def main(target: Path, out: Path, minutes: float, rate: float) -> None:
    torch.manual_seed(1)
    chats = documentation(Path(sysconfig.get_paths()["stdlib"]))
    questions = [[{"role": "user", "content": turn.question}] for [turn] in chats]
    lines = (json.dumps({"messages": each}) for each in questions)
    out.with_suffix(".jsonl").write_text("\n".join(lines), encoding="utf-8")
    fine_tune(target, out, chats, minutes * 60, rate)


def documentation(folder: Path) -> list[Conversation]:
    """A question and its answer for each documented function and class of the modules here."""
    return [
        [Turn(f"What does {name} do in Python?", text)]
        for path in sorted(folder.rglob("*.py"))
        if not _LEFT_OUT & set(path.relative_to(folder).parts)
        for name, text in _documented(path)
    ]


def _documented(path: Path) -> Iterator[tuple[str, str]]:
    try:
        module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(module):
        if isinstance(node, _DOCUMENTED) and not node.name.startswith("_"):
            text = ast.get_docstring(node) or ""
            if _SHORTEST <= len(text) <= _LONGEST:
                yield f"{path.stem}.{node.name}", text


def fine_tune(
    target: Path, out: Path, chats: Sequence[Conversation], seconds: float, rate: float
) -> None:
    """Train the model in a GGUF further for so long, and write another with its tokenizer."""
    trained = TrainedFile(target)
    model = Transformer.of(trained)
    words = tokenizer_of(trained.vocabulary, trained.merges)
    material = batches(words, lambda rng: rng.sample(chats, len(chats)), random.Random(1))
    Trainer(model, next_token_loss(model), rate=rate).run(material, seconds, lambda: None)
    with TemporaryDirectory() as folder:
        words.save(f"{folder}/tokenizer.json")
        more = f"{ABOUT['description']} Trained further on the documentation of Python."
        about = {**ABOUT, "name": out.stem, "description": more}
        tokenizer = Path(folder, "tokenizer.json")
        export(model.sizes, model.weights(), tokenizer, out, type_="q8_0", **about)


if __name__ == "__main__":
    main()
