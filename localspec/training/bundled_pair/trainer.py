"""Trainer: trains a model, or distils one from a teacher, for a given time on this machine."""

import time
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from localspec.training.bundled_pair.batches import ROWS, Batch, Text, batch, rows
from localspec.training.bundled_pair.transformer import Transformer
from localspec.training.optimizers import optimizers, set_rate
from localspec.utils.busy_cores import BusyCores, allowed_cores

_WARM_UP = 0.01
_CONSTANT = 0.35
_SAVE_SECONDS = 120
_SHOW_STEPS = 25
_LOOK_SECONDS = 4


Loss = Callable[[Batch], Tensor]


class Trainer:
    """Muon for the matrices (Jordan et al., 2024), AdamW for embeddings and vectors.

    The learning rate follows the clock: constant, then falling to zero when the time is up.

    loss: what is to become smaller, of one batch. Parameters that need no gradient stay as they
    are.
    """

    def __init__(self, model: nn.Module, loss: Loss, *, rate: float = 4e-3) -> None:
        self.model, self.loss, self.rate = model, loss, rate
        self._optimizers = optimizers(model, rate)

    def run(self, batches: Iterator[Batch], seconds: float, save: Callable[[], None]) -> None:
        """Train for so long; the model is saved every two minutes and at the end."""
        began = saved = time.monotonic()
        mean, tokens, idle_cores = 0.0, 0, _IdleCores()
        for step, part in enumerate(batches):
            now = time.monotonic()
            share = (now - began) / seconds
            if share >= 1:
                break
            idle_cores.use()
            loss = self._step(part, self.rate * _schedule(share))
            tokens += part.tokens.numel()
            mean = loss if step == 0 else 0.98 * mean + 0.02 * loss
            if step % _SHOW_STEPS == 0:
                rate = tokens / (time.monotonic() - began)
                done = f"{share:.1%}, step {step}, {tokens / 1e6:.2f} M tokens, {rate:.0f}/s"
                print(f"{done}: loss {mean:.3f}", flush=True)
            if now - saved > _SAVE_SECONDS:
                save()
                saved = now
        save()

    def _step(self, batch: Batch, rate: float) -> float:
        set_rate(self._optimizers, rate)
        with torch.autocast("cpu", torch.bfloat16):
            loss = self.loss(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.item()


def next_token_loss(model: Transformer) -> Loss:
    """The cross-entropy of the tokens that an assistant writes."""
    model.hidden = torch.compile(model.hidden)  # type: ignore[method-assign]

    def loss(batch: Batch) -> Tensor:
        logits = model(batch.tokens, batch.wanted, batch.visible).float()
        return F.cross_entropy(logits, batch.next_tokens[batch.wanted])

    return loss


def distillation_loss(model: Transformer, teacher: Transformer) -> Loss:
    """The Kullback-Leibler divergence from the teacher's distributions."""
    for each in (model, teacher):
        each.hidden = torch.compile(each.hidden)  # type: ignore[method-assign]

    def loss(batch: Batch) -> Tensor:
        logits = model(batch.tokens, batch.wanted, batch.visible).float()
        with torch.no_grad():
            right = teacher(batch.tokens, batch.wanted, batch.visible).float()
        return divergence(logits, right)

    return loss


def divergence(logits: Tensor, right: Tensor) -> Tensor:
    """The mean Kullback-Leibler divergence of rows of logits from the right ones, in nats."""
    return F.kl_div(
        logits.log_softmax(-1), right.log_softmax(-1), log_target=True, reduction="batchmean"
    )


def mean_loss(model: Transformer, texts: Sequence[Text]) -> float:
    """Nats per token that an assistant writes in these texts."""
    total, count, full = 0.0, 0, rows(texts)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for start in range(0, len(full), ROWS):
            part = batch(full[start : start + ROWS])
            logits = model(part.tokens, part.wanted, part.visible).float()
            right = part.next_tokens[part.wanted]
            total += F.cross_entropy(logits, right, reduction="sum").item()
            count += len(right)
    return total / count


def _schedule(share: float) -> float:
    """The learning rate at this share of the time, as a share of the highest."""
    if share < _CONSTANT:
        return min(1.0, (share + 1e-4) / _WARM_UP)
    return (1 - share) / (1 - _CONSTANT)


class _IdleCores:
    """The cores that other programs leave idle, for torch; one is always used."""

    def __init__(self) -> None:
        self._busy = BusyCores()

    def use(self) -> None:
        """Set torch's threads anew every few seconds."""
        busy = self._busy.mean(_LOOK_SECONDS)
        if busy is not None:
            torch.set_num_threads(max(1, round(len(allowed_cores()) - busy - 0.15)))
