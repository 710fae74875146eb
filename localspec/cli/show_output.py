"""What `localspec show` prints of a model: lines for people, a record for programs."""

from collections.abc import Sequence
from typing import Any

from localspec.cli.output import join_facts
from localspec.gguf.facts import Facts
from localspec.gguf.lora import LoraFile
from localspec.gguf.projectors import ProjectorFile
from localspec.gguf.reader import Header
from localspec.gguf.vocabulary import TOKENIZER_NAMES, HeaderVocabulary
from localspec.llama.rope import UNSCALED, file_factor
from localspec.memory.estimate import cache_bytes
from localspec.memory.projector_memory import projector_bytes
from localspec.models.bundled_files import name_of
from localspec.models.own_drafters import OwnDrafter
from localspec.models.registry import Pair
from localspec.speculation.equal_digits import EqualDigits
from localspec.utils.format import format_bytes, format_count, printable

Row = tuple[str, str]

# Letters of a chat template's first line.
_MAX_TEMPLATE_LENGTH = 60
# Of a name or a licence; some files have the whole text of theirs.
_MOST_LETTERS = 200
# Rows that say something of a file that is no language model.
_OF_ANY_FILE = {"file", "size", "name", "licence", "architecture", "parameters", "quantisation"}
# Of all parameters: types that fewer are stored in are not named.
_MIN_SHARE = 0.005


def blocks_text(blocks: Sequence[Sequence[Row]]) -> str:
    """Return blocks of lines, each a name and a value, with empty lines between the blocks."""
    width = max(len(name) for rows in blocks for name, _ in rows)
    shown = [
        "\n".join(f"{name:<{width}}  {printable(value)}" for name, value in rows) for rows in blocks
    ]
    return "\n\n".join(shown) + "\n"


def pair_rows(pair: Pair) -> list[Row]:
    """Return what models.toml says of a pair."""
    sizes = ", ".join(
        f"{quant} {format_bytes(int(1e9 * size))}" for quant, size in pair.sizes.items()
    )
    return [
        ("pair", pair.name),
        ("for", pair.note or "-"),
        ("target", name_of(pair.target)),
        *_drafter_rows(pair),
        ("parameters", pair.parameters or "-"),
        ("context", f"{pair.context:,} tokens" if pair.context else "-"),
        ("target's sizes", sizes or "-"),
        ("licence", pair.licence or "-"),
        *([("unverified", ", ".join(pair.unverified))] if pair.unverified else []),
    ]


def _drafter_rows(pair: Pair) -> list[Row]:
    """Return the drafters of a pair, each with what is known of it."""
    if not pair.drafters:
        return [("drafter", f"none: {pair.no_drafter or '-'}")]
    rows = []
    for each in pair.drafters:
        size = format_bytes(each.size) if each.size else ""
        rows.append(("drafter", join_facts([str(each), size])))
        rows += [
            (f"  {name}", text)
            for name, text in (("loses", each.loses), ("reported", each.report))
            if text
        ]
        if each.unverified:
            rows.append(("  unverified", ", ".join(each.unverified)))
    return rows


def own_drafter_rows(drafters: Sequence[OwnDrafter], elsewhere: str | None) -> list[Row]:
    """Return the drafters of a target that models.toml does not list.

    elsewhere: where the heads are that the target lacks.
    """
    rows = [
        ("drafter", f"{each.name}, {'pulled' if each.pulled else 'found'} with the target")
        for each in drafters
    ]
    return [*rows, *([("heads", elsewhere)] if elsewhere else [])]


def model_rows(facts: Facts, digits: EqualDigits | None = None) -> list[Row]:
    """Return what a model's header says. digits: what a trial on this machine found."""
    parts = f" (and {len(facts.files) - 1} more)" if len(facts.files) > 1 else ""
    context = facts.header.context_length
    return [
        ("file", f"{facts.files[0]}{parts}"),
        ("size", format_bytes(facts.size)),
        ("name", _short(facts.text("general.name") or "-")),
        ("licence", _licence(facts)),
        ("architecture", _short(facts.header.architecture or "-")),
        ("parameters", f"{format_count(facts.parameters)} ({facts.parameters:,})"),
        ("quantisation", _quantisation(facts)),
        ("shape", _shape(facts)),
        ("context", join_facts([f"{context:,} tokens" if context else "-", _scaling(facts)])),
        ("memory", facts.memory_kind),
        ("cache", _cache(facts.header)),
        *_vocabulary(facts.vocabulary),
        ("chat template", _template(facts.chat_template)),
        ("draft heads", facts.hidden_state_heads or "none"),
        *([("logits", str(digits))] if digits else []),
    ]


def _cache(header: Header) -> str:
    size = cache_bytes(header, 1)
    if not size:
        return "-"
    # Layers with a sliding window keep what is in it.
    most = "at most " if header.number("attention.sliding_window") else ""
    return f"{most}{format_bytes(size)} per token, in 16 bits"


def reads_text(projector: ProjectorFile | None) -> str:
    """Return what a model reads, and the file that turns it into rows."""
    if projector is None:
        return "text"
    size = format_bytes(projector_bytes(projector))
    by = f"{projector.path.name} (takes {size} of memory, from the first one on)"
    return f"text, {projector.kinds} by {by}"


def projector_rows(rows: Sequence[Row], projector: ProjectorFile) -> list[Row]:
    """Return what is shown of a projector itself. rows: those of its header, as of a model."""
    kept = [row for row in rows if row[0] in _OF_ANY_FILE]
    return [*kept, ("projector", f"a model reads {projector.kinds} through it (--mmproj)")]


def projector_record(projector: ProjectorFile) -> dict[str, Any]:
    """Return the object that `--json` prints for a projector."""
    return {
        "file": str(projector.path),
        "size": projector.path.stat().st_size,
        "memory": projector_bytes(projector),
        "images": projector.images,
        "sounds": projector.sounds,
    }


def adapter_rows(rows: Sequence[Row], adapter: LoraFile) -> list[Row]:
    """Return what is shown of an adapter itself. rows: those of its header, as of a model."""
    kept = [row for row in rows if row[0] in _OF_ANY_FILE]
    alpha = f", alpha {adapter.alpha:g}" if adapter.alpha else ""
    kept.append(("adapter", f"LoRA of {adapter.shape_in_words}{alpha} (--lora)"))
    named = ("base model", adapter.base), ("task", adapter.task), ("prompt", adapter.prompt_prefix)
    return [*kept, *((name, _short(text)) for name, text in named if text)]


def adapter_record(adapter: LoraFile) -> dict[str, Any]:
    """Return the object that `--json` prints for an adapter."""
    return {
        "rank": adapter.rank,
        "alpha": adapter.alpha,
        "matrices": [*adapter.pairs],
        "norms": adapter.norms,
        "base_model": adapter.base,
        "task_name": adapter.task,
        "prompt_prefix": adapter.prompt_prefix,
    }


def _scaling(facts: Facts) -> str:
    """How the file scales rotations for its context; "" if it does not."""
    if (factor := file_factor(facts.header)) == 1:
        return ""
    of = facts.number("rope.scaling.original_context_length")
    original = f" of {of:,}" if of else ""
    return f"scaled by {UNSCALED.method(facts.header)}, factor {factor:g}{original}"


def _quantisation(facts: Facts) -> str:
    if not facts.parameters:
        return "none: it holds no weights"
    shares = {name: number / facts.parameters for name, number in facts.weights_by_type.items()}
    main = [f"{name} {share:.0%}" for name, share in shares.items() if share >= _MIN_SHARE]
    return join_facts([", ".join(main), f"{facts.bits_per_weight:.2f} bits per weight"])


def _shape(facts: Facts) -> str:
    known = {
        "layers": facts.number("block_count"),
        "wide": facts.number("embedding_length"),
        "heads": facts.number("attention.head_count"),
        "heads of keys and values": facts.number("attention.head_count_kv"),
        "experts": facts.number("expert_count"),
    }
    return ", ".join(f"{value:,} {unit}" for unit, value in known.items() if value) or "-"


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
    shown = _short(first, _MAX_TEMPLATE_LENGTH)
    return f"{shown} ({len(template):,} characters; --template prints them)"


def _licence(facts: Facts) -> str:
    said = [facts.text(f"general.license{key}") for key in ("", ".name", ".link")]
    return _short(", ".join(dict.fromkeys(each for each in said if each)) or "-")


def _short(text: str, most: int = _MOST_LETTERS) -> str:
    """A text of a header, which may be of any length. most: letters."""
    return text if len(text) <= most else f"{text[:most]}..."


def model_record(facts: Facts, digits: EqualDigits | None = None) -> dict[str, Any]:
    """Return the object that `--json` prints for a model; the arguments are those of model_rows."""
    return {
        "files": [str(file) for file in facts.files],
        "size": facts.size,
        "name": facts.text("general.name"),
        "licence": facts.text("general.license"),
        "architecture": facts.header.architecture,
        "parameters": facts.parameters,
        "types": dict(facts.weights_by_type),
        "bits_per_weight": facts.bits_per_weight,
        "context": facts.header.context_length,
        "layers": facts.number("block_count"),
        "width": facts.number("embedding_length"),
        "heads": facts.number("attention.head_count"),
        "cache_heads": facts.number("attention.head_count_kv"),
        "cache_bytes_per_token": cache_bytes(facts.header, 1),
        "memory": facts.memory_kind,
        "vocabulary": _vocabulary_record(facts.vocabulary),
        "chat_template": facts.chat_template,
        "draft_heads": facts.hidden_state_heads,
        "equal_digits": digits.as_dict() if digits else None,
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
