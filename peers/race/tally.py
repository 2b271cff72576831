"""Slices by contender, threads and round; medians, and ratios between slices of the same round.

Deliberately absent: means over rounds, and figures of different rounds against each other. A machine has moods.
"""

from statistics import median_low

from .ours import EMBEDDED

# No coordinator, or none that survives a power cut: shown, never the best peer.
FLOORS = ("plain", "by-hand", "plain-rust", "by-hand-rust")
NOT_DURABLE = ("narayana-volatile",)


class Row:
    """One contender at one number of threads."""

    def __init__(self, branches, name, threads):
        self.branches, self.name, self.threads = branches, name, threads
        self.slices = {}
        self.error = None

    def median(self, figure):
        figures = [value for value in map(figure, self.slices.values()) if value is not None]
        return median_low(figures) if figures else None

    def tps(self):
        return self.median(lambda it: it.tps)

    def latency(self, share):
        return self.median(lambda it: it.latency_us[share])


class Tally:
    """All rows of a run."""

    def __init__(self):
        self.rows = {}

    def row(self, branches, name, threads):
        return self.rows.setdefault((branches, name, threads), Row(branches, name, threads))

    def failed(self, branches, name, error):
        for row in self.rows.values():
            if row.branches == branches and row.name == name and row.error is None:
                row.error = error

    def told(self):
        """The rows that have something to tell; an interrupted run did not come to the others."""
        return [row for row in self.rows.values() if row.slices or row.error]

    def group(self, branches, threads):
        return [row for row in self.told() if row.branches == branches and row.threads == threads]

    def ours_against(self, row):
        """The median, over the rounds that both have, of our rate over this row's."""
        ours = self.rows.get((row.branches, EMBEDDED, row.threads))
        if ours is None or ours is row:
            return None
        both = [number for number in row.slices if number in ours.slices]
        return median_low([ours.slices[it].tps / max(1e-9, row.slices[it].tps) for it in both]) if both else None

    def best_peer(self, branches, threads, lazy=True):
        """Ours over the best peer of each round, medians: rates, 95th percentiles, and who was best most often.

        Without the lazy ones: against what also syncs that a transaction is finished.
        """
        ours = self.rows.get((branches, EMBEDDED, threads))
        peers = [
            row for row in self.group(branches, threads)
            if row is not ours and row.name not in FLOORS + NOT_DURABLE and (lazy or not row.name.endswith("-lazy"))
        ]
        rates, tails, winners = [], [], []
        for number, slice_ in ours.slices.items() if ours else ():
            there = [row for row in peers if number in row.slices]
            if not there:
                continue
            best = max(there, key=lambda row: row.slices[number].tps)
            quickest = min(row.slices[number].latency_us["p95"] for row in there)
            rates.append(slice_.tps / max(1e-9, best.slices[number].tps))
            tails.append(slice_.latency_us["p95"] / max(1e-9, quickest))
            winners.append(best.name)
        if not rates:
            return None
        return median_low(rates), median_low(tails), max(set(winners), key=winners.count)
