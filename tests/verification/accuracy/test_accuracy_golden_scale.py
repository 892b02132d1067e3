"""Groups follow rows; sampled positions are random where an output is large."""

from __future__ import annotations

import pytest
import torch

from kernelwright.verification.accuracy.error import count_above_tail, measure_error, with_typical_groups
from kernelwright.verification.accuracy.golden_scale import (
    GoldenScale,
    choose_group_size,
    draw_samples,
    max_consecutive,
    sum_consecutive,
)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((8, 64), 64),
        ((8, 1000), 250),
        ((8, 1531), 1531),
        ((8, 4099), 256),
        ((100, 3), 18),
        ((300, 1), 16),
        ((300,), 150),
        ((5,), 5),
        ((), 1),
        ((2, 3), 6),
    ],
)
def test_groups_are_rows_or_equal_parts_of_one(shape: tuple[int, ...], size: int) -> None:
    count = int(torch.empty(shape).numel())
    assert choose_group_size(count, shape) == size


def test_sums_and_maxima_cover_a_short_last_group() -> None:
    values = torch.arange(10.0)
    assert sum_consecutive(values, 4).tolist() == [6.0, 22.0, 17.0]
    assert max_consecutive(values, 4).tolist() == [3.0, 7.0, 9.0]
    assert sum_consecutive(values[:8], 4).tolist() == [6.0, 22.0]


def test_samples_of_a_large_output_are_spread_and_different_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.verification.accuracy.golden_scale.MAX_QUANTILE_SAMPLES", 100)
    cpu = torch.device("cpu")
    one, other = draw_samples(1050, cpu), draw_samples(1050, cpu)
    assert isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    assert not torch.equal(one, other)
    assert one.numel() >= 90 and one.min() >= 0 and one.max() < 1050 and bool((one.diff() > 0).all())
    assert torch.equal(draw_samples(1050, cpu, 7), draw_samples(1050, cpu, 7))  # type: ignore[arg-type]
    assert draw_samples(100, cpu) == slice(None)


def test_every_position_is_sampled_at_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.verification.accuracy.golden_scale.MAX_QUANTILE_SAMPLES", 64)
    drawn = [draw_samples(256, torch.device("cpu"), seed) for seed in range(60)]
    assert set(torch.cat([one for one in drawn if isinstance(one, torch.Tensor)]).tolist()) == set(range(256))


@pytest.mark.parametrize(("count", "above"), [(1, 0), (15, 0), (16, 1), (40, 2), (64, 4), (3999, 4), (100_000, 100)])
def test_the_tail_fits_the_count(count: int, above: int) -> None:
    assert count_above_tail(count) == above


def test_errors_of_groups_are_those_of_their_elements() -> None:
    golden = torch.randn(70, dtype=torch.float64)
    error = torch.rand(70, dtype=torch.float64)
    scale = GoldenScale.of(golden, 24, 1e-30, shape=(2, 35))
    measured = measure_error(scale, lambda part, _: error[part].clone())
    unit = golden.abs().max()
    rms, peak = measured.groups.values
    assert torch.allclose(rms, (error.view(2, 35) / unit).square().mean(1).sqrt())
    assert torch.allclose(peak, error.view(2, 35).amax(1) / unit)


def test_a_group_without_error_has_the_typical_one() -> None:
    golden = torch.ones(5, 20, dtype=torch.float64)
    golden[4] = 1e-3
    error = golden * 1e-7
    error[0], error[1], error[4] = 0, 1e-2, 0
    scale = GoldenScale.of(golden.flatten(), 24, 1e-30, shape=golden.shape)
    measured = with_typical_groups(measure_error(scale, lambda part, _: error.flatten()[part].clone()), scale)
    assert measured.groups.values[0].tolist() == pytest.approx([1e-7, 1e-2, 1e-7, 1e-7, 1e-10])
