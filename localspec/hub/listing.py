"""Listing: the files of a repository on the Hub, and which of them are the model to download."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import OIDCError
from huggingface_hub.hf_api import ModelInfo, RepoSibling
from huggingface_hub.utils import build_hf_headers

from localspec import __version__
from localspec.errors import HubError
from localspec.gguf.files import ModelFiles, NotListedError, choose_model, is_in_folder
from localspec.gguf.projectors import choose_projector, is_projector
from localspec.hub import renames
from localspec.hub.environment import offline_setting, require_certificates
from localspec.hub.error_messages import (
    endpoint_name,
    explain,
    httpx,
    reason,
    require_usable_proxies,
)
from localspec.hub.reachability import require_answer, silence_told
from localspec.hub.reference import Repository
from localspec.hub.retry import retry_delay
from localspec.utils.progress import report_progress

# What the Hub calls a content: a hash of git, or a sha256.
HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_NO_CONNECTION = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)


class BadFileError(HubError):
    """A file that the Hub lists, and that cannot be fetched: of no size or hash, or misnamed."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository.

    path: from the top of the repository. size: bytes. sha256: of the content, None for a file that
    is not in LFS. blob_id: git's hash, which for such a file is one of the content.
    """

    path: str
    size: int
    sha256: str | None
    blob_id: str

    @property
    def etag(self) -> str:
        """The hash by which the Hub and its cache on disk name the content."""
        return self.sha256 or self.blob_id


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model as its repository on the Hub has it now.

    repository: with the quantisation that was chosen. commit: the hash of main. names: the paths
    of its files in the repository; files: the same files, in the same order. hashes: of all files
    of the repository. new_name: of a repository that was renamed since it got this one. gated:
    whether its files are only for those who accepted its conditions.
    """

    repository: Repository
    commit: str
    names: ModelFiles
    files: tuple[RemoteFile, ...]
    hashes: frozenset[str]
    new_name: str | None = None
    gated: bool = False

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class RemoteRepository:
    """A repository as the Hub lists it now.

    id: with the capitals that the Hub gives it. commit: the hash of main. siblings: files by path.
    new_name, gated: as in `RemoteModel`.
    """

    id: str
    commit: str
    siblings: Mapping[str, RepoSibling]
    new_name: str | None = None
    gated: bool = False

    def model(self, quant: str | None) -> RemoteModel:
        """Return the model of a quantisation or a file, as `choose_model` does.

        Raises ModelNotFoundError where there is no such model, and HubError for a file that the Hub
        does not describe.
        """
        names = choose_model(self.siblings, quant, self.id)
        return self._described(Repository(self.id, _name_in(names, quant)), names)

    def projector(self, target: RemoteModel, file: str | None = None) -> RemoteModel | None:
        """Return the file that reads images for a model; None where there is none.

        file: its path. Raises NotListedError for a path that is none of a projector, and HubError
        for a file that the Hub does not describe.
        """
        if file and not (file in self.siblings and is_projector(file)):
            known = ", ".join(filter(is_projector, self.siblings)) or "none"
            raise NotListedError(f"{self.id} has no mmproj file {file!r}; it has {known}")
        if (path := file or choose_projector(self.siblings, target.names.first)) is None:
            return None
        return self._described(target.repository, ModelFiles((path,)))

    def files(self, paths: Sequence[str]) -> RemoteModel:
        """Return these files of the repository, which need not be those of a model.

        Raises HubError for a file that the Hub does not describe.
        """
        return self._described(Repository(self.id), ModelFiles(tuple(paths)))

    def _described(self, chosen: Repository, names: ModelFiles) -> RemoteModel:
        files = tuple(_remote_file(self.siblings[path], self.id) for path in names.paths)
        hashes = frozenset(_as_listed(each).etag for each in self.siblings.values())
        return RemoteModel(chosen, self.commit, names, files, hashes, self.new_name, self.gated)


def look_up(wanted: Repository) -> RemoteModel:
    """Ask the Hub which files a model has now; nothing is downloaded. Raises as `list_files`."""
    return list_files(wanted).model(wanted.quant)


def list_files(wanted: Repository) -> RemoteRepository:
    """Ask the Hub which files a repository has now, in one request.

    Raises HubError where the Hub cannot be reached or refuses, and ModelNotFoundError where there
    is no such repository, or no such model in it.
    """
    if constants.is_offline_mode():
        raise HubError(
            f"{wanted} cannot be looked up: {offline_setting()} forbids it; unset it, or name a "
            f"model that localspec ls shows"
        )
    found = _model_info(wanted.id)
    if not _COMMIT.fullmatch(found.sha or ""):
        raise HubError(f"{endpoint_name()} does not answer as the Hub does; check HF_ENDPOINT")
    siblings = {sibling.rfilename: sibling for sibling in found.siblings or ()}
    # The Hub takes names in any case; under another name it answers for one that was renamed.
    identity = getattr(found, "_id", None)
    if other := renames.record(wanted.id, found.id, identity and str(identity)):
        report_progress(
            f"{found.id} is another repository on the Hub now, and no longer {other}; here, too, "
            "each name means its own from now on, and nothing was deleted"
        )
    same = found.id.lower() == wanted.id.lower()
    return RemoteRepository(
        found.id if same else wanted.id,
        found.sha or "",
        siblings,
        None if same else found.id,
        bool(found.gated),
    )


def require_access(model: RemoteModel) -> None:
    """Raise RefusedError where a model is gated and whoever asks has no access to its files.

    Raises HubError where the Hub cannot be asked. One request, of a gated model only.
    """
    if not model.gated:
        return
    repository = model.repository.id
    url = hf_hub_url(repository, model.names.first, revision=model.commit)
    try:
        timeout = constants.HF_HUB_ETAG_TIMEOUT
        get_hf_file_metadata(url, headers=token_headers(), timeout=timeout)
    except httpx.HTTPError as error:
        raise explain(error, repository) from error


def token_headers() -> dict[str, str]:
    """Return the headers of every request for a file: the token, if there is one, and our name.

    Raises HubError for a token that cannot be had, or is malformed: the HTTP client's own error
    would quote the token.
    """
    try:
        headers = build_hf_headers(library_name="localspec", library_version=__version__)
    except OIDCError as error:
        raise HubError(
            "HF_OIDC_RESOURCE asks for a token that cannot be had; set HF_OIDC_ID_TOKEN, or unset "
            "HF_OIDC_RESOURCE"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise HubError(
            f"the token in {constants.HF_TOKEN_PATH} cannot be read ({type(error).__name__}); log "
            "in with hf auth login again, or delete that file"
        ) from error
    token = headers.get("authorization", "")
    if not (token.isascii() and token.isprintable()):
        raise HubError(
            "the token in HF_TOKEN, or that of hf auth login, has characters that no token has; "
            "set it again"
        )
    return headers


def _model_info(repository: str) -> ModelInfo:
    require_usable_proxies()
    require_certificates()
    require_answer()
    token_headers()
    failures = 0
    while True:
        try:
            with silence_told(endpoint_name()):
                hub = HfApi(library_name="localspec", library_version=__version__)
                return hub.model_info(
                    repository, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
                )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            failures += 1
            seconds = retry_delay(error, failures)
            # Without any connection there is no retry: the user learns of it at once.
            if seconds is None or isinstance(error, _NO_CONNECTION):
                raise explain(error, repository) from error
            report_progress(f"{reason(error)}; asked again in {seconds:g} s")
            time.sleep(seconds)
        except (ValueError, TypeError, KeyError) as error:
            raise HubError(
                f"{endpoint_name()} does not answer as the Hub does; check HF_ENDPOINT"
            ) from error


def _name_in(names: ModelFiles, quant: str | None) -> str | None:
    """Return the name of a model in its repository: its quantisation, or the path that was asked.

    quant: what was asked, such as Q4 where there is a Q4_K_M.
    """
    if quant and is_in_folder(names.first, quant):
        return names.first[: len(quant)]
    if quant and quant.lower().endswith(".gguf"):
        return next((path for path in names.paths if path.lower() == quant.lower()), quant)
    return names.quant or quant


def _as_listed(sibling: RepoSibling) -> RemoteFile:
    """Return a file as it is listed, whatever the Hub says of it."""
    lfs = sibling.lfs
    size = lfs.size if lfs else sibling.size
    sha256 = lfs.sha256 if lfs else None
    return RemoteFile(sibling.rfilename, size or 0, sha256, sibling.blob_id or "")


def _remote_file(sibling: RepoSibling, repository: str) -> RemoteFile:
    """Return a listed file. Raises BadFileError for a path that is not safe on this disk."""
    file = _as_listed(sibling)
    path = file.path
    odd = not path.isprintable() or "\\" in path or ":" in path
    if odd or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise BadFileError(
            f"{repository} lists a file called {path!r}, which may not be a name here"
        )
    if not file.size or not HASH.fullmatch(file.etag):
        raise BadFileError(
            f"{endpoint_name()} does not say the size and the hash of {path} of {repository}"
        )
    return file
