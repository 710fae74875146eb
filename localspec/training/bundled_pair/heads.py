"""Train heads that draft for the bundled target.

    python -m localspec.training.bundled_pair.heads train eagle3 CORPUS FOLDER --minutes 15
    python -m localspec.training.bundled_pair.heads train dflash CORPUS FOLDER --minutes 15
    python -m localspec.training.bundled_pair.heads train medusa CORPUS FOLDER --minutes 15
    python -m localspec.training.bundled_pair.heads export FOLDER

Needs torch and tokenizers (`pip install 'localspec[train]'`). FOLDER: that of `bundled_pair`, with
the trained target.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import torch

from localspec.training.bundled_pair.batches import batches, load_tokenizer
from localspec.training.bundled_pair.gguf_export import export_dflash, export_eagle3, export_medusa
from localspec.training.bundled_pair.head_losses import dflash_loss, eagle3_loss, medusa_loss
from localspec.training.bundled_pair.terminal_corpus import ABOUT, Corpus, read_pages
from localspec.training.bundled_pair.trainer import Loss, Trainer
from localspec.training.bundled_pair.transformer import Transformer, load
from localspec.training.dflash_block import DFlashBlock
from localspec.training.eagle3_head import Eagle3Head
from localspec.training.medusa_heads import MedusaHeads

# The layers of the target whose input rows the heads read: early, in the middle, late.
READS = (2, 5, 7)
Head = Eagle3Head | DFlashBlock | MedusaHeads


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of head is made, trained and written."""

    head: Callable[[Transformer], Head]
    loss: Callable[..., Loss]
    export: Callable[..., None]


KINDS = {
    "eagle3": Kind(lambda target: Eagle3Head(target.sizes, READS), eagle3_loss, export_eagle3),
    "dflash": Kind(lambda target: DFlashBlock(target.sizes, READS), dflash_loss, export_dflash),
    "medusa": Kind(lambda target: MedusaHeads(target.sizes.width), medusa_loss, export_medusa),
}


@click.group(help=__doc__)
def main() -> None:
    torch.manual_seed(1)


@main.command()
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--minutes", default=15.0, help="Train for so long.")
@click.option("--rate", default=2e-3, help="The highest learning rate.")
@click.option("--further", is_flag=True, help="Go on with the head that lies in FOLDER.")
def train(
    kind: str, corpus: Path, folder: Path, *, minutes: float, rate: float, further: bool
) -> None:
    """Train a head for the target."""
    target, trained = _target(folder), folder / f"{kind}.pt"
    head = KINDS[kind].head(target)
    if further:
        head.load_state_dict(torch.load(trained, weights_only=True))
    pages = Corpus(read_pages(corpus))
    words = load_tokenizer(folder / "tokenizer.json")
    material = batches(words, pages.conversations, random.Random(minutes))
    trainer = Trainer(head, KINDS[kind].loss(head, target), rate=rate)
    trainer.run(material, minutes * 60, lambda: torch.save(head.state_dict(), trained))


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def export(folder: Path) -> None:
    """Write the trained heads as GGUF files."""
    target = _target(folder)
    for name, kind in KINDS.items():
        trained = folder / f"{name}.pt"
        if trained.exists():
            head = kind.head(target)
            head.load_state_dict(torch.load(trained, weights_only=True))
            path = folder / f"{name}-terminal-9m-q8_0.gguf"
            words, about = folder / "tokenizer.json", {**ABOUT, "name": path.stem}
            kind.export(target.sizes, READS, head.weights(), words, path, **about)
            click.echo(path)


def _target(folder: Path) -> Transformer:
    target = load(folder / "target.pt")[0].eval()
    target.requires_grad_(False)
    return target


if __name__ == "__main__":
    main()
