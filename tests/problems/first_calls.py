"""Judges one honest candidate for so many seconds, in a new process each time; it calls `exp` on all threads at once.

    python tests/problems/first_calls.py SECONDS

With MKL before 2025.0 one in fifty is rejected, unless somebody called `exp` on one thread before.
"""

import sys
import time

from kernelwright import verification
from kernelwright.redteam.corpus import SAMPLES_DIR
from kernelwright.sandbox import ForkServer
from kernelwright.verification.transport.runners import PRELOAD_MODULES


def main(seconds: float) -> int:
    problem, candidate = SAMPLES_DIR / "problems/softmax.py", SAMPLES_DIR / "honest/kept_output.py"
    end, verdicts, rejected = time.monotonic() + seconds, 0, 0
    with ForkServer(PRELOAD_MODULES) as fork_server:
        while time.monotonic() < end:
            verdict = verification(str(problem), str(candidate), fork_server=fork_server, sets=1)
            verdicts += 1
            if not verdict.accepted:
                rejected += 1
                print(verdict)
    print(f"{verdicts} verdicts, {rejected} rejections")
    return rejected > 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
