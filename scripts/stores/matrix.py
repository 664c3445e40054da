"""Every store of the matrix through every step, and a table of what came out.

    PENSTOCK=... PENSTOCK_STORES=... matrix.py [--only NAME] [--table FILE]

Ends with status 1 where something fails that is not known to be the store's own fault.
"""

import argparse
import multiprocessing
import os
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


def verdict(kind, step, outcome):
    if outcome == "ok":
        return "ok"
    return f"store: {kind.known[step]}" if step in kind.known else f"FAILS: {outcome}"


def table(results):
    lines = ["| store | passes | what fails |", "|---|---|---|"]
    for kind, outcomes in results:
        passed = [step for step, outcome in outcomes.items() if outcome == "ok"]
        failed = [f"{step}: {kind.known.get(step, outcome)}" for step, outcome in outcomes.items()
                  if outcome != "ok"]
        lines.append(f"| {kind.name} {kind.version} | {len(passed)} of {len(STEPS)} | "
                     f"{'; '.join(failed).replace('|', '/') or 'nothing'} |")
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
            unexpected += [f"{kind.name}: {step}: {outcome}" for step, outcome in outcomes.items()
                           if outcome != "ok" and step not in kind.known]
    text = table(results)
    print(text)
    if given.table:
        Path(given.table).write_text(text)
    passed = sum(outcome == "ok" for _, outcomes in results for outcome in outcomes.values())
    print(f"{passed} steps passed, {len(unexpected)} failed, {len(skipped)} stores skipped")
    for line in [f"SKIPPED: {name} is not installed" for name in skipped] + unexpected:
        print(f"  {line}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
