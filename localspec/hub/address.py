"""Addresses of the Hub, as people paste them: of a repository, a file or a folder of it.

https://huggingface.co/user/repo                   hf.co/user/repo:Q4_K_M
https://huggingface.co/user/repo/blob/main/FILE    hf://user/repo/FILE
https://huggingface.co/user/repo/resolve/main/FILE?download=true
"""

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from localspec.errors import ModelNotFoundError

_SCHEME = re.compile(r"(https?|hf)://", re.IGNORECASE)
# User name and password, before the host.
_LOGIN = re.compile(r"^(\s*(?:\w+://)?)[^/?#]*@")
_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
# Pages of a repository that name a revision and a file or folder of it, and pages about all of it.
_FILE_PAGES = ("blob", "resolve", "raw", "tree", "blame", "edit")
_OTHER_PAGES = ("discussions", "commits", "commit", "settings")
# What stands in the place of a user where an address is of no model.
_NO_USERS = frozenset(
    [
        "api",
        "blog",
        "buckets",
        "collections",
        "datasets",
        "docs",
        "kernels",
        "learn",
        "models",
        "organizations",
        "papers",
        "posts",
        "spaces",
    ]
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
    shown = without_login(text)
    path, _, query = path.partition("#")[0].partition("?")
    path, _, label = path.partition(":")
    parts = [unquote(part) for part in path.split("/") if part]
    if len(parts) < 2 or parts[0] in _NO_USERS:
        raise no_model(text)
    name, _, tag = parts[1].partition("@")
    id = f"{parts[0]}/{name.removesuffix('.git')}"
    revision = file = ""
    match parts[2:]:
        case [page, of, *folders] if page in _FILE_PAGES:
            revision, file = of, "/".join(folders)
        case [*folders, last] if last.lower().endswith(".gguf"):
            file = "/".join([*folders, last])
        case []:
            pass
        case [page, *_] if page in _OTHER_PAGES:
            pass
        case _:
            raise no_model(text)
    label = "" if label.lower() == _LATEST else unquote(label)
    quant = _one_of(file, label, parse_qs(query).get("show_file_info", [""])[0], shown)
    if other := next((each for each in (tag, revision) if each not in ("", _MAIN)), None):
        raise ModelNotFoundError(
            f"{shown} is of the revision {other}, and only {_MAIN} is fetched; name "
            f"{id}:{quant or 'QUANT'}, or fetch the file yourself and pass its path"
        )
    return HubAddress(id, quant or None)


def without_login(text: str) -> str:
    """Return an address without the user name and the password that may stand before its host."""
    return _LOGIN.sub(r"\1", text)


def _endpoint() -> str:
    """The address of the Hub in use. huggingface_hub has it too, but names are read without it."""
    return (os.environ.get("HF_ENDPOINT") or f"https://{_HOSTS[0]}").rstrip("/")


def endpoint_host() -> str:
    """Return the host of the Hub in use (HF_ENDPOINT) with its port, without a login."""
    return _netloc(_endpoint()) or without_login(_endpoint())


def _netloc(text: str) -> str:
    """Return host and port of an address; nothing where it is none."""
    try:
        return urlsplit(text).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def _one_of(path: str, label: str, info: str, shown: str) -> str:
    """Return the file or the quantisation that an address names, in whichever of its parts.

    path: a file or folder. info: of the panel that the Hub's list of files opens. Raises
    ModelNotFoundError where they are not of one model.
    """
    if info.startswith(f"{path}/"):
        path = ""  # the folder that lists it
    named = dict.fromkeys(filter(None, (info, path, label)))
    if len(named) > 1:
        raise ModelNotFoundError(f"{shown} names {' and '.join(named)}; leave one of them out")
    return next(iter(named), "")


def _path_on_hub(text: str) -> str | None:
    """Return what follows the host in an address; None for a text that is no address.

    Raises ModelNotFoundError for another host.
    """
    scheme = _SCHEME.match(text)
    kind, rest = (scheme[1].lower(), text[scheme.end() :]) if scheme else ("", text)
    if kind == "hf":  # whose newer form names the kind of repository first
        return rest.removeprefix("models/")
    host, _, path = rest.partition("/")
    site = _site(f"{kind}://{host}".removeprefix(":"))
    if site and site in [(each, None) for each in _HOSTS]:
        return path
    endpoint = _site(_endpoint())
    prefix = f"{_path(_endpoint())}/".lstrip("/")
    if endpoint and site == endpoint and path.lower().startswith(prefix.lower()):
        return path[len(prefix) :]
    if scheme is None:
        return None
    if site is None:
        raise no_model(text)
    named = _netloc(text)
    raise ModelNotFoundError(
        f"{named} is not the Hub in use ({endpoint_host()}); set HF_ENDPOINT={kind}://{named} if "
        "it is a mirror of the Hub, or fetch the file yourself and pass its path"
    )


def _site(address: str) -> tuple[str, int | None] | None:
    """Return the host of an address and its port, which is None where it is the usual one."""
    try:
        url = urlsplit(address)
        usual = 80 if url.scheme == "http" else 443
        return (url.hostname, None if url.port == usual else url.port) if url.hostname else None
    except ValueError:
        return None


def _path(address: str) -> str:
    try:
        return urlsplit(address).path.strip("/")
    except ValueError:
        return ""


def no_model(text: str) -> ModelNotFoundError:
    """Return the error for an address of the Hub that is not that of a model."""
    return ModelNotFoundError(
        f"{without_login(text)} is the address of no model; paste that of a repository, "
        f"{_HOSTS[0]}/user/repo, or of a GGUF file in one"
    )
