"""Addresses of the Hub, as people paste them: of a repository, a file or a folder of it.

https://huggingface.co/user/repo                   hf.co/user/repo:Q4_K_M
https://huggingface.co/user/repo/blob/main/FILE    hf://user/repo/FILE
https://huggingface.co/user/repo/resolve/main/FILE?download=true
"""

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from huggingface_hub import constants

from localspec.errors import ModelNotFoundError

_SCHEME = re.compile(r"(https?|hf)://", re.IGNORECASE)
_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
# Pages of a repository that name a revision and a file or folder of it, and pages about all of it.
_FILE_PAGES = ("blob", "resolve", "raw", "tree", "blame", "edit")
_OTHER_PAGES = ("discussions", "commits", "commit", "settings")
# What stands in the place of a user where an address is of no model.
_NO_USERS = frozenset(
    {"api", "blog", "collections", "datasets", "docs", "learn", "papers", "posts", "spaces"}
)
_MAIN = "main"
# The tag that Ollama writes for a model without one.
_LATEST = "latest"


@dataclass(frozen=True, slots=True)
class HubAddress:
    """What an address names. id: user/name. quant: a quantisation, a file or a folder, if any."""

    id: str
    quant: str | None


def parse_address(text: str) -> HubAddress | None:
    """Parse an address of the Hub; return None for a text that is no address.

    The host of HF_ENDPOINT is the Hub, too. Raises ModelNotFoundError for an address of another
    host, of another revision than main, or of no model.
    """
    if (path := _path_on_hub(text)) is None:
        return None
    path, _, query = path.partition("#")[0].partition("?")
    path, _, quant = path.partition(":")
    parts = [unquote(part) for part in path.split("/") if part]
    if len(parts) < 2 or parts[0] in _NO_USERS:
        raise no_model(text)
    name, _, revision = parts[1].partition("@")
    id = f"{parts[0]}/{name.removesuffix('.git')}"
    match parts[2:]:
        case [page, of, *folders] if page in _FILE_PAGES:
            revision, quant = of, "/".join(folders)
        case [*folders, file] if file.lower().endswith(".gguf"):
            quant = "/".join([*folders, file])
        case []:
            quant = unquote(quant) or parse_qs(query).get("show_file_info", [""])[0]
        case [page, *_] if page in _OTHER_PAGES:
            quant = ""
        case _:
            raise no_model(text)
    if revision not in ("", _MAIN):
        raise ModelNotFoundError(
            f"{text} is of the revision {revision}, and only {_MAIN} is fetched; name "
            f"{id}:{quant or 'QUANT'}, or fetch the file yourself and pass its path"
        )
    return HubAddress(id, quant if quant and quant.lower() != _LATEST else None)


def _path_on_hub(text: str) -> str | None:
    """Return what follows the host in an address; None for a text that is no address.

    Raises ModelNotFoundError for another host.
    """
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    if scheme and scheme[1].lower() == "hf":
        return rest
    endpoint = urlsplit(constants.ENDPOINT)
    own = endpoint.netloc.rpartition("@")[2] + endpoint.path if endpoint.netloc else _HOSTS[0]
    for host in (*_HOSTS, own.lower()):
        if rest.lower().startswith(f"{host}/"):
            return rest[len(host) + 1 :]
    if scheme is None:
        return None
    host = urlsplit(text).netloc.rpartition("@")[2]
    raise ModelNotFoundError(
        f"{host} is not the Hub in use ({own}); set HF_ENDPOINT={scheme[0].lower()}{host} if it is "
        "a mirror of the Hub, or fetch the file yourself and pass its path"
    )


def no_model(text: str) -> ModelNotFoundError:
    """Return the error for an address of the Hub that is not that of a model."""
    return ModelNotFoundError(
        f"{text} is the address of no model; paste that of a repository, "
        f"{_HOSTS[0]}/user/repo, or of a GGUF file in one"
    )
