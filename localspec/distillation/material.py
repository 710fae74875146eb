"""Material: the texts of a training, and what the target computed on them.

A few prompts are held out: their answers are never trained on, and tell how good a drafter is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any

from localspec.distillation.reading import ReadText, TargetReader
from localspec.distillation.row_cache import Read, RowCache
from localspec.distillation.shard import Shard, StoppedReading
from localspec.distillation.texts import Stopped, Text, TextWriter, digest, tokenized
from localspec.distillation.work_folder import WorkFolder
from localspec.engine.engine import Engine, load
from localspec.engine.prompt import Prompt
from localspec.errors import InvalidValueError
from localspec.gguf.fingerprint import fingerprint
from localspec.utils.closing import Closing

# Prompts that are held out: one in so many, within these bounds.
_HELD_OUT, _FEWEST_HELD_OUT, _MOST_HELD_OUT = 10, 4, 32
FEWEST_PROMPTS = 16
# Texts that reading is tried on.
_SAMPLE = 16
# Without a seed texts begin with this one.
_SEED = 1
# More tokens for a letter than this: the tokenizer was not made for the language.
_SHREDDED = 1.2


@dataclass(frozen=True, slots=True)
class TextSource:
    """Where texts come from.

    prompts: given the loaded target, those that it answers. seed: None lets texts share decodes, so
    that their last digits may differ from run to run. runtime: options of `localspec.load`.
    """

    target: Path
    prompts: Callable[[Engine], Sequence[Prompt]]
    seed: int | None = None
    runtime: Mapping[str, Any] = field(default_factory=dict)


class Material(Closing):
    """The texts of one source. layers: whose hidden rows are read. cancel: set to stop.

    key: what the texts depend on. prompts, held_out: token ids. Close it (or use `with`).
    """

    def __init__(
        self, source: TextSource, layers: Sequence[int], say: Callable[[str], None], cancel: Event
    ) -> None:
        self._source, self._layers, self._cancel = source, tuple(layers), cancel
        self._engine: Engine | None = None
        self._has_drafters = False
        try:
            asked = [*source.prompts(self.engine)]
            found = tokenized(self.engine, asked)
            _say_if_shredded(self.engine, found, say)
            self.prompts, self.held_out = _split(found)
            # With a seed, the texts of a command are its own: threads and devices decide digits.
            exact = None if source.seed is None else dict(source.runtime)
            self._writer, self._held_out_writer = (
                TextWriter(
                    lambda: self.engine,
                    source.target,
                    prompts,
                    _SEED if source.seed is None else source.seed,
                    exact,
                )
                for prompts in (self.prompts, self.held_out)
            )
            self.key = [fingerprint(source.target), digest(found), source.seed, exact]
        except BaseException:
            self.close()
            raise

    @property
    def engine(self) -> Engine:
        """The target, with the drafters that it has; loaded when it is needed."""
        if not self._has_drafters:
            self.release()
        return self._loaded()

    def _loaded(self, **options: Any) -> Engine:
        if self._engine is None:
            exact, runtime = self._source.seed is not None, {**self._source.runtime, **options}
            self._engine = load(self._source.target, reproducible=exact, **runtime)
            self._has_drafters = "draft" not in options
        return self._engine

    def reload(self) -> float:
        """Load the target anew; the seconds it took, without what only a first load tries out."""
        self.release()
        began = perf_counter()
        self._loaded()
        return perf_counter() - began

    def release(self) -> None:
        """Free the target until it is needed again."""
        engine, self._engine = self._engine, None
        if engine:
            engine.close()

    def close(self) -> None:
        """Free the target."""
        self.release()

    def wave(self, number: int) -> list[Text]:
        """The texts of a wave, written now if they are not here. Raises Stopped."""
        return self._writer.wave(number, self._cancel)

    def texts(self, waves: int) -> list[Text]:
        """The texts of so many waves, in order. Raises Stopped."""
        return [text for number in range(waves) for text in self.wave(number)]

    @property
    def written(self) -> int:
        """How many waves, from the first one on, were written before."""
        numbers = takewhile(lambda number: self._writer.kept(number) is not None, count())
        return sum(1 for _ in numbers)

    @property
    def tokens(self) -> int:
        """The tokens of all answers that are here, also of those that were stopped."""
        return self._writer.tokens + self._held_out_writer.tokens

    def held_out_texts(self) -> list[Text]:
        """The answers to the held-out prompts. Raises Stopped."""
        return self._held_out_writer.wave(0, self._cancel)

    def writing(self, number: int = 0) -> float:
        """Seconds of a token of the answers of a wave that was written."""
        return self._writer.seconds_per_token(number)

    def sample(self) -> tuple[Shard, float]:
        """A shard of a few texts of the first wave, and the seconds that a token of it took."""
        texts = self.wave(0)[:_SAMPLE]
        self.read(texts[:1])  # the first text takes longer
        began = perf_counter()
        shard = self.read(texts)
        return shard, (perf_counter() - began) / sum(len(each.tokens) for each in texts)

    def read(self, texts: Sequence[Text]) -> Shard:
        """Let the target read texts. Raises StoppedReading.

        Drafters are no help here: where the target is loaded for this alone, they are left out.
        """
        engine, read = self._loaded(draft="none"), list[ReadText]()
        with engine.slots.scheduler.exclusive():
            reader = TargetReader(engine.slots.own.target, self._layers)
            try:
                for text in texts:
                    read.append(reader.read(text, self._cancel.is_set))
            except Stopped:
                raise StoppedReading(Shard.of(read) if read else None) from None
        return Shard.of(read)

    def rows(self, folder: WorkFolder, waves: int, most: int, read: Read) -> RowCache:
        """The shards of all texts. most: bytes on the disk. read: calls `read` of this material."""
        texts = [self.wave(number) for number in range(waves)]
        return RowCache(folder, texts, read, most)

    def held_out_rows(self, folder: WorkFolder) -> Shard:
        """The shard of the held-out texts."""
        return RowCache(folder, [self.held_out_texts()], self.read, 1 << 62, "held-out").shard(0)


def _split(prompts: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts to train on, and those held out. Raises InvalidValueError if they are too few."""
    if len(prompts) < FEWEST_PROMPTS:
        found = "is 1 prompt" if len(prompts) == 1 else f"are {len(prompts)} different prompts"
        raise InvalidValueError(
            f"there {found}, and a training needs {FEWEST_PROMPTS}: "
            "name more texts with --from, or leave it out for the prompts that come along"
        )
    held_out = min(_MOST_HELD_OUT, max(_FEWEST_HELD_OUT, len(prompts) // _HELD_OUT))
    step = len(prompts) // held_out
    held = set(range(0, step * held_out, step))
    return (
        [list(each) for number, each in enumerate(prompts) if number not in held],
        [list(prompts[number]) for number in sorted(held)],
    )


def _say_if_shredded(
    engine: Engine, prompts: Sequence[Sequence[int]], say: Callable[[str], None]
) -> None:
    """Say where the tokenizer needs nearly a token for each letter: little can be learnt then."""
    some = [*prompts[:64]]
    letters = sum(len(engine.detokenize(each)) for each in some)
    tokens = sum(map(len, some))
    if letters and tokens / letters > _SHREDDED:
        say(
            f"the tokenizer of this model cuts your texts into {tokens / letters:.1f} tokens per "
            "letter: it was not made for their language, and drafts will gain less"
        )
