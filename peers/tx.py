"""The race of distributed transactions: Assent, Narayana, Atomikos, and the floors, in one interleaved run.

Walk: start every peer, warm it, freeze it · for each number of threads, round and contender a slice, in an order that turns ·
check what the branches counted and the rows hold · table and report. `self-check` and `syncs` look at the peers themselves.
Deliberately absent: building (scripts/peers-tx), Java (tx-java), statistics (race/tally).
"""

import argparse
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from race import checks, table
from race.kinds import INTERNAL, INTERRUPTED, NOT_FOUND, Failed
from race.ours import Ours
from race.peer import Peer
from race.report import Report
from race.servers import Servers
from race.tally import Tally

STORES = ("file", "journal", "journal-lazy", "aio", "aio-lazy", "slots", "slots-lazy", "mapped", "mapped-lazy")
DUMMY = [*(f"narayana-{store}" for store in STORES), "atomikos"]
REAL = ["plain", "by-hand", "narayana-file", "narayana-journal-lazy", "narayana-slots-lazy", "atomikos"]
KNOWN = [*DUMMY, "narayana-volatile", "plain", "by-hand"]


def parse(words):
    parser = argparse.ArgumentParser(prog="scripts/peers-tx", description=__doc__.splitlines()[0])
    parser.add_argument("verb", nargs="?", default="run", choices=["run", "self-check", "syncs"],
                        help="run the race; or show that the checks find a peer that cheats; or count each peer's syncs")
    parser.add_argument("-l", "--threads", default="1,10,50,100", help="numbers of threads, e.g. 1,10")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slice-ms", type=int, default=1000)
    parser.add_argument("--warm-ms", type=int, default=8000, help="each peer, before the first round, uncounted")
    parser.add_argument("--branches", choices=["dummy", "real", "both"], default="both")
    parser.add_argument("--peers", help=f"some of {', '.join(KNOWN)}")
    parser.add_argument("--out", default="target/peers-tx.json", help="the report")
    parser.add_argument("--folder", help="where logs and servers are put; a temporary folder without it")
    parser.add_argument("--assent", help="our program, instead of one that is built now")
    options = parser.parse_args(words)
    try:
        options.threads = [int(it) for it in options.threads.split(",")]
    except ValueError:
        parser.error("--threads are numbers with commas between them: 1,10,50,100")
    if min(options.threads) < 1 or options.rounds < 1 or options.slice_ms < 1:
        parser.error("threads, rounds and milliseconds begin at 1")
    options.peers = options.peers.split(",") if options.peers else None
    unknown = [it for it in options.peers or () if it not in KNOWN]
    if unknown:
        parser.error(f"no peer is called {', '.join(unknown)}; known are {', '.join(KNOWN)}")
    options.branches = ["dummy", "real"] if options.branches == "both" else [options.branches]
    return options


def chosen(options, branches):
    usual = DUMMY if branches == "dummy" else REAL
    # A floor commits rows; dummies have none.
    return [it for it in options.peers or usual if branches == "real" or it not in ("plain", "by-hand")]


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class Race:
    """One kind of branches: its contenders and their slices."""

    def __init__(self, options, branches, folder, databases, tally, save):
        self.options, self.branches, self.tally, self.save = options, branches, tally, save
        self.ours = Ours(options.assent, branches, folder, databases)
        self.peers = [Peer(it, branches, folder, databases, max(options.threads)) for it in chosen(options, branches)]
        self.alive = [self.ours, *self.peers]
        self.worst = 0
        for threads in options.threads:
            for one in self.alive:
                for name in one.names():
                    tally.row(branches, name, threads)

    def run(self):
        try:
            self.warm()
            for threads in self.options.threads:
                for number in range(self.options.rounds):
                    self.round(threads, number)
            self.judge()
        finally:
            for peer in self.peers:
                peer.stop()

    @contextmanager
    def blame(self, one, doing):
        """Whoever fails is rows with its error, and is not asked again; the others go on."""
        progress(f"{self.branches}: {one.names()[0]}, {doing}")
        try:
            yield
        except Failed as failure:
            self.worst = max(self.worst, failure.code)
            self.alive = [it for it in self.alive if it is not one]
            for name in one.names():
                self.tally.failed(self.branches, name, f"{doing}: {failure}")

    def warm(self):
        each = max(1, self.options.warm_ms // len(self.options.threads))
        for one in list(self.alive):
            with self.blame(one, "warming"):
                one.start()
                # Of ours only the number of cycles that fill a slice is learnt.
                for threads in self.options.threads:
                    one.slice(threads, each)

    def round(self, threads, number):
        turn = number % max(1, len(self.alive))
        for one in self.alive[turn:] + self.alive[:turn]:
            with self.blame(one, f"{threads} threads, round {number + 1} of {self.options.rounds}"):
                for name, found in one.slice(threads, self.options.slice_ms).items():
                    self.tally.row(self.branches, name, threads).slices[number] = found
            self.save(False)

    def judge(self):
        all_alive = len(self.alive) == 1 + len(self.peers)
        for one in list(self.alive):
            with self.blame(one, "checking what was committed"):
                found = one.check()
                judge = checks.dummy if self.branches == "dummy" else lambda it: checks.money(it, all_alive)
                wrong = found and judge(found)
                if wrong:
                    raise Failed(f"{wrong}; its figures are worth nothing", INTERNAL)


def build():
    """Our program, of this tree."""
    if shutil.which("cargo") is None:
        raise Failed("cargo is missing; it builds our side of the race (or name a program by --assent)", NOT_FOUND)
    if subprocess.run(["cargo", "build", "--release", "-p", "assent-cli"]).returncode != 0:
        raise Failed("cargo could not build Assent, its reason is above")
    return "target/release/assent"


def page(options):
    """Lays the report as a page beside it; a figure is not lost where that fails."""
    path = Path(options.out).with_suffix(".html")
    lay = [options.assent, "bench", "report", options.out, "--html", str(path)]
    try:
        return f", as a page: {path}" if subprocess.run(lay, capture_output=True).returncode == 0 else ""
    except OSError:
        return ""


def race(options, folder):
    options.assent = options.assent or build()
    tally, races = Tally(), []
    command = shlex.join(["scripts/peers-tx", *words_without_places(sys.argv[1:])])
    report = Report(options.out, command, options.branches, folder, options.assent)
    servers = Servers(folder / "servers")

    def save(complete):
        floors, disk = {}, {}
        for one in races:
            floors |= one.ours.floors
            disk |= one.ours.disk
        report.save(tally, floors, disk, complete)

    complete = False
    try:
        for branches in options.branches:
            databases = None
            if branches == "real":
                progress("starting PostgreSQL and MariaDB")
                databases = servers.start(max(options.threads) * (len(chosen(options, "real")) + 4) + 100)
            races.append(Race(options, branches, folder, databases, tally, save))
            races[-1].run()
        complete = True
    finally:
        servers.stop()
        save(complete)
        progress("")
        for branches in options.branches:
            if any(row.branches == branches for row in tally.told()):
                table.show(tally, branches, options.threads)
        print(f"\nthe report: {options.out}{page(options)}")
    return max(one.worst for one in races)


def words_without_places(words):
    """Folders of a machine are nobody's business."""
    kept, skip = [], False
    for word in words:
        if skip or word.split("=")[0] in ("--out", "--folder", "--assent"):
            skip = not skip and "=" not in word
            continue
        kept.append(word)
    return kept


def main():
    options = parse(sys.argv[1:])
    # Also where a shell started us in the background, which ignores Ctrl-C: what has come so far is kept.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="assent-peers-", dir=options.folder))
    # The databases' own accounts pass through.
    folder.chmod(0o711)
    try:
        names = [it for it in options.peers or [*DUMMY, "narayana-volatile", "by-hand"] if it != "plain"]
        if options.verb == "self-check":
            checks.self_check(names, folder, 200)
        elif options.verb == "syncs":
            checks.syncs([it for it in names if it != "by-hand"], folder, options.slice_ms)
        else:
            return race(options, folder)
        return 0
    except Failed as failure:
        print(f"peers-tx: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        print("peers-tx: interrupted; the report holds what was measured", file=sys.stderr)
        return INTERRUPTED
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
