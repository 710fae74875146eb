"""Mask token: the token at which a PARD model predicts, as its file names it."""

from pathlib import Path

from localspec.errors import DrafterMismatchError
from localspec.gguf.heads import vocabulary_size
from localspec.gguf.reader import Header, display_name
from localspec.utils.option_names import options

# What models that draft at mask tokens are called.
PARD = "pard"
# The published config.json has `pard_token`; converters for llama.cpp do not write it yet.
KEYS = ("pard.mask_token_id", "pard_token")
_VOCABULARYS = "tokenizer.ggml.mask_token_id"


def is_pard(header: Header) -> bool:
    """Whether a file says that it is a PARD model."""
    return any(key in header.metadata for key in (*KEYS, *_own_keys(header)))


def mask_token(path: Path, header: Header, given: int | None = None) -> int:
    """Return the mask token of a PARD model. given: as the user named it.

    Raises DrafterMismatchError where nothing names it, or where it is no token of the model.
    """
    keys = (*KEYS, *_own_keys(header), _VOCABULARYS)
    named = [header.metadata[key] for key in keys if key in header.metadata]
    token = given if given is not None else next(iter(named), None)
    name, count = display_name(path.name), vocabulary_size(header)
    if token is None:
        raise DrafterMismatchError(
            f"{name} does not name its mask token; name it as in "
            f"{options(draft=f'pard=151670:{name}')}, with the number that "
            "`pard_token` has in the config.json of the published model"
        )
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < count:
        raise DrafterMismatchError(
            f"{name} has tokens 0 to {count - 1}, and its mask token is {token!r}; name it as in "
            f"{options(draft=f'pard={count - 1}:{name}')}"
        )
    return token


def _own_keys(header: Header) -> tuple[str, ...]:
    """The keys as a converter writes what config.json has: below the architecture."""
    return (f"{header.architecture}.pard_token", f"{header.architecture}.pard.mask_token_id")
