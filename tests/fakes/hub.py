"""A Hub on this machine: what huggingface_hub asks is answered as the real one answers it.

Files in LFS are on a second origin, as they are in reality: `resolve` redirects there with a
signed address, and no token may ever reach it.
"""

import hashlib
import json
import re
import socket
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from fakes.hub_faults import Faults, Origin
from fakes.hub_repo import File, Repo

_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass
class Request:
    """One request. authorised: it came with a token. agent: who asks. sent: bytes of its answer's
    body so far.
    """

    origin: Origin
    method: str
    path: str
    range: str | None
    authorised: bool
    agent: str
    status: int = 0
    sent: int = 0


class Refusal(Exception):
    """An error as the Hub words it: status, X-Error-Code, X-Error-Message."""

    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        super().__init__(status, code, message)
        self.status, self.code, self.message = status, code, message


class Hub:
    """A server to use as HF_ENDPOINT while inside.

    strangers: tokens of users who were granted nothing; any token that is neither theirs nor a
    repository's is invalid, and refused everywhere. page: entries of a tree in one answer.
    """

    def __init__(
        self,
        repos: Mapping[str, Repo],
        *,
        strangers: Collection[str] = (),
        page: int = 1000,
    ) -> None:
        self.repos = dict(repos)
        self.strangers = strangers
        self.page = page
        # Former names of repositories, in small letters, with their names.
        self.renamed: dict[str, str] = {}
        self.faults = Faults()
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._servers: dict[Origin, _Server] = {
            "hub": _Server(self, _HubHandler),
            "cdn": _Server(self, _CdnHandler),
        }
        self.endpoint = self._servers["hub"].address
        # Under another name of this machine: huggingface_hub follows redirects to the same name.
        self.cdn = self._servers["cdn"].address.replace("127.0.0.1", "localhost")

    def __enter__(self) -> "Hub":
        for server in self._servers.values():
            server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.closing.set()
        for server in self._servers.values():
            server.stop()

    @property
    def sent(self) -> int:
        """Bytes of files in LFS that were sent so far."""
        return sum(request.sent for request in self.requests if request.origin == "cdn")

    def token_known(self, token: str) -> bool:
        return token in {*self.strangers, *(repo.token for repo in self.repos.values())}

    def blob(self, sha256: str) -> File | None:
        """A file that was ever committed, by its content."""
        return next(
            (
                file
                for repo in self.repos.values()
                for state in repo.commits.values()
                for file in state.values()
                if file.sha256 == sha256
            ),
            None,
        )


class _Server(ThreadingHTTPServer):
    """One origin. Stopping it ends every connection and every thread."""

    daemon_threads = False

    def __init__(self, hub: Hub, handler: type["_Handler"]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.hub = hub
        self._connections: set[socket.socket] = set()
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        for connection in list(self._connections):
            with suppress(OSError):  # closed from the other side
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def close_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().close_request(request)


class _Handler(BaseHTTPRequestHandler):
    """What both origins share: requests are recorded, errors worded, files sent in ranges."""

    server: _Server
    origin: Origin
    protocol_version = "HTTP/1.1"
    # Answers are small writes that must not wait for each other.
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.hub = self.server.hub

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # who asked is gone
            self.close_connection = True

    def do_GET(self) -> None:
        token = self._token()
        self.request_seen = Request(
            *(self.origin, self.command, self.path),
            range=self.headers.get("Range"),
            authorised=token is not None,
            agent=self.headers.get("User-Agent", ""),
        )
        self.hub.requests.append(self.request_seen)
        try:
            self.answer(token)
        except Refusal as refusal:
            self.refuse(refusal)

    do_HEAD = do_GET

    def answer(self, token: str | None) -> None:
        raise NotImplementedError

    def fail_on_purpose(self) -> None:
        if status := self.hub.faults.status(self.origin):
            raise Refusal(status, message=f"{status} on purpose")

    def refuse(self, refusal: Refusal) -> None:
        headers = {"X-Error-Code": refusal.code, "X-Error-Message": refusal.message}
        if refusal.status == 429 and self.hub.faults.retry_after is not None:
            headers["Retry-After"] = str(self.hub.faults.retry_after)
        self.say(refusal.status, {"error": refusal.message}, headers)

    def say(self, status: int, content: Any, headers: Mapping[str, str]) -> None:
        """An answer that is JSON."""
        body = json.dumps(content).encode()
        self.begin(status, {"Content-Type": "application/json", **headers}, len(body))
        if self.command == "GET":
            self._write(body)

    def begin(self, status: int, headers: Mapping[str, str], length: int) -> None:
        self.request_seen.status = status
        self.send_response(status)
        if self.origin == "hub" and not self.request_seen.authorised:
            self.send_header(
                "X-HF-Warning", "unauthenticated; You are sending requests unauthenticated"
            )
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def send_file(self, file: File, etag: str, headers: Mapping[str, str]) -> None:
        """All of it, or the range that was asked for if the file is still the one meant."""
        start, end = self._range(file.size, etag)
        about = {"ETag": etag, "Accept-Ranges": "bytes", **headers}
        if start >= file.size > 0:
            self.begin(416, {**about, "Content-Range": f"bytes */{file.size}"}, 0)
            return
        partial = end - start < file.size
        if partial:
            about["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
        self.begin(206 if partial else 200, about, end - start)
        if self.command == "GET":
            body = file.content[start:end]
            self.close_connection |= not self.hub.faults.send(
                body, self._write, self.hub.closing.wait
            )

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: it is in the record."""

    def _range(self, size: int, etag: str) -> tuple[int, int]:
        found = _RANGE.fullmatch(self.headers.get("Range") or "")
        meant = self.headers.get("If-Range", etag) == etag
        if not found or not meant or self.hub.faults.ignore_range:
            return 0, size
        return int(found[1]), min(size, int(found[2]) + 1 if found[2] else size)

    def _write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.request_seen.sent += len(data)

    def _token(self) -> str | None:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None


class _HubHandler(_Handler):
    """Information, trees, and where files are."""

    origin = "hub"

    def answer(self, token: str | None) -> None:
        if meant := self._in_right_capitals(urlsplit(self.path).path):
            self.begin(307, {"Location": meant}, 0)
            return
        if token and not self.hub.token_known(token):
            raise Refusal(401, message="Invalid credentials in Authorization header")
        address = urlsplit(self.path)
        if not address.path.startswith("/api/agent"):  # which the client asks on its own account
            self.fail_on_purpose()
        if found := _API.fullmatch(address.path):
            asked = parse_qs(address.query)
            repo, commit = self._repo(found[1], found[3] or "main", token)
            if found[2] == "tree":
                self._tree(repo, commit, int(asked.get("cursor", ["0"])[0]))
            else:
                self._information(found[1], repo, commit, "blobs" in asked)
        elif found := _RESOLVE.fullmatch(address.path):
            repo, commit = self._repo(found[1], found[2], token)
            self._resolve(found[1], repo, commit, unquote(found[3]), token)
        else:
            raise Refusal(404, message="Sorry, we can't find the page you are looking for.")

    def _in_right_capitals(self, path: str) -> str | None:
        """Where a name in other capitals, or a former one, is redirected to."""
        found = _API.fullmatch(path) or _RESOLVE.fullmatch(path)
        name = found[1] if found else ""
        known = {each.lower(): each for each in self.hub.repos} | self.hub.renamed
        meant = known.get(name.lower(), name)
        return None if meant == name else self.path.replace(name, meant, 1)

    def _repo(self, name: str, revision: str, token: str | None) -> tuple[Repo, str]:
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and token != repo.token):
            # Without a token the Hub does not tell what is missing from what is private.
            raise Refusal(404 if token else 401, "RepoNotFound", "Repository not found")
        if repo.disabled:
            raise Refusal(403, message="Access to this resource is disabled.")
        commit = repo.commit(unquote(revision))
        if commit is None:
            raise Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repo, commit

    def _information(self, name: str, repo: Repo, commit: str, blobs: bool) -> None:
        files = repo.commits[commit].values()
        about = {
            "_id": repo.identity,
            "id": name,
            "modelId": name,
            "sha": commit,
            "private": repo.private,
            "gated": "manual" if repo.gated else False,
            "disabled": False,
            "tags": ["gguf"],
            "siblings": [file.sibling() if blobs else {"rfilename": file.name} for file in files],
        }
        self.say(200, about, {"X-Repo-Commit": commit})

    def _tree(self, repo: Repo, commit: str, start: int) -> None:
        files = list(repo.commits[commit].values())
        after = start + self.hub.page
        path = urlsplit(self.path).path
        link = f'<{self.hub.endpoint}{path}?recursive=true&cursor={after}>; rel="next"'
        headers = {"X-Repo-Commit": commit, "Link": link if after < len(files) else ""}
        self.say(200, [file.entry() for file in files[start:after]], headers)

    def _resolve(self, name: str, repo: Repo, commit: str, path: str, token: str | None) -> None:
        if repo.gated and token != repo.token:
            message = f"Access to model {name} is restricted"
            raise Refusal(403 if token else 401, "GatedRepo", message)
        file = repo.commits[commit].get(path)
        headers = {"X-Repo-Commit": commit}
        if file is None:
            self.say(
                404, {"error": "Entry not found"}, {**headers, "X-Error-Code": "EntryNotFound"}
            )
        elif file.lfs:
            headers["X-Linked-Etag"] = f'"{file.sha256}"'
            headers["X-Linked-Size"] = str(file.size)
            headers["Location"] = f"{self.hub.cdn}/{file.sha256}?Expires=9&Signature=9"
            self.begin(302, headers, 0)
        else:
            self.send_file(file, f'"{file.git_id}"', headers)


class _CdnHandler(_Handler):
    """The files in LFS, by their content."""

    origin = "cdn"

    def answer(self, token: str | None) -> None:
        self.fail_on_purpose()
        file = self.hub.blob(urlsplit(self.path).path.removeprefix("/"))
        if token or file is None:
            # A signed address takes no other authorisation.
            raise Refusal(400 if token else 404, message="InvalidArgument")
        # Storage has tags of its own; what the Hub calls X-Linked-Etag means nothing there.
        tag = hashlib.md5(file.sha256.encode()).hexdigest()
        self.send_file(file, f'"{tag}"', {"Content-Type": "binary/octet-stream"})
