"""Stands for `backend_process` in tests: does what the first line of a model's file states.

`# measured`, `# inaccurate`, `# crash`, `# hang`, with a form's name for this one alone, or `# real`, which measures,
with torch's backend "eager" in place of both compilers. Each run adds a line to LEFT with what it found: arguments, the
files in its home folder and cache variables.
"""

import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path

MODULE = "kernelwright.evidence.backend_process"
path, size, device, form, cache_bytes = sys.argv[1:]
what, _, forms = Path(path).read_text().partition("\n")[0].removeprefix("# ").partition(" ")
home = [str(one.relative_to(Path.home())) for one in Path.home().rglob("*") if one.is_file()]
caches = [name for name in os.environ if name.endswith(("_CACHE", "CACHE_DIR"))]
with Path(os.environ["LEFT"]).open("a") as left:
    left.write(json.dumps([Path(path).stem, size, device, form, home, caches]) + "\n")
(Path.home() / "left_behind").write_text("")
if form not in (forms or form):
    what = "measured"
if what == "hang":
    time.sleep(60)
if what == "crash":
    print("Fatal error: no such instruction", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGABRT)
if what == "real":
    import torch

    compile_with = torch.compile
    torch.compile = lambda program, backend=None: compile_with(program, backend="eager")
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
else:
    found = {"first_call_s": 6.0 if form == "kernelwright" else 4.0}
    if form == "kernelwright" and what == "inaccurate":
        found["mismatch"] = "kernelwright: error 2 over limit 1"
    elif form == "kernelwright":
        times = {"eager": 100.0, "torch.compile": 60.0, "kernelwright": 50.0}
        found["times"] = {name: {"time_us": us, "low_us": us - 1, "high_us": us + 1} for name, us in times.items()}
    print("what a compiler writes\n" + json.dumps(found))
