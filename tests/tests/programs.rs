//! What ordinary programs do with files, seen from the bucket.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::Write,
    process::Command,
};

use penstock_tests::{Bucket, Kind, Patience, Scratch, data::noise, run_within};

const MIB: usize = 1 << 20;
const PATIENCE: Patience = Patience::seconds(60);

/// What the bucket holds, asked for without the mount.
#[track_caller]
fn listed(bucket: &Bucket) -> String {
    run_within(PATIENCE, &mut bucket.command("ls"))
        .expect_success()
        .stdout
}

#[test]
fn a_fork_while_a_file_is_written_shows_nothing_half() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        fs::write(mount.join("other"), "other").expect("a write");
        let content = noise(1, 20 * MIB);
        let (first, second) = content.split_at(11 * MIB);
        let mut file = File::create(mount.join("file")).expect("a create");
        file.write_all(first).expect("a write");
        // The child gets a copy of the descriptor and closes it.
        run_within(PATIENCE, &mut Command::new("true")).expect_success();
        assert!(
            !listed(&bucket).contains("file"),
            "{kind:?}: half a file is visible"
        );
        file.write_all(second).expect("a write");
        drop(file);
        assert!(listed(&bucket).contains("file"), "{kind:?}: closing saves");
        assert!(fs::read(mount.join("file")).expect("a read") == content);
        mount.unmount();
    }
}

#[test]
fn what_a_child_wrote_is_saved_when_it_ends() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        let output = File::create(mount.join("output")).expect("a create");
        let stdout = output.try_clone().expect("a file can be shared");
        let script = "printf one; /bin/echo two; printf three";
        let status = Command::new("bash")
            .args(["-c", script])
            .stdout(stdout)
            .status();
        assert!(status.expect("bash runs").success());
        assert!(
            listed(&bucket).contains("output"),
            "{kind:?}: the writer is done"
        );
        drop(output);
        let text = fs::read(mount.join("output")).expect("a read");
        assert_eq!(text, b"onetwo\nthree", "{kind:?}");
        mount.unmount();
    }
}

#[test]
fn a_shell_redirects_into_a_file() {
    for kind in Kind::ALL {
        let bucket = Bucket::new(kind);
        let mount = bucket.mount();
        let script = r#"
            cd "$1"
            echo first > log
            echo second >> log
            { cat log; echo third; seq 1 100000; } > all
            test "$(head -n 3 all | tr '\n' ' ')" = 'first second third '
            test "$(wc -l < all)" = 100003
            sort -n all > sorted
            gzip -c sorted > sorted.gz
            gunzip -c sorted.gz | cmp - sorted
            : > empty
            test -e empty && test ! -s empty
            mv sorted.gz moved.gz && test ! -e sorted.gz
        "#;
        let mut shell = Command::new("bash");
        shell.args(["-euc", script, "bash"]).arg(mount.path());
        run_within(PATIENCE, &mut shell).expect_success();
        mount.unmount();
    }
}

/// What every script begins with: it runs in a mount and has a folder elsewhere, with a file of
/// 3 MB and a tree in it.
const PRELUDE: &str = r#"
    export LC_ALL=C
    cd "$1"; outside=$2
    # refused MESSAGE COMMAND...: it fails and says so.
    refused() {
        local message=$1; shift
        if "$@" >"$outside/said" 2>&1; then echo "not refused: $*" >&2; return 1; fi
        grep -q "$message" "$outside/said" || { cat "$outside/said" >&2; return 1; }
    }
    seq 1 430000 > "$outside/large"
    mkdir -p "$outside/tree/a/b" "$outside/tree/with space"
    seq 1 1000 > "$outside/tree/a/b/numbers"
    : > "$outside/tree/with space/empty"
    cp "$outside/large" "$outside/tree/large"
"#;

/// Runs a script in a mount of every kind of bucket. Says so and does nothing where one of
/// `programs` is missing.
#[track_caller]
fn in_every_mount(programs: &[&str], script: &str) {
    for program in programs {
        let mut look = Command::new("bash");
        look.args(["-c", "command -v $0", program]);
        if !run_within(PATIENCE, &mut look).succeeded() {
            penstock_skips::skipped(format_args!("{program} is missing"));
            return;
        }
    }
    for kind in Kind::ALL {
        let (bucket, outside) = (Bucket::new(kind), Scratch::new());
        let mount = bucket.mount();
        let mut shell = Command::new("bash");
        shell
            .args([
                "-euo",
                "pipefail",
                "-c",
                &format!("{PRELUDE}{script}"),
                "bash",
            ])
            .args([mount.path(), outside.path()]);
        run_within(PATIENCE, &mut shell).expect_success();
        mount.unmount();
    }
}

#[test]
fn trees_are_copied_moved_and_removed() {
    in_every_mount(
        &["find"],
        r#"
        cp -a "$outside/tree" copied; diff -r "$outside/tree" copied
        mv copied moved; diff -r "$outside/tree" moved; test ! -e copied
        mv moved "$outside/out"; diff -r "$outside/tree" "$outside/out"; test ! -e moved
        mv "$outside/out" back; diff -r "$outside/tree" back
        mkdir many; (cd many; for i in $(seq 300); do echo $i > $i; done)
        find many -name '*[02468]' -delete; test "$(ls many | wc -l)" = 150
        rm -r many back; test -z "$(ls -A)"
        "#,
    );
}

#[test]
fn archives_are_packed_and_unpacked() {
    in_every_mount(
        &["tar", "gzip", "split"],
        r#"
        tar -C "$outside" -cf packed.tar tree
        mkdir unpacked; tar -C unpacked -xf packed.tar; diff -r "$outside/tree" unpacked/tree
        tar -C "$outside" -czf packed.tgz tree; tar -xzOf packed.tgz tree/large | cmp - "$outside/large"
        gzip packed.tar; gunzip packed.tar.gz; tar -tf packed.tar > "$outside/names"
        split -b 1M "$outside/large" piece.; cat piece.* | cmp - "$outside/large"
        "#,
    );
}

#[test]
fn what_grows_or_changes_in_its_middle_is_refused_and_stays_as_it_was() {
    in_every_mount(
        &["tar", "dd", "truncate"],
        r#"
        tar -C "$outside" -cf packed.tar tree; cp packed.tar "$outside/before.tar"
        refused 'Invalid argument' tar -C "$outside" -rf packed.tar large
        cmp packed.tar "$outside/before.tar"
        cp "$outside/large" file
        refused 'Invalid argument' dd if=/dev/zero of=file bs=64k count=1 conv=notrunc
        refused 'Invalid argument' dd if=/dev/zero of=file bs=64k count=1 seek=3 conv=notrunc
        refused 'not supported' truncate -s 100 file
        refused 'not supported' truncate -s 1G file
        cmp file "$outside/large"
        "#,
    );
}

#[test]
fn programs_that_replace_files_by_renaming_work() {
    in_every_mount(
        &["sed", "perl"],
        r#"
        echo one > file
        sed -i s/one/two/ file; test "$(cat file)" = two
        sed -i.old s/two/three/ file; test "$(cat file file.old | tr '\n' ' ')" = 'three two '
        perl -pi -e s/three/four/ file; test "$(cat file)" = four
        shuf "$outside/large" > mixed; sort -n mixed -o mixed; cmp mixed "$outside/large"
        dd if="$outside/large" of=synced bs=64k conv=fsync status=none; cmp synced "$outside/large"
        echo new > temporary; mv temporary file; test "$(cat file)" = new
        "#,
    );
}

#[test]
fn files_are_read_anywhere_and_through_memory_and_refuse_to_be_written_so() {
    in_every_mount(
        &["python3"],
        r#"
        cp "$outside/large" file
        python3 - "$outside/large" <<'END'
import mmap, random, sys
whole = open(sys.argv[1], "rb").read()
file = open("file", "rb", buffering=0)
for _ in range(200):
    at, length = random.randrange(len(whole) + 1000), random.randrange(100_000)
    file.seek(at)
    assert file.read(length) == whole[at:at + length], at
assert mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:] == whole
changed = open("file", "r+b")
memory = mmap.mmap(changed.fileno(), 0)
memory[0] = 65
try:
    memory.flush()
    sys.exit("not refused")
except OSError as error:
    assert error.errno == 22, error
END
        cmp file "$outside/large"
        "#,
    );
}

#[test]
fn archives_whose_head_is_written_last_are_refused() {
    in_every_mount(
        &["python3"],
        r#"
        refused 'Invalid argument' python3 -c '
import sys, zipfile
with zipfile.ZipFile("packed.zip", "w") as archive: archive.write(sys.argv[1])' "$outside/large"
        (cd "$outside"; python3 -m zipfile -c packed.zip large)
        cp "$outside/packed.zip" whole.zip; python3 -m zipfile -t whole.zip
        python3 -c '
import sys, zipfile
class Stream:
    def __init__(self, file): self.file = file
    def write(self, data): return self.file.write(data)
    def flush(self): self.file.flush()
with open("streamed.zip", "wb") as file, zipfile.ZipFile(Stream(file), "w") as archive:
    archive.write(sys.argv[1])' "$outside/large"
        python3 -m zipfile -t streamed.zip
        "#,
    );
}

#[test]
fn a_database_is_read_and_cannot_be_changed() {
    in_every_mount(
        &["python3"],
        r#"
        make='import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute("create table t(n)"); c.executemany("insert into t values(?)", [(n,) for n in range(5000)]); c.commit()'
        refused 'disk I/O error' python3 -c "$make" new.db
        python3 -c "$make" "$outside/made.db"; cp "$outside/made.db" copied.db
        test "$(python3 -c 'import sqlite3; print(sqlite3.connect("copied.db").execute("select sum(n) from t").fetchone()[0])')" = 12497500
        refused 'Error' python3 -c 'import sqlite3; c = sqlite3.connect("copied.db"); c.execute("delete from t where n = 7"); c.commit()'
        cmp copied.db "$outside/made.db"
        "#,
    );
}

#[test]
fn temporary_files_that_have_no_name_are_refused() {
    in_every_mount(
        &["python3"],
        r#"
        refused 'Stale' python3 -c '
import tempfile
with tempfile.TemporaryFile(dir=".") as file:
    file.write(b"x"); file.flush()'
        python3 -c '
import os, tempfile
with tempfile.NamedTemporaryFile(dir=".", delete=False) as file: file.write(b"x")
os.replace(file.name, "final")'
        test "$(ls -A)" = final
        "#,
    );
}

#[test]
fn rsync_replaces_files_and_cannot_change_them_in_place() {
    in_every_mount(
        &["rsync"],
        r#"
        rsync -a "$outside/tree/" copied; diff -r "$outside/tree" copied
        rsync -a --inplace "$outside/tree/" inplace; diff -r "$outside/tree" inplace
        printf X | dd of="$outside/tree/large" bs=1 seek=1000000 conv=notrunc status=none
        rsync -aI "$outside/tree/" copied; diff -r "$outside/tree" copied
        refused 'Invalid argument' rsync -aI --inplace "$outside/tree/" inplace
        cmp inplace/large "$outside/large"
        rsync -a copied/ "$outside/back"; diff -r "$outside/tree" "$outside/back"
        "#,
    );
}

#[test]
fn git_works_on_local_clones_and_cannot_receive_packs_of_deltas() {
    in_every_mount(
        &["git"],
        r#"
        export HOME=$outside GIT_CONFIG_NOSYSTEM=1
        git config --global user.name tester; git config --global user.email tester@example.com
        git init -q "$outside/origin"
        cp "$outside/large" "$outside/origin/file"
        git -C "$outside/origin" add file; git -C "$outside/origin" commit -qm one
        echo more >> "$outside/origin/file"; git -C "$outside/origin" commit -qam two
        git -C "$outside/origin" gc -q
        git clone -q "$outside/origin" clone; git -C clone fsck --no-progress
        echo changed > clone/file; git -C clone commit -qam three; git -C clone gc -q
        git -C clone fsck --no-progress; test "$(git -C clone log --oneline | wc -l)" = 3
        refused 'Device or resource busy' git clone "file://$outside/origin" received
        test ! -e received
        git clone -q --bare "file://$outside/origin" "$outside/bare"
        git clone -q "$outside/bare" again; cmp again/file "$outside/origin/file"
        "#,
    );
}

#[test]
fn vim_needs_its_swap_file_elsewhere() {
    in_every_mount(
        &["vim"],
        r#"
        echo one > file
        vim -N -u NONE -es --cmd 'set directory=/tmp' -c 'normal otwo' -c wq file
        vim -N -u NONE -n -es -c 'set backup' -c 'normal othree' -c wq file
        test "$(cat file | tr '\n' ' ')" = 'one two three '
        "#,
    );
}
