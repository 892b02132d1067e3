"""The part of the slow tests, or of the corpus, whose turn it is: it follows from the sources, so that every change has
another one and a run can be repeated.

`python tests/part.py 8` prints the number of a part below 8; `python tests/part.py 16 corpus` the names of the samples
in it.
"""

import hashlib
import sys
import zlib
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src"


def current_part(parts):
    """The number of the part, below `parts`."""
    state = hashlib.sha256()
    for file in sorted(SOURCES.rglob("*.py")):
        state.update(file.read_bytes())
    return int.from_bytes(state.digest()[:8], "big") % parts


def is_in_part(name, part, parts):
    """Whether a test or a sample of this name is in a part."""
    return zlib.crc32(name.encode()) % parts == part


if __name__ == "__main__":
    count = int(sys.argv[1])
    number = current_part(count)
    if sys.argv[2:] == ["corpus"]:
        from kernelwright.redteam.corpus import load_samples

        names = sorted({sample.name for sample in load_samples() if is_in_part(sample.name, number, count)})
        print(" ".join(names))
    else:
        print(number)
