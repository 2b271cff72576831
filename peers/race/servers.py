"""A private PostgreSQL and MariaDB in the race's folder, by scripts/servers."""

import os
import subprocess
from pathlib import Path

from .kinds import Failed

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "servers"


class Servers:
    """Both, from `start` to `stop`."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def start(self, sessions):
        """With room for that many sessions in each, everything else as the tests have it."""
        self.run("install")
        # The folder's owner lets the servers' own accounts pass.
        self.folder.mkdir()
        os.environ["ASSENT_SERVERS_POSTGRES_OPTIONS"] = (
            f"-c max_connections={sessions} -c max_prepared_transactions={sessions}"
        )
        os.environ["ASSENT_SERVERS_MARIADB_OPTIONS"] = f"--max-connections={sessions}"
        self.run("start", str(self.folder))
        return [self.run("url", str(self.folder), name) for name in ("postgres", "mariadb")]

    def stop(self):
        if self.folder.exists():
            subprocess.run([PROGRAM, "stop", str(self.folder)], capture_output=True)

    def run(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"scripts/servers {arguments[0]}: {done.stderr.strip()}", done.returncode)
        return done.stdout.strip()
