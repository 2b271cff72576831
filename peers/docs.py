#!/usr/bin/env python3
"""The race of the document store against PostgreSQL as jsonb and a history table: peers/docs.py run|self-check [OPTIONS].

Walk: a private server (scripts/servers) · in each round `assent bench docs` and then the same work by pgbench, whose scripts stand in
peers/docs · medians over rounds, ratios within them · a table, and a report of `assent bench`.
Deliberately absent: tuning of the server. It is as durable as it is set out of the box.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from race.docs_report import lay, table
from race.docs_rows import ROWS, Postgres
from race.kinds import INTERRUPTED, NOT_FOUND, Failed
from race.servers import PROGRAM

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def options(words):
    parser = argparse.ArgumentParser(prog="scripts/peers-docs", description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", nargs="?", choices=("run", "self-check"), default="run")
    parser.add_argument("--rounds", type=int, default=3, help="how often both have their turn (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a row of PostgreSQL, and of many writers or readers, runs (5)")
    parser.add_argument("--commits", type=int, default=10_000, help="revisions of the tiny document (10000)")
    parser.add_argument("--sizes", default="1.8", help="megabytes of large documents, with commas (1.8)")
    parser.add_argument("--folder", help="where both write; a temporary folder if not given")
    parser.add_argument("--out", default="target/peers-docs.json", help="the report")
    return parser.parse_args(words)


def ours(program, folder, given):
    """The rows of one run of ours, by scenario, row and what it was done to; and the report that they came in."""
    command = [
        program, "bench", "docs", "--json", "--folder", folder, "--commits", str(given.commits), "--depths", str(given.commits),
        "-t", str(given.seconds), "--sizes", given.sizes, "--cold", "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"assent bench docs: {done.stderr.strip().splitlines()[-1:]}", done.returncode)
    report = json.loads(done.stdout)
    key = lambda cell: tuple(cell["labels"][name] for name in ("scenario", "row", "on"))
    return {key(cell): cell["figures"] for cell in report["cells"]}, report


class Server:
    """A private PostgreSQL in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        self.verb("install")
        Path(self.folder).mkdir()
        os.environ["ASSENT_SERVERS_POSTGRES_OPTIONS"] = "-c max_connections=200"
        self.verb("start", self.folder, "postgres")
        return Postgres(self.verb("url", self.folder, "postgres"), HERE / "docs")

    def __exit__(self, *_):
        subprocess.run([PROGRAM, "stop", self.folder], capture_output=True)

    def verb(self, *words):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"scripts/servers {words[0]}: {done.stderr.strip()}", done.returncode)
        return done.stdout.strip()


def self_check(postgres):
    """A commit leaves one revision more and the old one what it was; what is read is what was committed."""
    postgres.make("tiny")
    for number in range(1, 4):
        postgres.sql(f"select set_field('tiny', '{{count}}', '{1000 + number}')")
    told = postgres.sql("select string_agg(revision || '=' || (body->>'count'), ' ' order by revision) from history where name = 'tiny'")
    if told != "1=1000000000 2=1001 3=1002 4=1003":
        raise Failed(f"the history is {told!r}")
    if postgres.sql("select body->>'count' from document where name = 'tiny'") != "1003":
        raise Failed("the document is not its newest revision")
    postgres.load("large", 0.05)
    postgres.sql("select set_field('large', '{7,price}', '1.25')")
    if postgres.sql("select body#>>'{7,price}' from document where name = 'large'") != "1.25":
        raise Failed("one field of a large document was not set")
    if postgres.sql("show synchronous_commit") != "on" or postgres.sql("show fsync") != "on":
        raise Failed("the server is not durable")
    print("a commit is one revision more, the others stay; the server syncs each")


def race(program, folder, given):
    rounds, report = [], None
    with Server(str(Path(folder) / "servers")) as postgres:
        if given.what == "self-check":
            return self_check(postgres)
        sizes = [float(size) for size in given.sizes.split(",")]
        try:
            for number in range(given.rounds):
                print(f"round {number + 1} of {given.rounds}: assent", file=sys.stderr)
                found, report = ours(program, str(Path(folder) / "ours"), given)
                print(f"round {number + 1} of {given.rounds}: PostgreSQL", file=sys.stderr)
                rounds.append((found, postgres.rows(given.commits, sizes, given.seconds)))
        except KeyboardInterrupt:
            print("interrupted; the report has the rounds that are whole", file=sys.stderr)
    if not rounds:
        raise Failed("interrupted before a round was whole", INTERRUPTED)
    rows = medians(rounds, sizes)
    whole = len(rounds) == given.rounds
    lay(Path(given.out), rows, report, whole, sys.argv)
    table(rows)
    print(f"{given.out}: assent bench report {given.out} --html PAGE lays it")
    return None if whole else INTERRUPTED


def medians(rounds, sizes):
    """Of each row: both stores' figures, and how many times theirs ours is, or theirs ours where less is better."""
    rows = []
    for row in ROWS(sizes):
        pairs = [(found[row.key], theirs[row.key]) for found, theirs in rounds if row.key in found and row.key in theirs]
        if not pairs:
            continue
        figures = {"assent": {}, "postgresql": {}}
        for ours_name, theirs_name in row.figures:
            for store, at, name in (("assent", 0, ours_name), ("postgresql", 1, theirs_name)):
                values = [pair[at][name] for pair in pairs if name in pair[at]]
                if values:
                    figures[store][theirs_name] = median(values)
        mine, theirs = row.figures[0]
        ratios = [pair[0][mine] / pair[1][theirs] for pair in pairs if pair[0].get(mine) and pair[1].get(theirs)]
        if ratios:
            figures["assent"][f"{theirs}_ratio_to_postgresql"] = median(ratios)
        rows.append((row, figures))
    return rows


def main(words):
    given = options(words)
    program = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "assent"
    if not program.exists():
        raise Failed(f"{program} is missing; scripts/peers-docs builds it", NOT_FOUND)
    if given.folder and not Path(given.folder).is_dir():
        raise Failed(f"--folder {given.folder}: there is no such folder", NOT_FOUND)
    with tempfile.TemporaryDirectory(prefix="assent-peers-docs.", dir=given.folder) as folder:
        # The server's own account passes.
        os.chmod(folder, 0o755)
        (Path(folder) / "ours").mkdir()
        return race(str(program), folder, given)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]) or 0)
    except Failed as failed:
        print(f"peers-docs: {failed}", file=sys.stderr)
        sys.exit(failed.code)
