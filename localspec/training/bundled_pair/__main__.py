"""Train the bundled pair.

    python -m localspec.training.bundled_pair train CORPUS FOLDER --minutes 95
    python -m localspec.training.bundled_pair distil CORPUS FOLDER --minutes 15
    python -m localspec.training.bundled_pair loss CORPUS FOLDER
    python -m localspec.training.bundled_pair export FOLDER
    python -m localspec.training.bundled_pair unpack FILE.gguf FOLDER    # then train --resume

Needs torch and tokenizers (`pip install 'localspec[train]'`). CORPUS: terminal.jsonl.
"""

import random
from pathlib import Path

import click
import torch

from localspec.training.bundled_pair.batches import (
    batches,
    encoded,
    load_tokenizer,
    tokenizer_of,
    train_tokenizer,
)
from localspec.training.bundled_pair.gguf_export import export as write_gguf
from localspec.training.bundled_pair.gguf_import import TrainedFile
from localspec.training.bundled_pair.terminal_corpus import ABOUT, Corpus, Turn, how, read_pages
from localspec.training.bundled_pair.trainer import (
    Trainer,
    distillation_loss,
    mean_loss,
    next_token_loss,
)
from localspec.training.bundled_pair.transformer import Transformer, load, save, without_layers
from localspec.training.bundled_pair.wordings import HELD_OUT
from localspec.training.sizes import Sizes

TARGET = Sizes(vocabulary=8192, width=256, layers=8, heads=4, feed_forward=704)
# The layers of the target that the draft model starts from.
DRAFT_LAYERS = [0, 4, 7]


@click.group(help=__doc__)
def main() -> None:
    torch.manual_seed(1)


@main.command()
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--minutes", default=95.0, help="Train for so long.")
@click.option("--rate", default=4e-3, help="The highest learning rate.")
@click.option("--resume", is_flag=True, help="Go on with the model in FOLDER.")
def train(corpus: Path, folder: Path, minutes: float, rate: float, resume: bool) -> None:
    """Train the target."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = Corpus(read_pages(corpus))
    words = folder / "tokenizer.json"
    if not words.exists():
        train_tokenizer(pages.conversations(random.Random(0)), TARGET.vocabulary).save(str(words))
    path = folder / "target.pt"
    model = load(path)[0] if resume else Transformer(TARGET)
    click.echo(f"{sum(weight.numel() for weight in model.parameters()) / 1e6:.2f} M parameters")
    material = batches(load_tokenizer(words), pages.conversations, random.Random(minutes))
    trainer = Trainer(model, next_token_loss(model), rate=rate)
    trainer.run(material, minutes * 60, lambda: save(model, path))


@main.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def unpack(file: Path, folder: Path) -> None:
    """Take the target from a GGUF that `export` wrote, to train it further."""
    folder.mkdir(parents=True, exist_ok=True)
    trained = TrainedFile(file)
    save(Transformer.of(trained), folder / "target.pt")
    tokenizer_of(trained.vocabulary, trained.merges).save(str(folder / "tokenizer.json"))


@main.command()
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--minutes", default=15.0, help="Train for so long.")
@click.option("--rate", default=2e-3, help="The highest learning rate.")
def distil(corpus: Path, folder: Path, minutes: float, rate: float) -> None:
    """Distil the draft model from the target."""
    teacher = load(folder / "target.pt")[0].eval()
    pages = Corpus(read_pages(corpus))
    words = load_tokenizer(folder / "tokenizer.json")
    material = batches(words, pages.conversations, random.Random(7))
    model = without_layers(teacher, DRAFT_LAYERS)
    trainer = Trainer(model, distillation_loss(model, teacher), rate=rate)
    trainer.run(material, minutes * 60, lambda: save(model, folder / "draft.pt"))


@main.command()
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--count", default=1000, help="Questions, of common commands.")
def loss(corpus: Path, folder: Path, count: int) -> None:
    """Print the loss on answers to questions in held-out wordings."""
    rng = random.Random(13)
    examples = [each for each in Corpus(read_pages(corpus)).examples if each.platform == "common"]
    chosen = rng.sample(examples, count)
    chats = [[Turn(how(example, HELD_OUT, rng), example.answer)] for example in chosen]
    texts = encoded(load_tokenizer(folder / "tokenizer.json"), chats)
    for name in ("target", "draft"):
        model = load(folder / f"{name}.pt")[0]
        click.echo(f"{name}: {mean_loss(model, texts):.3f} nats per token")


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def export(folder: Path) -> None:
    """Write both models as GGUF files."""
    for name, type_ in (("target", "q8_0"), ("draft", "q4_0")):
        model = load(folder / f"{name}.pt")[0]
        millions = round(sum(weight.numel() for weight in model.parameters()) / 1e6)
        path = folder / f"terminal-{millions}m-{type_}.gguf"
        words = folder / "tokenizer.json"
        about = {**ABOUT, "name": path.stem}
        write_gguf(model.sizes, model.weights(), words, path, type_=type_, **about)
        click.echo(path)


if __name__ == "__main__":
    main()
