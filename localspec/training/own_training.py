"""Own training: a drafter for one's own model, from its own file, on this machine.

The target writes texts and reads them, a drafter learns from what it read, and drafts for held-out
texts at last. Each phase goes on where it was stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Event
from time import monotonic

import numpy as np
import torch

from localspec.conversion.target import TargetFile
from localspec.conversion.token_counts import Counts, count_ids
from localspec.distillation.last_trial import Trial
from localspec.distillation.material import Material
from localspec.distillation.row_cache import ROWS, RowCache
from localspec.distillation.shard import Shard, bytes_per_token
from localspec.distillation.texts import Stopped, Text
from localspec.distillation.trained import Trained, TrainingFacts
from localspec.distillation.work_folder import WorkFolder
from localspec.errors import InvalidValueError
from localspec.gguf.fingerprint import fingerprint
from localspec.models.trained_drafters import TrainedDrafter, add_trained
from localspec.training import kinds, result
from localspec.training.abortable import Abortable
from localspec.training.budget import (
    Budget,
    Speeds,
    Waves,
    budget_for_seconds,
    budget_for_tokens,
    forecast,
    reading_seconds,
    rounds_seconds,
    training_seconds,
)
from localspec.training.device import give_back_memory
from localspec.training.drafter_kind import TrainableDrafter
from localspec.training.examples import Batch, batches, count_batches
from localspec.training.expected_speed import ExpectedSpeed
from localspec.training.phase_times import PhaseTimes
from localspec.training.result import Rival
from localspec.training.rounds import RoundProgress, Rounds, seconds_per_token
from localspec.training.training_place import TrainingPlace
from localspec.training.training_request import Progress, TrainingRequest
from localspec.training.unfinished import BUDGET, prepare
from localspec.utils.format import format_bytes, format_seconds

_REVISION, _SEED = 2, 1
# Files of a work folder: of a training that goes on, and of one that has ended.
_LAYERS, _ENDED = "layers", "ended-3"
# The last trial takes this share of all time, and so many seconds at least.
_TRIAL_SHARE, _TRIAL_SECONDS = 0.08, 20.0
Watch = Callable[[Progress], None]
Say = Callable[[str], None]


class OwnTraining:
    """One training. watch: called with its progress. say: with a line about what was decided.

    cancel: set to stop it, within one batch or one pass of the target. abortable: what is stopped
    by KeyboardInterrupt instead. Raises InvalidValueError and
    DrafterMismatchError for what cannot be trained, before anything is loaded.
    """

    def __init__(self, request: TrainingRequest, watch: Watch, say: Say, cancel: Event) -> None:
        if request.kind not in kinds.KINDS:
            raise InvalidValueError(
                f"kind is {request.kind!r}; it is one of {', '.join(kinds.KINDS)}"
            )
        self._request, self._say, self._cancel = request, say, cancel
        self.abortable = Abortable(cancel)
        self._material: Material | None = None
        self._times = PhaseTimes()

        self._last = Progress("", 0.0)

        def timed(progress: Progress) -> None:
            self._times.enter(progress.phase)
            self._last = progress
            watch(progress)

        self._watch = timed
        self._kind, self._target = kinds.KINDS[request.kind], TargetFile(request.source.target)
        self._layers = self._kind.layers(self._target, request.options)
        size = self._kind.size(self._target, request.options, self._layers)
        smaller = partial(kinds.smaller, self._target, request.kind, request.options)
        self._place = TrainingPlace(request.device, say, size, smaller)
        type_name = request.options.type_name
        self.path = request.out or result.default_path(self._target, request.kind, type_name)
        result.require_replaceable(self.path, self._target)
        result.require_writable(self.path)
        self._place.require_room()
        self._began = monotonic()

    @property
    def kept(self) -> int:
        """The tokens of the answers that are here, also of those that were stopped."""
        return self._material.tokens if self._material else 0

    def run(self) -> Trained:
        """Train. Raises Stopped if it was stopped before there is a drafter to keep."""
        request = self._request
        with self.abortable.block():
            material = Material(request.source, self._layers, self._say, self._cancel)
        self._material = material
        with material:
            folder = WorkFolder([_REVISION, material.key, request.kind, request.options.key])
            with folder.locked():
                if ended := self._ended_before(folder):
                    return ended
                prepare(folder, self._request, self._say)
                while True:
                    try:
                        return self._train(material, folder)
                    except RuntimeError as error:
                        self._place.give_up(error)
                    # Here, where no error holds what was on the device any more.
                    give_back_memory()
                    # What was saved holds on any device; without it, the time is planned anew.
                    self._request = replace(request, resume=True, anew=False)
                    if not Rounds.saved_in(folder):
                        folder.delete(BUDGET)

    def _ended_before(self, folder: WorkFolder) -> Trained | None:
        """What this training made, if it is to be resumed but has come to its end."""
        stored = folder.read_json(_ENDED) if self._request.resume else None
        if stored is None:
            return None
        ended = Trained.of_json(stored["trained"])
        if not self.path.exists() or ended.path != self.path.absolute():
            return None
        if stored["drafter"] != fingerprint(self.path):  # another training has replaced it
            return None
        self._say("this training has ended; --anew trains again")
        return ended

    def _train(self, material: Material, folder: WorkFolder) -> Trained:
        self._watch(Progress("writing the first texts", 0.0))
        held_out = material.held_out_texts()
        shard, reading = material.sample()
        self._place.free_of(material)
        self._watch(Progress("choosing what is trained", 0.0))
        torch.manual_seed(self._seed)
        with self.abortable.block():
            drafter = self._created(folder, shard)
        self._place.take(drafter)
        self._say(f"{self._request.kind}: {drafter.note}, trained on {self._place}")
        first = material.wave(0)
        sizes = self._sizes(
            sum(len(each.tokens) for each in first),
            sum(each.answer for each in first),
            sum(len(each.tokens) for each in held_out),
            material.written,
        )
        with self.abortable.block():
            speeds = self._speeds(material, reading, drafter, self._sample(shard))
        # The target writes and reads where the drafter was measured.
        self._place.leave(drafter)
        if self._place.is_shared and not self._request.resume:
            speeds = replace(speeds, load=material.reload())
        budget = self._budget(folder, speeds, sizes, Rounds.checkpoint_bytes(drafter))
        rows = self._rows(material, folder, budget, speeds, sizes)
        held_out_rows = material.held_out_rows(folder)
        if not rows.missing:
            material.release()
        self._place.free_of(material)
        width = self._target.width
        steps = sum(count_batches(material.wave(number), width) for number in range(budget.waves))
        rounds = Rounds(
            self._place.enter(drafter),
            rows,
            [held_out_rows],
            folder,
            rounds=budget.rounds,
            steps=budget.rounds * steps,
            seed=self._seed,
            width=width,
            free_target=lambda: self._place.free_of(material),
            say=self._say,
        )
        if self._request.resume and rounds.resume():
            later = rounds_seconds(budget, speeds, sizes)
            left = (1 - rounds.share) * later + speeds.trial
            self._say(f"going on where the last training was saved: about {format_seconds(left)}")
        expected = ExpectedSpeed(self._target, drafter, self._request.kind, folder)
        watch = self._rounds_watcher(budget, speeds, sizes, expected)
        finished = rounds.run(watch, self._cancel.is_set)
        gains = expected.at(rounds.best) > 1
        return self._ended(
            material, folder, drafter, rounds, speeds, finished=finished, gains=gains
        )

    def _created(self, folder: WorkFolder, shard: Shard) -> TrainableDrafter:
        """The untrained drafter: of one that is resumed, with the layers that were chosen."""
        stored = folder.read_json(_LAYERS) if self._request.resume else None
        own = self._request.options
        options = replace(own, kept=tuple(stored)) if stored else own
        drafter = self._kind.create(self._target, options, self._sample(shard))
        folder.write_json(_LAYERS, drafter.kept)
        return drafter

    def _sample(self, shard: Shard) -> list[Batch]:
        return [*batches(shard, self._place.device, np.random.default_rng(0), self._target.width)]

    @property
    def _seed(self) -> int:
        seed = self._request.source.seed
        return _SEED if seed is None else seed

    def _sizes(self, tokens: int, answers: int, held_out: int, written: int) -> Waves:
        per_token = bytes_per_token(self._target.width, len(self._layers))
        most = self._request.cache / (tokens * per_token)
        return Waves(tokens, answers, held_out, most, written)

    def _speeds(
        self, material: Material, reading: float, drafter: TrainableDrafter, sample: Sequence[Batch]
    ) -> Speeds:
        self._watch(Progress("measuring how long training takes", 0.0))
        training = seconds_per_token(drafter, sample)
        asked = 0.0 if self._request.tokens else self._request.seconds
        trial = max(_TRIAL_SECONDS, _TRIAL_SHARE * asked)
        return Speeds(material.writing(), reading, training, trial)

    def _budget(self, folder: WorkFolder, speeds: Speeds, sizes: Waves, saved: int) -> Budget:
        """The budget, or that of a resumed training; says what it takes. saved: in checkpoints."""
        stored = folder.read_json(BUDGET) if self._request.resume else None
        if stored is not None:
            budget = Budget(**stored)
        elif self._request.tokens:
            budget = budget_for_tokens(self._request.tokens, sizes)
        else:
            left = self._request.seconds - (monotonic() - self._began)
            budget = budget_for_seconds(left, speeds, sizes)
        disk = budget.waves * sizes.tokens * bytes_per_token(self._target.width, len(self._layers))
        disk = min(disk, self._request.cache)
        folder.require_free(disk + saved - folder.total_size(ROWS) - Rounds.checkpoints_in(folder))
        folder.write_json(BUDGET, budget.as_dict())
        seconds = forecast(budget, speeds, sizes)
        tokens = round(budget.waves * sizes.answers)
        self._foreseen, self._forecast_at = None if stored else seconds, monotonic()
        # What is left of a training that is resumed is known once its state is read.
        time = "" if stored else f"about {format_seconds(seconds)} on this machine, "
        self._say(
            f"{tokens:,} tokens of answers, {budget.rounds} rounds over them: {time}"
            f"{format_bytes(disk)} on the disk and {format_bytes(saved)} for checkpoints, "
            f"{format_bytes(self._place.needed)} of memory"
        )
        return budget

    def _rows(
        self, material: Material, folder: WorkFolder, budget: Budget, speeds: Speeds, sizes: Waves
    ) -> RowCache:
        """Let the target write all texts, and read them, as far as the disk may hold them."""
        for number in range(budget.waves):
            there = replace(sizes, written=max(number, sizes.written))
            left = forecast(budget, speeds, there)
            share = number / budget.waves
            self._watch(Progress("writing texts", share, left, 1 / speeds.write))
            material.wave(number)
            speeds = replace(speeds, write=(speeds.write + material.writing(number)) / 2)

        def read(texts: Sequence[Text]) -> Shard:
            # Also in the middle of the rounds, for what does not fit on the disk.
            phase, speed = "reading texts", 1 / speeds.read
            self._watch(replace(self._last, phase=phase, tokens_per_second=speed))
            return material.read(texts)

        rows = material.rows(folder, budget.waves, self._request.cache, read)
        training = rounds_seconds(budget, speeds, sizes) + speeds.trial
        if budget.waves > sizes.most_waves:
            self._watch(Progress("reading texts", 0.0, training))
            return rows
        for number in rows.missing:
            left = (budget.waves - number) * sizes.tokens * speeds.read + training
            share = number / budget.waves
            self._watch(Progress("reading texts", share, left, 1 / speeds.read))
            began = monotonic()
            tokens = len(rows.shard(number))
            speeds = replace(speeds, read=(speeds.read + (monotonic() - began) / tokens) / 2)
        return rows

    def _rounds_watcher(
        self, budget: Budget, speeds: Speeds, sizes: Waves, expected: ExpectedSpeed
    ) -> Callable[[RoundProgress], None]:
        training = training_seconds(budget, speeds, sizes)
        reading, first = reading_seconds(budget, speeds, sizes), [0.0]

        def watch(progress: RoundProgress) -> None:
            if not first[0]:
                first[0] = max(progress.share, 1e-9)
            done, all_of_it = progress.share - first[0], training
            if done > 0.02:  # what is measured is better than what was foreseen
                all_of_it = progress.seconds / done
            self._watch(
                Progress(
                    "training",
                    progress.share,
                    (1 - progress.share) * (all_of_it + reading) + speeds.trial,
                    progress.tokens_per_second,
                    progress.rates[0],
                    expected.at(progress.rates),
                )
            )

        return watch

    def _ended(
        self,
        material: Material,
        folder: WorkFolder,
        drafter: TrainableDrafter,
        rounds: Rounds,
        speeds: Speeds,
        *,
        finished: bool,
        gains: bool,
    ) -> Trained:
        """Write the file; if training came to its end, try it, and delete what is not needed.

        gains: whether it is expected to be faster than plain decoding, by its held-out acceptance.
        """
        request, rates = self._request, rounds.best
        rounds.release()

        def counts() -> Counts:
            texts = material.texts(rounds.shards)
            tokens = [token for text in texts for token in text.tokens[text.prompt :]]
            return count_ids(self._target.n_vocab, tokens)

        result.export(drafter, self.path, self._target, request.texts, rates, counts=counts)
        trials: list[Trial] = []
        own = Rival(str(self.path), request.kind, self.path)
        others = result.rivals(self._target.path, own)
        # Of one that was stopped nothing else is known.
        pays, preferred = gains, gains and not others
        if finished:
            try:
                trials = self._trials(material, speeds, [own, *others])
                pays = result.pays(trials, own)
                preferred = result.is_preferred(trials, own, others)
            except Stopped:
                finished = False
        listed = TrainedDrafter(
            request.kind, self.path.absolute(), self._target.name, preferred, pays
        )
        add_trained(self._target.path, listed)
        trained = Trained(
            self.path,
            request.kind,
            finished,
            rounds.history,
            self._facts(material, rounds),
            trials,
            preferred,
            drafter.note,
            pays,
        )
        if finished:
            # Of one that has ended this alone stays, for its report.
            kept = {"drafter": fingerprint(self.path), "trained": trained.to_json()}
            folder.write_json(_ENDED, kept)
            folder.clear(_ENDED)
        return trained

    def _facts(self, material: Material, rounds: Rounds) -> TrainingFacts:
        request, texts = self._request, material.texts(rounds.shards)
        return TrainingFacts(
            self._target.name,
            fingerprint(self._target.path),
            request.texts,
            len({each.tokens[: each.prompt] for each in texts}),
            len(material.held_out),
            sum(each.answer for each in texts),
            sum(len(each.tokens) for each in texts),
            rounds.planned,
            request.settings,
            str(self._place),
            self.path.stat().st_size,
            self._foreseen,
            monotonic() - self._forecast_at,
            self._times.seconds,
        )

    def _trials(self, material: Material, speeds: Speeds, rivals: Sequence[Rival]) -> list[Trial]:
        material.release()  # the next load has no other drafters in its caches
        costs = result.expected_costs(self._target.path, rivals)
        count = result.trial_prompts(speeds.trial, speeds.write, len(costs))
        prompts = material.held_out[:count]

        def watch(share: float) -> None:
            self._watch(Progress("trying the drafter", share, (1 - share) * speeds.trial))

        watch(0.0)
        return result.last_trials(material.engine, costs, prompts, watch, self._cancel)
