"""What a program was called with is fetched once, by whoever reads it first."""

import torch

from kernelwright.work import count_work, first_read_bytes


def test_the_first_reader_of_an_argument_fetches_it():
    weight = torch.ones(64, 64)
    work = count_work(lambda x, y: (x @ weight + x) * y, (torch.ones(64, 64), torch.ones(64)))
    assert list(first_read_bytes(work).values()) == [4 * 64 * 64, 0, 4 * 64], "the weight is no argument"


def test_what_the_program_writes_it_need_not_fetch():
    work = count_work(lambda x: x.zero_().add(1), (torch.ones(100),))
    assert list(first_read_bytes(work).values()) == [0, 0]
