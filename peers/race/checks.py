"""What a peer must have done: judged from its own counts, from the rows, and from the kernel's.

Walk: `dummy` and `money` judge one peer's `check` · `self_check` runs each peer honestly and then sabotaged, which has to be
found · `syncs` counts the system calls that make bytes durable.
"""

import re
import shutil
import signal
import subprocess
import time

from .kinds import INTERNAL, NOT_FOUND, Failed
from .peer import Peer

# A decision that is durable costs a sync; one transaction alone shares it with nobody.
SYNCS_MIN = 0.99
CALLS = ("fsync", "fdatasync", "msync", "sync_file_range", "io_submit")


def dummy(found):
    """Says what is wrong, or None: each branch has been prepared and committed once for each transaction."""
    wanted = {"starts": 1, "ends": 1, "prepares": 1, "commits": 1, "others": 0}
    for branch in ("first", "second"):
        for verb, times in wanted.items():
            if found[branch][verb] != times * found["committed"]:
                return (
                    f"{found['committed']} transactions, but the {branch} branch counts {found[branch][verb]} {verb}"
                )
    return None if found["committed"] > 0 else "no transaction was committed"


def money(found, all_alive):
    """Says what is wrong, or None: the rows hold what was committed, and nothing is left prepared.

    The servers do not say whose a prepared branch is: where somebody died, it may be theirs.
    """
    committed = found["committed"]
    if found["postgres"] != committed or found["mariadb"] != committed:
        return (
            f"{committed} transactions were committed, but PostgreSQL holds {found['postgres']} updates "
            f"and MariaDB {found['mariadb']}"
        )
    return f"{found['prepared']} branches are left prepared" if found["prepared"] and all_alive else None


def verdict(name, folder, sabotage, millis):
    """What the check says of a peer that runs alone for a moment."""
    peer = Peer(name, "dummy", folder / sabotage, sabotage=sabotage)
    try:
        peer.start()
        for threads in (1, 10):
            peer.slice(threads, millis)
        return dummy(peer.check())
    except Failed as failure:
        return str(failure)
    finally:
        peer.stop()


def self_check(names, folder, millis):
    """Prints a line for each peer; raises if an honest run is blamed or a sabotaged one is not."""
    wrong = []
    for name in names:
        for sabotage in ("none", "read-only", "one-branch"):
            said = verdict(name, folder, sabotage, millis)
            right = (said is None) == (sabotage == "none")
            print(f"{'ok   ' if right else 'WRONG'} {name:22} {sabotage:11} {said or 'every branch was prepared and committed'}")
            if not right:
                wrong.append(f"{name} {sabotage}")
    if wrong:
        raise Failed(f"the self-check failed for {', '.join(wrong)}", INTERNAL)


def traced(peer, folder, millis):
    """Counts of system calls a transaction, in one slice of one thread."""
    log = folder / f"{peer.name}.strace"
    peer.thaw()
    tracer = subprocess.Popen(
        ["strace", "-f", "-qq", "-e", f"trace={','.join(CALLS)}", "-o", str(log), "-p", str(peer.process.pid)],
        stderr=subprocess.PIPE, text=True,
    )
    # It says nothing when it has taken hold; the process's own status does.
    until = time.monotonic() + 10
    while not re.search(r"TracerPid:\s+[1-9]", open(f"/proc/{peer.process.pid}/status").read()):
        if tracer.poll() is not None or time.monotonic() > until:
            raise Failed(f"strace cannot trace: {tracer.stderr.read().strip()}")
        time.sleep(0.01)
    try:
        transactions = peer.slice(1, millis)[peer.name].transactions
    finally:
        peer.thaw()
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
    # A call that another thread interrupts is written as two lines; the first has its name and its bracket.
    text = log.read_text()
    return {call: len(re.findall(rf"^\d+ +{call}\(", text, re.M)) / max(1, transactions) for call in CALLS}


def syncs(names, folder, millis):
    """Prints what each peer asks of the kernel; raises if one that says durable does not sync each decision."""
    if shutil.which("strace") is None:
        raise Failed("strace is not installed; it counts the syncs (apt-get install strace)", NOT_FOUND)
    wrong = []
    print(f"{'one thread, a transaction':26} " + " ".join(f"{call:>15}" for call in CALLS))
    for name in names:
        peer = Peer(name, "dummy", folder / "syncs")
        try:
            peer.start()
            peer.slice(1, millis)
            counts = traced(peer, folder, millis)
        except Failed as failure:
            print(f"{name:26} {failure}")
            wrong.append(name)
            continue
        finally:
            peer.stop()
        durable = sum(counts[call] for call in ("fsync", "fdatasync", "msync"))
        print(f"{name:26} " + " ".join(f"{counts[call]:15.2f}" for call in CALLS))
        if (durable >= SYNCS_MIN) == (name == "narayana-volatile"):
            wrong.append(name)
    if wrong:
        raise Failed(f"not as it says: {', '.join(wrong)}", INTERNAL)
