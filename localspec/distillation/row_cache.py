"""Row cache: the shards of a training on this disk, as many as may lie there at once.

Where all fit, the target reads each text once. Where they do not, it reads the texts again round by
round, and the disk never holds more than the bound.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from localspec.distillation.shard import Shard
from localspec.distillation.texts import Text
from localspec.distillation.work_folder import WorkFolder

# Makes the shard of some texts.
Read = Callable[[Sequence[Text]], Shard]


class RowCache:
    """Shards by number. waves: the texts of each. most: bytes of all files. name: of the files."""

    def __init__(
        self,
        folder: WorkFolder,
        waves: Sequence[Sequence[Text]],
        read: Read,
        most: int,
        name: str = "rows",
    ) -> None:
        self._folder, self._waves, self._read, self._most = folder, waves, read, most
        self._name = name
        # The bytes of the files that are here, those that go first at the beginning.
        self._here: OrderedDict[int, int] = OrderedDict()
        for number in range(len(waves)):
            if (size := folder.size(self._file(number))) is not None:
                self._here[number] = size

    def __len__(self) -> int:
        return len(self._waves)

    def shard(self, number: int) -> Shard:
        """The shard of a wave, from the disk, or read by the target now."""
        content = self._folder.read(self._file(number))
        if content is not None:
            return Shard.from_bytes(content)
        shard = self._read(self._waves[number])
        self._keep(number, shard.to_bytes())
        return shard

    @property
    def missing(self) -> list[int]:
        """The shards that are not on the disk."""
        return [number for number in range(len(self)) if number not in self._here]

    def delete(self) -> None:
        """Delete all shards."""
        self._folder.delete(*map(self._file, range(len(self))))
        self._here.clear()

    def _keep(self, number: int, content: memoryview) -> None:
        while self._here and sum(self._here.values()) + len(content) > self._most:
            oldest, _ = self._here.popitem(last=False)
            self._folder.delete(self._file(oldest))
        if len(content) <= self._most:
            self._folder.write(self._file(number), content)
            self._here[number] = len(content)

    def _file(self, number: int) -> str:
        return f"{self._name}-{number:05}"
