"""Whether what judges differs from what judged the corpus last: exit code 0 where it does, 1 where it is the same.

`python tests/corpus_changed.py --record` writes the digest of the sources as they are; `make judge` does so once the
corpus has passed.
"""

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, RECORD = ROOT / "src" / "kernelwright", ROOT / "tests" / "redteam" / "corpus_digest.txt"
JUDGES = ("verification", "sandbox", "measure", "problems", "redteam/corpus.py", "redteam/samples")


def files():
    """Every source that has a part in a verdict on a sample.

    Raises:
        FileNotFoundError: one of `JUDGES` has moved.
    """
    places = [PACKAGE / name for name in JUDGES]
    if missing := [place for place in places if not place.exists()]:
        raise FileNotFoundError(f"{missing[0]} is not there; name its new place in JUDGES of {__file__}")
    found = {file for place in places for file in ([place] if place.is_file() else place.rglob("*"))}
    return sorted(file for file in found if file.is_file() and "__pycache__" not in file.parts)


def digest():
    state = hashlib.sha256()
    for file in files():
        for part in (str(file.relative_to(ROOT)).encode(), file.read_bytes()):
            state.update(len(part).to_bytes(8, "little") + part)
    return state.hexdigest()


def recorded():
    return RECORD.read_text().strip() if RECORD.is_file() else "nothing"


if __name__ == "__main__":
    now = digest()
    if "--record" in sys.argv:
        RECORD.write_text(f"{now}\n")
    elif now == recorded():
        print(f"the corpus was judged by these very sources: {now[:12]}")
        sys.exit(1)
    else:
        print(f"the corpus was judged by {recorded()[:12]}, these are {now[:12]}")
