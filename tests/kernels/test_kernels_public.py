"""What people import, pinned: names, that each is there, and that listing them touches nothing of torch."""

import subprocess
import sys

import pytest

import kernelwright.kernels as kernels
from kernelwright.core.errors import NotFoundError
from kernelwright.kernels.catalog import KERNELS, family_package, find_signature, list_kernels
from kernelwright.kernels.kernel_spec import CudaSignature

NAMES = {
    *("LayerNorm", "RMSNorm", "ShapeError", "activation", "cross_entropy", "dropout_add", "geglu", "gelu"),
    *(
        "gemm",
        "gemm_is_available",
        "gemm_with_row_statistics",
        "layer_norm",
        "linear",
        "linear_cross_entropy",
        "log_softmax",
        "relu_squared",
        "rms_norm",
        "rotary_embedding",
        "softmax",
        "swiglu",
    ),
}


def test_the_public_names_are_these():
    assert set(kernels.__all__) == set(dir(kernels)) == NAMES


def test_every_name_is_there_and_says_what_it_takes():
    pytest.importorskip("triton")
    for name in NAMES:
        assert getattr(kernels, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'sofmax'"):
        kernels.sofmax


def test_every_listed_kernel_is_public():
    assert {one.entry_point.partition(":")[2] for one in KERNELS.values()} <= NAMES
    assert len(list_kernels().kernels) == len(KERNELS)


def test_unknown_kernels_are_said():
    with pytest.raises(NotFoundError, match="no kernel 'attention' in the library; there are rms_norm"):
        find_signature("attention")
    with pytest.raises(NotFoundError, match="softmax has no variant 'sideways'; there are forward, backward"):
        find_signature("softmax:sideways")


def test_every_signature_is_in_the_package_of_its_family():
    for name, kernel in KERNELS.items():
        assert {signature.package for signature in kernel.variants.values()} == {family_package(name)}
        assert all(one.path.is_file() for one in kernel.variants.values() if isinstance(one, CudaSignature))


def test_listing_touches_nothing_of_torch():
    look = "print([m for m in ('torch', 'triton') if m in sys.modules])"
    code = f"import sys, kernelwright.kernels.catalog; {look}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
