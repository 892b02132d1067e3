import pytest
import torch

from kernelwright.verification.accuracy.error import relative_errors
from kernelwright.verification.accuracy.golden_scale import compute_ulp
from kernelwright.verification.accuracy.ranges import all_finite, all_same_sign, max_abs
from kernelwright.verification.transport.state import bitwise_equal, byte_tensors_equal

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float8_e5m2, torch.complex64])
@pytest.mark.parametrize("odd", [INF, -INF, NAN])
def test_one_value_that_is_not_finite_is_seen_in_every_dtype(dtype, odd):
    values = torch.ones(3, 1000).to(dtype)
    assert all_finite(values) and all_finite(values[:0])
    assert all_finite(torch.arange(3))
    values[2, 900] = odd
    assert not all_finite(values)


def test_the_largest_magnitude_and_one_sign():
    assert max_abs(torch.tensor([1.0, -3.0])) == 3.0
    assert max_abs(torch.ones(0)) == 0.0
    assert all_same_sign(torch.tensor([0.0, 2.0])) and all_same_sign(torch.tensor([-1.0, 0.0]))
    assert not all_same_sign(torch.tensor([-1.0, 2.0])) and not all_same_sign(torch.tensor([1.0, NAN]))


def test_the_unit_in_the_last_place_is_that_of_frexp():
    values = torch.cat([torch.randn(1000, dtype=torch.float64) * 2.0**power for power in (-60, -1, 0, 30)])
    values = torch.cat([values, torch.tensor([1.0, -2.0, 0.0], dtype=torch.float64)])
    expected = torch.exp2((torch.frexp(values.abs().clamp_min(2.0**-40)).exponent - 24).double())
    assert torch.equal(compute_ulp(values, 24, 2.0**-40), expected)
    assert torch.equal(compute_ulp(values[::3], 24, 2.0**-40), expected[::3])


def test_outputs_are_apart_by_what_is_finite_in_both():
    golden = torch.ones(4, 512, dtype=torch.float64)
    own = golden.float() * 1.5
    assert relative_errors(golden, own) == (0.5, 0.5)
    own[0, :256], golden[1, 0] = 3.0, INF
    own[2, 0] = NAN
    rms, worst = relative_errors(golden, own)
    assert worst == 2.0 and 0.5 < rms < 1.0
    assert relative_errors(torch.zeros(8), torch.full((8,), 1e-3))[0] == INF
    assert relative_errors(torch.zeros(8), torch.zeros(8)) == (0.0, 0.0)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 4096, 4099])
def test_bytes_are_equal_only_where_every_one_is(count):
    one = torch.randint(0, 255, (count,), dtype=torch.uint8)
    assert byte_tensors_equal(one, one.clone()) and not byte_tensors_equal(
        one, torch.zeros(count + 8, dtype=torch.uint8)
    )
    if count:
        other = one.clone()
        other[-1] += 1
        assert not byte_tensors_equal(one, other)


def test_zeros_of_both_signs_and_nans_are_compared_by_their_bits():
    for dtype in (torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128):
        zero = torch.zeros(5, dtype=dtype)
        assert bitwise_equal(zero, zero.clone()) and not bitwise_equal(zero, -zero)
        assert bitwise_equal(torch.full((5,), NAN).to(dtype), torch.full((5,), NAN).to(dtype))
