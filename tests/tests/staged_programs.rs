//! What programs that change files where they lie do on a staged mount.

#![allow(clippy::disallowed_methods)]

use std::process::Command;

use penstock_devserver::Faults;
use penstock_tests::{BUCKET, Bucket, Kind, Mount, Patience, Scratch, run_within};

const PATIENCE: Patience = Patience::seconds(120);

/// A staged mount with a folder beside it.
struct Bed {
    bucket: Bucket,
    mount: Mount,
    scratch: Scratch,
}

impl Bed {
    /// `writeback`: whether the kernel gathers writes, `on` or `off`.
    fn new(kind: Kind, writeback: &str) -> Self {
        let (bucket, scratch) = (Bucket::new(kind), Scratch::new());
        let options = bucket.staged_options(&scratch.path().join("staging"));
        let mount = bucket.mount_with(&options.option("writeback-cache", writeback));
        Self {
            bucket,
            mount,
            scratch,
        }
    }

    /// Runs `script` in the mount, with a folder elsewhere as `$outside`.
    #[track_caller]
    fn run(&self, script: &str) {
        let outside = self.scratch.folder("outside");
        let script = format!("export LC_ALL=C HOME=\"$2\"; cd \"$1\"; outside=$2\n{script}");
        let mut shell = Command::new("bash");
        shell
            .args(["-euc", &script, "bash"])
            .arg(self.mount.path())
            .arg(&outside);
        run_within(PATIENCE, &mut shell).expect_success();
    }
}

fn has(program: &str) -> bool {
    let found = Command::new("bash")
        .args(["-c", &format!("command -v {program}")])
        .output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        penstock_skips::skipped(format_args!("there is no {program}"));
    }
    found
}

/// Runs a script on every kind of bucket, and on one of which the kernel gathers writes.
#[track_caller]
fn on_every_kind(programs: &[&str], script: &str) {
    if !programs.iter().all(|program| has(program)) {
        return;
    }
    let usual = Kind::ALL.map(|kind| (kind, "off"));
    for (kind, writeback) in usual.into_iter().chain([(Kind::S3, "on")]) {
        let bed = Bed::new(kind, writeback);
        bed.run(script);
        bed.mount.unmount();
    }
}

#[test]
fn git_works_on_a_staged_mount() {
    on_every_kind(
        &["git"],
        r#"
        git config --global user.name tester; git config --global user.email tester@example.com
        git init -q "$outside/origin"
        for number in $(seq 1 40); do
            seq "$number" $((number * 100)) > "$outside/origin/file $number"
        done
        git -C "$outside/origin" add .; git -C "$outside/origin" commit -qm one
        echo more >> "$outside/origin/file 7"; git -C "$outside/origin" commit -qam two
        git -C "$outside/origin" gc -q
        git clone -q "file://$outside/origin" received; git -C received fsck --no-progress
        diff -r -x .git "$outside/origin" received
        echo changed > 'received/file 1'; git -C received commit -qam three
        git -C received gc -q; git -C received fsck --no-progress
        git -C received push -q origin HEAD:refs/heads/other
        test "$(git -C received status --porcelain)" = ''
        "#,
    );
}

#[test]
fn a_database_works_on_a_staged_mount() {
    on_every_kind(
        &["python3"],
        r#"
        cat > "$outside/database.py" <<'PYTHON'
import sqlite3
connection = sqlite3.connect("data.db")
connection.execute("create table t(n integer primary key, text text)")
connection.executemany("insert into t values(?, ?)", [(n, "x" * (n % 500)) for n in range(2000)])
connection.commit()
connection.execute("delete from t where n % 3 = 0")
connection.execute("update t set text = 'changed' where n % 5 = 0")
connection.commit()
connection.execute("vacuum")
other = sqlite3.connect("data.db")
assert other.execute("select count(*) from t").fetchone()[0] == 1333
assert other.execute("pragma integrity_check").fetchone()[0] == "ok"
connection.close(); other.close()
again = sqlite3.connect("data.db")
assert again.execute("select count(*) from t where text = 'changed'").fetchone()[0] == 266
PYTHON
        python3 "$outside/database.py"
        "#,
    );
}

#[test]
fn trees_are_copied_and_synchronized_on_a_staged_mount() {
    on_every_kind(
        &["rsync", "tar"],
        r#"
        mkdir -p "$outside/tree/a/b" "$outside/tree/with space"
        for number in $(seq 1 30); do
            seq "$number" $((number * 50)) > "$outside/tree/a/b/$number"
        done
        seq 1 430000 > "$outside/tree/with space/large"
        cp -a "$outside/tree" copied; diff -r "$outside/tree" copied
        rsync -a --inplace "$outside/tree/" synced; diff -r "$outside/tree" synced
        test -z "$(rsync -ai "$outside/tree/" synced | grep '^>f' || true)"
        echo changed >> "$outside/tree/a/b/7"
        rsync -a --inplace --no-whole-file "$outside/tree/" synced; diff -r "$outside/tree" synced
        tar -cf all.tar copied; tar -rf all.tar synced; tar -xf all.tar -C "$outside"
        diff -r "$outside/copied" copied; diff -r "$outside/synced" synced
        rm -r copied; test ! -e copied
        "#,
    );
}

#[test]
fn programs_that_change_files_where_they_lie_work_on_a_staged_mount() {
    on_every_kind(
        &["python3", "dd"],
        r#"
        seq 1 100000 > file
        dd if=/dev/zero of=file bs=1 count=3 seek=5 conv=notrunc status=none
        truncate -s 50 file; truncate -s +10 file; test "$(stat -c %s file)" = 60
        printf middle | dd of=file bs=1 seek=20 conv=notrunc status=none
        test "$(dd if=file bs=1 skip=20 count=6 status=none)" = middle
        python3 - <<'PYTHON'
import tempfile, zipfile, mmap
with zipfile.ZipFile("archive.zip", "w") as archive:
    archive.writestr("one", "1" * 100000)
    archive.write("file")
assert zipfile.ZipFile("archive.zip").testzip() is None
with tempfile.TemporaryFile(dir=".") as unnamed:
    unnamed.write(b"kept"); unnamed.seek(0); assert unnamed.read() == b"kept"
with open("mapped", "w+b") as file:
    file.truncate(1 << 20)
    with mmap.mmap(file.fileno(), 0) as mapping:
        mapping[777:780] = b"abc"
assert open("mapped", "rb").read()[776:781] == b"\0abc\0"
PYTHON
        sort -R file > other || true
        "#,
    );
}

/// The kernel is told to believe what it was shown of a file that is being written, and asks again after each write.
#[test]
fn size_and_time_of_a_file_that_is_being_written_are_seen_at_once() {
    on_every_kind(
        &["python3"],
        r#"
        python3 - <<'PYTHON'
import mmap, os, time
from pathlib import Path
Path("source").write_bytes(b"s" * 5000)
source = os.open("source", os.O_RDONLY)
file = os.open("file", os.O_RDWR | os.O_CREAT)
other = os.open("file", os.O_WRONLY | os.O_APPEND)
def mapped():
    with mmap.mmap(file, 4096) as mapping:
        mapping[5:8] = b"abc"
        mapping.flush()
changes = [
    (lambda: os.write(file, b"x" * 10), 10),
    (lambda: os.write(other, b"y" * 20), 30),
    (lambda: os.pwrite(file, b"z" * 9, 4091), 4100),
    (mapped, 4100),
    (lambda: os.ftruncate(other, 4096), 4096),
    (lambda: os.posix_fallocate(file, 4096, 100), 4196),
    (lambda: os.copy_file_range(source, file, 5000, 0, 4196), 9196),
    (lambda: os.truncate("file", 5000), 5000),
    (lambda: os.write(other, b"last"), 5004),
]
def look():
    shown, held = os.stat("file"), os.fstat(file)
    assert (shown.st_size, shown.st_mtime_ns) == (held.st_size, held.st_mtime_ns)
    return shown.st_size, shown.st_mtime_ns
modified = 0
for number, (change, size) in enumerate(changes):
    time.sleep(0.02)
    change()
    shown = look()
    assert shown[0] == size and shown[1] > modified, (number, shown, modified)
    modified = shown[1]
os.chmod("file", 0o640); os.chown("file", os.getuid(), os.getgid())
os.utime(file, ns=(1, 1_000_000_007)); assert look() == (5004, 1_000_000_007)
time.sleep(0.02); os.write(file, b"again"); assert look()[1] > modified
shown = look()
os.close(other); assert look() == shown
os.fsync(file); assert look() == shown
os.close(file); os.sync()
held = os.stat("file"); assert (held.st_size, held.st_mtime_ns) == shown
PYTHON
        "#,
    );
}

#[test]
fn a_running_program_is_not_opened_for_writing() {
    on_every_kind(
        &["sleep"],
        r#"
        cp "$(command -v sleep)" nap
        ./nap 100 & pid=$!
        until test "$(basename "$(readlink /proc/$pid/exe)")" = nap; do
            kill -0 $pid # or it did not start
            sleep 0.05
        done
        for redirection in '> nap' '>> nap' '<> nap'; do
            if (eval ": $redirection") 2> "$outside/said"; then exit 1; fi
            grep -q 'Text file busy' "$outside/said"
        done
        kill $pid; wait $pid || true
        cmp nap "$(command -v sleep)"
        "#,
    );
}

#[test]
fn a_large_direct_append_arrives_in_order() {
    on_every_kind(
        &["python3"],
        r#"
        python3 - <<'PYTHON'
import mmap, os
pieces = 8
buffer = mmap.mmap(-1, pieces << 20)
for piece in range(pieces):
    buffer[piece << 20:(piece + 1) << 20] = bytes([piece]) * (1 << 20)
for number in range(10):
    file = os.open(f"file{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_DIRECT)
    for _ in range(2):
        assert os.write(file, buffer) == len(buffer)
    os.close(file)
    with open(f"file{number}", "rb") as stored:
        assert stored.read() == buffer[:] * 2, number
PYTHON
        "#,
    );
}

/// The kernel believes in the size that it heard of.
#[test]
fn a_direct_append_goes_behind_what_another_client_stored() {
    let bed = Bed::new(Kind::S3, "off");
    for (before, meanwhile) in [(1 << 20, 10), (10, 1 << 20)] {
        let store = |size: usize| {
            let content = vec![b'x'; size];
            let stored = bed.bucket.data().put(BUCKET, "shared", &content);
            stored.expect("memory");
            content
        };
        store(before);
        bed.run(r#"test $(stat --format %s shared) -gt 0"#);
        let mut expected = store(meanwhile);
        bed.run(
            r#"
            python3 - <<'PYTHON'
import mmap, os
pieces = 8
buffer = mmap.mmap(-1, pieces << 20)
for piece in range(pieces):
    buffer[piece << 20:(piece + 1) << 20] = bytes([piece]) * (1 << 20)
file = os.open("shared", os.O_WRONLY | os.O_APPEND | os.O_DIRECT)
assert os.write(file, buffer) == len(buffer)
os.close(file)
PYTHON
            "#,
        );
        expected.extend((0..8).flat_map(|piece| vec![piece; 1 << 20]));
        let stored = bed.bucket.data().get(BUCKET, "shared");
        assert!(stored == Some(expected), "{before} {meanwhile}");
    }
}

/// A command that runs `script`, with what is added to it as arguments.
fn python(script: &str) -> Command {
    let mut python = Command::new("python3");
    python.args(["-c", script]);
    python
}

/// Opening a file that another program is writing must not make the kernel forget what it writes.
#[test]
fn what_is_written_to_small_files_that_others_open_meanwhile_stays() {
    const WRITERS: usize = 3;
    const ROUNDS: usize = 200;
    if !has("python3") {
        return;
    }
    let bed = Bed::new(Kind::S3, "off");
    let mut race = python(include_str!("staged_programs/race.py"));
    race.arg(bed.mount.path());
    race.args([WRITERS, ROUNDS].map(|number| number.to_string()));
    run_within(PATIENCE, &mut race).expect_success();
    let mut expected = [0xc1; 4096];
    expected[100] = 0xd2;
    for writer in 0..WRITERS {
        for round in 0..ROUNDS {
            let name = format!("{writer}-{round}");
            let stored = bed.bucket.data().get(BUCKET, &name);
            assert!(stored.is_some_and(|stored| stored == expected), "{name}");
        }
    }
}

/// What the kernel reads of the last page while that grows must not stay.
#[test]
fn a_file_that_is_appended_to_past_the_page_cache_is_read_right_through_it() {
    if !has("python3") {
        return;
    }
    let bed = Bed::new(Kind::S3, "off");
    let mut append = python(include_str!("staged_programs/direct_append.py"));
    append.arg(bed.mount.join("file")).arg("5");
    run_within(PATIENCE, &mut append).expect_success();
}

/// The kernel closes the file within execve(2), and shows nobody the state of a process that is there.
#[test]
fn a_program_that_becomes_another_one_is_not_held_by_the_save_of_its_file() {
    if !has("perl") {
        return;
    }
    let bed = Bed::new(Kind::S3, "off");
    bed.bucket.fail(Faults {
        latency_ms: 500,
        ..Faults::default()
    });
    bed.run(r#"perl -e 'open($file, ">", "file"); syswrite($file, "content"); exec "true"'"#);
    bed.bucket.heal();
    bed.mount.unmount();
    let stored = bed.bucket.data().get(BUCKET, "file");
    assert_eq!(stored.as_deref(), Some(&b"content"[..]));
}
