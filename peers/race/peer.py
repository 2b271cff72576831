"""One peer in a Java process, told by lines what to run.

Walk: `start` · `slice` as often as wanted · `check` · `stop`. Between its slices the process is frozen (SIGSTOP), so that
timers, collectors and recovery threads of one peer take no processor time from another.
Deliberately absent: judgement of what it says, order of slices.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .kinds import Failed

HARNESS = Path(__file__).resolve().parent.parent / "tx-java" / "target"
START_S = 60
# Beside the slice itself: opening a hundred sessions, and a database that is slow to answer.
ANSWER_S = 120
STDERR_LINES = 3


@dataclass(frozen=True)
class Slice:
    """What one contender did in one slice."""

    transactions: int
    tps: float
    latency_us: dict
    cpu_us_per_tx: float | None = None
    syncs_per_tx: float | None = None


def native_folder():
    """Artemis' library for asynchronous writes, taken out of its jar once."""
    folder = HARNESS / "native"
    if not folder.exists():
        fresh = HARNESS / f"native.{os.getpid()}"
        fresh.mkdir()
        for jar in (HARNESS / "lib").glob("activemq-artemis-native-*.jar"):
            with zipfile.ZipFile(jar) as packed:
                for name in packed.namelist():
                    if name.endswith(".so"):
                        (fresh / Path(name).name).write_bytes(packed.read(name))
        try:
            fresh.rename(folder)
        except OSError:
            shutil.rmtree(fresh)
    return folder


class Peer:
    """A process of the harness."""

    def __init__(self, name, branches, folder, databases=None, threads_max=100, sabotage="none"):
        self.name, self.branches, self.folder = name, branches, Path(folder) / f"{branches}-{name}"
        self.databases, self.threads_max, self.sabotage = databases, threads_max, sabotage
        self.process, self.rest, self.errors = None, b"", None

    def names(self):
        return [self.name]

    def start(self):
        self.folder.mkdir(parents=True)
        self.errors = self.folder / "stderr"
        java = ["java", "-Xmx512m", f"-Djava.library.path={native_folder()}", "-cp", f"{HARNESS}/classes:{HARNESS}/lib/*"]
        arguments = [self.name, "--branches", self.branches, "--folder", str(self.folder), "--sabotage", self.sabotage]
        if self.databases:
            arguments += ["--postgres", self.databases[0], "--mariadb", self.databases[1]]
            arguments += ["--threads-max", str(self.threads_max)]
        # A frozen process does not see that its runner is gone; the kernel tells it.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [*guard, *java, "assent.peers.Main", *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=self.folder,
                # Ctrl-C is the runner's; it then ends us in order.
                start_new_session=True,
            )
        self.answer(START_S)
        self.freeze()

    def freeze(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def slice(self, threads, millis):
        found = self.ask(f"slice {threads} {millis}", millis / 1000 + ANSWER_S)
        transactions = found["transactions"]
        return {self.name: Slice(
            transactions=transactions,
            tps=transactions * 1e6 / max(1, found["elapsed_us"]),
            latency_us=found["latency_us"],
            cpu_us_per_tx=found["cpu_us"] / max(1, transactions),
        )}

    def check(self):
        return self.ask("check", ANSWER_S)

    def ask(self, line, seconds):
        self.thaw()
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
            found = self.answer(seconds)
        except BrokenPipeError:
            raise Failed(self.obituary()) from None
        self.freeze()
        return found

    def answer(self, seconds):
        """The next line of the process, as an object."""
        until = time.monotonic() + seconds
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self.rest:
            ready, _, _ = select.select([descriptor], [], [], max(0, until - time.monotonic()))
            if not ready:
                raise Failed(f"no answer in {seconds:.0f} s")
            more = os.read(descriptor, 1 << 16)
            if not more:
                raise Failed(self.obituary())
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        found = json.loads(line)
        if "error" in found:
            raise Failed(found["error"])
        return found

    def obituary(self):
        code = self.process.wait()
        if code < 0:
            return f"the process was killed by signal {-code}"
        words = self.errors.read_text(errors="replace").strip().splitlines()[-STDERR_LINES:]
        return f"the process ended with {code}: {' '.join(words)}"

    def stop(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.thaw()
            try:
                self.process.stdin.write(b"quit\n")
                self.process.stdin.close()
                self.process.wait(20)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
