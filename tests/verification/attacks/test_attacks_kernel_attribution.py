"""Whose a kernel on a device is, by the operator that launched it and by its name."""

from types import SimpleNamespace

import pytest

from kernelwright.measure.trace import DeviceKernel
from kernelwright.verification.attacks.kernel_attribution import KernelAttribution


def share(*kernels):
    line = SimpleNamespace(
        call=lambda inputs, **asked: SimpleNamespace(kernels=[DeviceKernel(*one) for one in kernels])
    )
    ownership = KernelAttribution(line, lambda at: ([], {}))  # pyright: ignore[reportArgumentType]
    ownership.sample()
    assert ownership.is_complete
    return ownership.own_share


@pytest.mark.parametrize("name", ["gemm_kernel", "gemv", "dot_kernel", "fmha_forward", "matmul<float>"])
def test_a_kernel_of_ones_own_may_be_called_what_it_is(name):
    assert share((name, 10.0, "")) == 1.0


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n",
        "ampere_sgemm_128x64_nn",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(Params)",
        "void at::native::vectorized_elementwise_kernel<4>",
    ],
)
def test_a_librarys_kernel_is_known_by_its_name(name):
    assert share((name, 30.0, ""), ("own", 10.0, "")) == 0.25


def test_what_an_operator_of_torch_launched_is_torchs_whatever_its_name():
    assert share(("softmax_warp_forward", 30.0, "aten::_softmax"), ("own", 10.0, "")) == 0.25


def test_copies_are_nobodys():
    assert share(("Memcpy DtoD (Device -> Device)", 90.0, "aten::copy_"), ("own", 10.0, "")) == 1.0
    assert share(("Memset (Device)", 90.0, "")) is None
