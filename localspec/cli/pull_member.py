"""A model that `localspec pull` fetches, and what is said of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.cli.output import join_facts
from localspec.hub.download import bytes_on_disk
from localspec.hub.listing import RemoteModel
from localspec.models.kinds import DRAFT_MODEL
from localspec.utils.format import format_bytes

PROJECTOR = "projector"
_LEAVE_OUT = "it reads images or sounds; --mmproj none leaves it out"


@dataclass(frozen=True, slots=True)
class Member:
    """A target, a drafter or a projector that is pulled.

    name: what to call it. remote: what the Hub says of it; None if it is on this disk and the Hub
    was not asked. paths: its files on this disk; empty until they are fetched. kind: of a drafter,
    where it is known. gone: why the Hub has it no longer, of a drafter that is on this disk.
    """

    role: str
    name: str
    remote: RemoteModel | None
    paths: tuple[Path, ...] = ()
    kind: str | None = None
    gone: str | None = None

    @property
    def missing(self) -> int:
        """The number of bytes to fetch."""
        return self.remote.size - bytes_on_disk(self.remote) if self.remote else 0

    @property
    def path_in_repository(self) -> str:
        """The path of its first file in the repository, else that on this disk."""
        return self.remote.names.first if self.remote else self.paths[0].as_posix()


@dataclass(frozen=True, slots=True)
class Members:
    """The target, then its drafter and its projector, if there are any. notes: on the choice.

    remark: ends the line that says that everything is here.
    """

    found: list[Member]
    notes: Sequence[str] = ()
    remark: str = ""


def drafters_of(members: Sequence[Member]) -> list[Member]:
    """Return the drafter among what is pulled, if there is one."""
    return [each for each in members if each.role == "drafter"]


def about(member: Member) -> str:
    """Return one line: the file that was chosen, and how much of it is here."""
    model, role = member.remote, member.role
    if member.kind not in (None, DRAFT_MODEL):
        role = f"{role} ({member.kind})"
    if model is None:
        return f"{role}: {member.paths[0]} is here already"
    more = f" and {len(model.files) - 1} more" if len(model.files) > 1 else ""
    here = model.size - member.missing
    state = f"{format_bytes(here)} of it here already" if here else ""
    if not member.missing:
        state = "here already"
    facts = [model.names.first + more, model.names.quant or "", format_bytes(model.size)]
    way_out = _LEAVE_OUT if role == PROJECTOR and member.missing else ""
    return f"{role}: {join_facts([*facts, model.repository.id, state, way_out])}"


def renamed(member: Member) -> str | None:
    """Say how a repository is called on the Hub now; None where it is not renamed."""
    remote = member.remote
    if remote is None or remote.new_name is None:
        return None
    old = remote.repository.id
    return f"{old} is called {remote.new_name} on the Hub now; here it answers to both names"
