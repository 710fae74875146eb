"""Address: where the server listens, and who may use it."""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.errors import InvalidValueError

HOST, PORT = "127.0.0.1", 8080
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens, and who may use it.

    hosts: names under which it may be addressed besides its address. key, origins, most_bytes: as
    in Guard.
    """

    host: str = HOST
    port: int = PORT
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    key: str | None = None
    most_bytes: int = 32 * 2**20

    def __post_init__(self) -> None:
        if not self.is_local and self.key is None:
            raise InvalidValueError(
                f"host is {self.host!r}, which others can reach; give it a key (--api-key-file "
                "FILE, or LOCALSPEC_API_KEY)"
            )

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine can reach it."""
        return self.host in LOOPBACK

    @property
    def url(self) -> str:
        """The base URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"
