"""Row cache: the shards of a training on this disk, as many as may lie there at once.

Where all fit, the target reads each text once. Where they do not, it reads the texts again round by
round, and the disk never holds more than the bound.
"""

from collections.abc import Callable, Sequence

from localspec.distillation.shard import Shard, StoppedReading
from localspec.distillation.texts import Text
from localspec.distillation.work_folder import BEGUN, WorkFolder

# Makes the shard of some texts. Raises StoppedReading.
Read = Callable[[Sequence[Text]], Shard]
# What the names of the files begin with.
ROWS = "rows"


class RowCache:
    """Shards by number. waves: the texts of each. most: bytes of all files. name: of the files."""

    def __init__(
        self,
        folder: WorkFolder,
        waves: Sequence[Sequence[Text]],
        read: Read,
        most: int,
        name: str = ROWS,
    ) -> None:
        self._folder, self._waves, self._read, self._most = folder, waves, read, most
        self._name = name
        # The bytes of the files that are here.
        self._here: dict[int, int] = {}
        for number in range(len(waves)):
            if (size := folder.size(self._file(number))) is not None:
                self._here[number] = size

    def __len__(self) -> int:
        return len(self._waves)

    def shard(self, number: int) -> Shard:
        """The shard of a wave, from the disk, or read by the target now."""
        kept = self.kept(number)
        return self.read([number]) if kept is None else kept

    def kept(self, number: int) -> Shard | None:
        """The shard of a wave from the disk; None if it is missing or damaged there."""
        content = self._folder.read(self._file(number))
        return None if content is None else Shard.from_bytes(content)

    def read(self, order: Sequence[int]) -> Shard:
        """The shard that comes first in an order, read by the target now.

        Those that come next are read too, as many as the disk may hold: loading the target once for
        all of them takes less time. Raises Stopped.
        """
        first = self._read_wave(order[0])
        content = first.to_bytes()
        soon, per_token = len(content), len(content) / len(first)
        is_kept = self._keep(content, order, 0)
        del content  # it is as large as the shard
        for place, number in enumerate(order[1:], 1):
            tokens = sum(len(text.tokens) for text in self._waves[number])
            soon += self._here.get(number, round(per_token * tokens))
            if not is_kept or soon > self._most:
                break
            if number not in self._here:
                is_kept = self._keep(self._read_wave(number).to_bytes(), order, place)
        return first

    @property
    def missing(self) -> list[int]:
        """The shards that are not on the disk."""
        return [number for number in range(len(self)) if number not in self._here]

    def delete(self) -> None:
        """Delete all shards."""
        self._folder.delete(*map(self._file, range(len(self))))
        self._here.clear()

    def _read_wave(self, number: int) -> Shard:
        """Let the target read a wave. Raises Stopped; what it has read by then is kept."""
        name, texts = self._file(number) + BEGUN, self._waves[number]
        content = self._folder.read(name)
        parts = [] if content is None else [Shard.from_bytes(content)]
        begun = sum(len(each.texts) for each in parts)
        try:
            parts.append(self._read(texts[begun:]))
        except StoppedReading as stopped:
            if stopped.shard:
                read = Shard.joined([*parts, stopped.shard]).to_bytes()
                if self._size + len(read) <= self._most:
                    self._folder.write(name, read)
            raise
        self._folder.delete(name)
        return parts[0] if len(parts) == 1 else Shard.joined(parts)

    def _keep(self, content: memoryview, order: Sequence[int], place: int) -> bool:
        """Write the shard at this place of an order; False if there is no room for it.

        It replaces those that the order has left behind or never had, then the last ones of it.
        """
        number, turn = order[place], {each: at for at, each in enumerate(order)}
        self._here.pop(number, None)
        later = sorted(reversed(self._here), key=lambda each: turn.get(each, len(order)))
        while self._size + len(content) > self._most:
            if not later or turn.get(later[-1], len(order)) < place:
                return False
            last = later.pop()
            self._folder.delete(self._file(last))
            del self._here[last]
        self._folder.write(self._file(number), content)
        self._here[number] = len(content)
        return True

    @property
    def _size(self) -> int:
        return sum(self._here.values())

    def _file(self, number: int) -> str:
        return f"{self._name}-{number:05}"
