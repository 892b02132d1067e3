"""Einsums in a cheaper order, of the parts that are used: the same values and strides, for random equations."""

import random
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from rewrite_checks import captured_with, check, count, normal, operators, run

from kernelwright.compiler.regions.operators import op_name

NAME = "einsum_paths"
LABELS = "abcdef"


def random_einsum(seed):
    """An equation with tensors for it, and a dimension of its result."""
    rng = random.Random(seed)
    sizes = {label: rng.choice([2, 3, 5, 8]) for label in LABELS}
    terms = ["".join(rng.sample(LABELS, rng.randint(1, 4))) for _ in range(rng.randint(2, 4))]
    used = sorted({*"".join(terms)})
    out = "".join(rng.sample(used, rng.randint(1, min(4, len(used)))))
    tensors = [normal(*(sizes[label] for label in term), seed=seed + at) for at, term in enumerate(terms)]
    return f"{','.join(terms)}->{out}", tensors, rng.randrange(len(out))


@pytest.mark.parametrize("seed", range(60))
def test_random_einsums_and_selected_elements(seed):
    equation, tensors, dim = random_einsum(seed)

    def program(*tensors):
        result = torch.einsum(equation, *tensors)
        return result if seed % 2 else result.select(dim, -1)

    times = count(captured_with(program, tensors, NAME), NAME)
    check(program, tensors, NAME, times=times)


B, D, X = normal(2, 16, 3, 6), normal(2, 3, 16), normal(2, 16, 3, 8)


def states(b, d, x):
    return torch.einsum("blhn,bhl,blhp->bhpn", b, d, x)


def with_zeros(b, d, x):
    one = states(b, d, x).unsqueeze(1)
    return torch.cat([torch.zeros_like(one[:, :1]), one, 2 * one], 1)


CHEAPER = {
    "a factor of the smaller tensor": (lambda c, d, x: torch.einsum("blhp,bhl,blhn->bhpn", x, d, c), (B, D, X)),
    "one element": (lambda c, s: torch.einsum("zc,cp->zp", c, s)[-1], (normal(32, 24), normal(24, 40))),
    "an operand with zeros behind": (
        lambda c, s: torch.einsum("bzc,bcp->bzp", c, F.pad(s, (0, 0, 0, 20))), (normal(4, 30, 30), normal(4, 10, 20)),
    ),
    "an operand that is an einsum": (
        lambda z, b, d, x: torch.einsum("bh,bhpn->bpn", z, states(b, d, x)), (normal(2, 3), B, D, X),
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", CHEAPER)
def test_cheaper_orders_are_taken(why):
    program, args = CHEAPER[why]
    captured = check(program, args, NAME)
    assert max(len(node.args[1]) for node in captured.graph.nodes if op_name(node.target) == "einsum") <= 2


def test_a_short_sum_is_computed_by_a_region():
    def program(c, s):
        return torch.einsum("bzc,bcpn->bzpn", c, s)

    captured = check(program, (normal(4, 3, 3), normal(4, 3, 32, 16)), NAME)
    assert "einsum" not in operators(captured) and "sum" in operators(captured)


def test_dimensions_of_size_1():
    def program(a, b, c):
        return torch.einsum("ij,jk,i->ik", a, b, c)

    for rows, summed in ((1, 5), (5, 1)):
        args = normal(rows, summed), normal(summed, 40), normal(rows)
        (got,) = run(captured_with(program, args, NAME), program, *args)
        torch.testing.assert_close(got, program(*args), rtol=1e-10, atol=1e-10)


def test_zeros_are_left_out_and_one_product_computes_states_and_their_sum():
    def program(decay, b, d, x):
        s = torch.einsum("bclhn,bhcl,bclhp->bchpn", b, d, x)
        s = torch.cat([torch.zeros_like(s[:, :1]), s], 1)
        return torch.einsum("bhzc,bchpn->bzhpn", decay, s)[:, -1]

    args = normal(2, 3, 5, 5), normal(2, 4, 16, 3, 4), normal(2, 3, 4, 16), normal(2, 4, 16, 3, 8)
    captured = check(program, args, NAME)
    names = operators(captured)
    assert names.count("einsum") == 1 and "cat" not in names and "full_like" not in names
    both = captured_with(program, args, NAME, "einsums")
    assert operators(both).count("matmul") == 1 and "einsum" not in operators(both)
    torch.testing.assert_close(run(both, program, *args)[0], program(*args), rtol=1e-10, atol=1e-10)


STAY = {
    "a product of matrices": (lambda a, b: torch.einsum("ij,jk->ik", a, b), (normal(32, 24), normal(24, 40))),
    "a diagonal": (lambda a, b: torch.einsum("ii,ij->j", a, b), (normal(4, 4), normal(4, 5))),
    "an ellipsis": (lambda a, b: torch.einsum("...i,ij->...j", a, b), (normal(3, 4, 4), normal(4, 5))),
    "broadcasting": (lambda a, b: torch.einsum("ij,ij->i", a, b), (normal(3, 4), normal(3, 1))),
    "half precision": (lambda a, b, c: torch.einsum("ij,i,jk->ik", a, b, c),
                       (normal(4, 4).half(), normal(4).half(), normal(4, 4).half())),
    "an operand that is used elsewhere": (
        lambda a, b, c: ((s := torch.einsum("ij,jk->ik", a, b)), torch.einsum("ik,kl->il", s, c)),
        (normal(32, 24), normal(24, 40), normal(40, 20)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", STAY)
def test_other_einsums_stay(why):
    program, args = STAY[why]
    assert count(captured_with(program, args, NAME), NAME) == 0
