"""Our side: one run of `assent bench ...` is one slice. Everything that knows those commands is in this file.

A peer is warm when its slices begin; each slice of ours is a new process that lays out a new journal. That is not in its
figures, but cold caches are: where it matters it is to our disadvantage.
"""

import json
import subprocess
import tempfile
from pathlib import Path

from .kinds import Failed
from .peer import Slice

EMBEDDED = "assent-embedded"
# The floors that `assent bench real` runs beside us, in Rust, with the drivers we use.
WAYS = {"plain": "plain-rust", "by_hand": "by-hand-rust", "embedded": EMBEDDED}
RUN_S = 600


class Ours:
    """Assent, its coordinator in the client's process."""

    def __init__(self, program, branches, folder, databases=None):
        self.program, self.branches, self.folder, self.databases = program, branches, Path(folder), databases
        # Of the last slice, by threads: how many cycles fill the next.
        self.tps = {}
        # By name, of each slice; and what it knows of the disk.
        self.floors, self.disk = {}, {}

    def names(self):
        return [EMBEDDED] if self.branches == "dummy" else list(WAYS.values())

    def start(self):
        """Nothing: a slice is a process."""

    def check(self):
        """Nothing: `assent bench real` fails by itself where a row does not hold what was committed."""

    def slice(self, threads, millis):
        """What each of our contenders did, by name."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="assent-") as folder:
            return self.dummy(threads, millis, folder) if self.branches == "dummy" else self.real(threads, millis, folder)

    def dummy(self, threads, millis, folder):
        guess = self.tps.get(threads, 2_000)
        cycles = max(50, round(guess * millis / 1000 / threads))
        found = self.run(
            ["tx", "--workload", "none", "--coordinator", "embedded", "--engine", "journal", "--branches", "dummy",
             "--rounds", 1, "-l", threads, "-C", cycles, "--folder", folder]
        )
        cell = found["cells"][0]
        if cell["error"]:
            raise Failed(cell["error"])
        figures = cell["figures"]
        self.tps[threads] = figures["tps"]
        self.disk = {name: found["host"][name] for name in ("write_cache", "rotational", "read_ahead_kb")}
        for floor in found["floors"]:
            # Its echoes are of one number of clients; what everybody here needs is the disk.
            if floor["name"].startswith("durable write"):
                self.floors.setdefault(floor["name"], []).append(floor["figures"])
        total = {name[len("total_"):-len("_us")]: value for name, value in figures.items()
                 if name.startswith("total_") and name.endswith("_us")}
        return {EMBEDDED: Slice(
            transactions=round(figures["transactions"]), tps=figures["tps"], latency_us=total,
            cpu_us_per_tx=figures["cpu_client_us_per_tx"], syncs_per_tx=figures["disk_syncs_per_tx"],
        )}

    def real(self, threads, millis, folder):
        postgres, mariadb = self.databases
        found = self.run(
            ["real", "--coordinator", "embedded", "--rounds", 1, "--slice-ms", millis, "-l", threads,
             "--postgres", postgres, "--mariadb", mariadb, "--folder", folder]
        )
        return {WAYS[row["way"]]: Slice(
            transactions=row["transactions"], tps=row["tps"], latency_us=row["latency_us"],
            cpu_us_per_tx=row["cpu_us_per_tx"], syncs_per_tx=row["journal_syncs_per_tx"],
        ) for row in found["figures"]}

    def run(self, arguments):
        command = [str(self.program), "bench", *map(str, arguments), "--json"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"`assent bench {arguments[0]}` took more than {RUN_S} s") from None
        except OSError as error:
            raise Failed(f"cannot run {self.program}: {error}") from None
        try:
            found = json.loads(done.stdout)
        except ValueError:
            found = {}
        if done.returncode != 0:
            said = found.get("error") or done.stderr.strip() or done.stdout.strip()
            raise Failed(f"`assent bench {arguments[0]}` ended with {done.returncode}: {said}")
        return found
