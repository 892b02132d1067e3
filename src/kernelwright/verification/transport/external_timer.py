"""External timer: the verifier's time of a call, its start signals and its polling of the control block."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from torch import Tensor

from kernelwright.core.errors import TamperingError
from kernelwright.measure.clock import wall_s
from kernelwright.measure.clock_agreement import TimedCall
from kernelwright.sandbox import Child, process_memory
from kernelwright.sandbox.process_memory import PageFaults, pause
from kernelwright.verification.transport.control_block import (
    DEVICE_START,
    DONE,
    READY,
    SEED,
    START,
    CallStatus,
    parse_status,
    status_bytes,
    word,
)
from kernelwright.verification.transport.remote_memory import RemoteMemory
from kernelwright.verification.transport.snapshot import Snapshot

MAX_UNSTOPPED_WRITE_BYTES = 1 << 16
"""Inputs up to this size are written while the clock runs, in microseconds; for larger ones the candidate is stopped.
"""
SPIN_S, POLL_SLEEP_S = 100e-6, 20e-6
EARLY_SHARE, LATE_SHARE, MAX_SPIN_S = 0.8, 1.3, 2e-3
LATE_POLL_SHARE = 0.01
"""The verifier polls without a pause for `SPIN_S`. In a longer call it sleeps until `EARLY_SHARE` of the previous
call's time and then sleeps between polls, since a program uses all processors; beyond `LATE_SHARE`, for this share of
the time so far."""
SERIES_EARLY_SHARE, SERIES_LATE_POLL_SHARE = 0.85, 0.003
"""The same for a series, which must not be disturbed."""
LIVENESS_INTERVAL_S = 0.02
LAUNCH_AHEAD_US = 200.0
MAX_POLLED_EXTENTS = 256
"""Extents of outputs that every poll reads; more of them are read once, at the end of the call."""
TIME_SLICE_S = 1e-3
"""Less than the time slice of a process on the device."""

PollHook = Callable[[float], None]
"""Called with the microseconds since the start of the call."""


@contextlib.contextmanager
def realtime_priority() -> Iterator[None]:
    """Run this thread with real-time priority where the system permits it (root, or a limit on real-time priorities).
    Otherwise the watched process can occupy all processors for milliseconds before the next poll."""
    try:
        policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (OSError, AttributeError):
        yield
        return
    try:
        yield
    finally:  # clearing SCHED_RESET_ON_FORK would need privileges
        os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, priority)


class ExternalTimer:
    """Times consecutive calls in one child.

    Args:
        control_block: address of the control block in the child.
        memory: access to the child's memory.
    Attributes:
        cache_flush_bytes: bytes read before a series to flush the caches.
        launch_ahead_us: time in which the host may launch ahead of a device that waits for its inputs.
    """

    def __init__(self, child: Child, control_block: int, memory: RemoteMemory) -> None:
        process_memory.set_timer_slack()
        self.child, self.control_block, self.memory = child, control_block, memory
        self.cache_flush_bytes, self.launch_ahead_us = memory.cache_flush_bytes, LAUNCH_AHEAD_US
        self.call_number = self._num_outputs = self._seed = 0
        self._unfinished_s = self._usual_write_s = 0.0
        self._expected_s = {False: 0.0, True: 0.0}
        self._write_times_s: list[float] = []
        self._faults_at_end, self._idle_faults, self._has_forked = PageFaults(), 0, False
        self._resident_bytes = self._idle_growth_bytes = 0
        self._computed_us = self._idle_cpu_us = 0.0

    def next_call(self, num_outputs: int, seed: int) -> int:
        """The number of the next call, which returns this many outputs and gets this seed with its start signal."""
        self.call_number, self._num_outputs, self._seed = self.call_number + 1, num_outputs, seed
        return self.call_number

    def before_request(self) -> None:
        """Note how much memory the process has taken since the last call."""
        self._idle_growth_bytes = 0
        self._add_growth()

    def _add_growth(self) -> None:
        """Add what the process has taken, not what it has freed: a worker frees earlier results between calls."""
        now = process_memory.resident_bytes(self.child.pid)
        self._idle_growth_bytes += max(0, now - self._resident_bytes)
        self._resident_bytes = now

    def wait_until_ready(self) -> bool:
        """Wait until the worker is ready; False where it replies or exits first."""
        self._idle_cpu_us = 0.0
        is_ready = self._poll(READY) is not None
        self._add_growth()
        faults = process_memory.count_page_faults(self.child.pid)
        # After a fork the process copies each page that it writes to.
        self._idle_faults = 0 if self._has_forked else faults.own - self._faults_at_end.own
        return is_ready

    def is_done(self) -> bool:
        """Whether the current call is over; for a poll hook."""
        status = self._read_status()
        return status is None or status.done_call == self.call_number

    def calibrate_write_time(self) -> None:
        """Take the longest write time so far as the usual one; valid only before the candidate is loaded."""
        self._usual_write_s = max(self._write_times_s, default=0.0)

    def time_call(
        self, writes: list[tuple[int, Tensor]], snapshot: Snapshot, *, poll_hook: PollHook | None, undisturbed: bool
    ) -> tuple[TimedCall, CallStatus | None]:
        """Write the inputs and give the start signal; the time until the call is done and its outputs' snapshot is
        taken."""
        self._unfinished_s = 0.0
        begin = self._start_on_host if self.memory.device == "cpu" else self._start_on_device
        with contextlib.ExitStack() as until_snapshot:
            # A poll hook polls all the time and waits for the candidate to stop: that takes a processor.
            start_s, queued_us = begin(
                writes, undisturbed, lambda: None if poll_hook else until_snapshot.enter_context(realtime_priority())
            )
            status = self._poll(DONE, poll_hook, undisturbed)
            done_s, self._resident_bytes = wall_s(), process_memory.resident_bytes(self.child.pid)
            if status and not status.raised:
                self._take_snapshot(snapshot, status)
            end_s = wall_s()
        faults = process_memory.count_page_faults(self.child.pid)
        self._has_forked = faults.of_children != self._faults_at_end.of_children
        self._computed_us = process_memory.computed_us(self.child.pid)
        self._faults_at_end = faults
        timed_call = TimedCall(
            last_running_us=max(0.0, (self._unfinished_s - start_s) * 1e6),
            completed_us=(done_s - start_s) * 1e6,
            outputs_read_us=(end_s - start_s) * 1e6,
            queued_us=process_memory.queued_us(self.child.pid) - queued_us,
            claimed_us=status.claimed_ns / 1e3 if status else 0.0,
            input_write_us=self._write_times_s[-1] * 1e6 if self._write_times_s else 0.0,
            idle_faults=self._idle_faults,
            idle_growth_bytes=self._idle_growth_bytes,
            idle_cpu_us=self._idle_cpu_us,
        )
        # Only the end of a call that was never seen running is known, and that may be when the verifier woke up.
        self._expected_s[undisturbed] = timed_call.completed_us / 1e6 if timed_call.last_running_us else 0.0
        return timed_call, status

    def _start_on_host(
        self, writes: list[tuple[int, Tensor]], undisturbed: bool, before_start: Callable[[], None]
    ) -> tuple[float, float]:
        """The time at which the candidate could first read an input, and its queued time until then."""
        stopped = undisturbed or sum(len(block) for _, block in writes) > MAX_UNSTOPPED_WRITE_BYTES
        if stopped:
            self.child.stop()
        before_start()
        self._write_word(SEED, self._seed)
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
        """As `_start_on_host`. If earlier kernels delay the verifier's writes beyond the usual time, the start is
        moved back."""
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

    def _signal(self, at: int) -> None:
        self._write_word(at, self.call_number)

    def _write_word(self, at: int, value: int) -> None:
        process_memory.write(self.child.pid, self.control_block + 8 * at, memoryview(word(value)))

    def _poll(self, awaited: int, poll_hook: PollHook | None = None, undisturbed: bool = False) -> CallStatus | None:
        """The status once the awaited word of it is this call's number; None where the worker replies or exits first.

        Sleeps until shortly before the time of the previous call, or series of calls, then polls often, and then less
        and less often, so that a long program has the processors. With `undisturbed` it never polls without a pause.
        """
        start_s = next_check_s = wall_s()
        is_over = False
        spin_end_s, late_start_s = start_s + SPIN_S, start_s + SPIN_S
        expected_s = self._expected_s[undisturbed]
        if awaited == DONE and not poll_hook and expected_s > SPIN_S:
            pause(min((SERIES_EARLY_SHARE if undisturbed else EARLY_SHARE) * expected_s, LIVENESS_INTERVAL_S))
            late_start_s = start_s + min(LATE_SHARE * expected_s, MAX_SPIN_S)
        if undisturbed:
            spin_end_s = late_start_s = start_s
        while True:
            polled_s = wall_s()
            status = self._read_status()
            if status and (status.ready_call if awaited == READY else status.done_call) == self.call_number:
                return status
            if is_over or status is None:
                return None
            now_s = wall_s()
            self._unfinished_s = polled_s
            if awaited == READY and self.memory.device == "cpu":  # on a device it waits, and once it is ready it spins
                self._idle_cpu_us = process_memory.computed_us(self.child.pid) - self._computed_us
            if poll_hook:
                poll_hook((now_s - start_s) * 1e6)
            if now_s > next_check_s and now_s > start_s + LIVENESS_INTERVAL_S:
                next_check_s = now_s + LIVENESS_INTERVAL_S
                # It may have finished since the status was read, so poll once more.
                is_over = not self.child.check_alive() or self.child.has_reply()
            elif now_s > spin_end_s and not poll_hook:
                late_s = (
                    (SERIES_LATE_POLL_SHARE if undisturbed else LATE_POLL_SHARE) * (now_s - start_s)
                    if now_s > late_start_s
                    else 0.0
                )
                pause(max(POLL_SLEEP_S, min(late_s, LIVENESS_INTERVAL_S)))

    def _read_status(self) -> CallStatus | None:
        """The status in the control block; None where it is not mapped any more."""
        polled = min(max(1, self._num_outputs), MAX_POLLED_EXTENTS)
        try:
            status = parse_status(process_memory.read(self.child.pid, self.control_block, status_bytes(polled)))
            if status.num_extents > polled and status.done_call == self.call_number:
                status = parse_status(
                    process_memory.read(self.child.pid, self.control_block, status_bytes(status.num_extents))
                )
        except OSError:
            return None
        return status

    def _take_snapshot(self, snapshot: Snapshot, status: CallStatus) -> None:
        """Take the snapshot within the timed call."""
        with contextlib.suppress(OSError, TamperingError):
            self.memory.map_reported_segments(status, self.control_block)
            snapshot.take(status.extents, self.child.pid)
