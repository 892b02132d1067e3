"""Tries the budget on every variant of `variants.py` and prints the table of docs/error-budget.md.

PYTHONPATH=src python tests/verification/accuracy/budget_experiment.py [--small] [--seeds N]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from variants import LOCAL_OPERATORS, OPERATORS, Operator, Variant

from kernelwright.problems.problem import Args, clone_inputs
from kernelwright.verification.accuracy.budget import check_accuracy, measure_input_error
from kernelwright.verification.accuracy.distributions import DISTRIBUTIONS, Distribution
from kernelwright.verification.accuracy.expected import Expected, compute_expected
from kernelwright.verification.accuracy.homogeneity import is_homogeneous


@dataclass
class Result:
    """What became of one variant: the worst share of the limit over all sets, and in which one."""

    operator: str
    variant: str
    honest: bool
    worst: float = 0.0
    where: str = ""
    by_set: dict[tuple[int, str], float] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        return self.worst <= 1

    @property
    def refused_in(self) -> set[str]:
        return {kind for (_, kind), share in self.by_set.items() if share > 1}

    def add(self, seed: int, kind: str, share: float, metric: str) -> None:
        self.by_set[seed, kind] = share
        if share > self.worst:
            self.worst, self.where = share, f"{kind}, {metric}, seed {seed}"


def experiment(
    scale: float = 1.0, seeds: tuple[int, ...] = (1, 2, 3), operators: list[Operator] | None = None
) -> list[Result]:
    """Every variant over every distribution, three times; a non-finite rejection counts as infinitely far."""
    return [result for operator in operators or OPERATORS for result in try_operator(operator, scale, seeds)]


def try_operator(operator: Operator, scale: float, seeds: tuple[int, ...]) -> list[Result]:
    variants = [(n, f, True) for n, f in operator.honest.items()] + [
        (n, f, False) for n, f in operator.dishonest.items()
    ]
    results = [Result(operator.name, name, honest) for name, _, honest in variants]
    for seed in seeds:
        torch.manual_seed(seed)
        example: Args = (operator.inputs(scale), {})
        for position, kind in enumerate(DISTRIBUTIONS):
            inputs = kind.draw(example, 1000 * seed + position)
            truth = compute_expected(operator.program, None, inputs)
            if kind.range_end and not is_homogeneous(
                compute_expected(
                    operator.program, None, replace(kind, range_end=0).draw(example, 1000 * seed + position)
                ),
                truth,
            ):
                continue
            measure_input_error(truth, 0)  # made now, so that every limit in the table is the whole one
            for result, (_, variant, _) in zip(results, variants, strict=True):
                result.add(seed, kind.name, *_try(variant, inputs, truth, kind))
    return results


def _try(variant: Variant, inputs: Args, truth: Expected, kind: Distribution) -> tuple[float, str]:
    with torch.no_grad():
        got = variant(*clone_inputs(inputs)[0])
    reason, accuracy = check_accuracy([got], truth, distribution=kind)
    if reason and accuracy is None:
        return float("inf"), reason.code
    assert accuracy is not None
    return accuracy.error_over_limit, accuracy.metric


def table(results: list[Result]) -> str:
    columns = ("operator", "correct accepted", "worst of them", "inaccurate rejected", "best of them")
    lines = ["| " + " | ".join(columns) + " |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(r.operator for r in results):
        honest = [r for r in results if r.operator == name and r.honest]
        bad = [r for r in results if r.operator == name and not r.honest]
        worst, best = max(honest, key=lambda r: r.worst), min(bad, key=lambda r: r.worst)
        lines.append(
            f"| {name} | {sum(r.accepted for r in honest)} of {len(honest)} | {worst.worst:.2f} {worst.variant} "
            f"| {sum(not r.accepted for r in bad)} of {len(bad)} | {best.worst:.3g} {best.variant} |"
        )
    return "\n".join(lines)


def misses(results: list[Result]) -> list[str]:
    return [
        f"{'correct' if r.honest else 'INACCURATE'} {r.operator}: {r.variant} {r.worst:.3g} ({r.where})"
        for r in results
        if r.accepted != r.honest
    ]


def summary(results: list[Result]) -> str:
    honest, bad = [r for r in results if r.honest], [r for r in results if not r.honest]
    return (
        f"{sum(r.accepted for r in honest)} of {len(honest)} correct variants accepted, "
        f"{sum(not r.accepted for r in bad)} of {len(bad)} inaccurate variants rejected"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--local", action="store_true", help="the operators of LOCAL_OPERATORS instead")
    options = parser.parse_args()
    operators = LOCAL_OPERATORS if options.local else OPERATORS
    results = experiment(0.125 if options.small else 1.0, tuple(map(int, options.seeds.split(","))), operators)
    print(table(results), "", summary(results), "", *misses(results), sep="\n")


if __name__ == "__main__":
    main()
