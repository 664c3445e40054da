"""Writers of small files, and others that open the same files at that moment.

race.py DIRECTORY WRITERS ROUNDS: leaves the files WRITER-ROUND, each 4096 times 0xc1 but for
0xd2 at 100, and fails if a writer reads anything else of them.
"""

import mmap
import os
import random
import sys
import threading

OPENERS = 4
PAGE = 4096
WRITTEN = b"\xc1" * PAGE

directory, writers, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
current = [os.path.join(directory, f"{writer}-0") for writer in range(writers)]
failures = []
done = threading.Event()


def write(writer):
    for round in range(rounds):
        path = os.path.join(directory, f"{writer}-{round}")
        current[writer] = path
        with open(path, "wb") as file:
            file.write(b"x")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        os.pwrite(descriptor, WRITTEN, 0)
        found = os.pread(descriptor, PAGE, 0)
        if found != WRITTEN:
            failures.append(f"{path}: {found.count(0)} zeros after the write")
        with mmap.mmap(descriptor, PAGE) as mapping:
            mapping[100] = 0xD2
            mapping.flush()
        os.close(descriptor)


def disturb(number):
    random.seed(number)
    while not done.is_set():
        flags = random.choice([os.O_RDONLY, os.O_RDWR])
        try:
            descriptor = os.open(random.choice(current), flags)
        except FileNotFoundError:
            continue
        os.pread(descriptor, PAGE, 0)
        os.close(descriptor)


threading.excepthook = lambda failed: failures.append(repr(failed.exc_value))
writing = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
opening = [threading.Thread(target=disturb, args=(number,)) for number in range(OPENERS)]
for thread in writing + opening:
    thread.start()
for thread in writing:
    thread.join()
done.set()
for thread in opening:
    thread.join()
if failures:
    sys.exit("\n".join(failures))
