"""What `localspec show` prints of a model: lines for people, a record for programs."""

from collections.abc import Sequence
from typing import Any

from localspec.cli.models_output import count
from localspec.cli.output import joined
from localspec.gguf.facts import Facts
from localspec.gguf.vocabulary import TOKENIZER_NAMES, HeaderVocabulary
from localspec.memory.estimate import cache_bytes
from localspec.models.registry import Pair
from localspec.utils.format import format_bytes, printable

Row = tuple[str, str]

_LONGEST = 60
_LEAST_SHARE = 0.005


def text_of(blocks: Sequence[Sequence[Row]]) -> str:
    """Blocks of a name and a value per line, set apart by empty lines."""
    width = max(len(name) for rows in blocks for name, _ in rows)
    shown = [
        "\n".join(f"{name:<{width}}  {printable(value)}" for name, value in rows) for rows in blocks
    ]
    return "\n\n".join(shown) + "\n"


def rows_of_pair(pair: Pair) -> list[Row]:
    """What models.toml says."""
    sizes = ", ".join(
        f"{quant} {format_bytes(int(1e9 * size))}" for quant, size in pair.sizes.items()
    )
    return [
        ("pair", pair.name),
        ("for", pair.note or "-"),
        ("target", str(pair.target)),
        ("drafter", str(pair.drafter) if pair.drafter else f"none: {pair.no_drafter or '-'}"),
        ("parameters", pair.parameters or "-"),
        ("context", f"{pair.context:,} tokens" if pair.context else "-"),
        ("target's sizes", sizes or "-"),
        ("licence", pair.licence or "-"),
        *([("unverified", ", ".join(pair.unverified))] if pair.unverified else []),
    ]


def rows_of(facts: Facts) -> list[Row]:
    """What its header says."""
    parts = f" (and {len(facts.files) - 1} more)" if len(facts.files) > 1 else ""
    context, cache = facts.header.context_length, cache_bytes(facts.header, 1)
    return [
        ("file", f"{facts.files[0]}{parts}"),
        ("size", format_bytes(facts.size)),
        ("name", facts.text("general.name") or "-"),
        ("licence", _licence(facts)),
        ("architecture", facts.header.architecture or "-"),
        ("parameters", f"{count(facts.parameters)} ({facts.parameters:,})"),
        ("quantisation", _quantisation(facts)),
        ("shape", _shape(facts)),
        ("context", f"{context:,} tokens" if context else "-"),
        ("memory", facts.memory),
        ("cache", f"{format_bytes(cache)} per token, in 16 bits" if cache else "-"),
        *_vocabulary(facts.vocabulary),
        ("chat template", _template(facts.chat_template)),
        ("draft heads", facts.hidden_state_heads or "none"),
    ]


def _quantisation(facts: Facts) -> str:
    if not facts.parameters:
        return "none: it holds no weights"
    shares = {name: number / facts.parameters for name, number in facts.types.items()}
    main = [f"{name} {share:.0%}" for name, share in shares.items() if share >= _LEAST_SHARE]
    return joined([", ".join(main), f"{facts.bits_per_weight:.2f} bits per weight"])


def _shape(facts: Facts) -> str:
    known = {
        "layers": facts.number("block_count"),
        "wide": facts.number("embedding_length"),
        "heads": facts.number("attention.head_count"),
        "heads of keys and values": facts.number("attention.head_count_kv"),
        "experts": facts.number("expert_count"),
    }
    return ", ".join(f"{value:,} {what}" for what, value in known.items() if value) or "-"


def _vocabulary(vocabulary: HeaderVocabulary | None) -> list[Row]:
    if vocabulary is None:
        return [("vocabulary", "none of its own")]
    kind, short = TOKENIZER_NAMES[vocabulary.vocabulary_type], vocabulary.fingerprint[:12]
    added = {"bos": vocabulary.adds_bos, "eos": vocabulary.adds_eos}
    rows = [("vocabulary", f"{kind}, {vocabulary.n_vocab:,} tokens, fingerprint {short}")]
    for name, token in vocabulary.special.items():
        text = vocabulary.token_text(token).decode("utf-8", "replace")
        remark = {True: ", added to every prompt", False: ", not added", None: ""}[added.get(name)]
        rows.append((name.upper(), f"{token:,} {text!r}{remark}"))
    return rows


def _template(template: str | None) -> str:
    if not template:
        return "none"
    first = template.lstrip().partition("\n")[0]
    shown = first if len(first) <= _LONGEST else f"{first[:_LONGEST]}..."
    return f"{shown} ({len(template):,} characters; --template prints them)"


def _licence(facts: Facts) -> str:
    said = [facts.text(f"general.license{key}") for key in ("", ".name", ".link")]
    return ", ".join(dict.fromkeys(each for each in said if each)) or "-"


def record(facts: Facts) -> dict[str, Any]:
    """The object `--json` has for a model."""
    return {
        "files": [str(file) for file in facts.files],
        "size": facts.size,
        "name": facts.text("general.name"),
        "licence": facts.text("general.license"),
        "architecture": facts.header.architecture,
        "parameters": facts.parameters,
        "types": dict(facts.types),
        "bits_per_weight": facts.bits_per_weight,
        "context": facts.header.context_length,
        "layers": facts.number("block_count"),
        "width": facts.number("embedding_length"),
        "heads": facts.number("attention.head_count"),
        "cache_heads": facts.number("attention.head_count_kv"),
        "cache_bytes_per_token": cache_bytes(facts.header, 1),
        "memory": facts.memory,
        "vocabulary": _vocabulary_record(facts.vocabulary),
        "chat_template": facts.chat_template,
        "draft_heads": facts.hidden_state_heads,
    }


def _vocabulary_record(vocabulary: HeaderVocabulary | None) -> dict[str, Any] | None:
    if vocabulary is None:
        return None
    return {
        "type": TOKENIZER_NAMES[vocabulary.vocabulary_type],
        "size": vocabulary.n_vocab,
        "fingerprint": vocabulary.fingerprint,
        "special": dict(vocabulary.special),
        "adds_bos": vocabulary.adds_bos,
        "adds_eos": vocabulary.adds_eos,
    }
