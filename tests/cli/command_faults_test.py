#!/usr/bin/env python3
"""What the command does when a rank dies, stops, comes late or disagrees, and when output has no place."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

MEGAMOE = sys.argv.pop(1)
SMALL = ["--hidden", "64", "--intermediate", "64", "--experts", "6", "--top-k", "2", "--tokens", "5"]
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC", "OMPI_", "PMI", "MPI_", "SLURM_")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
PATIENCE = 120


def small(option, value):
    """SMALL with another value."""
    args = dict(zip(SMALL[::2], SMALL[1::2]))
    return [part for pair in {**args, option: value}.items() for part in pair]


def start(*args, variables=None, prefix=(), **kwargs):
    return subprocess.Popen([*prefix, MEGAMOE, *args], env={**ENVIRONMENT, **(variables or {})}, text=True,
                            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs})


def finish(process):
    stdout, stderr = process.communicate(timeout=PATIENCE)
    return process.returncode, stdout or "", stderr or ""


def torchrun(rank, ranks, port):
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"faults-{os.getpid()}-{port}"}


def children_of(process, count):
    """The ranks that the command has forked, in rank order, once all of them are there."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
                children = [int(child) for child in file.read().split()]
            if len(children) == count:
                return children
        time.sleep(0.01)
    raise AssertionError(f"{count} ranks did not start")


def await_work(process):
    """Returns some time after a process has begun to compute."""
    def ticks():
        with open(f"/proc/{process}/stat") as file:
            return sum(int(field) for field in file.read().rpartition(")")[2].split()[11:13])
    begin = ticks()
    while ticks() < begin + 20:
        time.sleep(0.01)


def traces():
    return {name for name in os.listdir("/dev/shm") if "megamoe" in name}


def is_there(process):
    return os.path.exists(f"/proc/{process}")


class CommandFaults(unittest.TestCase):
    def long_run(self, *args):
        return start("run", *SMALL, "--ranks", "3", "--calls", "1000000", "--no-verify", *args)

    def test_a_rank_killed_while_calls_run_is_named_and_nothing_is_left(self):
        before = traces()
        process = self.long_run()
        ranks = children_of(process, 3)
        await_work(ranks[1])
        begin = time.monotonic()
        os.kill(ranks[1], signal.SIGKILL)
        code, _, stderr = finish(process)
        self.assertEqual(code, 2, stderr)
        self.assertIn("rank 1 was killed by signal 9", stderr)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertFalse([rank for rank in ranks if is_there(rank)])
        self.assertEqual(traces(), before)

    def test_a_rank_that_is_stopped_ends_the_command_and_is_named(self):
        for victim in (0, 2):  # rank 0 is where the others meet
            process = self.long_run("--timeout", "1")
            ranks = children_of(process, 3)
            await_work(ranks[victim])
            os.kill(ranks[victim], signal.SIGSTOP)
            code, _, stderr = finish(process)
            self.assertEqual(code, 2, stderr)
            self.assertIn(f"rank {victim} was stopped by signal 19", stderr)
            self.assertFalse([rank for rank in ranks if is_there(rank)])

    def test_a_killed_command_takes_its_ranks_with_it(self):
        before = traces()
        process = self.long_run()
        ranks = children_of(process, 3)
        await_work(ranks[0])
        process.kill()
        finish(process)
        end = time.monotonic() + 30
        while any(map(is_there, ranks)) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertFalse([rank for rank in ranks if is_there(rank)])
        self.assertEqual(traces(), before)

    def test_a_rank_that_joins_late_is_waited_for(self):
        first = start("run", *SMALL, variables=torchrun(0, 2, "late"))
        time.sleep(2)
        second = start("run", *SMALL, variables=torchrun(1, 2, "late"))
        for process in (first, second):
            code, stdout, stderr = finish(process)
            self.assertEqual(code, 0, stdout + stderr)

    def test_a_rank_that_never_joins_is_named_at_the_deadline(self):
        begin = time.monotonic()
        code, _, stderr = finish(start("run", *SMALL, "--timeout", "0.5", variables=torchrun(0, 2, "never")))
        self.assertEqual(code, 2)
        self.assertIn("rank 1 did not join", stderr)
        self.assertIn("0.5 s", stderr)
        self.assertLess(time.monotonic() - begin, 30)

    def test_ranks_that_disagree_on_the_shape_all_say_so(self):
        for option, name, values in (("--hidden", "hidden", ("64", "96")), ("--tokens", "max_tokens", ("5", "7")),
                                     ("--top-k", "top_k", ("2", "3"))):
            ranks = [start("run", *small(option, value), "--no-verify", variables=torchrun(rank, 2, name))
                     for rank, value in enumerate(values)]
            for process in ranks:
                code, _, stderr = finish(process)
                self.assertEqual(code, 2, stderr)
                for part in (name, *values, "rank 0", "rank 1"):
                    self.assertIn(part, stderr)

    def test_a_small_dev_shm_does_not_matter(self):
        if not shutil.which("unshare"):
            self.skipTest("there is no unshare")
        small = ["unshare", "--mount", "--map-root-user", "sh", "-c",
                 "mount -t tmpfs -o size=16m tmpfs /dev/shm && exec \"$@\"", "sh"]
        if subprocess.run([*small, "true"], capture_output=True).returncode != 0:
            self.skipTest("no namespace with a /dev/shm of its own may be made here")
        code, stdout, stderr = finish(start("run", "--hidden", "1024", "--intermediate", "64", "--experts", "4",
                                            "--top-k", "4", "--tokens", "4k", "--ranks", "2", "--calls", "1",
                                            prefix=small))
        self.assertEqual(code, 0, stdout + stderr)  # each rank pulls and pushes 32 MiB

    def test_output_that_cannot_be_written_is_an_error(self):
        for args in (["run", *SMALL, "--ranks", "2"], ["plan", *SMALL], ["--help"], ["--version"]):
            with open("/dev/full", "w") as full:
                code, _, stderr = finish(start(*args, stdout=full))
            self.assertEqual(code, 2, f"{args}: {stderr}")
            self.assertIn("standard output could not be written", stderr)

    def test_output_that_is_closed_is_an_error(self):
        closed = ["sh", "-c", "exec \"$@\" >&-", "sh"]
        for args in (["run", *SMALL, "--ranks", "2"], ["--version"]):
            code, _, stderr = finish(start(*args, prefix=closed))
            self.assertEqual(code, 2, f"{args}: {stderr}")
            self.assertIn("standard output is closed", stderr)

    def test_closed_input_and_errors_do_not_matter(self):
        code, stdout, _ = finish(start("run", *SMALL, "--ranks", "2", prefix=["sh", "-c", "exec \"$@\" <&- 2>&-", "sh"]))
        self.assertEqual(code, 0)
        self.assertIn("right", stdout)

    def test_times_that_are_none_are_refused(self):
        for text in ("1e30", "nan", "inf", "-1", "soon"):
            code, stdout, stderr = finish(start("run", *SMALL, f"--timeout={text}"))
            self.assertNotIn(code, (0, 1), text)
            self.assertIn(f"'{text}' is no time", stdout + stderr)

    def test_a_short_deadline_is_not_said_to_be_zero(self):
        code, _, stderr = finish(start("run", *SMALL, "--timeout", "1e-12", variables=torchrun(1, 2, "short")))
        self.assertEqual(code, 2)
        self.assertIn("rank 1 waited", stderr)
        self.assertNotIn(" 0.0 s", stderr)

    def test_absurd_sizes_are_refused_by_name(self):
        for option, value, part in (("--tokens", "1e15", "tokens"), ("--hidden", "1e12", "hidden"),
                                    ("--intermediate", "1e12", "intermediate"), ("--experts", "1e12", "experts"),
                                    ("--top-k", "1e14", "top_k"), ("--ranks", "1e9", "ranks")):
            for command in ("run", "verify", "plan", "bench"):
                code, stdout, stderr = finish(start(command, *small(option, value)))
                self.assertNotIn(code, (0, 1), f"{command} {option}")
                self.assertIn(part, stderr + stdout, f"{command} {option}")
                self.assertIn("wanted", (stderr + stdout).replace("possible", "wanted"), f"{command} {option}")
                self.assertNotIn("bytes", stderr + stdout, f"{command} {option}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
