"""What a stranger's code can still do in its cage, and that it can be looked into."""

import ctypes
import os
import signal
import sys
import time
from contextlib import nullcontext

import pytest

from kernelwright.core.cache import compiler_folders
from kernelwright.core.errors import TamperingError
from kernelwright.sandbox import ForkServer, Isolation, Limits, landlock, process_memory
from kernelwright.toolchain.artifact_cache import save_entry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has these walls")
SOON = Limits(call_timeout_s=60)
TASKS = """
import ctypes, mmap, os, socket, threading, time
def attempt(what):
    try: return what() is not None
    except OSError: return False
def tries(paths):
    return {
        "scratch": attempt(lambda: open("here", "w").write("1")),
        "store": attempt(lambda: open(paths["store"] + "/kept", "w").write("1")),
        "beside": attempt(lambda: open(paths["beside"], "w").write("1")),
        "secret": attempt(lambda: open(paths["secret"]).read()),
        "readable": attempt(lambda: open(paths["readable"]).read()),
        "signal": attempt(lambda: os.kill(os.getppid(), 0) or 1),
        "parent's memory": attempt(lambda: open(f"/proc/{os.getppid()}/mem", "rb")),
        "network": attempt(lambda: socket.create_connection(("127.0.0.1", paths["port"]), 1)),
        "timer": ctypes.CDLL(None).timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0,
        "processors of another": attempt(lambda: os.sched_setaffinity(os.getppid(), {0}) or 1),
        "priority": attempt(lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19) or 1),
        "own processors": attempt(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)) or 1),
        "trace": ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0,
    }
held = ctypes.create_string_buffer(b"a secret of the child")
counted = [0]
def place(_):
    def count():
        while True: counted[0] += 1
    threading.Thread(target=count, daemon=True).start()
    return ctypes.addressof(held)
shared = mmap.mmap(-1, 4096)
def leaves_an_orphan(_):
    if not os.fork():
        if not os.fork():
            words = memoryview(shared).cast("Q")
            while True: words[0] += 1
        os._exit(0)
    os.wait()
    while not any(shared[:8]): pass
    return ctypes.addressof(ctypes.c_char.from_buffer(shared))
def told(_): return [held.value.decode(), counted[0]]
def sleeps(_): time.sleep(1); return 1
"""


@pytest.fixture
def caged(tmp_path, monkeypatch):
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "caged_tasks.py").write_text(TASKS)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("none of your business")
    monkeypatch.syspath_prepend(str(tmp_path / "open"))
    with ForkServer(()) as warm, warm.fork_child(SOON, Isolation((), str(tmp_path / "store"))) as child:
        yield child


@pytest.mark.skipif(landlock.abi_version() < 6, reason="no Landlock here that knows signals")
def test_a_stranger_reaches_its_scratch_its_store_and_nobody(caged, tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        paths = {
            "store": str(tmp_path / "store"),
            "beside": str(tmp_path / "open" / "new"),
            "secret": str(tmp_path / "secret" / "key"),
            "readable": str(tmp_path / "open" / "caged_tasks.py"),
            "port": server.getsockname()[1],
        }
        done = caged.call("caged_tasks:tries", paths)
    assert {what for what, worked in done.items() if worked} == {"scratch", "store", "readable", "own processors"}


@pytest.mark.skipif(not landlock.abi_version(), reason="no Landlock here")
def test_what_others_compiled_is_found_and_cannot_be_changed(tmp_path, monkeypatch):
    shared, owned = (tmp_path / "cache" / kind for kind in ("cpp", "owned"))
    shared.mkdir(parents=True)
    owned.mkdir()
    kept = save_entry(shared / "key.sha256", b"compiled", "kernel", ".so").path
    (owned / "kernel.so").write_bytes(b"generated")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "finding_tasks.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "from kernelwright.core.cache import cache_dir\n"
        "from kernelwright.toolchain.artifact_cache import load_entry\n"
        "def changes(path):\n"
        "    try: return bool(path.write_text('poisoned'))\n"
        "    except PermissionError: return False\n"
        "def finds(_):\n"
        "    compiled = load_entry(cache_dir('cpp') / 'key.sha256').path\n"
        "    generated = Path(os.environ['KERNELWRIGHT_CACHE'], 'owned', 'kernel.so')\n"
        "    return [path.read_text() for path in (compiled, generated) if not changes(path)]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "tasks"))
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    with ForkServer(()) as warm, warm.fork_child(SOON, Isolation((), str(tmp_path / "store"))) as child:
        assert child.call("finding_tasks:finds", {}) == ["compiled", "generated"]
    assert (kept.read_bytes(), (owned / "kernel.so").read_bytes()) == (b"compiled", b"generated")
    assert not list((tmp_path / "store" / "cpp").iterdir()), "nothing is linked that is found by itself"


def test_compilers_find_what_this_process_compiled_for_its_own_candidate(tmp_path, monkeypatch):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "compiling_tasks.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "def compiles(_):\n"
        "    folders = [Path(os.environ[name]) for name in ('TRITON_CACHE_DIR', 'TORCHINDUCTOR_CACHE_DIR')]\n"
        "    for folder in folders:\n"
        "        folder.mkdir(exist_ok=True)\n"
        "        (folder / 'new').write_text('')\n"
        "    return [str(folder) for folder in folders]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "tasks"))
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    isolation = Isolation((), str(tmp_path / "store"))
    with ForkServer((), compiled) as warm, warm.fork_child(SOON, isolation) as child:
        assert child.call("compiling_tasks:compiles", {}) == list(compiler_folders(compiled).values())[::-1]


def test_its_protections_are_named(caged):
    assert "process limit" in caged.protections
    if landlock.abi_version():
        assert any("Landlock" in one for one in caged.protections)


@pytest.mark.skipif(not process_memory.can_inspect(), reason="the memory of children cannot be reached here")
def test_a_child_is_stopped_read_and_written_from_outside(caged):
    address = caged.call("caged_tasks:place", {})
    assert bytes(process_memory.read(caged.pid, address, 8)) == b"a secret"
    caged.stop()
    process_memory.write(caged.pid, address, memoryview(bytearray(b"no")))
    caged.resume()
    first = caged.call("caged_tasks:told", {})
    assert first[0] == "nosecret of the child"
    caged.stop()
    counted = bytes(process_memory.read(caged.pid, address, 2))
    time.sleep(0.1)
    assert counted == b"no"
    caged.resume()
    caged.call("caged_tasks:sleeps", {})
    assert caged.call("caged_tasks:told", {})[1] > first[1]


@pytest.mark.skipif(not process_memory.can_inspect(), reason="the memory of children cannot be reached here")
def test_what_is_not_there_cannot_be_read(caged):
    with pytest.raises(OSError):
        process_memory.read(caged.pid, 4096, 8)


def test_pieces_beyond_what_one_call_takes_come_in_order():
    numbers = (ctypes.c_uint32 * 3000)(*range(3000))
    start = ctypes.addressof(numbers)
    pieces = [(start + 4 * at, 4) for at in reversed(range(3000))]
    read = process_memory.read_extents(os.getpid(), pieces)
    assert [int.from_bytes(read[4 * at : 4 * at + 4], "little") for at in range(3000)] == [*reversed(range(3000))]


@pytest.mark.skipif(not process_memory.can_inspect(), reason="children cannot be looked into here")
def test_threads_that_wait_do_not_compute(caged):
    caged.start_call("caged_tasks:sleeps", {})
    time.sleep(0.3)
    caged.stop()
    assert process_memory.find_running_threads(caged.pid) == {}
    caged.resume()
    assert caged.wait_result() == 1
    assert any("python" in path for _, _, path in process_memory.list_code_mappings(caged.pid))


@pytest.mark.skipif(not process_memory.can_inspect(), reason="children cannot be looked into here")
def test_what_has_lost_its_parent_is_stopped_too(caged):
    address = caged.call("caged_tasks:leaves_an_orphan", {})
    for _ in range(3):
        caged.stop()
        counted = bytes(process_memory.read(caged.pid, address, 8))
        time.sleep(0.05)
        assert counted == bytes(process_memory.read(caged.pid, address, 8)) != bytes(8)
        caged.check_stopped()
        caged.resume()
        time.sleep(0.05)
        assert counted != bytes(process_memory.read(caged.pid, address, 8))


@pytest.mark.skipif(not process_memory.can_inspect(), reason="children cannot be looked into here")
def test_who_goes_on_while_it_is_stopped_is_found(caged):
    caged.call("caged_tasks:place", {})
    caged.stop()
    caged.check_stopped()
    for times in range(2):
        os.kill(caged.pid, signal.SIGCONT)
        time.sleep(0.05)
        with pytest.raises(TamperingError, match="us while stopped") if times else nullcontext():
            caged.check_stopped()
