"""The judge's own clock around a call, and what it says to the worker and hears of it meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from torch import Tensor

from kernelwright.core.errors import TamperingError
from kernelwright.measure.clock import wall_s
from kernelwright.measure.clock_agreement import TimedCall
from kernelwright.sandbox import Child, process_memory
from kernelwright.sandbox.process_memory import pause
from kernelwright.verification.transport.control_block import (
    DEVICE_START,
    DONE,
    READY,
    START,
    CallStatus,
    parse_status,
    signal_word,
    status_bytes,
)
from kernelwright.verification.transport.remote_memory import RemoteMemory
from kernelwright.verification.transport.snapshot import Snapshot

MAX_UNSTOPPED_WRITE_BYTES = 1 << 16
"""Inputs up to here are written while the clock runs, in microseconds; for larger ones the candidate is stopped."""
SPIN_S, POLL_SLEEP_S = 100e-6, 20e-6
EARLY_SHARE, LATE_SHARE, MAX_SPIN_S = 0.8, 1.3, 2e-3
LATE_POLL_SHARE = 0.01
"""The judge looks without a pause for `SPIN_S`. In a longer call it sleeps until `EARLY` of the time that the last one
took and rests between two looks, as a program wants all processors; beyond `LATE`, for this share of the time by then.
"""
SERIES_EARLY_SHARE, SERIES_LATE_POLL_SHARE = 0.95, 0.003
"""The same of a series, where nobody may be disturbed."""
LIVENESS_INTERVAL_S = 0.02
LAUNCH_AHEAD_US = 200.0
TIME_SLICE_S = 1e-3
"""Less than a process has the device to itself before it is another's turn."""

PollHook = Callable[[float], None]
"""Is told how many microseconds a call runs by now."""


@contextlib.contextmanager
def realtime_priority() -> Iterator[None]:
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


class ExternalTimer:
    """Times one call after the other in one child.

    Args:
        control_block: its address there.
        memory: of its memory.
    Attributes:
        cache_flush_bytes: of what is read before a series, so that a cache of that size holds nothing of it.
        launch_ahead_us: for so long the host may get ahead of a device that waits for its inputs.
    """

    def __init__(self, child: Child, mailbox: int, reach: RemoteMemory) -> None:
        process_memory.set_timer_slack()
        self.child, self.control_block, self.memory = child, mailbox, reach
        self.cache_flush_bytes, self.launch_ahead_us = reach.cache_flush_bytes, LAUNCH_AHEAD_US
        self.call_number = self._num_outputs = 0
        self._unfinished_s = self._expected_s = self._usual_write_s = 0.0
        self._write_times_s: list[float] = []

    def next_call(self, num_outputs: int) -> int:
        """The number of the next call, which gives so many outputs."""
        self.call_number, self._num_outputs = self.call_number + 1, num_outputs
        return self.call_number

    def wait_until_ready(self) -> bool:
        """Waits until the worker is; False where it answers or ends before."""
        return self._poll(READY) is not None

    def is_done(self) -> bool:
        """Whether the call that runs is over: for a `peek`."""
        letter = self._read_status()
        return letter is None or letter.done_call == self.call_number

    def calibrate_write_time(self) -> None:
        """Takes what writing took by now for what it usually takes: the candidate is not there yet."""
        self._usual_write_s = max(self._write_times_s, default=0.0)

    def time_call(
        self, writes: list[tuple[int, Tensor]], snapshot: Snapshot, *, poll_hook: PollHook | None, undisturbed: bool
    ) -> tuple[TimedCall, CallStatus | None]:
        """Writes inputs and lets the candidate go; the time until it is done and its outputs were glanced at."""
        self._unfinished_s = 0.0
        begin = self._start_on_host if self.memory.device == "cpu" else self._start_on_device
        with contextlib.ExitStack() as until_seen:
            # Who peeks looks all the time, and waits for the candidate to stand still: that takes a processor.
            start, queued_us = begin(
                writes, undisturbed, lambda: None if poll_hook else until_seen.enter_context(realtime_priority())
            )
            letter = self._poll(DONE, poll_hook, undisturbed)
            seen = wall_s()
            if letter and not letter.raised:
                self._take_snapshot(snapshot, letter)
            end = wall_s()
        window = TimedCall(
            last_running_us=max(0.0, (self._unfinished_s - start) * 1e6),
            completed_us=(seen - start) * 1e6,
            outputs_read_us=(end - start) * 1e6,
            queued_us=process_memory.queued_us(self.child.pid) - queued_us,
            claimed_us=letter.claimed_ns / 1e3 if letter else 0.0,
            input_write_us=self._write_times_s[-1] * 1e6 if self._write_times_s else 0.0,
        )
        # Who claims too much makes nobody look too late.
        self._expected_s = min(window.claimed_us, window.completed_us) / 1e6
        return window, letter

    def _start_on_host(
        self, writes: list[tuple[int, Tensor]], undisturbed: bool, before_start: Callable[[], None]
    ) -> tuple[float, float]:
        """When the candidate could first see something of its inputs, and how long it had been queued by then."""
        stopped = undisturbed or sum(len(block) for _, block in writes) > MAX_UNSTOPPED_WRITE_BYTES
        if stopped:
            self.child.stop()
        before_start()
        queued_us, start = process_memory.queued_us(self.child.pid), wall_s()
        for address, block in writes:
            self.memory.write(address, block)
        if undisturbed:
            self.memory.flush_caches(self.cache_flush_bytes)
        if stopped:
            self.child.check_stopped()
            start = wall_s()
        self._signal(START)
        if stopped:
            self.child.resume()
        return start, queued_us

    def _start_on_device(
        self, writes: list[tuple[int, Tensor]], undisturbed: bool, before_start: Callable[[], None]
    ) -> tuple[float, float]:
        """The same. Who makes the judge wait for a turn of the device, by kernels that run already, has begun then."""
        self.memory.synchronize()
        self._signal(START)
        pause(self.launch_ahead_us / 1e6)
        before = wall_s()
        for address, block in writes:
            self.memory.write(address, block)
        self.memory.flush_caches(self.cache_flush_bytes)
        self.memory.synchronize()
        before_start()
        queued_us, start = process_memory.queued_us(self.child.pid), wall_s()
        self._signal(DEVICE_START)
        self._write_times_s.append(start - before)
        return start - max(0.0, self._write_times_s[-1] - self._usual_write_s - TIME_SLICE_S), queued_us

    def _signal(self, word: int) -> None:
        process_memory.write(self.child.pid, self.control_block + 8 * word, memoryview(signal_word(self.call_number)))

    def _poll(self, word: int, poll_hook: PollHook | None = None, undisturbed: bool = False) -> CallStatus | None:
        """The letter once that word of it is this call's number; None where the worker answers or ends before.

        Sleeps until shortly before a call as long as the last one would be over, then looks often, and then ever more
        rarely: a program that takes long has the processors. `undisturbed` never looks without a pause.
        """
        start = next_check = wall_s()
        over = False
        spun, until = start + SPIN_S, start + SPIN_S
        if word == DONE and not poll_hook and self._expected_s > SPIN_S:
            pause(min((SERIES_EARLY_SHARE if undisturbed else EARLY_SHARE) * self._expected_s, LIVENESS_INTERVAL_S))
            until = start + min(LATE_SHARE * self._expected_s, MAX_SPIN_S)
        if undisturbed:
            spun = until = start
        while True:
            looked = wall_s()
            letter = self._read_status()
            if letter and (letter.ready_call if word == READY else letter.done_call) == self.call_number:
                return letter
            if over or letter is None:
                return None
            now = wall_s()
            self._unfinished_s = looked
            if poll_hook:
                poll_hook((now - start) * 1e6)
            if now > next_check and now > start + LIVENESS_INTERVAL_S:
                next_check = now + LIVENESS_INTERVAL_S
                # It may have finished since the letter was read: that is looked at once more.
                over = not self.child.check_alive() or self.child.has_reply()
            elif now > spun and not poll_hook:
                late_s = (
                    (SERIES_LATE_POLL_SHARE if undisturbed else LATE_POLL_SHARE) * (now - start) if now > until else 0.0
                )
                pause(max(POLL_SLEEP_S, min(late_s, LIVENESS_INTERVAL_S)))

    def _read_status(self) -> CallStatus | None:
        """What the mailbox says now; None where it is gone."""
        expected = max(1, self._num_outputs)
        try:
            letter = parse_status(process_memory.read(self.child.pid, self.control_block, status_bytes(expected)))
            if letter.num_extents > expected:
                letter = parse_status(
                    process_memory.read(self.child.pid, self.control_block, status_bytes(letter.num_extents))
                )
        except OSError:
            return None
        return letter

    def _take_snapshot(self, snapshot: Snapshot, status: CallStatus) -> None:
        """Reads in the window, so at once."""
        with contextlib.suppress(OSError, TamperingError):
            self.memory.map_reported_segments(status, self.control_block)
            snapshot.take(status.extents, self.child.pid)
