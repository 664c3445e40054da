"""What is done with each store, a step at a time: through a mount, and looked at through boto3.

A step is a function of a Bench. It returns when all is well and raises when it is not. Each runs in a
process of its own, which the caller kills when it takes too long.
"""

import errno
import hashlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from servers import BUCKET

MIB = 1 << 20
AWAY_SECONDS = 10
PENSTOCK = os.environ["PENSTOCK"]


def noise(seed, size):
    return random.Random(seed).randbytes(size)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


class Bench:
    """A store, a bucket in it, and the mounts of one step."""

    def __init__(self, server, directory, step):
        self.server, self.step = server, step
        self.directory = Path(directory)
        self.directory.mkdir()
        self.client = server.client()
        self.count = 0

    @property
    def source(self):
        return f"s3://{BUCKET}/{self.step}"

    def options(self):
        return [f"--endpoint={self.server.url}", f"--region={self.server.region}"]

    def environment(self):
        own = {name: value for name, value in os.environ.items()
               if not name.startswith("PENSTOCK")}
        return {**own, "AWS_ACCESS_KEY_ID": self.server.key,
                "AWS_SECRET_ACCESS_KEY": self.server.secret}

    def penstock(self, *words, seconds=120):
        return subprocess.run([PENSTOCK, *map(str, words), *self.options()], text=True,
                              env=self.environment(), capture_output=True, timeout=seconds)

    def mount(self, *options):
        return Mount(self, options)

    def key(self, name):
        return f"{self.step}/{name}"

    def put(self, name, body):
        self.client.put_object(Bucket=BUCKET, Key=self.key(name), Body=body)

    def get(self, name):
        return self.client.get_object(Bucket=BUCKET, Key=self.key(name))["Body"].read()

    def names(self):
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=BUCKET, Prefix=f"{self.step}/")
        return [entry["Key"][len(self.step) + 1:] for page in pages
                for entry in page.get("Contents", [])]


class Mount:
    """A mount in the foreground. It is unmounted as a user would at the end of a `with`."""

    def __init__(self, bench, options):
        bench.count += 1
        self.path = bench.directory / f"mnt{bench.count}"
        self.path.mkdir()
        self.log = bench.directory / f"log{bench.count}"
        output = open(self.log, "wb")
        command = [PENSTOCK, "mount", "-f", bench.source, self.path, *bench.options(), *options]
        self.process = subprocess.Popen(list(map(str, command)), env=bench.environment(),
                                        stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        deadline = time.monotonic() + 60
        while not os.path.ismount(self.path):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"cannot mount: {self.last_words()}")
            time.sleep(0.02)

    def last_words(self):
        return self.log.read_text(errors="replace")[-400:]

    def __truediv__(self, name):
        return self.path / name

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=20)
        subprocess.run(["umount", "-l", self.path], check=False, timeout=20)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            done = subprocess.run([PENSTOCK, "umount", str(self.path)], capture_output=True,
                                  text=True, timeout=150)
            expect(done.returncode == 0, f"umount: {done.stderr[-200:]}")
            self.process.wait(timeout=60)
        else:
            self.kill()


def staging(bench):
    return ["--mode=staged", f"--staging-dir={bench.directory / 'staging'}"]


def check(bench):
    told = bench.penstock("check", bench.source)
    bad = [line for line in told.stdout.splitlines() if line.startswith("FAILED")]
    expect(told.returncode == 0, "; ".join(bad) or told.stderr[-200:])


def streaming(bench):
    with bench.mount() as mount:
        for size in (1 << 10, 8 * MIB, 100 * MIB):
            body = noise(size, size)
            (mount / f"ours-{size}").write_bytes(body)
            expect(bench.get(f"ours-{size}") == body, f"{size} bytes written differ")
            bench.put(f"theirs-{size}", body)
            expect((mount / f"theirs-{size}").read_bytes() == body, f"{size} bytes read differ")
        body = noise(100 * MIB, 100 * MIB)
        with open(mount / f"theirs-{100 * MIB}", "rb") as file:
            for _ in range(50):
                at = random.randrange(100 * MIB - 5000)
                expect(os.pread(file.fileno(), 5000, at) == body[at:at + 5000], f"at {at}")


def names(bench):
    odd = ["a b", "a+b", "50%", "a&b<c>", "back\\slash", "quote\"'", "new\nline", "ü" * 120,
           unicodedata.normalize("NFD", "größe"), unicodedata.normalize("NFC", "größe"), "x" * 255]
    with bench.mount() as mount:
        (mount / "d").mkdir()
        for name in odd:
            (mount / "d" / name).write_text(name)
        expect(sorted(os.listdir(mount / "d")) == sorted(odd), "the mount lists other names")
        for name in odd:
            expect(bench.get(f"d/{name}").decode() == name, f"{name!r} differs")


def spoilt_name(bench):
    for name in ("d/a\x01b", "d/a b", "d/z"):
        try:
            bench.put(name, b"content")
        except bench.client.exceptions.ClientError:
            expect("\x01" in name, f"{name!r} is refused")
    with bench.mount() as mount:
        found = set(os.listdir(mount / "d"))
        expect({"a b", "z"} <= found, f"listed: {found}")


def many(bench):
    wanted = {f"many/{number:04}" for number in range(3000)}
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: bench.put(name, b"x"), sorted(wanted)))
    with bench.mount() as mount:
        found = {f"many/{name}" for name in os.listdir(mount / "many")}
        expect(found == wanted, f"{len(found)} of {len(wanted)} are listed")
        shutil.rmtree(mount / "many")
        expect(not [name for name in bench.names() if not name.endswith("/")], "some are left")


def rename(bench):
    with bench.mount() as mount:
        for size in (10, 20 * MIB, 80 * MIB):
            body = noise(size, size)
            (mount / "from").write_bytes(body)
            os.rename(mount / "from", mount / "to")
            expect((mount / "to").read_bytes() == body, f"{size} bytes differ")
            expect(bench.get("to") == body, f"{size} bytes differ in the store")
        (mount / "made" / "inner").mkdir(parents=True)
        (mount / "made" / "file").write_text("content")
        os.rename(mount / "made", mount / "moved")
        found = sorted(os.listdir(mount / "moved"))
        expect(found == ["file", "inner"], f"a directory lost names: {found}")
        expect(bench.get("moved/file") == b"content", "a file in a directory differs")
        old = [name for name in bench.names() if name.startswith("made/")]
        expect(not old, f"old names stay: {old}")


def append(bench):
    with bench.mount() as mount:
        for size in (100, 6 * MIB):
            body = noise(size, size)
            bench.put(f"{size}", body)
            with open(mount / f"{size}", "ab") as file:
                file.write(b"more")
                os.fsync(file.fileno())
                file.write(b" and more")
            deadline = time.monotonic() + 30
            while bench.get(f"{size}") != body + b"more and more":
                expect(time.monotonic() < deadline, f"what was appended to {size} bytes differs")
                time.sleep(0.2)


def conflicts(bench):
    bench.put("file", b"the first version")
    with bench.mount(*staging(bench)) as mount:
        file = os.open(mount / "file", os.O_RDWR)
        os.pwrite(file, b"FIRST", 4)
        bench.put("file", b"theirs")
        try:
            os.fsync(file)
            raise AssertionError("a conflict was not noticed")
        except OSError as error:
            expect(error.errno == errno.EBUSY, f"a conflict is {errno.errorcode[error.errno]}")
        try:
            os.close(file)
        except OSError:
            pass
        expect(bench.get("file") == b"theirs", "their version was overwritten")


def staged(bench):
    body = bytearray(noise(60, 60 * MIB))
    bench.put("file", bytes(body))
    with bench.mount(*staging(bench), "--posix-metadata=on") as mount:
        for at in (0, 30 * MIB, 60 * MIB - 4):
            with open(mount / "file", "r+b") as file:
                file.seek(at)
                file.write(b"edit")
            body[at:at + 4] = b"edit"
            expect(bench.get("file") == bytes(body), f"after an edit at {at}")
        os.truncate(mount / "file", 50 * MIB)
        expect(bench.get("file") == bytes(body[:50 * MIB]), "after a truncation")
        os.chmod(mount / "file", 0o640)
        os.chown(mount / "file", 12, 34)
        os.utime(mount / "file", (1, 2))
        os.setxattr(mount / "file", "user.colour", b"green")
        (mount / "file again").write_bytes(b"short")
        with open(mount / "file again", "r+b") as file:
            for _ in range(2):
                file.write(b"S")
                file.flush()
                os.fsync(file.fileno())
    with bench.mount(*staging(bench), "--posix-metadata=on") as mount:
        told = os.stat(mount / "file")
        expect((told.st_mode & 0o7777, told.st_uid, told.st_gid, int(told.st_mtime))
               == (0o640, 12, 34, 2), f"attributes: {told}")
        expect(os.getxattr(mount / "file", "user.colour") == b"green", "an xattr is lost")


def programs(bench):
    with bench.mount(*staging(bench)) as mount:
        with sqlite3.connect(mount / "data.db") as data:
            data.execute("create table numbers (number integer)")
            for number in range(200):
                data.execute("insert into numbers values (?)", (number,))
        data.close()
        with sqlite3.connect(mount / "data.db") as data:
            expect(data.execute("select sum(number) from numbers").fetchone()[0] == 19900, "a sum")
        data.close()
        work = mount / "work"
        work.mkdir()
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        (work / "file").write_text("content")
        for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "one"], ["fsck"]):
            done = subprocess.run(["git", *words], cwd=work, capture_output=True, text=True,
                                  timeout=100)
            expect(done.returncode == 0, f"git {words[-1]}: {done.stderr[-200:]}")


def stream(bench):
    files = {f"tree/{number % 7}/{number}": noise(number, 1000 + 997 * number)
             for number in range(100)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda pair: bench.put(*pair), files.items()))
    place = bench.directory / "stream"
    place.mkdir()
    log = open(bench.directory / "stream.log", "wb")
    process = subprocess.Popen(
        [PENSTOCK, "stream", "-f", bench.source, place, "--transport=fuse",
         f"--index-dir={bench.directory / 'index'}", *bench.options()],
        env=bench.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not os.path.ismount(place):
            told = (bench.directory / "stream.log").read_text()[-300:]
            expect(process.poll() is None and time.monotonic() < deadline, told)
            time.sleep(0.05)
        for name, body in files.items():
            expect((place / name).read_bytes() == body, f"{name} differs")
    finally:
        subprocess.run([PENSTOCK, "umount", str(place)], capture_output=True, timeout=60)
        process.kill()
        process.wait(timeout=20)
        subprocess.run(["umount", "-l", place], capture_output=True, timeout=20)


def change(bench):
    old, new = noise(1, 40 * MIB), noise(2, 40 * MIB)
    bench.put("file", old)
    with bench.mount("--memory=128MiB") as mount:
        with open(mount / "file", "rb", buffering=0) as file:
            got = file.read(MIB)
            bench.put("file", new)
            try:
                while piece := file.read(MIB):
                    got += piece
            except OSError as error:
                expect(error.errno == errno.ESTALE, f"a read gave {errno.errorcode[error.errno]}")
        expect(got in (old, new) or old.startswith(got), "bytes of two versions in one read")
    with bench.mount() as mount:
        expect((mount / "file").read_bytes() == new, "the new version differs")


def away(bench):
    body = noise(3, 60 * MIB)
    with bench.mount() as mount:
        failures = []

        def write():
            try:
                with open(mount / "file", "wb") as file:
                    for start in range(0, len(body), MIB):
                        file.write(body[start:start + MIB])
                        time.sleep(0.12)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                failures.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(3)
        bench.server.away(AWAY_SECONDS)
        writer.join(timeout=150)
        expect(not writer.is_alive(), "the writer hangs")
        expect(not failures, f"the writer got {failures}")
        expect(hashlib.md5(bench.get("file")).digest() == hashlib.md5(body).digest(), "bytes differ")


def recovery(bench):
    mount = bench.mount(*staging(bench))
    for name in ("taken", "free"):
        file = os.open(mount / name, os.O_RDWR | os.O_CREAT)
        os.pwrite(file, b"ours", 0)
    mount.kill()
    bench.put("taken", b"theirs")
    with bench.mount(*staging(bench)):
        deadline = time.monotonic() + 30
        while "free" not in bench.names():
            expect(time.monotonic() < deadline, "what was written before the kill is not saved")
            time.sleep(0.2)
    expect(bench.get("free") == b"ours", "what was saved differs")
    expect(bench.get("taken") == b"theirs", "their version was overwritten")
    kept = list((bench.directory / "staging" / "kept").glob("*"))
    expect(kept, "ours was not put aside")


def leftovers(bench):
    told = bench.penstock("uploads", f"s3://{BUCKET}")
    expect(told.returncode == 0, f"uploads: {told.stderr[-200:]}")
    try:
        left = bench.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    except bench.client.exceptions.ClientError:
        left = []
    expect(not left, f"{len(left)} uploads are left: {[upload['Key'] for upload in left][:3]}")


# In this order; each with the seconds that it may take.
STEPS = {
    "check": (check, 120), "streaming": (streaming, 240), "names": (names, 120),
    "spoilt": (spoilt_name, 60), "many": (many, 300), "rename": (rename, 240),
    "append": (append, 120), "conflicts": (conflicts, 90), "staged": (staged, 240),
    "programs": (programs, 240), "stream": (stream, 180), "change": (change, 120),
    "recovery": (recovery, 120), "away": (away, 300), "leftovers": (leftovers, 60),
}
