"""Slots: the slots of an engine, and who uses them."""

import warnings
from collections.abc import Callable
from weakref import finalize

from localspec.drafters.spec import DraftRequest
from localspec.engine.generation import Generation
from localspec.engine.interruption import Interruption
from localspec.engine.scheduler import Scheduler
from localspec.engine.slot import Slot
from localspec.errors import InvalidValueError, LocalspecError, ModelLoadError
from localspec.llama import compute_thread
from localspec.llama.kv_cache import KVCache
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.loading.loader import LoadedModels
from localspec.loading.thread_change import thread_change
from localspec.utils.format import counted
from localspec.utils.heap import give_back_heap

# A text whose reader stays away for so many seconds is not waited for.
_READER_AWAY = 10.0
# How often a text that waits for a slot looks for generations that were left without `close`.
_LOOK_EVERY = 0.1


class Slots:
    """The slots of an engine.

    own: the first slot. Its KV cache stays warm from one text to the next. further: more of them,
    while sessions are open or several texts are generated at once. scheduler: of their passes, and
    its lock. threads_are_fixed: whether the number of threads stays as it is from now on, for texts
    that are compared.
    """

    def __init__(self, loaded: LoadedModels) -> None:
        self.scheduler = Scheduler()
        self.lock = self.scheduler.lock
        self.own = Slot(loaded, self.scheduler)
        self.further: list[Slot] = []
        self.threads_are_fixed = False
        self._own_in_session = False
        # Slots of single texts, which are given back when the text ends.
        self._with_text: set[Slot] = set()
        # Slots to give back at the next occasion.
        self._abandoned: list[Slot] = []

    @property
    def all(self) -> list[Slot]:
        """The own slot and the further ones."""
        return [self.own, *self.further]

    @property
    def _drafting(self) -> dict[KVCache[KVSequence], str]:
        """The names of the drafters, by their contexts."""
        return {
            sequence.context: name
            for slot in self.all
            for name, sequence in slot.loaded.drafter_set.sequences.items()
        }

    @property
    def refusals(self) -> list[str]:
        """Say how many decodes of which drafters the library has refused."""
        return [
            f"llama.cpp refused {counted(context.refusals, 'decode')} while {name} drafted; "
            "the texts went on without it"
            for context, name in self._drafting.items()
            if context.refusals
        ]

    @property
    def failures(self) -> str | None:
        """Say how often a device has failed, and where; None where none has."""
        drafting = {context: f" while {name} drafted" for context, name in self._drafting.items()}
        where = {slot.target.context: "" for slot in self.all} | drafting
        failed = [
            f"{'once' if each.failures == 1 else f'{each.failures} times'}{words}"
            for each, words in where.items()
            if each.failures
        ]
        if not failed:
            return None
        return f"the device has failed {' and '.join(failed)}; what was lost there is read again"

    def open(self) -> Slot:
        """A slot for a session; give it back with `leave`.

        Raises ModelLoadError if memory is too small for another, LocalspecError if the models are
        closed.
        """
        with self.lock:
            self.scheduler.require_open()
            self._leave_abandoned()
            if self._own_is_free:
                self._own_in_session = True
                return self.own
            return self._open_further()

    def fit_threads(self) -> None:
        """Between texts, change the number of threads if the load of the machine has changed.

        In a text it never changes: digits depend on it.
        """
        with self.lock:
            self.scheduler.require_open()
            watch = self.own.loaded.watch
            if watch is None or self.threads_are_fixed or any(slot.is_writing for slot in self.all):
                return
            busy = watch.look()
            if busy is None:
                return
            with self.scheduler.exclusive():
                change = thread_change(self.own.loaded, busy)
                if change is None:
                    return
                for slot in self.all:
                    slot.replace_models(change.applied_to(slot.loaded))
                if self.further:
                    self._start_compute_thread(self.own)

    def open_for_text(self, cancelled: Callable[[], bool]) -> Slot | None:
        """A slot for one text; give it back with `leave`, or let `leave_at_end` do it.

        The lock is held. Where there is no room for another slot, wait until a text has ended.
        cancelled: whether to give up waiting; then there is no slot. Raises ModelLoadError if there
        is no room, and no other text that goes on.
        """
        while True:
            self.scheduler.require_open()
            self._leave_abandoned()
            try:
                slot = self.own if self._own_is_free else self._open_further()
            except (ModelLoadError, InvalidValueError) as error:
                if not self._wait_for_end(error, cancelled):
                    return None
                continue
            self._with_text.add(slot)
            slot.scheduled.begin()
            return slot

    def leave_at_end(self, slot: Slot, generation: Generation) -> None:
        """Give the slot back when the generation has ended, or when nothing refers to it."""
        abandoned = finalize(generation, self.abandon, slot)
        abandoned.atexit = False

        def leave() -> None:
            if abandoned.detach():
                self.leave(slot)

        generation.on_end = leave

    def leave(self, slot: Slot) -> None:
        """Give a slot back; the KV caches of a further slot are freed."""
        if self.lock.is_forked:
            return
        with self.lock:
            if not slot.in_step:
                slot.stop()
            self._with_text.discard(slot)
            if slot is self.own:
                self._own_in_session = False
            elif slot in self.further:
                self.further.remove(slot)
                slot.close()
                self.own.loaded.policies.keep(slot.loaded.policies)
            self._leave_abandoned()
            self.lock.notify_all()

    def abandon(self, slot: Slot) -> None:
        """Give back a slot whose session or text is forgotten, now or at the next occasion."""
        # The garbage collector runs in the middle of anything, also of what the lock guards, and in
        # any thread, also in one for which the lock's owner waits.
        if self.lock.is_held or compute_thread.is_current():
            self._abandoned.append(slot)
        else:
            self.leave(slot)

    def stop(self, interruption: Interruption) -> None:
        """End the texts of all slots. interruption: what has happened, for their readers."""
        for slot in self.all:
            slot.stop(interruption)

    def replace_models(self, loaded: LoadedModels) -> None:
        """Use other models, after `free`."""
        self.own.replace_models(loaded)
        for slot in self.further:
            slot.replace_models(loaded.for_another_text())

    def replace_drafters(self, draft: DraftRequest) -> None:
        """Free the drafters, and load others for the same target."""
        self._keep_costs()
        for slot in reversed(self.all):
            slot.loaded.keep_learnt()
            slot.loaded.drafter_set.close()
        self.own.loaded.drafters.close()
        self.own.replace_models(self.own.loaded.with_drafters(draft))
        for slot in self.further:
            slot.replace_models(self.own.loaded.with_target(slot.target))

    def free(self, weights: Model | None) -> None:
        """Free all models and KV caches, those of the own slot last. weights: another's model."""
        self._keep_costs()
        for slot in reversed(self.all):
            slot.loaded.close_caches()
        self.own.loaded.drafters.sources.earlier.write()
        self._free_models(weights)
        give_back_heap()

    def free_forgotten(self, weights: Model | None) -> None:
        """Free what nobody uses any more, with a warning; called by the garbage collector."""
        if self.lock.is_forked:
            return
        for slot in reversed(self.all):
            slot.loaded.close_sequences()
        self._free_models(weights)
        name = self.own.loaded.target.model.path.name
        what = f"an engine of {name} was forgotten; close it, or use it in a `with`"
        warnings.warn(what, ResourceWarning, stacklevel=3)  # whose reference was the last

    def _keep_costs(self) -> None:
        self.own.loaded.keep_costs(max(len(slot.target.tokens) for slot in self.all))

    def _free_models(self, weights: Model | None) -> None:
        loaded = self.own.loaded
        loaded.drafters.sources.earlier.end()
        loaded.drafters.close()
        if loaded.target.model is not weights:
            loaded.target.model.close()

    @property
    def _own_is_free(self) -> bool:
        return not self._own_in_session and self.own not in self._with_text

    def _leave_abandoned(self) -> None:
        while self._abandoned:
            self.leave(self._abandoned.pop())

    def _open_further(self) -> Slot:
        # More room for texts means other caches, which no step may be using.
        with self.scheduler.exclusive():
            self.scheduler.require_open()
            slot = Slot(self.own.loaded.for_another_text(), self.scheduler)
            self._start_compute_thread(slot)
            self.further.append(slot)
        return slot

    def _start_compute_thread(self, slot: Slot) -> None:
        if slot.loaded.runtime.threads_of(slot.target.model) > 1:
            compute_thread.start()

    def _wait_for_end(self, no_room: LocalspecError, cancelled: Callable[[], bool]) -> bool:
        """Wait until a slot is given back; False if cancelled.

        Raises `no_room` if no text goes on, LocalspecError in a step, for which others may wait.
        """
        further = len(self.further)
        while len(self.further) >= further and not (self._own_is_free or self._abandoned):
            if cancelled():
                return False
            if not any(each.scheduled.goes_on(_READER_AWAY) for each in self._with_text):
                raise no_room
            self.scheduler.require_no_step("room for another text cannot be waited for")
            self.scheduler.wait(_LOOK_EVERY)
        return True
