"""Slots: the slots of an engine, and who uses them."""

import sys
import warnings
from collections.abc import Callable
from typing import TypeVar
from weakref import ref

from localspec.drafters.spec import DraftRequest
from localspec.engine.generation import Generation
from localspec.engine.interruption import Interruption
from localspec.engine.scheduler import Scheduler
from localspec.engine.slot import Slot
from localspec.engine.slot_loan import SlotLoan
from localspec.errors import InvalidValueError, LocalspecError, ModelLoadError
from localspec.llama import compute_thread
from localspec.llama.kv_cache import KVCache
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.loading.loader import LoadedModels
from localspec.loading.thread_change import thread_change
from localspec.utils.format import counted
from localspec.utils.heap import give_back_heap

_User = TypeVar("_User")
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
        # Of the slots that are used; those that are over are freed at the next occasion.
        self._loans: dict[Slot, SlotLoan] = {}

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
        """A slot that is used until `leave`; raises as `lend`."""
        return self._lend(lambda _: lambda: True).slot

    def lend(self, session: object) -> SlotLoan:
        """Lend a slot to a session, until that gives it back or is forgotten.

        Raises ModelLoadError if memory is too small for another, LocalspecError if the models are
        closed.
        """

        def goes_on(slot: Slot) -> Callable[[], bool]:
            user = self._weak(session, slot)
            return lambda: user() is not None

        return self._lend(goes_on)

    def _lend(self, goes_on: Callable[[Slot], Callable[[], bool]]) -> SlotLoan:
        loan: SlotLoan | None = None
        try:
            with self.lock:
                self.scheduler.require_open()
                slot = self._free_slot()
                loan = SlotLoan(slot, self._leave_unused, goes_on(slot))
                self._loans[slot] = loan
        except BaseException:
            if loan:
                loan.give_back()
            raise
        return loan

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

    def lend_to_text(self, cancelled: Callable[[], bool]) -> SlotLoan | None:
        """Lend a slot to one text, which gives it back, or lets `leave_at_end` do it.

        The lock is held. Where there is no room for another slot, wait until a text has ended.
        cancelled: whether the text needs none any more; then there is no slot. Raises
        ModelLoadError if there is no room, and no other text that goes on.
        """
        while True:
            self.scheduler.require_open()
            if cancelled():
                return None
            try:
                slot = self._free_slot()
            except (ModelLoadError, InvalidValueError) as error:
                self._wait_for_end(error, cancelled)
                continue
            slot.scheduled.begin()
            loan = SlotLoan(slot, self._leave_unused, is_text=True)
            self._loans[slot] = loan
            return loan

    def leave_at_end(self, loan: SlotLoan, generation: Generation) -> None:
        """Give the slot back when the generation has ended, or when nothing refers to it."""
        user = self._weak(generation, loan.slot)
        generation.on_end = loan.give_back
        loan.goes_on = lambda: (text := user()) is not None and text.stop_reason is None

    def leave(self, slot: Slot) -> None:
        """Give a slot back; the KV caches of a further slot are freed."""
        if loan := self._loans.get(slot):
            loan.is_given_back = True
        self._leave_unused()

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
    def _with_text(self) -> list[Slot]:
        """The slots of single texts that go on."""
        loans = [*self._loans.values()]
        return [each.slot for each in loans if each.is_text and not each.is_over]

    def _is_unused(self, slot: Slot) -> bool:
        loan = self._loans.get(slot)
        return loan is None or loan.is_over

    def _weak(self, user: _User, slot: Slot) -> ref[_User]:
        """A reference to the user of a slot, whose end frees the caches of a further slot."""
        # While the interpreter is torn down nothing is freed, and modules are cleared, also `sys`.
        is_finalizing = sys.is_finalizing

        def leave_forgotten(_: object) -> None:
            if not is_finalizing():
                self._leave_forgotten()

        return ref(user, None if slot is self.own else leave_forgotten)

    def _leave_forgotten(self) -> None:
        # The garbage collector runs in the middle of anything, also of what the lock guards, and in
        # any thread, also in one for which the lock's owner waits.
        if not (self.scheduler.closed or self.lock.is_held or compute_thread.is_current()):
            self._leave_unused()

    def _leave_unused(self) -> None:
        """Free the slots that nobody uses any more, and what an interrupt has left of others."""
        if self.lock.is_forked:
            return
        with self.lock:
            for slot in filter(self._is_unused, [*self._loans, *self.further]):
                self._free(slot)
            self.scheduler.keep_only([slot.scheduled for slot in self.all])
            self.lock.notify_all()

    def _free(self, slot: Slot) -> None:
        """Free a slot; where this is interrupted it is done again."""
        if not slot.in_step:
            slot.stop()
        slot.in_answer = False
        if slot in self.further:
            slot.close()
            self.own.loaded.policies.keep(slot.loaded.policies)
            self.further.remove(slot)
        self._loans.pop(slot, None)

    def _free_slot(self) -> Slot:
        """The own slot, or a further one where that is used."""
        self._leave_unused()
        return self.own if self._is_unused(self.own) else self._open_further()

    def _open_further(self) -> Slot:
        # More room for texts means other caches, which no step may be using.
        with self.scheduler.exclusive():
            self.scheduler.require_open()
            loaded = self.own.loaded.for_another_text()
            try:
                slot = Slot(loaded, self.scheduler)
                self._start_compute_thread(slot)
                self.further.append(slot)
            except BaseException:
                if not any(each.loaded is loaded for each in self.further):
                    loaded.close_sequences()
                raise
        return slot

    def _start_compute_thread(self, slot: Slot) -> None:
        if slot.loaded.runtime.threads_of(slot.target.model) > 1:
            compute_thread.start()

    def _wait_for_end(self, no_room: LocalspecError, cancelled: Callable[[], bool]) -> None:
        """Wait until a slot is given back, or the text is cancelled.

        Raises `no_room` if no text goes on, LocalspecError in a step, for which others may wait.
        """
        further = len(self.further)
        while len(self.further) >= further and not any(map(self._is_unused, self.all)):
            if cancelled():
                return
            if not any(each.scheduled.goes_on(_READER_AWAY) for each in self._with_text):
                raise no_room
            self.scheduler.require_no_step("room for another text cannot be waited for")
            self.scheduler.wait(_LOOK_EVERY)
