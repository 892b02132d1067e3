"""Stands for `kw` in tests: returns documents from DOCUMENTS, and does what the first line of a problem's file states.

`# accepted`, `# rejected`, `# error`, `# crash`, `# hang`, or `# together`, which waits until two problems run at once.
Each run leaves NAME.json in DOCUMENTS with what the process found: cores, GPU, and the files in its home folder.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

DOCUMENTS = Path(os.environ["DOCUMENTS"])


def optimize(path: Path, arguments: list[str]) -> int:
    what = path.read_text().partition("\n")[0].removeprefix("# ")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) if what == "hang" else None
    home = Path.home()
    seen = {
        "pid": os.getpid(),
        "child": child.pid if child else None,
        "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "cores": sorted(os.sched_getaffinity(0)),
        "home": sorted(str(one.relative_to(home)) for one in home.rglob("*") if one.is_file()),
        "caches": [name for name in os.environ if name.endswith(("_CACHE", "CACHE_DIR"))],
        "arguments": arguments,
    }
    (DOCUMENTS / f"{path.stem}.partial").write_text(json.dumps(seen))
    (DOCUMENTS / f"{path.stem}.partial").rename(DOCUMENTS / f"{path.stem}.json")
    (home / "left_behind").write_text("")
    if what == "hang":
        time.sleep(60)
    if what == "crash":
        print("Fatal error: no such instruction", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    while what == "together" and len(list(DOCUMENTS.glob("*_together.json"))) < 2:
        time.sleep(0.01)
    kind = {"together": "accepted"}.get(what, what)
    print((DOCUMENTS / f"{kind}.document").read_text())
    return {"accepted": 0, "rejected": 1, "error": 2}[kind]


if sys.argv[1] == "machine":
    print((DOCUMENTS / "machine.document").read_text())
else:
    sys.exit(optimize(Path(sys.argv[2]), sys.argv[3:]))
