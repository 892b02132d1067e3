"""Outputs that share memory with inputs, other outputs or themselves."""

import ctypes
import mmap
import os

import pytest
import torch

from kernelwright.sandbox import can_inspect
from kernelwright.verification.attacks.aliased_output import (
    OutputMemory,
    TensorMemory,
    describe_outputs,
    find_aliasing,
    find_other_order,
    find_shared_page,
)


def describe(outputs: dict[str, torch.Tensor], *inputs: torch.Tensor) -> dict[str, OutputMemory]:
    storages = [(one.untyped_storage().data_ptr(), one.untyped_storage().nbytes()) for one in inputs]
    return describe_outputs({path: TensorMemory.of(one) for path, one in outputs.items()}, storages)


def find(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], *inputs: torch.Tensor) -> str:
    reason = find_aliasing(describe(got, *inputs), describe(expected, *inputs))
    return f"{reason.code}: {reason.detail}" if reason else ""


@pytest.mark.parametrize("path", ["", "[0]"])
def test_input_returned(path: str) -> None:
    x = torch.randn(4, 5)
    assert find({path: x}, {path: x.clone()}, torch.randn(3), x).startswith("aliased-output")
    assert find({path: x[1:3]}, {path: x[1:3].clone()}, x).endswith("input 0; the reference returns new values")
    assert not find({path: x.clone()}, {path: x.clone()}, x)


def test_views_that_the_reference_returns_are_allowed() -> None:
    x = torch.randn(4, 6)
    views = {"[0]": x[:2], "[1]": x.t()}
    assert not find(views, views, x)
    assert not find({path: one.clone() for path, one in views.items()}, views, x)


def test_outputs_in_one_memory() -> None:
    both = torch.randn(2, 8)
    apart = {"[0]": both[0].clone(), "[1]": both[1].clone()}
    assert not find({"[0]": both[0], "[1]": both[1]}, apart)
    assert "shares its memory with output" in find({"[0]": both[0], "[1]": both[0]}, apart)
    assert not find({"[0]": both[:, ::2], "[1]": both[:, 1::2]}, {"[0]": both[:, ::2].clone(), "[1]": both[:, 1::2]})


def test_several_elements_at_one_address() -> None:
    row = torch.randn(1, 8)
    expected = {"": row.expand(4, 8).clone()}
    assert "several elements at one address" in find({"": row.expand(4, 8)}, expected)
    assert "several elements at one address" in find({"": torch.randn(11).as_strided((4, 8), (1, 1))}, expected)


def test_lazy_negation_and_stored_order() -> None:
    z = torch.randn(4, 5, dtype=torch.complex64)
    lazy = z.clone().conj().imag
    assert "only when it is read" in find({"": lazy}, {"": -z.imag.clone()})
    transposed = torch.randn(5, 4).t()
    assert not find({"": transposed}, {"": torch.randn(4, 5)})
    assert "strides (1, 4) instead of (5, 1)" in find_other_order(
        describe({"": transposed}), describe({"": torch.randn(4, 5)})
    )
    assert not find_other_order(describe({"": torch.randn(4, 5)}), describe({"": transposed}))


@pytest.mark.skipif(not can_inspect(), reason="memory of other processes cannot be reached here")
def test_pages_of_a_file_that_are_copied_when_they_are_written_to(tmp_path) -> None:
    (tmp_path / "pages").write_bytes(bytes(4 * mmap.PAGESIZE))
    with (tmp_path / "pages").open("r+b") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as pages:
        assert not any(pages[:: mmap.PAGESIZE]), "each page is there"
        start = ctypes.addressof(view := ctypes.c_char.from_buffer(pages))
        assert find_shared_page(os.getpid(), [(start, len(pages))]) == "is a private mapping of a file"
        del view
    own = torch.ones(4 * mmap.PAGESIZE, dtype=torch.uint8)
    assert find_shared_page(os.getpid(), [(own.data_ptr(), own.numel())]) == ""


@pytest.mark.skipif(not can_inspect(), reason="memory of other processes cannot be reached here")
def test_memory_that_was_only_read_is_not_a_file() -> None:
    with mmap.mmap(-1, 1 << 23, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        pages.madvise(mmap.MADV_HUGEPAGE)
        assert not any(pages[:: mmap.PAGESIZE]), "each page is the kernel's page of zeros"
        start = ctypes.addressof(view := ctypes.c_char.from_buffer(pages))
        assert find_shared_page(os.getpid(), [(start, len(pages))]) == ""
        del view
