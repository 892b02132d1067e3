"""How far predictions are off on programs that no constant was fitted to: every move is made, torch.compile fuses.

python tests/diagnosis/predictions.py [cpu|cuda] [NAME...]
"""

import os
import sys
from pathlib import Path
from statistics import median

PROGRAMS = Path(__file__).with_name("unseen.py")


def main(device="cpu", *names):
    if device == "cuda":
        os.environ["KW_SIZE"] = "gpu"
    from kernelwright.sandbox.process_limits import DEFAULT_ENVIRONMENT

    os.environ |= DEFAULT_ENVIRONMENT | os.environ
    from kernelwright.diagnosis import why
    from kernelwright.evidence.recommendation_check import apply_recommendations

    sys.path.insert(0, str(PROGRAMS.parent))
    from unseen import NAMES

    errors = []
    print(
        "| program | move | before us | predicted us | achieved us | off by | made by |\n|---|---|---|---|---|---|---|"
    )
    for name in names or NAMES:
        target = Path(f"{PROGRAMS}:{name}")
        for made in apply_recommendations(target, why(str(target), device=device), device):
            errors.append(made.prediction_error)
            off = made.predicted_us / made.achieved_us - 1
            figures = f"{made.before_us:,.1f} | {made.predicted_us:,.1f} | {made.achieved_us:,.1f} | {off:+.0%}"
            print(f"| {name} | {made.kind} | {figures} | {made.implemented_by} |", flush=True)
    print(f"\n{len(errors)} moves, median error {median(errors):.0%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
