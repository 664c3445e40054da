//! What programs that change files where they lie do on a staged mount.

#![allow(clippy::disallowed_methods)]

use std::process::Command;

use penstock_tests::{Bucket, Kind, Mount, Patience, Scratch, run_within};

const PATIENCE: Patience = Patience::seconds(120);

/// A staged mount with a folder beside it.
struct Bed {
    _bucket: Bucket,
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
            _bucket: bucket,
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
