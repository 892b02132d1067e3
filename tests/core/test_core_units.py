import pytest

from kernelwright.core import units


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (units.time_text(101_000), "101 ms"),
        (units.time_text(2.534), "2.53 us"),
        (units.time_text(0.05), "50.0 ns"),
        (units.time_text(0), "0.00 ns"),
        (units.bytes_text(805e6), "805 MB"),
        (units.bandwidth_text(29.1), "29.1 GB/s"),
        (units.bandwidth_text(4250), "4.25 TB/s"),
        (units.rate_text(0.196), "196 GFLOP/s"),
        (units.count_text(64e6), "64.0 M"),
        (units.number_text(1, "call"), "1 call"),
        (units.number_text(1200, "launch"), "1,200 launches"),
        (units.percent_text(0.913), "91 %"),
        (units.percent_text(0.0312), "3.1 %"),
        (units.percent_text(0), "0 %"),
    ],
)
def test_numbers_read_as_people_write_them(said, meant):
    assert said == meant
