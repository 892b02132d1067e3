"""Timings with given values, for tests that need no clock."""

from kernelwright.core.timing import Conditions, Timing
from kernelwright.measure.paired import InterleavedTimings

NUM_SAMPLES = 15


def timing(time_us, clock="events", samples_us=()):
    return Timing(
        name="a variant",
        time_us=time_us,
        low_us=time_us,
        high_us=time_us,
        samples_us=samples_us,
        repetitions=1,
        conditions=Conditions(device="cuda", clock=clock, cache="cold", allocation="", threads=1),
    )


def samples_around(time_us):
    """Samples within a thousandth of a time."""
    return tuple(time_us * (1 + (at * 7 % NUM_SAMPLES - 7) / 1e4) for at in range(NUM_SAMPLES))


def rounds_of(times_us, clock="events"):
    """Rounds in which each variant took its time."""
    timings = {name: timing(time_us, clock, samples_around(time_us)) for name, time_us in times_us.items()}
    return InterleavedTimings(timings, (True,) * NUM_SAMPLES)
