"""Every store of the matrix through every step, and a table of what came out.

    PENSTOCK=... PENSTOCK_STORES=... matrix.py [--only NAME] [--table FILE]

Ends with status 1 where something fails that is not known to be the store's own fault, or in another way
than is known, and where nothing ran at all.
"""

import argparse
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from servers import SERVERS
from steps import STEPS, Bench


def carry_out(server, directory, step, sender):
    os.setsid()
    try:
        function, _ = STEPS[step]
        function(Bench(server, directory, step))
        sender.send("ok")
    except BaseException as error:  # a step may fail in any way, and each is told
        told = f"{error}" if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        sender.send(f"{told} {complaint(directory)}")


def complaint(directory):
    """The last thing that a mount of a step complained about."""
    lines = [line for log in sorted(directory.glob("log*")) for line in
             log.read_text(errors="replace").splitlines() if " ERROR " in line or " WARN " in line]
    return f"[{lines[-1].split(': ', 1)[-1][:240]}]" if lines else ""


def unmount_below(directory):
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = line.split(" ")[1]
        if place.startswith(f"{directory}/"):
            subprocess.run(["umount", "-l", place], capture_output=True, timeout=20, check=False)


def run_step(server, directory, step):
    """What came of a step: `ok`, or what went wrong. Never takes longer than its time."""
    seconds = STEPS[step][1]
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.Process(target=carry_out, args=(server, directory, step, sender))
    child.start()
    outcome = f"nothing within {seconds} s"
    if receiver.poll(seconds):
        outcome = receiver.recv()
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    unmount_below(directory)
    child.join(20)
    return " ".join(outcome.split())[:320]


def run_store(kind, base):
    """The outcome of each step; a store that does not start has none."""
    directory = Path(base) / kind.__name__
    directory.mkdir()
    server, outcomes = kind(directory), {}
    try:
        server.start()
        server.prepare()
        server.make_bucket()
        for step in STEPS:
            started = time.monotonic()
            outcomes[step] = run_step(server, directory / step, step)
            took = time.monotonic() - started
            print(f"  {kind.name}: {step}: {outcomes[step]} ({took:.0f} s)", flush=True)
            if not is_up(server):
                server.kill()
                server.start()
    finally:
        server.kill()
        unmount_below(directory)
    return outcomes


def is_up(server):
    """Whether it still serves: some do not survive a step."""
    try:
        server.client().list_buckets()
        return True
    except Exception:  # whatever it is, the store is not up
        return False


def excuse(kind, step, outcome):
    """The store's own fault behind an outcome. None where it is another than the one that is known."""
    pattern, why = kind.known.get(step, (None, None))
    return why if pattern and re.match(pattern, outcome) else None


def failures(kind, outcomes):
    """What failed in a store, each with the store's fault, if it is that."""
    return [(step, outcome, excuse(kind, step, outcome))
            for step, outcome in outcomes.items() if outcome != "ok"]


def table(results):
    lines = ["| store | passes | what fails |", "|---|---|---|"]
    for kind, outcomes in results:
        failed = failures(kind, outcomes)
        told = "; ".join(f"{step}: {why or outcome}" for step, outcome, why in failed)
        lines.append(f"| {kind.name} {kind.version} | {len(outcomes) - len(failed)} of {len(STEPS)} | "
                     f"{told.replace('|', '/') or 'nothing'} |")
    return "\n".join(lines) + "\n"


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", action="append", help="a store's name, or the beginning of it")
    arguments.add_argument("--table", help="where to write the table")
    given = arguments.parse_args()
    chosen = [kind for kind in SERVERS
              if not given.only or any(kind.name.startswith(name) for name in given.only)]
    results, skipped, unexpected = [], [], []
    with tempfile.TemporaryDirectory(prefix="penstock-stores-") as base:
        for kind in chosen:
            if not kind.is_installed():
                skipped.append(kind.name)
                continue
            try:
                outcomes = run_store(kind, base)
            except Exception as error:
                unexpected.append(f"{kind.name}: {error}")
                continue
            results.append((kind, outcomes))
            unexpected += [f"{kind.name}: {step}: {outcome}"
                           for step, outcome, why in failures(kind, outcomes) if why is None]
    text = table(results)
    print(text)
    if given.table:
        Path(given.table).write_text(text)
    passed = sum(outcome == "ok" for _, outcomes in results for outcome in outcomes.values())
    print(f"{passed} steps passed, {len(unexpected)} failed, {len(skipped)} stores skipped")
    for line in [f"SKIPPED: {name} is not installed" for name in skipped] + unexpected:
        print(f"  {line}")
    if not passed:
        print("  nothing ran, which says nothing of any store" if not results else "  nothing passed")
    return 1 if unexpected or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
