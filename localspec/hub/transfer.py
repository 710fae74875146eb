"""Transfer: one file from the Hub to its place, going on where an earlier one stopped."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Event
from typing import Literal

from huggingface_hub import constants, get_session, hf_hub_url
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import hf_raise_for_status

from localspec.errors import HubError
from localspec.hub.cache_layout import Place
from localspec.hub.error_messages import explained, httpx
from localspec.hub.listing import token_headers
from localspec.hub.partial_files import announce
from localspec.hub.retry import pause

State = Literal["waiting", "fetching", "checking", "done"]
# Bytes asked for at once: the Hub's storage sends no answer above 50 GB.
SLICE = 40_000_000_000
_REDIRECTS = 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-")


class Stopped(Exception):
    """The transfer was told to stop; what it fetched is kept."""


class Transfer:
    """Fetches one file. tell: told the state and the bytes that are here. stop: ends it soon."""

    def __init__(self, place: Place, tell: Callable[[State, int], None], stop: Event) -> None:
        self._place = place
        self._tell = tell
        self._stop = stop
        self._repository = place.model.repository.id
        self._url = hf_hub_url(self._repository, place.file.path, revision=place.model.commit)

    def run(self) -> None:
        """See that the file is in its place.

        Raises HubError, ModelNotFoundError, OSError (of the disk), and Stopped.
        """
        place = self._place
        if not place.whole:
            with place.locked(self._wait):
                new = not place.blob_whole
                if new:
                    self._fetch()
                if not place.whole:
                    place.link(new)
        self._tell("done", place.file.size)

    def _fetch(self) -> None:
        """Fetch and check. What was continued may have begun as something else: once more then."""
        file = self._place.file
        announce(self._repository, file.etag, str(self._place.model.repository), file.size)
        while True:
            continued = self._place.part_size > 0
            self._receive()
            self._tell("checking", file.size)
            if self._place.accept():
                return
            if not continued:
                raise HubError(
                    f"what came as {file.path} of {self._repository} is not what the Hub has "
                    f"(its {'sha256' if file.sha256 else 'hash'} is wrong); it was deleted; pull "
                    "again, and look for a proxy or mirror on the way if it stays so"
                )

    def _receive(self) -> None:
        """Ask until everything is here, and again after what may pass."""
        place, failed = self._place, 0
        place.part.touch()
        most = place.part_size
        while place.part_size < place.file.size:
            try:
                self._receive_some()
            except (httpx.HTTPError, OfflineModeIsEnabled) as error:
                failed = 1 if place.part_size > most else failed + 1
                most = max(most, place.part_size)
                seconds = pause(error, failed)
                if seconds is None:
                    raise explained(error, self._repository) from error
                self._wait(seconds)

    def _receive_some(self) -> None:
        """What one answer brings, written as it comes."""
        part, size = self._place.part, self._place.file.size
        have = self._place.part_size
        end = min(size, have + SLICE)
        with self._ask(have, end) as response, part.open("r+b") as file:
            at = file.seek(_start(response, have))
            file.truncate()
            for chunk in response.iter_raw():
                if self._stop.is_set():
                    raise Stopped
                at += file.write(chunk[: size - at])
                self._tell("fetching", at)
                if at >= size:
                    break
        if at < end:
            raise httpx.RemoteProtocolError("less came than was asked for")

    @contextmanager
    def _ask(self, start: int, end: int) -> Iterator[httpx.Response]:
        """The answer to a request for these bytes, by whomever the Hub redirects to."""
        request = get_session().build_request(
            "GET",
            self._url,
            headers=self._headers(start, end),
            timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
        )
        for _ in range(_REDIRECTS):
            # The client makes the next request itself, and leaves out the token elsewhere.
            answer = get_session().send(request, stream=True, follow_redirects=False)
            with closing(answer):
                if answer.next_request is None:
                    hf_raise_for_status(answer)
                    yield answer
                    return
                request = answer.next_request
                self._vouch(answer, request)
        raise httpx.TooManyRedirects("redirected in a circle")

    def _headers(self, start: int, end: int) -> dict[str, str]:
        ranged = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        if start:
            ranged["If-Range"] = f'"{self._place.file.etag}"'
        return {**token_headers(), **ranged}

    def _vouch(self, answer: httpx.Response, request: httpx.Request) -> None:
        """Let the Hub say whether the storage it redirects to has what was begun.

        The storage has ETags of its own, and would send all of it again for the Hub's.
        """
        linked = answer.headers.get(constants.HUGGINGFACE_HEADER_X_LINKED_ETAG)
        if linked and "If-Range" in request.headers:
            del request.headers["If-Range"]
            if linked.strip('"') != self._place.file.etag:
                del request.headers["Range"]

    def _wait(self, seconds: float = 0.0) -> None:
        self._tell("waiting", self._place.fetched)
        if self._stop.wait(seconds):
            raise Stopped


def _start(response: httpx.Response, have: int) -> int:
    """Where in the file the answer begins: what was asked for, or 0."""
    if response.status_code != 206:
        return 0
    found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if not found or int(found[1]) > have:
        raise httpx.RemoteProtocolError("another range came than was asked for")
    return int(found[1])
