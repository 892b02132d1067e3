"""Attention counted by hand: two products forward, five backward, and only the pairs that the mask leaves."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernelwright import work

B, H, L, D = 2, 4, 16, 8
FULL = 2 * B * H * L * L * (D + D)


def heads(length=L, count=H, **options):
    return torch.ones(B, count, length, D, **options)


def test_full():
    q = heads()
    seen = work.count_work(F.scaled_dot_product_attention, (q, heads(), heads()))
    assert seen.as_written.flops == {"matrix/float32": FULL}
    operator = next(o for o in seen.operators if o.kind == "attention")
    assert operator.name == "scaled_dot_product_attention"
    # R q, k, v; W the result and the log-sum-exp of every row.
    assert operator.work.bytes_read == 3 * q.nbytes
    assert operator.work.bytes_written == q.nbytes + B * H * L * 4


def test_causal_counts_the_triangle():
    seen = work.count_work(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (heads(),))
    # 16*17/2 = 136 pairs a head instead of 256.
    assert seen.as_written.flops == {"matrix/float32": 2 * B * H * 136 * 2 * D}


@pytest.mark.parametrize("queries, keys, pairs", [(3, 5, 1 + 2 + 3), (5, 3, 1 + 2 + 3 + 3 + 3)])
def test_causal_with_unequal_lengths_starts_at_the_first_key(queries, keys, pairs):
    call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    seen = work.count_work(lambda q, k: call(q, k, k, 0.0, True), (heads(queries), heads(keys)))
    assert seen.as_written.flops == {"matrix/float32": 2 * B * H * pairs * 2 * D}


def test_backward_is_five_products():
    q = heads(requires_grad=True)
    grad = heads()
    seen = work.count_work(lambda q, g: F.scaled_dot_product_attention(q, q, q, is_causal=True).backward(g), (q, grad))
    flops = 2 * B * H * 136 * D
    assert seen.as_written.flops["matrix/float32"] == (2 + 5) * flops


def test_grouped_queries_count_the_heads_of_the_queries():
    seen = work.count_work(
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), (heads(), heads(count=2))
    )
    assert seen.as_written.flops == {"matrix/float32": FULL}
    operator = next(o for o in seen.operators if o.kind == "attention")
    assert operator.work.bytes_read == heads().nbytes + heads(count=2).nbytes


def test_math_backend_does_the_same_products():
    def program(q):
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, q, q)

    seen = work.count_work(program, (heads(),))
    assert seen.as_written.flops["matrix/float32"] == FULL
    assert seen.coverage == 1.0


def test_inference_mode_sees_the_backend():
    def program(q):
        with torch.inference_mode():
            return F.scaled_dot_product_attention(q, q, q)

    assert work.count_work(program, (heads(),)).as_written.flops == {"matrix/float32": FULL}


def test_kernels_of_a_gpu_count_on_meta_tensors():
    """Flash, memory-efficient and cuDNN kernels on a machine without them, forward and backward."""
    q = torch.empty(B, H, L, D, device="meta", dtype=torch.bfloat16)
    aten = torch.ops.aten
    programs = {
        "flash": lambda q: aten._scaled_dot_product_flash_attention(q, q, q, 0.0, True),
        "efficient": lambda q: aten._scaled_dot_product_efficient_attention(q, q, q, None, True, 0.0, True),
        "cudnn": lambda q: aten._scaled_dot_product_cudnn_attention(q, q, q, None, True, 0.0, True),
    }
    for name, program in programs.items():
        seen = work.count_work(program, (q,))
        assert seen.as_written.flops == {"matrix/bfloat16": 2 * B * H * 136 * 2 * D}, name


def test_rows_of_flash_attention_forward():
    q = torch.empty(B, L, H, D, device="meta", dtype=torch.bfloat16)
    call = torch.ops.aten._flash_attention_forward
    seen = work.count_work(lambda q: call(q, q, q, None, None, L, L, 0.0, False, False), (q,))
    assert seen.as_written.flops == {"matrix/bfloat16": FULL}


def test_encoder_layer_that_inference_runs_as_one_call():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()

    def program(x):
        with torch.inference_mode():
            return layer(x)

    seen = work.count_work(program, (torch.ones(2, 6, 16),))
    # 12 tokens by 3*16*16 + 16*16 + 16*32 + 32*16 weights, and two products of 6 keys by 16.
    assert seen.as_written.flops["matrix/float32"] == 2 * 12 * (1024 + 1024 + 2 * 6 * 16)
    assert seen.coverage == 1.0
