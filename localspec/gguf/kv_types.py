"""KV types: the types that the keys and the values of a cache have.

A name is that of both, as `q8_0`, or those of the keys and of the values, as `q8_0/f16`.
"""

from localspec.errors import InvalidValueError
from localspec.gguf.reader import Header
from localspec.gguf.types import TENSOR_TYPES

# The types that a cache can have, with ggml's numbers of them.
KV_TYPES = {
    kind.name.lower(): number
    for number, kind in TENSOR_TYPES.items()
    if kind.name in ("F32", "F16", "BF16", "Q8_0", "Q4_0")
}
_QUANTISED = ("q8_0", "q4_0")


def names_of(kv_type: str, setting: str = "kv_type") -> tuple[str, str]:
    """Return the names of the types of keys and values.

    Raises InvalidValueError, which names the setting.
    """
    names = kv_type.split("/")
    if len(names) > 2 or not KV_TYPES.keys() >= {*names}:
        raise InvalidValueError(
            f"{setting} is {kv_type!r}; choose one of {', '.join(KV_TYPES)}, or two of them for "
            "keys and values, as q8_0/f16"
        )
    return names[0], names[-1]


def shortest(kv_type: str, setting: str) -> str:
    """Return a type by its shortest name. Raises InvalidValueError, which names the setting."""
    keys, values = names_of(kv_type, setting)
    return keys if keys == values else f"{keys}/{values}"


def kv_types(kv_type: str) -> tuple[int, int]:
    """Return ggml's numbers of the types of keys and values. Raises InvalidValueError."""
    keys, values = names_of(kv_type)
    return KV_TYPES[keys], KV_TYPES[values]


def is_quantised(kv_type: str) -> bool:
    """Whether keys or values are quantised."""
    return any(name in _QUANTISED for name in names_of(kv_type))


def needs_flash_attention(kv_type: str) -> bool:
    """Whether the values are quantised: without flash attention they are kept transposed."""
    return names_of(kv_type)[1] in _QUANTISED


def require_fits(kv_type: str, header: Header, name: str, setting: str = "kv_type") -> None:
    """Raise InvalidValueError where the model's heads cannot have these types.

    name: of the model's file. setting: that of the type. The library refuses such a cache, or
    ends the process.
    """
    keys, values = names_of(kv_type)
    if keys != values and header.number("attention.kv_lora_rank"):
        raise InvalidValueError(
            f"{setting} is {kv_type}, and {name} has latent attention, whose keys and values are "
            f"of one type; use {keys} or {values}"
        )
    count, width = header.number("attention.head_count"), header.number("embedding_length")
    usual = width // count if width and count else 0
    for part, type_, of in (("keys", keys, "key_length"), ("values", values, "value_length")):
        block = TENSOR_TYPES[KV_TYPES[type_]][1]
        size = header.number(f"attention.{of}") or header.number("attention.key_length") or usual
        for length in (size, header.number(f"attention.{of}_swa") or 0):
            if length % block:
                raise InvalidValueError(
                    f"{setting} is {kv_type}, and the {part} of {name} have {length} numbers per "
                    f"head, which {type_} cannot hold: it has blocks of {block}; use f16"
                )
