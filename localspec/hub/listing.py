"""Hub: what a repository there holds, and which of its files are the model that is meant."""

import re
import time
from dataclasses import dataclass

from huggingface_hub import HfApi, constants
from huggingface_hub.hf_api import ModelInfo, RepoSibling
from huggingface_hub.utils import build_hf_headers

from localspec.errors import HubError
from localspec.gguf.files import Unit, choose
from localspec.hub.error_messages import endpoint, explained, httpx
from localspec.hub.reference import Repository
from localspec.hub.retry import pause

_COMMIT = re.compile(r"[0-9a-f]{40}")
_ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository.

    path: its name there, which may be in folders. size: bytes. sha256: of its content, None where
    it is not in LFS; blob_id: what git calls it, which is a hash of its content then.
    """

    path: str
    size: int
    sha256: str | None
    blob_id: str

    @property
    def etag(self) -> str:
        """What the Hub and its cache on disk know the content by."""
        return self.sha256 or self.blob_id


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model as a repository has it now.

    repository: with the quantisation that was chosen. commit: what main was. files: of the unit, in
    its order.
    """

    repository: Repository
    commit: str
    unit: Unit
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)


def look_up(wanted: Repository) -> RemoteModel:
    """Ask the Hub which files a model is now: one request, nothing is downloaded.

    Raises HubError where it cannot be asked or refuses, and ModelNotFoundError where it has no such
    repository or the repository no such model.
    """
    if constants.is_offline_mode():
        raise HubError(
            f"{wanted} cannot be looked up: HF_HUB_OFFLINE forbids it; unset it, or name a model "
            f"that localspec ls shows"
        )
    found = _information(wanted.id)
    if not _COMMIT.fullmatch(found.sha or ""):
        raise HubError(f"{endpoint()} does not answer as the Hub does; check HF_ENDPOINT")
    siblings = {sibling.rfilename: sibling for sibling in found.siblings or ()}
    unit = choose(siblings, wanted.quant, wanted.id)
    files = tuple(_remote_file(siblings[name], wanted.id) for name in unit.files)
    chosen = Repository(wanted.id, wanted.quant or unit.quant)
    return RemoteModel(chosen, found.sha or "", unit, files)


def token_headers() -> dict[str, str]:
    """What every request for a file carries: the token, if there is one, and who asks.

    Raises HubError for a token that is none, before the HTTP client does, which would quote it.
    """
    headers = build_hf_headers(library_name="localspec")
    token = headers.get("authorization", "")
    if not (token.isascii() and token.isprintable()):
        raise HubError(
            "the token in HF_TOKEN, or that of hf auth login, has characters that no token has; "
            "set it again"
        )
    return headers


def _information(repository: str) -> ModelInfo:
    token_headers()
    failed = 0
    while True:
        try:
            return HfApi(library_name="localspec").model_info(
                repository, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            failed += 1
            seconds = pause(error, failed)
            # Who cannot be reached at all is told so at once.
            if seconds is None or isinstance(error, httpx.ConnectError):
                raise explained(error, repository) from error
            time.sleep(seconds)
        except (ValueError, TypeError, KeyError) as error:
            raise HubError(
                f"{endpoint()} does not answer as the Hub does; check HF_ENDPOINT"
            ) from error


def _remote_file(sibling: RepoSibling, repository: str) -> RemoteFile:
    """What is listed, if it can be trusted to name files on this disk."""
    path, lfs = sibling.rfilename, sibling.lfs
    size = lfs.size if lfs else sibling.size
    file = RemoteFile(path, size or 0, lfs.sha256 if lfs else None, sibling.blob_id or "")
    odd = not path.isprintable() or "\\" in path or ":" in path
    if odd or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise HubError(f"{repository} lists a file called {path!r}, which may not be a name here")
    if not file.size or not _ETAG.fullmatch(file.etag):
        raise HubError(f"{endpoint()} does not say the size and the hash of {path} of {repository}")
    return file
