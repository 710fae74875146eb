"""Transfer one file from the Hub into its cache, continuing a partial download."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Event
from typing import Literal

from huggingface_hub import constants, get_session, hf_hub_url
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import hf_raise_for_status

from localspec.errors import HubError
from localspec.hub.cache_layout import CachedFile
from localspec.hub.error_messages import explain, httpx
from localspec.hub.listing import token_headers
from localspec.hub.partial_files import record_download
from localspec.hub.retry import retry_delay

# Waiting is for the lock of another process, or for the next attempt.
TransferState = Literal["waiting", "fetching", "checking", "done"]
# Bytes per request: the Hub's storage sends no answer above 50 GB.
MAX_REQUEST_BYTES = 40_000_000_000
_MAX_REDIRECTS = 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-")


class TransferStopped(Exception):
    """The transfer was told to stop; what it downloaded is kept."""


class Transfer:
    """Downloads one file.

    report: called with the state and the bytes on disk. stop: ends the transfer soon after it is
    set.
    """

    def __init__(
        self, cached: CachedFile, report: Callable[[TransferState, int], None], stop: Event
    ) -> None:
        self._cached = cached
        self._report = report
        self._stop = stop
        self._repository = cached.model.repository.id
        self._url = hf_hub_url(self._repository, cached.file.path, revision=cached.model.commit)

    def run(self) -> None:
        """Download what is missing of the file, and link it into its snapshot.

        Raises HubError, ModelNotFoundError, OSError (of the disk), and TransferStopped.
        """
        cached = self._cached
        if not cached.is_complete:
            with cached.locked(self._wait):
                new_blob = not cached.has_blob
                if new_blob:
                    self._fetch()
                if not cached.is_complete:
                    cached.link(new_blob)
        self._report("done", cached.file.size)

    def _fetch(self) -> None:
        """Download and check the hash; once more where a continued download turns out wrong."""
        file = self._cached.file
        record_download(self._repository, file.etag, str(self._cached.model.repository), file.size)
        while True:
            continued = self._cached.partial_size > 0
            self._receive()
            self._report("checking", file.size)
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
        most = cached.partial_size
        while cached.partial_size < cached.file.size:
            try:
                self._receive_some()
            except (httpx.HTTPError, OfflineModeIsEnabled) as error:
                failures = 1 if cached.partial_size > most else failures + 1
                most = max(most, cached.partial_size)
                seconds = retry_delay(error, failures)
                if seconds is None:
                    raise explain(error, self._repository) from error
                self._wait(seconds)

    def _receive_some(self) -> None:
        """Send one request, and write the chunks of the answer as they come."""
        path, size = self._cached.partial_path, self._cached.file.size
        have = self._cached.partial_size
        end = min(size, have + MAX_REQUEST_BYTES)
        with self._response(have, end) as response, path.open("r+b") as file:
            at = file.seek(_start(response, have))
            file.truncate()
            for chunk in response.iter_raw():
                if self._stop.is_set():
                    raise TransferStopped
                at += file.write(chunk[: size - at])
                self._report("fetching", at)
                if at >= size:
                    break
        if at < end:
            raise httpx.RemoteProtocolError("less came than was asked for")

    @contextmanager
    def _response(self, start: int, end: int) -> Iterator[httpx.Response]:
        """Request these bytes, follow the Hub's redirects, and yield the last answer."""
        request = get_session().build_request(
            "GET",
            self._url,
            headers=self._headers(start, end),
            timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
        )
        for _ in range(_MAX_REDIRECTS):
            # The client forms the next request, without the token where the host is another.
            answer = get_session().send(request, stream=True, follow_redirects=False)
            with closing(answer):
                if answer.next_request is None:
                    hf_raise_for_status(answer)
                    yield answer
                    return
                request = answer.next_request
                self._check_linked_etag(answer, request)
        raise httpx.TooManyRedirects("redirected in a circle")

    def _headers(self, start: int, end: int) -> dict[str, str]:
        ranged = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        if start:
            ranged["If-Range"] = f'"{self._cached.file.etag}"'
        return {**token_headers(), **ranged}

    def _check_linked_etag(self, answer: httpx.Response, request: httpx.Request) -> None:
        """Request all bytes from the storage if its content is not that of the partial download.

        The Hub's redirect says which content the storage has. The storage itself does not know the
        Hub's ETag: with If-Range it would always send all bytes.
        """
        linked = answer.headers.get(constants.HUGGINGFACE_HEADER_X_LINKED_ETAG)
        if linked and "If-Range" in request.headers:
            del request.headers["If-Range"]
            if linked.strip('"') != self._cached.file.etag:
                del request.headers["Range"]

    def _wait(self, seconds: float = 0.0) -> None:
        self._report("waiting", self._cached.bytes_on_disk)
        if self._stop.wait(seconds):
            raise TransferStopped


def _start(response: httpx.Response, have: int) -> int:
    """Return the byte of the file that the answer begins at: `have`, less, or 0."""
    if response.status_code != 206:
        return 0
    found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if not found or int(found[1]) > have:
        raise httpx.RemoteProtocolError("another range came than was asked for")
    return int(found[1])
