"""Programs whose work is counted by hand: F is the FLOPs, R and W the bytes read and written as written."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernelwright import work
from kernelwright.work.vector import EXP


def totals(seen):
    return seen.as_written.bytes_read, seen.as_written.bytes_written


def fused(seen):
    return seen.fused.bytes_read, seen.fused.bytes_written


def moving(seen):
    return [operator for operator in seen.operators if operator.kind != "view"]


def test_pointwise_chain_with_broadcasting():
    x, y, bias = torch.ones(64, 128), torch.ones(64, 128), torch.ones(128)
    seen = work.count_work(lambda x, y, b: torch.relu((x + y) * 2.0 + b), (x, y, bias))
    # 64*128 floats are N = 32768 bytes, bias 512. add: R 2N, W N; mul: R N, W N; add: R N + 512, W N; relu: R N, W N.
    assert totals(seen) == (5 * 32768 + 512, 4 * 32768)
    # One operation per element for each of the four: 4 * 8192.
    assert seen.as_written.flops == {"vector/float32": 32768}
    # Fused: x, y, bias in, one result out.
    assert fused(seen) == (2 * 32768 + 512, 32768)
    assert [o.name for o in seen.operators] == ["add", "mul", "add", "relu"]
    assert seen.operators[2].shapes == "f32[64, 128], f32[128]"
    assert (seen.coverage, seen.output_bytes) == (1.0, 32768)
    assert [o.allocated_bytes for o in seen.operators] == [32768] * 4


def test_an_exponent_for_each_element_costs_a_power_each():
    seen = work.count_work(lambda x, y: x**y, (torch.rand(100), torch.rand(100)))
    assert seen.as_written.flops == work.count_work(lambda x: x**1.7, (torch.rand(100),)).as_written.flops


def test_views_cost_nothing():
    x = torch.ones(4, 6)
    seen = work.count_work(lambda x: x.t().reshape(6, 4)[1:3].unsqueeze(0).view(1, 2, 4), (x,))
    assert totals(seen) == (0, 0)
    assert fused(seen) == (0, 0)
    assert seen.output_bytes == 0
    assert {o.kind for o in seen.operators} == {"view"}
    assert seen.coverage == 1.0


def test_expanded_dimension_is_read_once():
    seen = work.count_work(lambda x: x.expand(1000, 8) * 2.0, (torch.ones(1, 8),))
    # R: the 8 floats behind the expansion; W: all 8000.
    assert totals(seen) == (32, 32000)
    assert seen.as_written.flops == {"vector/float32": 8000}


def test_in_place_is_read_and_written():
    x = torch.ones(100)
    seen = work.count_work(lambda x: x.mul_(2.0).relu_(), (x,))
    # Each reads and writes 400 bytes in place; fused, x goes in and out once.
    assert totals(seen) == (800, 800)
    assert fused(seen) == (400, 400)
    assert [o.name for o in seen.operators] == ["mul_", "relu_"]
    assert seen.output_bytes == 0


def test_slice_assignment():
    def program(x, y):
        x[2:4] = y
        return x

    seen = work.count_work(program, (torch.ones(10, 8), torch.ones(8)))
    # copy_ reads 8 floats of y and writes 2 rows of 8; it does not look at the rest of x.
    assert totals(seen) == (32, 64)
    assert fused(seen) == (32, 64)
    assert moving(seen)[0].name == "copy_"


def test_column_written_then_everything_read():
    def program(x):
        x[:, 0].zero_()
        return x + 1

    seen = work.count_work(program, (torch.ones(10, 8),))
    # zero_: W 10 floats. add: R 80 floats, W 80. Fused does not read the 10 floats that it overwrote.
    assert totals(seen) == (320, 40 + 320)
    assert fused(seen) == (280, 40 + 320)


def test_matrix_product():
    seen = work.count_work(lambda a, b: a @ b, (torch.ones(32, 64), torch.ones(64, 16)))
    # F 2*32*64*16; R (32*64 + 64*16)*4; W 32*16*4.
    assert seen.as_written.flops == {"matrix/float32": 65536}
    assert totals(seen) == (8192 + 4096, 2048)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_product_counts_in_the_dtype_of_its_operands(dtype):
    seen = work.count_work(torch.mm, (torch.ones(8, 8, dtype=dtype), torch.ones(8, 8, dtype=dtype)))
    assert seen.as_written.flops == {f"matrix/{str(dtype).removeprefix('torch.')}": 1024}


@pytest.mark.parametrize("guard", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_linear_with_bias_is_the_same_in_every_mode(guard):
    layer, x = torch.nn.Linear(64, 16), torch.ones(32, 64)

    def program(x):
        with guard():
            return layer(x)

    seen = work.count_work(program, (x,))
    # F 2*32*64*16 and one addition per output; R x 8192, weight 4096, bias 64; W 2048.
    assert seen.as_written.flops == {"matrix/float32": 65536, "vector/float32": 512}
    assert totals(seen) == (8192 + 4096 + 64, 2048)
    assert {o.module for o in seen.operators} == {"Linear"}


def test_batched_product_and_einsum_agree():
    a, b = torch.ones(4, 8, 16), torch.ones(4, 16, 2)
    for program in (torch.bmm, torch.matmul, lambda a, b: torch.einsum("bik,bkj->bij", a, b)):
        seen = work.count_work(program, (a, b))
        # F 2*4*8*16*2; R (4*8*16 + 4*16*2)*4; W 4*8*2*4.
        assert seen.as_written.flops == {"matrix/float32": 2048}
        assert totals(seen) == (2048 + 512, 256)


def test_vector_products():
    # mv: 2*8*16; dot: 2*16; addmv: 2*8*16 and 8 additions.
    matrix, vector = torch.ones(8, 16), torch.ones(16)
    assert work.count_work(torch.mv, (matrix, vector)).as_written.flops == {"matrix/float32": 256}
    assert work.count_work(torch.dot, (vector, vector)).as_written.flops == {"matrix/float32": 32}
    seen = work.count_work(torch.addmv, (torch.ones(8), matrix, vector))
    assert seen.as_written.flops == {"matrix/float32": 256, "vector/float32": 8}


def test_convolution_forward_and_backward():
    x = torch.ones(2, 3, 8, 8, requires_grad=True)
    weight = torch.ones(4, 3, 3, 3, requires_grad=True)
    bias = torch.ones(4, requires_grad=True)
    seen = work.count_work(lambda x, w, b: F.conv2d(x, w, b), (x, weight, bias))
    # Output 2*4*6*6 = 288 pixels, each 3*3*3 = 27 multiply-adds: F 2*288*27 and 288 additions of the bias.
    assert seen.as_written.flops == {"matrix/float32": 15552, "vector/float32": 288}
    # R x 384 floats, weight 108, bias 4; W 288.
    assert totals(seen) == ((384 + 108 + 4) * 4, 288 * 4)
    grad = torch.ones(2, 4, 6, 6)
    back = work.count_work(lambda x, w, b, g: F.conv2d(x, w, b).backward(g), (x, weight, bias, grad))
    # Backward: as much again for the input and for the weight, and 288 additions for the bias.
    assert back.as_written.flops == {"matrix/float32": 3 * 15552, "vector/float32": 2 * 288}
    # Left behind: the gradients of x, weight and bias.
    assert back.fused.bytes_written == (384 + 108 + 4) * 4


def test_frozen_weight_needs_no_gradient_product():
    x, weight = torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3, requires_grad=True)
    seen = work.count_work(lambda x, w: F.conv2d(x, w).sum().backward(), (x, weight))
    operator = next(o for o in seen.operators if o.name == "convolution_backward")
    # Only the weight's product; it reads x and the expanded single gradient, not the weight.
    assert operator.work.flops == {"matrix/float32": 15552}
    assert operator.work.bytes_read == 384 * 4 + 4


def test_grouped_and_transposed_convolution():
    x = torch.ones(1, 4, 8, 8)
    grouped = work.count_work(lambda x, w: F.conv2d(x, w, groups=2), (x, torch.ones(6, 2, 3, 3)))
    # Output 6*6*6 pixels, each 2*3*3 multiply-adds.
    assert grouped.as_written.flops == {"matrix/float32": 2 * 216 * 18}
    transposed = work.count_work(lambda x, w: F.conv_transpose2d(x, w), (x, torch.ones(4, 5, 3, 3)))
    # Every one of the 4*8*8 inputs meets 5*3*3 weights.
    assert transposed.as_written.flops == {"matrix/float32": 2 * 256 * 45}


def test_embedding_forward_and_backward():
    table = torch.ones(1000, 16, requires_grad=True)
    index = torch.tensor([1, 5, 5, 7])
    seen = work.count_work(lambda i, t: F.embedding(i, t), (index, table))
    # Rows that are touched, not the table: R 4*16 floats and 4 int64; W 4*16 floats.
    assert totals(seen) == (256 + 32, 256)
    assert seen.as_written.flops == {}
    grad = torch.ones(4, 16)
    back = work.count_work(lambda i, t, g: F.embedding(i, t).backward(g), (index, table, grad))
    operator = next(o for o in back.operators if o.name == "embedding_dense_backward")
    # R the gradient and the indices; W the whole gradient table; one addition per element of the gradient.
    assert (operator.work.bytes_read, operator.work.bytes_written) == (256 + 32, 64000)
    assert operator.work.flops == {"vector/float32": 64}
    assert operator.kind == "gather"


def test_cross_entropy():
    logits, target = torch.randn(32, 100), torch.zeros(32, dtype=torch.int64)
    seen = work.count_work(F.cross_entropy, (logits, target))
    # log_softmax: max, subtract, exp, sum, subtract on 3200 elements; nll: a negation and an addition for 32.
    assert seen.as_written.flops == {"special/float32": 3200 * (EXP + 4), "vector/float32": 32 * 2}
    # R logits, then 32 picked values and 32 int64; W the log-softmax, then the loss and the total weight.
    assert totals(seen) == (12800 + 128 + 256, 12800 + 4 + 4)
    # Fused: logits and targets in, one number out.
    assert fused(seen) == (12800 + 256, 4)


def test_softmax():
    seen = work.count_work(lambda x: x.softmax(-1), (torch.randn(8, 32),))
    assert seen.as_written.flops == {"special/float32": 256 * (EXP + 4)}
    assert totals(seen) == (1024, 1024)
    assert (seen.operators[0].name, seen.operators[0].kind) == ("softmax", "reduction")


def test_layer_norm():
    layer = torch.nn.LayerNorm(32)
    seen = work.count_work(layer, (torch.randn(8, 32),))
    # 8 operations per element. R x 1024, weight and bias 128 each; W the result, and mean and deviation of 8 rows.
    assert seen.as_written.flops == {"vector/float32": 2048}
    assert totals(seen) == (1024 + 256, 1024 + 64)
    # Mean and deviation are kept for backward only; nobody was given them.
    assert fused(seen) == (1024 + 256, 1024)


def test_cumsum():
    seen = work.count_work(lambda x: x.cumsum(0), (torch.ones(128, 4),))
    assert seen.as_written.flops == {"vector/float32": 512}
    assert totals(seen) == (2048, 2048)
    assert seen.operators[0].kind == "scan"


def test_lstm():
    layer = torch.nn.LSTM(8, 16)
    with torch.no_grad():
        seen = work.count_work(layer, (torch.ones(5, 2, 8),))
    # 5 steps of 2 rows; four gates of 16 from 8 inputs and 16 states: F 2 * 10 * 64 * (8 + 16).
    assert seen.as_written.flops["matrix/float32"] == 30720
    assert seen.coverage == 1.0


def test_gru_in_pieces():
    layer = torch.nn.GRU(8, 16)
    seen = work.count_work(layer, (torch.ones(5, 2, 8),))
    # Three gates of 16: F 2 * 10 * 48 * (8 + 16), however torch splits it up.
    assert seen.as_written.flops["matrix/float32"] == 23040


def test_training_step_with_sgd():
    layer = torch.nn.Linear(8, 4, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=False)
    x = torch.ones(16, 8)

    def step(x):
        optimizer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()

    seen = work.count_work(step, (x,))
    # Forward 2*16*8*4; backward only the weight's gradient, as much again; sum 64; SGD 32 parameters: a scaled add, 1.
    assert seen.as_written.flops == {"matrix/float32": 2048, "vector/float32": 64 + 32}
    # forward R x 512 + weight 128, W 256; sum R 256, W 4; ones_like W 4; gradient R 4 (expanded) + x 512, W 128;
    # add_ R weight 128 + gradient 128, W 128.
    assert totals(seen) == (640 + 256 + 516 + 256, 256 + 4 + 4 + 128 + 128)
    # Fused: x and weight in; weight out in place, and the gradient that stays behind.
    assert fused(seen) == (512 + 128, 128 + 128)


def test_fused_adam_reads_gradients_only():
    weight = torch.nn.Parameter(torch.ones(100))
    optimizer = torch.optim.Adam([weight], fused=True)
    weight.grad = torch.ones(100)
    optimizer.step()
    seen = work.count_work(optimizer.step, ())
    operator = next(o for o in seen.operators if o.name == "fused_adam_")
    # R weight, gradient, two moments and the step count; W all but gradient and count.
    assert (operator.work.bytes_read, operator.work.bytes_written) == (4 * 400 + 4, 3 * 400)
    assert operator.work.flops == {"vector/float32": 1600}


def test_foreach_counts_every_tensor_of_the_list():
    tensors = [torch.ones(10), torch.ones(30)]
    seen = work.count_work(lambda ts: torch._foreach_mul_(ts, 2.0), (tensors,))
    assert seen.as_written.flops == {"vector/float32": 40}
    assert totals(seen) == (160, 160)


def test_dtype_cast():
    seen = work.count_work(lambda x: x.to(torch.bfloat16), (torch.ones(100),))
    assert totals(seen) == (400, 200)
    assert (seen.operators[0].name, seen.operators[0].kind) == ("to", "copy")
    assert work.count_work(lambda x: x.to(torch.float32), (torch.ones(100),)).as_written.total_bytes == 0


def test_transpose_and_contiguous():
    seen = work.count_work(lambda x: x.t().contiguous(), (torch.ones(4, 6),))
    assert totals(seen) == (96, 96)
    assert [o.kind for o in seen.operators] == ["view", "copy"]


def test_reshape_that_copies_counts_as_a_copy():
    seen = work.count_work(lambda x: x.t().reshape(24), (torch.ones(4, 6),))
    assert totals(seen) == (96, 96)


def test_comparison_and_selection_count_as_operations():
    seen = work.count_work(lambda x: torch.where(x > 0, x, 0.0), (torch.ones(100),))
    # gt: R 400, W 100 bools; where: R 100 + 400 + the scalar's 4 (a tensor that torch makes, W 4), W 400.
    assert seen.as_written.flops == {"vector/float32": 200}
    assert totals(seen) == (400 + 504, 100 + 4 + 400)


def test_gathers_and_scatters_touch_rows_only():
    x, index = torch.ones(1000, 8), torch.tensor([3, 4])
    seen = work.count_work(lambda x, i: x.index_select(0, i), (x, index))
    assert totals(seen) == (64 + 16, 64)
    seen = work.count_work(lambda x, i: x[i], (x, index))
    assert totals(seen) == (64 + 16, 64)
    seen = work.count_work(lambda x, i, v: x.index_put_((i,), v), (x, index, torch.ones(8)))
    # Read-modify-write of two rows, the indices, and one row of values.
    assert totals(seen) == (64 + 16 + 32, 64)
    seen = work.count_work(lambda x, i, v: x.index_add_(0, i, v), (x, index, torch.ones(2, 8)))
    assert totals(seen) == (64 + 16 + 64, 64)
    assert seen.as_written.flops == {"vector/float32": 16}


def test_lookups_in_one_table_add_up_in_a_fused_pass_to_the_table_at_most():
    table = torch.ones(1000, 16)
    indices = [torch.randint(1000, (50,)) for _ in range(30)]

    def program(table, *indices):
        return [F.embedding(index, table) for index in indices]

    # Each lookup: 50 rows of 64 bytes and 50 int64. Ten may touch 500 rows; thirty 1500, but there are 1000.
    assert work.count_work(program, (table, *indices[:10])).fused.bytes_read == 10 * (50 * 64 + 400)
    assert work.count_work(program, (table, *indices)).fused.bytes_read == 1000 * 64 + 30 * 400


def test_rows_written_twice_in_place_add_up():
    x, index = torch.ones(1000, 8), torch.tensor([3, 4])
    seen = work.count_work(lambda x, i: x.index_fill_(0, i, 1.0).index_fill_(0, i + 2, 2.0), (x, index))
    assert seen.fused.bytes_written == 2 * 2 * 32


def test_complex_products_take_four_real_multiply_adds():
    a, b = torch.ones(4, 8, dtype=torch.complex64), torch.ones(8, 2, dtype=torch.complex64)
    # F 8*m*n*k, in complex128 too; a bias adds two for each output.
    assert work.count_work(torch.mm, (a, b)).as_written.flops == {"matrix/complex64": 8 * 4 * 8 * 2}
    wide = work.count_work(
        torch.addmm, (torch.ones(2).to(torch.complex128), a.to(torch.complex128), b.to(torch.complex128))
    )
    assert wide.as_written.flops == {"matrix/complex128": 512, "vector/complex128": 2 * 8}


@pytest.mark.parametrize(
    ("program", "each"),
    [
        (lambda x: x + x, 2),
        (lambda x: x * x, 6),
        (lambda x: x**2, 6),
        (lambda x: x.sum(), 2),
        (lambda x: torch._foreach_mul([x], 2.0), 6),
    ],
)
def test_complex_elements_count_in_real_operations(program, each):
    seen = work.count_work(program, (torch.ones(10, dtype=torch.complex64),))
    assert seen.as_written.flops == {"vector/complex64": 10 * each}


def test_fourier_transform_counts_real_operations_already():
    seen = work.count_work(lambda x: torch.fft.fft(x), (torch.ones(16, dtype=torch.complex64),))
    assert seen.as_written.flops == {"vector/complex64": 5 * 16 * 4}


@pytest.mark.parametrize("kernel", [3, [3], (3, 3)])
def test_one_kernel_size_holds_for_every_dimension(kernel):
    seen = work.count_work(lambda x: F.max_pool2d(x, kernel), (torch.ones(1, 2, 9, 9),))
    assert seen.as_written.flops == {"vector/float32": 2 * 3 * 3 * 9}


def test_out_argument_is_only_written():
    seen = work.count_work(lambda x, o: torch.add(x, 1.0, out=o), (torch.ones(10), torch.ones(10)))
    assert totals(seen) == (40, 40)
    assert fused(seen) == (40, 40)


def test_fills_only_write():
    seen = work.count_work(lambda x: (torch.zeros_like(x), x.fill_(1.0), torch.empty(50)), (torch.ones(10),))
    assert totals(seen) == (0, 80)
    assert seen.operators[-1].kind == "view"
    # Fused: the zeros and x; nobody wrote the empty one, though it was allocated.
    assert fused(seen) == (0, 80)
    assert seen.output_bytes == 40 + 200


def test_same_input_twice_is_read_once():
    x = torch.ones(100)
    seen = work.count_work(lambda a, b: a * b, (x, x))
    assert totals(seen) == (400, 400)
    assert seen.operators[0].reads == (0,)


def test_output_that_is_a_view_of_the_input():
    seen = work.count_work(lambda x: (x[:5], x + 1), (torch.ones(10),))
    assert fused(seen) == (40, 40)
    assert seen.output_bytes == 40


def test_part_of_a_result_is_all_that_a_fused_pass_must_write():
    seen = work.count_work(lambda x: (x * 2)[:, -1], (torch.ones(10, 8),))
    assert fused(seen) == (320, 40)
    assert seen.output_bytes == 320


def test_overlapping_windows_are_clipped_to_the_storage():
    seen = work.count_work(lambda x: x.unfold(0, 4, 1).sum(), (torch.ones(100),))
    # 97 windows of 4 look at 388 elements, but there are only 100.
    assert seen.as_written.bytes_read == 400


def test_slices_of_one_storage_are_joined():
    seen = work.count_work(lambda x: x[:-1] * x[1:], (torch.ones(100),))
    assert seen.as_written.bytes_read == 400
    halves = work.count_work(lambda x: torch.cat((x[:, 4:], x[:, :4]), 1), (torch.ones(10, 8),))
    assert totals(halves) == (320, 320)


def test_sort_counts_comparisons():
    # 4 rows of 16: 16 * log2(16) comparisons each; values and int64 places come out.
    seen = work.count_work(lambda x: x.sort(dim=-1), (torch.ones(4, 16),))
    assert seen.as_written.flops == {"vector/float32": 256}
    assert totals(seen) == (256, 256 + 512)


def test_dropout_is_random():
    seen = work.count_work(lambda x: F.dropout(x, 0.5, training=True), (torch.ones(64),))
    assert any(o.kind == "random" for o in seen.operators)
    assert seen.coverage == 1.0


def test_scaled_product_of_eight_bit_floats():
    a = torch.empty(32, 64, device="meta", dtype=torch.float8_e4m3fn)
    b = torch.empty(16, 64, device="meta", dtype=torch.float8_e4m3fn).t()
    one = torch.empty((), device="meta")
    seen = work.count_work(lambda a, b, s: torch._scaled_mm(a, b, s, s, out_dtype=torch.bfloat16), (a, b, one))
    assert seen.as_written.flops == {"matrix/float8_e4m3fn": 2 * 32 * 64 * 16}
    # R 32*64 + 16*64 bytes and the scale, which is one tensor passed twice; W 32*16 bfloat16.
    assert totals(seen) == (2048 + 1024 + 4, 1024)


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.BatchNorm2d(4),
        torch.nn.GroupNorm(2, 4),
        torch.nn.MaxPool2d(2),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Upsample(scale_factor=2, mode="bilinear"),
        torch.nn.GELU("tanh"),
        torch.nn.PReLU(),
        torch.nn.Dropout(),
        torch.nn.ReflectionPad2d(1),
        torch.nn.LSTM(8, 4, bidirectional=True),
        torch.nn.RMSNorm(8),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_common_layers_are_known_forward_and_backward(layer):
    def program(x):
        result = layer(x)
        (result[0] if isinstance(result, tuple) else result).sum().backward()

    x = torch.randn((3, 2, 8) if isinstance(layer, torch.nn.LSTM) else (2, 4, 8, 8), requires_grad=True)
    seen = work.count_work(program, (x,))
    assert [o.name for o in seen.operators if not o.flops_known] == []
    assert seen.as_written.total_flops > 0


def test_softmax_over_rows_too_long_for_shared_memory_reads_them_three_times_on_cuda():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        long, short = (torch.empty(4, n, device="cuda") for n in (20_000, 8_000))
        seen = work.count_work(lambda a, b: (torch.log_softmax(a, -1), torch.softmax(b, -1)), (long, short))
    read = [op.work.bytes_read for op in seen.operators if op.work.total_bytes]
    assert read == [3 * 4 * 20_000 * 4, 4 * 8_000 * 4]
    assert seen.fused.bytes_read == 4 * (20_000 + 8_000) * 4, "one ideal pass reads them once"
