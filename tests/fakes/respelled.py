"""A trained model in another vocabulary: its layers as they are, its rows for the tokens kept.

A model of the tests' own pair becomes one with fewer tokens, in another order, and of another kind
of tokenizer. It knows the tokens that it keeps as before, so its drafts are right now and then.
"""

from pathlib import Path

import gguf
import numpy as np

SPECIAL = 3
INSTRUCTIONS = (
    "{% for m in messages %}{% if m['role'] == 'user' %}[Q] {{ m['content'] }} [A] "
    "{% else %}{{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
)
_BPE, _SPM = "gpt2", "llama"


def write_respelled(
    path: Path,
    source: Path,
    *,
    kind: str = _BPE,
    merges: int = 2000,
    pre: str = "gpt-2",
    seed: int = 1,
    context: int = 2048,
) -> Path:
    """Write `source`, a byte-level BPE, with another vocabulary.

    kind: `gpt2` (BPE) or `llama` (SentencePiece: a byte that has no token is spelled as a byte).
    merges: how many of the merges stay. pre: the split into words, of a BPE. seed: of the order of
    the tokens. context: tokens that it says it was made for.
    """
    read = gguf.GGUFReader(source)
    words = read.fields["tokenizer.ggml.tokens"].contents()
    pairs = read.fields["tokenizer.ggml.merges"].contents()
    ids = {word: token for token, word in enumerate(words)}
    pairs = [pair for pair in pairs if pair.replace(" ", "", 1) in ids][:merges]
    longer = list(dict.fromkeys(pair.replace(" ", "", 1) for pair in pairs))
    letters = [word for word in words[SPECIAL:] if len(word) == 1]
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in read.fields.items():
        if name.startswith("llama.") and name not in ("llama.vocab_size", "llama.context_length"):
            writer.add_key_value(name, field.contents(), field.types[0])
    writer.add_context_length(context)
    random = np.random.default_rng(seed)
    if kind == _BPE:
        kept = letters + longer
        rows = [*words[:SPECIAL], *(kept[place] for place in random.permutation(len(kept)))]
        _add_bpe(writer, rows, pairs, pre)
    else:
        rows = _add_sentence_pieces(writer, words, letters + longer, random)
    writer.add_chat_template(INSTRUCTIONS)
    for tensor in read.tensors:
        data = tensor.data
        if tensor.name in ("token_embd.weight", "output.weight"):
            data = np.ascontiguousarray(data[[ids.get(row, 0) for row in rows]])
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_bpe(writer: gguf.GGUFWriter, tokens: list[str], pairs: list[str], pre: str) -> None:
    writer.add_tokenizer_model(_BPE)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * SPECIAL + [1] * (len(tokens) - SPECIAL))
    writer.add_token_merges(pairs)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)


def _add_sentence_pieces(
    writer: gguf.GGUFWriter, words: list[str], kept: list[str], random: np.random.Generator
) -> list[str]:
    """Add the vocabulary; returns the source's word for each token."""
    letter_of = {byte: letter for letter, byte in _bytes_of_letters().items()}
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types, scores = [2, 3, 3, *[6] * 256], [0.0] * len(tokens)
    rows = [words[0], words[0], words[2], *(letter_of[byte] for byte in range(256))]
    for rank in random.permutation(len(kept)):
        if piece := _piece(kept[rank]):
            tokens.append(piece)
            types.append(1)
            scores.append(-1.0 - rank)
            rows.append(kept[rank])
    writer.add_tokenizer_model(_SPM)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_scores(scores)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    return rows


def _piece(word: str) -> str | None:
    """A word of byte-level BPE as a piece of SentencePiece; None for a part of a character."""
    of_letter = _bytes_of_letters()
    try:
        text = bytes(of_letter[letter] for letter in word).decode()
    except UnicodeDecodeError:
        return None
    return text.replace(" ", "▁")


def _bytes_of_letters() -> dict[str, int]:
    """How byte-level BPE spells the bytes: printable ones as they are, the others from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + number): byte for number, byte in enumerate(others)
    }
