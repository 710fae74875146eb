"""Batches: conversations as tokens, cut into batches of texts of about the same length."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from localspec.training.bundled_pair.chat_tokens import BEGIN, BEGIN_ID, END, END_ID, TURN, TURN_ID
from localspec.training.bundled_pair.terminal_corpus import Conversation

# Tokens of a row, and rows of a batch; several texts share a row.
LENGTH, ROWS = 384, 16
_OPEN_ROWS = 64

# A text: its tokens, and which of them an assistant writes.
Text = tuple[list[int], list[bool]]


@dataclass(frozen=True, slots=True)
class Batch:
    """tokens, next_tokens: (rows, length). wanted: bool, where the next token is of an answer.

    visible: (rows, 1, length, length) of bool, what each token attends to.
    """

    tokens: Tensor
    next_tokens: Tensor
    wanted: Tensor
    visible: Tensor


def train_tokenizer(chats: Sequence[Conversation], size: int) -> Tokenizer:
    """A byte-level BPE of GPT-2's kind, which llama.cpp reads as `gpt-2`."""
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[BEGIN, TURN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (text for chat in chats for turn in chat for text in turn)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tokenizer_of(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
    tokenizer = _byte_level(models.BPE(vocabulary, merges))
    tokenizer.add_special_tokens([BEGIN, TURN, END])
    return tokenizer


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    return Tokenizer.from_file(str(path))


def encoded(tokenizer: Tokenizer, chats: Sequence[Conversation]) -> list[Text]:
    """Each conversation as ChatML tokens, and which of them an assistant writes."""
    asked = [f"user\n{turn.question}" for chat in chats for turn in chat]
    given = [turn.answer for chat in chats for turn in chat]
    questions = iter(tokenizer.encode_batch(asked))
    answers = iter(tokenizer.encode_batch(given))
    newline, assistant = tokenizer.encode("\n").ids, tokenizer.encode("assistant\n").ids
    texts = []
    for chat in chats:
        tokens, written = [BEGIN_ID], [False]
        for _ in chat:
            before = [TURN_ID, *next(questions).ids, END_ID, *newline, TURN_ID, *assistant]
            answer = [*next(answers).ids, END_ID]
            tokens += [*before, *answer, *newline]
            written += [False] * len(before) + [True] * len(answer) + [False] * len(newline)
        texts.append((tokens[:LENGTH], written[:LENGTH]))
    return texts


def batches(
    tokenizer: Tokenizer,
    one_pass: Callable[[random.Random], Sequence[Conversation]],
    rng: random.Random,
) -> Iterator[Batch]:
    """Batches of ROWS rows, pass after pass, without end."""
    while True:
        full = rows(encoded(tokenizer, one_pass(rng)))
        rng.shuffle(full)
        # Few texts are one small batch.
        for start in range(0, max(1, len(full) - ROWS + 1), ROWS):
            yield batch(full[start : start + ROWS])


def rows(texts: Sequence[Text]) -> list[list[Text]]:
    """The texts, several to a row of LENGTH tokens: each goes where it fits first."""
    full: list[list[Text]] = []
    waiting: list[tuple[int, list[Text]]] = []  # free places, texts
    for text in texts:
        length = len(text[0])
        for at, (free, row) in enumerate(waiting):
            if length <= free:
                row.append(text)
                waiting[at] = (free - length, row)
                break
        else:
            waiting.append((LENGTH + 1 - length, [text]))
        if len(waiting) > _OPEN_ROWS:
            fullest = min(range(len(waiting)), key=lambda at: waiting[at][0])
            full.append(waiting.pop(fullest)[1])
    return full + [row for _, row in waiting]


def batch(rows_of_texts: Sequence[Sequence[Text]]) -> Batch:
    """Rows of LENGTH tokens in which each text sees only itself."""
    shape = (len(rows_of_texts), LENGTH + 1)
    tokens, number = torch.full(shape, BEGIN_ID), torch.zeros(shape, dtype=torch.int32)
    written = torch.zeros(shape, dtype=torch.bool)
    for row, texts in enumerate(rows_of_texts):
        end = 0
        for count, (ids, own) in enumerate(texts, 1):
            place = slice(end, end + len(ids))
            tokens[row, place] = torch.tensor(ids)
            written[row, place] = torch.tensor(own)
            number[row, place] = count
            end += len(ids)
    number = number[:, :-1]
    earlier = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    visible = (number[:, None, :, None] == number[:, None, None, :]) & earlier
    return Batch(tokens[:, :-1], tokens[:, 1:], written[:, 1:], visible)
