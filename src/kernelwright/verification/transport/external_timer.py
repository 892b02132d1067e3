"""The judge's own clock around a call, and what it says to the worker and hears of it meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from torch import Tensor

from kernelwright.core.errors import ForgedError
from kernelwright.measure.clock import wall_s
from kernelwright.measure.clock_agreement import Window
from kernelwright.sandbox import Child, process_memory
from kernelwright.sandbox.process_memory import pause
from kernelwright.verification.transport.control_block import (
    DONE,
    GO,
    READY,
    RELEASE,
    Letter,
    go_word,
    letter_bytes,
    read_letter,
)
from kernelwright.verification.transport.remote_memory import Reach
from kernelwright.verification.transport.snapshot import Glance

SMALL_BYTES = 1 << 16
"""Inputs up to here are written while the clock runs, in microseconds; for larger ones the candidate is stopped."""
SPIN_S, REST_S = 100e-6, 20e-6
EARLY, LATE, MOST_SPIN_S = 0.8, 1.3, 2e-3
PATIENCE = 0.01
"""The judge looks without a pause for `SPIN_S`. In a longer call it sleeps until `EARLY` of the time that the last one
took and rests between two looks, as a program wants all processors; beyond `LATE`, for this share of the time by then.
"""
STEADY, STEADY_PATIENCE = 0.95, 0.003
"""The same of a series, where nobody may be disturbed."""
CHECK_EVERY_S = 0.02
AHEAD_US = 200.0
TURN_S = 1e-3
"""Less than a process has the device to itself before it is another's turn."""

Peek = Callable[[float], None]
"""Is told how many microseconds a call runs by now."""


@contextlib.contextmanager
def ahead_of_others() -> Iterator[None]:
    """Meanwhile this thread has a processor whenever it wants one, where the system lets it (root, or a limit on
    real-time priorities). Else whom it watches can have all of them, for milliseconds, before it looks at all."""
    try:
        policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (OSError, AttributeError):
        yield
        return
    try:
        yield
    finally:  # only the privileged may take back what keeps its children from inheriting it
        os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, priority)


class Watch:
    """Times one call after the other in one child.

    Args:
        mailbox: its address there.
        reach: of its memory.
    Attributes:
        cache_bytes: of what is read before a series, so that a cache of that size holds nothing of it.
        ahead_us: for so long the host may get ahead of a device that waits for its inputs.
    """

    def __init__(self, child: Child, mailbox: int, reach: Reach) -> None:
        process_memory.sharpen_pauses()
        self.child, self.mailbox, self.reach = child, mailbox, reach
        self.cache_bytes, self.ahead_us = reach.cache_bytes, AHEAD_US
        self.number = self._outputs = 0
        self._unfinished_s = self._expected_s = self._usual_writing_s = 0.0
        self._writing_s: list[float] = []

    def next(self, outputs: int) -> int:
        """The number of the next call, which gives so many outputs."""
        self.number, self._outputs = self.number + 1, outputs
        return self.number

    def is_ready(self) -> bool:
        """Waits until the worker is; False where it answers or ends before."""
        return self._wait(READY) is not None

    def is_done(self) -> bool:
        """Whether the call that runs is over: for a `peek`."""
        letter = self._letter()
        return letter is None or letter.done == self.number

    def remember_writing(self) -> None:
        """Takes what writing took by now for what it usually takes: the candidate is not there yet."""
        self._usual_writing_s = max(self._writing_s, default=0.0)

    def time(
        self, writes: list[tuple[int, Tensor]], glance: Glance, *, peek: Peek | None, steady: bool
    ) -> tuple[Window, Letter | None]:
        """Writes inputs and lets the candidate go; the time until it is done and its outputs were glanced at."""
        self._unfinished_s = 0.0
        begin = self._begin_on_host if self.reach.device == "cpu" else self._begin_on_device
        with contextlib.ExitStack() as until_seen:
            # Who peeks looks all the time, and waits for the candidate to stand still: that takes a processor.
            start, queued_us = begin(
                writes, steady, lambda: None if peek else until_seen.enter_context(ahead_of_others())
            )
            letter = self._wait(DONE, peek, steady)
            seen = wall_s()
            if letter and not letter.raised:
                self._take(glance, letter)
            end = wall_s()
        window = Window(
            unfinished_us=max(0.0, (self._unfinished_s - start) * 1e6),
            seen_us=(seen - start) * 1e6,
            time_us=(end - start) * 1e6,
            queued_us=process_memory.queued_us(self.child.pid) - queued_us,
            claimed_us=letter.claimed_ns / 1e3 if letter else 0.0,
            writing_us=self._writing_s[-1] * 1e6 if self._writing_s else 0.0,
        )
        # Who claims too much makes nobody look too late.
        self._expected_s = min(window.claimed_us, window.seen_us) / 1e6
        return window, letter

    def _begin_on_host(
        self, writes: list[tuple[int, Tensor]], steady: bool, go_ahead: Callable[[], None]
    ) -> tuple[float, float]:
        """When the candidate could first see something of its inputs, and how long it had been queued by then."""
        stopped = steady or sum(len(block) for _, block in writes) > SMALL_BYTES
        if stopped:
            self.child.stop()
        go_ahead()
        queued_us, start = process_memory.queued_us(self.child.pid), wall_s()
        for address, block in writes:
            self.reach.write(address, block)
        if steady:
            self.reach.forget_caches(self.cache_bytes)
        if stopped:
            self.child.stood()
            start = wall_s()
        self._say(GO)
        if stopped:
            self.child.resume()
        return start, queued_us

    def _begin_on_device(
        self, writes: list[tuple[int, Tensor]], steady: bool, go_ahead: Callable[[], None]
    ) -> tuple[float, float]:
        """The same. Who makes the judge wait for a turn of the device, by kernels that run already, has begun then."""
        self.reach.settle()
        self._say(GO)
        pause(self.ahead_us / 1e6)
        before = wall_s()
        for address, block in writes:
            self.reach.write(address, block)
        self.reach.forget_caches(self.cache_bytes)
        self.reach.settle()
        go_ahead()
        queued_us, start = process_memory.queued_us(self.child.pid), wall_s()
        self._say(RELEASE)
        self._writing_s.append(start - before)
        return start - max(0.0, self._writing_s[-1] - self._usual_writing_s - TURN_S), queued_us

    def _say(self, word: int) -> None:
        process_memory.write(self.child.pid, self.mailbox + 8 * word, memoryview(go_word(self.number)))

    def _wait(self, word: int, peek: Peek | None = None, steady: bool = False) -> Letter | None:
        """The letter once that word of it is this call's number; None where the worker answers or ends before.

        Sleeps until shortly before a call as long as the last one would be over, then looks often, and then ever more
        rarely: a program that takes long has the processors. `steady` never looks without a pause.
        """
        start = next_check = wall_s()
        over = False
        spun, until = start + SPIN_S, start + SPIN_S
        if word == DONE and not peek and self._expected_s > SPIN_S:
            pause(min((STEADY if steady else EARLY) * self._expected_s, CHECK_EVERY_S))
            until = start + min(LATE * self._expected_s, MOST_SPIN_S)
        if steady:
            spun = until = start
        while True:
            looked = wall_s()
            letter = self._letter()
            if letter and (letter.ready if word == READY else letter.done) == self.number:
                return letter
            if over or letter is None:
                return None
            now = wall_s()
            self._unfinished_s = looked
            if peek:
                peek((now - start) * 1e6)
            if now > next_check and now > start + CHECK_EVERY_S:
                next_check = now + CHECK_EVERY_S
                # It may have finished since the letter was read: that is looked at once more.
                over = not self.child.alive() or self.child.has_answered()
            elif now > spun and not peek:
                late_s = (STEADY_PATIENCE if steady else PATIENCE) * (now - start) if now > until else 0.0
                pause(max(REST_S, min(late_s, CHECK_EVERY_S)))

    def _letter(self) -> Letter | None:
        """What the mailbox says now; None where it is gone."""
        expected = max(1, self._outputs)
        try:
            letter = read_letter(process_memory.read(self.child.pid, self.mailbox, letter_bytes(expected)))
            if letter.told > expected:
                letter = read_letter(process_memory.read(self.child.pid, self.mailbox, letter_bytes(letter.told)))
        except OSError:
            return None
        return letter

    def _take(self, glance: Glance, letter: Letter) -> None:
        """Reads in the window, so at once."""
        with contextlib.suppress(OSError, ForgedError):
            self.reach.learn_from(letter, self.mailbox)
            glance.take(letter.extents, self.child.pid)
