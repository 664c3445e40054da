"""The stores of the matrix: where their programs lie, how each is started, and what it is known to do wrong.

A store listens on loopback only, keeps its data in a directory of its own, and is killed at the end.
"""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import boto3
import botocore
from botocore.config import Config

PLACE = Path(os.environ["PENSTOCK_STORES"])
KEY = "GK0123456789abcdef01234567"
SECRET = "0123456789abcdef" * 4
BUCKET = "matrix"
START_SECONDS = 90

# How the step `names` fails where files have longer names than objects.
NAME_TOO_LONG = r"OSError: \[Errno 5\] .*put `d/ü+`: (the store answered 500|We encountered an internal error)"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One store, running or not."""

    name = ""
    version = ""
    program = ""
    key, secret, region = KEY, SECRET, "us-east-1"
    # Whether what it stores outlives the process; else an outage is a pause.
    survives = True
    # What fails through its own fault: step to how it fails then (a pattern at the beginning of what came out;
    # anything else is another failure), and why.
    known = {}

    def __init__(self, directory):
        self.directory = Path(directory)
        self.data = self.directory / "data"
        self.data.mkdir()
        self.port = free_port()
        self.pid_file = self.directory / "pid"

    @classmethod
    def is_installed(cls):
        return (PLACE / cls.program).exists()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def command(self):
        raise NotImplementedError

    def environment(self):
        return {}

    def prepare(self):
        """What has to be told to a store that runs."""

    def start(self):
        log = open(self.directory / "server.log", "ab")
        process = subprocess.Popen(
            [str(word) for word in self.command()],
            env={**os.environ, **self.environment()},
            cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )
        # A step that kills and starts it runs in another process than who ends it at last.
        self.pid_file.write_text(str(process.pid))
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(f"{self.name} ended: {self.last_words()}")
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} does not listen: {self.last_words()}")

    def last_words(self):
        return (self.directory / "server.log").read_text(errors="replace")[-300:]

    def signal(self, number):
        os.killpg(int(self.pid_file.read_text()), number)

    def kill(self):
        """Ends it, whoever started it, and waits until it is gone."""
        deadline = time.monotonic() + 20
        try:
            while time.monotonic() < deadline:
                self.signal(signal.SIGKILL)
                try:
                    os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    pass
                time.sleep(0.1)
        except (ProcessLookupError, FileNotFoundError):
            pass

    def away(self, seconds):
        """The store is gone for a while."""
        if self.survives:
            self.kill()
            time.sleep(seconds)
            self.start()
        else:
            self.signal(signal.SIGSTOP)
            time.sleep(seconds)
            self.signal(signal.SIGCONT)

    def client(self):
        """boto3, which shares no code with Penstock."""
        return boto3.client(
            "s3", endpoint_url=self.url, region_name=self.region,
            aws_access_key_id=self.key, aws_secret_access_key=self.secret,
            config=Config(
                s3={"addressing_style": "path"}, connect_timeout=5, read_timeout=60,
                retries={"max_attempts": 3},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    def make_bucket(self):
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self.client().create_bucket(Bucket=BUCKET)
            except botocore.exceptions.ClientError as error:
                if "BucketAlready" in str(error):
                    return
                failure = error
            except botocore.exceptions.BotoCoreError as error:
                failure = error
            if time.monotonic() > deadline:
                raise failure
            time.sleep(0.5)


class Minio(Server):
    name, version, program = "MinIO", "2026-02-12", "bin/minio"

    def command(self):
        return [PLACE / self.program, "server", "--quiet", "--address", f"127.0.0.1:{self.port}", self.data]

    def environment(self):
        return {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET}


class Versitygw(Server):
    name, version, program = "versitygw, posix", "1.8.0", "bin/versitygw"

    def command(self):
        return [PLACE / self.program, "--port", f"127.0.0.1:{self.port}", "posix", self.data]

    def environment(self):
        return {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}


class Garage(Server):
    name, version, program, region = "Garage", "2.5.0", "bin/garage", "garage"

    def __init__(self, directory):
        super().__init__(directory)
        self.rpc = free_port()
        (self.directory / "garage.toml").write_text(f"""
metadata_dir = "{self.data}/meta"
data_dir = "{self.data}/data"
db_engine = "sqlite"
replication_factor = 1
rpc_bind_addr = "127.0.0.1:{self.rpc}"
rpc_public_addr = "127.0.0.1:{self.rpc}"
rpc_secret = "{SECRET}"
[s3_api]
s3_region = "garage"
api_bind_addr = "127.0.0.1:{self.port}"
""")

    def command(self):
        return [PLACE / self.program, "-c", self.directory / "garage.toml", "server"]

    def tell(self, *words):
        told = subprocess.run(
            [PLACE / self.program, "-c", self.directory / "garage.toml", *words],
            capture_output=True, text=True, timeout=60,
        )
        if told.returncode != 0:
            raise RuntimeError(f"garage {words}: {told.stderr[-300:]}")
        return told.stdout

    def prepare(self):
        node = self.tell("node", "id", "-q").split("@")[0].strip()
        self.tell("layout", "assign", "-z", "here", "-c", "20G", node)
        self.tell("layout", "apply", "--version", "1")
        self.tell("key", "import", "--yes", "-n", "matrix", KEY, SECRET)
        self.tell("key", "allow", "--create-bucket", KEY)


class Moto(Server):
    name, version, program, survives = "moto", "5.2.5", "python/bin/moto_server", False
    known = {
        "names": (r"FileNotFoundError: .*`d/new\\nline` could not be saved: no such file",
                  "a newline in a name becomes something else"),
    }

    def command(self):
        return [PLACE / self.program, "-H", "127.0.0.1", "-p", self.port]


class Rclone(Server):
    name, version, program = "rclone serve s3", "1.76.0", "bin/rclone"
    known = {
        "change": (r"bytes of two versions in one read",
                   "it overwrites in place, so a read may get bytes of two versions"),
        "away": (r"the writer got \[OSError\(5, .*NoSuchUpload",
                 "it forgets unfinished uploads when it is restarted"),
    }

    def command(self):
        return [PLACE / self.program, "serve", "s3", self.data, "--addr", f"127.0.0.1:{self.port}",
                "--auth-key", f"{KEY},{SECRET}", "--config", "/dev/null"]


class S3Mock(Server):
    name, version, program = "Adobe S3Mock", "4.7.0", "s3mock-exec.jar"
    survives = False
    known = {
        "names": (r"OSError: \[Errno 5\] .*put `d/back\\slash`: the store answered 400",
                  "it refuses a backslash in a name"),
    }

    def command(self):
        return ["java", "-Xmx1g", "-jar", PLACE / self.program, f"--com.adobe.testing.s3mock.httpPort={self.port}",
                f"--server.port={free_port()}", f"--com.adobe.testing.s3mock.store.root={self.data}"]


class S3sFs(Server):
    name, version, program = "s3s-fs", "0.14.1", "bin/s3s-fs"
    known = {
        "names": (NAME_TOO_LONG, "its files have longer names than its objects, so a name of 240 bytes is too long"),
        "rename": (r"a directory lost names: \['file'\]", "it does not list markers of empty directories"),
        "leftovers": (r"uploads: .*the store cannot do this \(NotImplemented",
                      "it does not list unfinished uploads"),
    }

    def command(self):
        return [PLACE / self.program, "--host", "127.0.0.1", "--port", self.port,
                "--access-key", KEY, "--secret-key", SECRET, self.data]


class Gofakes3(Server):
    name, version, program, survives = "gofakes3, memory", "1.2.0", "bin/gofakes3", False

    def command(self):
        return [PLACE / self.program, "-host", f"127.0.0.1:{self.port}", "-backend", "memory"]


class S3rver(Server):
    name, version, program = "s3rver", "3.7.1", "node_modules/s3rver/bin/s3rver.js"
    key, secret = "S3RVER", "S3RVER"
    known = {
        "names": (NAME_TOO_LONG, "its files have longer names than its objects, so a name of 240 bytes is too long"),
        "leftovers": (r"uploads: .*the store cannot do this \(NotImplemented",
                      "it does not list unfinished uploads"),
    }

    def command(self):
        return ["node", "--openssl-legacy-provider", PLACE / self.program, "-s", "-d", self.data,
                "-a", "127.0.0.1", "-p", self.port]


class S3Proxy(Server):
    name, version, program = "S3Proxy, filesystem-nio2", "2.6.0", "s3proxy-jar-with-dependencies.jar"
    known = {
        "names": (NAME_TOO_LONG, "its files have longer names than its objects, so a name of 240 bytes is too long"),
        "rename": (r"old names stay: \['made/'(, 'made/inner/')?\]",
                   "it shows directories of its own as objects, and they stay"),
    }

    def command(self):
        (self.directory / "s3proxy.conf").write_text(
            f"s3proxy.endpoint={self.url}\ns3proxy.authorization=aws-v2-or-v4\n"
            f"s3proxy.identity={KEY}\ns3proxy.credential={SECRET}\n"
            f"jclouds.identity=x\njclouds.credential=x\njclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={self.data}\n")
        return ["java", "-Xmx1g", "-jar", PLACE / self.program, "--properties",
                self.directory / "s3proxy.conf"]


SERVERS = [Minio, Versitygw, Garage, Moto, Rclone, S3Mock, S3sFs, Gofakes3, S3rver, S3Proxy]
