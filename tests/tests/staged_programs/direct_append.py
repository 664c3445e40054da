"""Appends past the page cache to a file that others read through it.

direct_append.py FILE SECONDS: fails if a reader, in the end, sees anything but what was written.
"""

import mmap
import os
import sys
import threading
import time

path, seconds = sys.argv[1], float(sys.argv[2])
SECTOR = 512
block = mmap.mmap(-1, 4096)
block[:] = b"\x01" * 4096
writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_DIRECT)
reader = os.open(path, os.O_RDONLY)
done = threading.Event()


def read():
    while not done.is_set():
        size = os.fstat(reader).st_size
        os.pread(reader, 8192, max(0, size - 4196))


readers = [threading.Thread(target=read) for _ in range(2)]
for thread in readers:
    thread.start()
end = time.monotonic() + seconds
size = 0
while time.monotonic() < end:
    for sectors in (1, 2, 3):
        size += os.write(writer, memoryview(block)[: sectors * SECTOR])
done.set()
for thread in readers:
    thread.join()
with open(path, "rb") as file:
    found = file.read()
if found != b"\x01" * size:
    sys.exit(f"{len(found)} of {size} bytes, {found.count(0)} of them zeros, first at {found.find(0)}")
