"""`kw` from a process that has imported it already: `python tests/warm_kw.py` forks once for each request on stdin.

A request is one line of JSON: `words`, `cwd`, `environment`, and the files `out` and `err`. The answer is the exit
code. It runs no operator of its own, so that a fork is as good as a new process.
"""

import gc
import json
import os
import sys
import traceback


def main():
    import torch._dynamo  # noqa: F401
    from measured_memory import keep_measured_memory

    from kernelwright.cli import app

    keep_measured_memory()
    save_coverage_of_answers()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            run(app.main, **request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def save_coverage_of_answers():
    """Where coverage is measured: a supervised command is killed once it has sent its answer."""
    if "COVERAGE_PROCESS_CONFIG" not in os.environ:
        return
    from coverage import Coverage

    from kernelwright.sandbox import channel

    def save_and_send(to, message):
        if {"answer", "fault"} & message.keys() and (measured := Coverage.current()):
            measured.save()
        send(to, message)

    send, channel.send = channel.send, save_and_send


def run(command, words, cwd, environment, out, err):
    code = 101
    try:
        os.setpgid(0, 0)
        for number, path in enumerate([os.devnull, out, err]):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        command(words)
    except SystemExit as leave:
        code = leave.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
