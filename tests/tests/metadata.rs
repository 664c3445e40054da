//! Owner, mode, times, links and extended attributes on real mounts, and together with s3fs.

#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    time::{Duration, SystemTime},
};

use penstock_tests::{
    BUCKET, Bucket, Kind, Mount, MountOptions, Patience, S3fs, Scratch, run_within,
};

const PATIENCE: Patience = Patience::seconds(120);

/// What every script begins with: a folder elsewhere with a tree in it, and ways to look at files.
const PRELUDE: &str = r#"
    export LC_ALL=C TZ=UTC
    outside=$1
    # refused MESSAGE COMMAND...: it fails and says so.
    refused() {
        local message=$1; shift
        if "$@" >"$outside/said" 2>&1; then echo "not refused: $*" >&2; return 1; fi
        grep -q "$message" "$outside/said" || { cat "$outside/said" >&2; return 1; }
    }
    # all of a tree that is kept: kind, owner, group, mode, size, time and where links lead.
    shown() { (cd "$1"; find . -mindepth 1 -printf '%P %y %U %G %m %TY-%Tm-%TdT%TT %l ' \
        \( -type f -printf %s -o -true \) -printf '\n' | sort); }
    same() { diff <(shown "$1") <(shown "$2"); }
    tree() {
        mkdir -p "$1/a/b" "$1/with space"
        seq 1 1000 > "$1/a/b/numbers"; : > "$1/with space/empty"
        ln -s ../a/b/numbers "$1/with space/link"; ln -s /nowhere/at/all "$1/dangling"
        head -c 3000000 /dev/zero > "$1/large"
        chmod 4751 "$1/large"; chmod 600 "$1/a/b/numbers"; chmod 2775 "$1/a/b"
        chown 12:34 "$1/a/b/numbers"; chown 5:6 "$1/a"; chown -h 7:8 "$1/dangling"
        # rsync compares seconds only, and would not touch what was made in the same one.
        find "$1" -depth -exec touch -h -d '2005-05-05 05:05:05.25' '{}' +
        touch -d '2001-02-03 04:05:06.123456789' "$1/a/b/numbers"
        touch -h -d '2003-03-03 03:03:03' "$1/dangling"
        touch -d '1999-12-31 23:59:59.5' "$1/a/b"
    }
"#;

fn keeping(bucket: &Bucket) -> MountOptions {
    bucket
        .options()
        .option("posix-metadata", "on")
        .option("allow-other", "on")
}

#[track_caller]
fn script(script: &str, arguments: &[&Path]) -> String {
    let mut shell = Command::new("bash");
    let text = format!("{PRELUDE}{script}");
    shell
        .args(["-euxo", "pipefail", "-c", &text, "bash"])
        .args(arguments);
    run_within(PATIENCE, &mut shell).expect_success().stdout
}

/// Whether somebody may use the mount and hand files to others, and all `programs` are there.
fn can_run(programs: &[&str]) -> bool {
    let mut shell = Command::new("bash");
    let look = r#"test "$(id -u)" = 0; for program; do command -v "$program"; done"#;
    shell.args(["-ec", look, "bash"]).args(programs);
    let can = run_within(PATIENCE, &mut shell).succeeded();
    if !can {
        penstock_skips::skipped(format_args!("not root, or one of {programs:?} is missing"));
    }
    can
}

/// Runs `first` in a mount of every kind of bucket and `second` in another mount of it.
#[track_caller]
fn in_two_mounts(programs: &[&str], first: &str, second: &str) {
    if !can_run(programs) {
        return;
    }
    for kind in Kind::ALL {
        let (bucket, outside) = (Bucket::new(kind), Scratch::new());
        for text in [first, second] {
            let mount = bucket.mount_with(&keeping(&bucket));
            let text = format!("cd \"$2\"\n{text}");
            script(&text, &[outside.path(), mount.path()]);
            mount.unmount();
        }
    }
}

#[test]
fn trees_keep_what_they_are() {
    in_two_mounts(
        &["find", "rsync", "tar"],
        r#"
        tree "$outside/tree"
        cp -a "$outside/tree" copied; same "$outside/tree" copied
        rsync -a "$outside/tree/" synced/; same "$outside/tree" synced
        again=$(rsync -ai "$outside/tree/" synced/); test -z "$again"
        again=$(rsync -ai "$outside/tree/" copied/); test -z "$again"
        tar -C "$outside" --format=posix -cf - tree | tar -xpf -; same "$outside/tree" tree
        mv tree moved; same "$outside/tree" moved
        "#,
        r#"
        for tree in copied synced moved; do same "$outside/tree" "$tree"; done
        test "$(readlink copied/dangling)" = /nowhere/at/all
        cmp "$outside/tree/a/b/numbers" "copied/with space/link"
        again=$(rsync -ai "$outside/tree/" synced/); test -z "$again"
        rsync -a copied/ "$outside/back/"; same "$outside/tree" "$outside/back"
        rm -r copied synced moved; test -z "$(ls -A)"
        "#,
    );
}

#[test]
fn mode_owner_and_times_of_files_are_stored() {
    in_two_mounts(
        &["stat", "touch"],
        r#"
        umask 027; echo body > file; mkdir dir; umask 022
        stat -c '%a %u %g' file dir | tr '\n' ' ' | grep -qx '640 0 0 750 0 0 '
        chmod 4711 file; chown 12:34 dir
        touch -d '2001-02-03 04:05:06.123456789' file dir
        echo new > written; chmod 600 written; echo more >> written
        refused 'not permitted' ln file hard
        (exec 3> open; chmod 604 open; chown 9:9 open; echo open >&3)
        chmod 6755 file; chown 12 file; test "$(stat -c %a file)" = 755
        touch -d '2001-02-03 04:05:06.123456789' file
        "#,
        r#"
        stat -c '%n %a %u %g' * > "$outside/shown"
        diff "$outside/shown" - <<'END'
dir 750 12 34
file 755 12 0
open 604 9 9
written 600 0 0
END
        test "$(stat -c %y file)" = '2001-02-03 04:05:06.123456789 +0000'
        test "$(stat -c %y dir)" = '2001-02-03 04:05:06.123456789 +0000'
        test "$(cat written)" = "$(printf 'new\nmore')"
        "#,
    );
}

#[test]
fn pipes_sockets_and_devices_are_stored() {
    in_two_mounts(
        &["mkfifo", "mknod", "python3"],
        r#"
        mkfifo -m 640 pipe; mknod -m 600 character c 1 3; mknod -m 660 block b 259 70000
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
        refused 'File exists' mkfifo pipe
        chown 12:34 pipe; chmod 604 block; touch -d '2001-02-03 04:05:06.5' character
        mkdir dir; mv socket dir; mv dir moved; mv pipe passed
        (echo through > passed) & test "$(cat passed)" = through; wait
        cp -a character copied; rm character
        "#,
        r#"
        stat -c '%n %F %a %u %g %t %T' passed copied block moved/socket > "$outside/shown"
        diff "$outside/shown" - <<'END'
passed fifo 640 12 34 0 0
copied character special file 600 0 0 1 3
block block special file 604 0 0 103 11170
moved/socket socket 755 0 0 0 0
END
        test "$(stat -c %y copied)" = '2001-02-03 04:05:06.500000000 +0000'
        (echo again > passed) & test "$(cat passed)" = again; wait
        find . -type p -o -type b -o -type c -o -type s | sort | tr '\n' ' ' > "$outside/found"
        test "$(cat "$outside/found")" = './block ./copied ./moved/socket ./passed '
        rm -r passed copied block moved; test -z "$(ls -A)"
        "#,
    );
}

#[test]
fn extended_attributes_of_files_are_stored() {
    in_two_mounts(
        &["setfattr", "getfattr"],
        r#"
        echo body > file; mkdir dir
        for path in file dir; do
            setfattr -n user.colour -v blue "$path"
            setfattr -n user.bytes -v 0x0001ff "$path"
            setfattr -n user.gone -v x "$path"; setfattr -x user.gone "$path"
            refused 'No such attribute' getfattr -n user.gone "$path"
        done
        refused 'No space' setfattr -n user.large -v "$(printf '%9000s' x)" file
        cp -a file copied; mv file moved
        "#,
        r#"
        for path in copied moved dir; do
            getfattr --absolute-names -d -m - "$path" | grep -v '^#' | grep . > "$outside/shown"
            diff "$outside/shown" - <<'END'
user.bytes=0sAAH/
user.colour="blue"
END
        done
        "#,
    );
}

#[test]
fn permissions_are_enforced() {
    in_two_mounts(
        &["setpriv"],
        r#"
        nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        chmod 755 .; echo secret > private; chmod 600 private; mkdir -m 1777 shared
        refused 'denied' nobody cat private
        refused 'denied' nobody touch new
        refused 'not permitted' nobody chmod 644 private
        nobody bash -c 'echo mine > shared/mine'
        test "$(stat -c '%u %g' shared/mine)" = '65534 65534'
        refused 'not permitted' nobody chown 0 shared/mine
        echo other > shared/other; refused 'not permitted' nobody rm -f shared/other
        nobody chmod 600 shared/mine; nobody cat shared/mine | grep -qx mine
        "#,
        r#"
        nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        refused 'denied' nobody cat private
        nobody cat shared/mine | grep -qx mine
        nobody rm shared/mine
        "#,
    );
}

/// A mount that does not keep metadata says and costs what it did before.
#[test]
fn without_posix_metadata_nothing_is_kept() {
    let bucket = Bucket::new(Kind::S3);
    let mount = bucket.mount();
    let text = r#"
        cd "$2"; echo body > file; chmod 600 file; test "$(stat -c %a file)" = 644
        refused 'not supported' setfattr -n user.a -v b file
    "#;
    script(text, &[Scratch::new().path(), mount.path()]);
    mount.unmount();
}

/// What `stat` shows of some files in both mounts, and how they are read.
const LOOK: &str = r#"
    look() { (cd "$1"; for path in $2; do
        stat -c '%n %F %a %u %g %Y' "$path"; if [ -L "$path" ]; then readlink "$path"; fi
    done; for path in $3; do getfattr --absolute-names -d -m - "$path"; done); }
"#;

#[test]
fn s3fs_and_penstock_read_each_others_metadata() {
    if !can_run(&["s3fs", "setfattr"]) {
        return;
    }
    let (bucket, outside) = (Bucket::new(Kind::S3), Scratch::new());
    let ours = |bucket: &Bucket| -> Mount {
        let options = keeping(bucket).option("attr-timeout", "0");
        bucket.mount_with(&options)
    };
    let paths = |ours: &Mount, theirs: &S3fs| {
        [
            outside.path().to_owned(),
            ours.path().to_owned(),
            theirs.path().to_owned(),
        ]
    };
    let make = r#"
        cd "$made"
        echo body > file; chown 12:34 file; chmod 4751 file
        setfattr -n user.colour -v blue file; setfattr -n user.bytes -v 0x0001ff file
        touch -d '2001-02-03 04:05:06.123456789' file
        mkdir dir; chown 5:6 dir; chmod 711 dir; echo below > dir/below
        touch -d '2002-02-02 02:02:02' dir; ln -s ../some/target link; ln -s dir/below relative
        echo old > renamed; chmod 640 renamed; mv renamed new
        mkdir moved; echo x > moved/x; chmod 700 moved; mv moved directory
        mkfifo -m 640 pipe; chown 5:6 pipe
    "#;
    let compare = r#"
        names='file dir dir/below link relative new directory directory/x pipe'
        diff <(look "$2" "$names" file) <(look "$3" "$names" file)
        test "$(stat -c '%a %u %g %y' "$seen/file")" = \
            '4751 12 34 2001-02-03 04:05:06.123456789 +0000'
        test "$(stat -c '%a %u %g %Y' "$seen/dir")" = '711 5 6 1012615322'
        test "$(stat -c '%F %a %u %g' "$seen/pipe")" = 'fifo 640 5 6'
        test "$(readlink "$seen/link")" = ../some/target
        test "$(cat "$seen/relative")" = below
        test "$(getfattr --only-values -n user.colour "$seen/file")" = blue
        test "$(stat -c %a "$seen/new")" = 640
        test "$(ls "$seen" | tr '\n' ' ')" = 'dir directory file link new pipe relative '
    "#;
    for (made, seen) in [("$3", "$2"), ("$2", "$3")] {
        let mount = ours(&bucket);
        let theirs = S3fs::mount(&bucket);
        let all = paths(&mount, &theirs);
        let all: Vec<&Path> = all.iter().map(AsRef::as_ref).collect();
        let text = format!("{LOOK}made={made}; seen={seen}\n{make}\n{compare}");
        script(&text, &all);
        // Each changes what the other made, and sees it.
        let change = r#"
            chmod 600 "$seen/file"; chown 1:2 "$seen/dir"; touch -d @1000 "$seen/dir/below"
            setfattr -n user.colour -v red "$seen/file"
            sleep 1.5
            test "$(stat -c %a "$made/file")" = 600
            test "$(stat -c '%a %u %g' "$made/dir")" = '711 1 2'
            test "$(stat -c %Y "$made/dir/below")" = 1000
            test "$(getfattr --only-values -n user.colour "$made/file")" = red
            test "$(getfattr --only-values -n user.bytes "$made/file" | od -An -tx1)" = ' 00 01 ff'
            cat "$made/file" | grep -qx body
            rm -r "$seen"/*; sleep 1.5; test -z "$(ls -A "$made")"
        "#;
        script(&format!("made={made}; seen={seen}\n{change}"), &all);
        drop(theirs);
        mount.unmount();
    }
}

/// The headers that a store forgets unless a rewrite repeats them.
const HEADERS: [(&str, &str); 6] = [
    ("cache-control", "max-age=60"),
    ("content-disposition", "attachment; filename=\"a b\""),
    ("content-encoding", "gzip"),
    ("content-language", "de"),
    ("expires", "Thu, 01 Dec 2033 16:00:00 GMT"),
    ("storage-class", "STANDARD_IA"),
];

#[test]
fn headers_and_class_of_an_object_outlive_changes_of_the_file() {
    for kind in Kind::REMOTE {
        for staged in [false, true] {
            let (bucket, scratch) = (Bucket::new(kind), Scratch::new());
            let options = match staged {
                true => bucket.staged_options(scratch.path()),
                false => bucket.options(),
            };
            let data = bucket.data();
            data.put_with_headers((BUCKET, "file"), b"content", &HEADERS)
                .expect("memory");
            let expect = |key: &str, what: &str| {
                let headers = data.headers(BUCKET, key).expect("it is there");
                let expected = HEADERS.map(|(name, value)| (name.to_owned(), value.to_owned()));
                assert_eq!(headers, expected, "{kind:?}, staged {staged}: {what}");
            };
            let mount = bucket.mount_with(&options.option("posix-metadata", "on"));
            let file = mount.join("file");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("changed");
            expect("file", "chmod");
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
            let opened = fs::File::open(&file).expect("opened");
            opened.set_modified(time).expect("changed");
            drop(opened);
            expect("file", "touch");
            fs::rename(&file, mount.join("moved")).expect("renamed");
            expect("moved", "mv");
            fs::write(mount.join("moved"), b"other content").expect("written");
            expect("moved", "a new content");
            mount.unmount();
            assert_eq!(
                data.get(BUCKET, "moved").as_deref(),
                Some(&b"other content"[..])
            );
        }
    }
}
