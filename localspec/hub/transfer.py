"""Transfer one file from the Hub into its cache, continuing a partial download.

huggingface_hub says where a file is and what its content is called, forms requests and has the
locks. Its own download is not used, because it begins anew after `kill -9`, keeps nothing of a
download that failed, believes any bytes whose number is right, and fetches no file above 50 GB over
HTTP. `tests/hub/test_library_download.py` shows each of these, and fails once one of them is past.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Literal
from urllib.parse import urljoin, urlsplit

from huggingface_hub import constants, get_hf_file_metadata, get_session, hf_hub_url
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import hf_raise_for_status

from localspec.errors import HubError
from localspec.hub.cache_layout import CachedFile
from localspec.hub.error_messages import explain, httpx, reason
from localspec.hub.listing import HASH, token_headers
from localspec.hub.partial_files import record_download
from localspec.hub.reachability import require_answer
from localspec.hub.retry import (
    Arrivals,
    StorageError,
    UnreachableError,
    WrongAnswer,
    retry_delay,
)

# Asking: the server has sent nothing yet; silent: nothing for some seconds. Waiting is for the lock
# of another process, or for the next attempt.
TransferState = Literal["asking", "waiting", "silent", "fetching", "checking", "done"]
ProgressCallback = Callable[[TransferState, int, str], None]
# Bytes per request: the Hub's storage sends no answer above 50 GB.
MAX_REQUEST_BYTES = 40_000_000_000
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class TransferStopped(Exception):
    """The transfer was told to stop; what it downloaded is kept."""


class Transfer:
    """Downloads one file.

    report: called with the state, the bytes on disk and the reason for waiting, else "". stop: ends
    the transfer soon after it is set. arrivals: shared by all transfers of a download.
    """

    def __init__(
        self,
        cached: CachedFile,
        report: ProgressCallback,
        stop: Event,
        arrivals: Arrivals,
    ) -> None:
        self._cached = cached
        self._arrivals = arrivals
        self._report = report
        self._stop = stop
        self._repository = cached.model.repository.id
        # The furthest byte that has come, and whether the present request has brought any.
        self._furthest, self._sent = 0, False
        self._url = hf_hub_url(self._repository, cached.file.path, revision=cached.model.commit)

    def run(self) -> None:
        """Download what is missing of the file, and link it into its snapshot.

        Raises HubError, ModelNotFoundError, OSError (of the disk), and TransferStopped.
        """
        cached = self._cached
        if not cached.is_complete:
            with cached.locked(lambda: self._wait("another process fetches it")):
                if not cached.is_complete:  # another process may have fetched it meanwhile
                    new_blob = not cached.has_blob
                    if new_blob and not self._take_copy():
                        self._fetch()
                    cached.link(new_blob)
        self._report("done", cached.file.size, "")

    def _take_copy(self) -> bool:
        """Take the content from another revision, as soon as its hash is right, if one has it."""
        if not self._cached.copies:
            return False
        self._report("checking", self._cached.file.size, "")
        return self._cached.take_copy()

    def _fetch(self) -> None:
        """Download and check the hash; once more where a continued download turns out wrong."""
        file = self._cached.file
        record_download(self._repository, file.etag, str(self._cached.model.repository), file.size)
        while True:
            continued = self._cached.partial_size > 0
            self._receive()
            self._report("checking", file.size, "")
            if self._cached.accept_partial():
                return
            if not continued:
                raise HubError(
                    f"what came as {file.path} of {self._repository} is not what the Hub has "
                    f"(its {'sha256' if file.sha256 else 'hash'} is wrong); it was deleted; pull "
                    "again, and look for a proxy or mirror on the way if it stays so"
                )

    def _receive(self) -> None:
        """Send requests until the file is complete; retry after temporary errors."""
        cached, failures = self._cached, 0
        cached.partial_path.touch()
        self._furthest = cached.partial_size
        while cached.partial_size < cached.file.size:
            before, self._sent = self._furthest, False
            self._report("asking", cached.bytes_on_disk, "")
            try:
                self._receive_some()
            except (httpx.HTTPError, OfflineModeIsEnabled, UnreachableError) as error:
                new = self._furthest > before
                failures = 1 if new else failures + 1
                silence = None if self._sent and not new else self._arrivals.silence
                seconds = retry_delay(error, failures, silence)
                if seconds is None:
                    if isinstance(error, UnreachableError):
                        raise
                    raise explain(error, self._repository) from error
                self._wait(f"{reason(error)}; asked again in {seconds:g} s", seconds)

    def _receive_some(self) -> None:
        """Send one request, and append the chunks of the answer as they come.

        An answer that begins before what is here is read up to there, so that no answer, whatever
        it is, deletes a byte; the hash tells whether the file is right in the end.
        """
        path, size = self._cached.partial_path, self._cached.file.size
        have = self._cached.partial_size
        end = min(size, have + MAX_REQUEST_BYTES)
        with self._response(have, end) as response, path.open("r+b") as file:
            at = _start(response, have, size)
            file.truncate(file.seek(have))  # of a part that is too long, nothing is left
            for chunk in response.iter_raw():
                if self._stop.is_set():
                    raise TransferStopped
                file.write(chunk[max(0, have - at) : size - at])
                at += len(chunk)
                self._count(min(at, size))
                if at >= size:
                    break
        if at < end:
            raise WrongAnswer("less than was requested", request=response.request)

    def _count(self, at: int) -> None:
        """Count a chunk that ends at this byte of the file."""
        self._sent = True
        if at > self._furthest:  # and not again what came before the server began anew
            self._furthest = at
            self._arrivals.note()
        self._report("fetching", self._furthest, "")

    @contextmanager
    def _response(self, start: int, end: int) -> Iterator[httpx.Response]:
        """Ask the Hub where the content is now, request these bytes there, and yield the answer.

        All bytes are requested if that content is not the one that the partial download began as.
        A mirror may say nothing of its hash; then the one of the whole file tells.
        """
        headers, timeout = token_headers(), constants.HF_HUB_DOWNLOAD_TIMEOUT
        found = get_hf_file_metadata(self._url, headers=headers, timeout=timeout)
        location = urljoin(self._url, found.location)
        elsewhere = urlsplit(location)[:2] != urlsplit(self._url)[:2]
        if elsewhere:
            # A storage of its own, whose address is signed: the token is the Hub's alone.
            headers.pop("authorization", None)
            if self._arrivals.silence is None:
                require_answer(location)
        if found.etag == self._cached.file.etag or not HASH.fullmatch(found.etag or ""):
            headers["Range"] = f"bytes={start}-{end - 1}"
        headers["Accept-Encoding"] = "identity"
        with get_session().stream("GET", location, headers=headers, timeout=timeout) as answer:
            if elsewhere and answer.is_error:
                raise StorageError(f"the storage answers {answer.status_code}", response=answer)
            hf_raise_for_status(answer)
            yield answer

    def _wait(self, why: str, seconds: float = 0.0) -> None:
        self._report("waiting", self._cached.bytes_on_disk, why)
        if self._stop.wait(seconds):
            raise TransferStopped


def _start(answer: httpx.Response, have: int, size: int) -> int:
    """Return the byte of the file that the answer begins at: `have`, less, or 0.

    Raises WrongAnswer for one that is not of this file, which is as long as `size` says.
    """
    if answer.status_code == 206:
        found = _CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
        if found and int(found[1]) <= have and found[2] in ("*", str(size)):
            return int(found[1])
        raise WrongAnswer("another range than the requested one", request=answer.request)
    is_page = answer.headers.get("Content-Type", "").startswith("text/html")
    length = answer.headers.get("Content-Length", str(size))
    if is_page or length != str(size):
        what = "a web page" if is_page else f"{length} bytes"
        raise WrongAnswer(f"{what} instead of the file", request=answer.request)
    return 0
