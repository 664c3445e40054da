//! parcp, partar and parrm as programs: their names, their exit statuses, and that a crash leaves nothing wrong.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::{
    fs::{self, File},
    io::Write,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_skips::skipped;

/// How long a tool that was told to end may take to do so.
const PROMPT: Duration = Duration::from_secs(5);

/// A folder with links to the binary under its other names.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["parcp", "partar", "parrm"] {
        symlink(env!("CARGO_BIN_EXE_penstock"), folder.path().join(name)).unwrap();
    }
    folder
}

fn command(folder: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(folder.join(program));
    command.current_dir(folder).args(arguments);
    command
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    command(folder, program, arguments).output().unwrap()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn make_tree(folder: &Path, files: usize, bytes: usize) -> PathBuf {
    let tree = folder.join("tree");
    for number in 0..files {
        let directory = tree.join((number % 17).to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(
            directory.join(number.to_string()),
            vec![number as u8; bytes],
        )
        .unwrap();
    }
    tree
}

fn is_same(left: &Path, right: &Path) -> bool {
    let status = Command::new("diff").arg("-r").args([left, right]).status();
    status.unwrap().success()
}

#[test]
fn called_by_their_names_they_are_themselves_and_end_as_gnu_does() {
    let folder = folder();
    let base = folder.path();
    let tree = make_tree(base, 40, 100);
    assert_eq!(
        code(&run(base, "parcp", &["-P", "4", "-a", "tree", "copy"])),
        Some(0)
    );
    assert!(is_same(&tree, &base.join("copy")));
    assert_eq!(code(&run(base, "parcp", &["tree", "plain"])), Some(1));
    assert_eq!(
        code(&run(base, "partar", &["cf", "a.tar", "tree"])),
        Some(0)
    );
    let listed = run(base, "partar", &["tf", "a.tar"]);
    assert!(String::from_utf8_lossy(&listed.stdout).starts_with("tree/\n"));
    fs::create_dir(base.join("out")).unwrap();
    assert_eq!(
        code(&run(base, "partar", &["-x", "-f", "a.tar", "-C", "out"])),
        Some(0)
    );
    assert!(is_same(&tree, &base.join("out/tree")));
    assert_eq!(code(&run(base, "partar", &["xf", "missing.tar"])), Some(2));
    let removed = run(base, "parrm", &["-r", "--json", "tree", "missing"]);
    assert_eq!(code(&removed), Some(1));
    let told = String::from_utf8_lossy(&removed.stderr).into_owned();
    assert!(
        told.contains("cannot remove 'missing': No such file or directory"),
        "{told}"
    );
    assert!(String::from_utf8_lossy(&removed.stdout).contains("\"files\": 40"));
    assert!(!tree.exists());
}

#[test]
fn a_copy_that_is_killed_leaves_no_half_file_and_a_second_run_sets_it_right() {
    let folder = folder();
    let base = folder.path();
    let tree = make_tree(base, 600, 300_000);
    let mut kills = 0;
    for _ in 0..40 {
        let mut child = command(base, "parcp", &["--restore", "tree", "copy"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It has begun when there is something more to see than before.
        let begun = count(&base.join("copy"));
        while count(&base.join("copy")) <= begun + 5 && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        kills += usize::from(child.try_wait().unwrap().is_none());
        let _ = child.kill();
        child.wait().unwrap();
        assert_no_half_file(&base.join("copy"));
    }
    assert!(kills > 3, "only {kills} runs were killed on their way");
    assert_eq!(
        code(&run(
            base,
            "parcp",
            &["--restore", "--delete", "tree", "copy"]
        )),
        Some(0)
    );
    assert!(is_same(&tree, &base.join("copy")));
    let again = run(base, "parcp", &["--restore", "--json", "tree", "copy"]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("\"files\": 0"));
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

fn count(directory: &Path) -> usize {
    files(directory).len()
}

fn assert_no_half_file(directory: &Path) {
    for path in files(directory) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let size = fs::metadata(&path).unwrap().len();
        assert!(
            name.starts_with(".parcp-") || size == 300_000,
            "{path:?}: {size}"
        );
    }
}

/// The permission bits and the user of a file.
fn rights(path: &Path) -> (u32, u32) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.mode() & 0o7777, metadata.uid())
}

fn shell(folder: &Path, script: &str) -> Output {
    command(folder, "/bin/sh", &["-ec", script])
        .output()
        .unwrap()
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().is_symlink()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn an_archive_that_a_link_names_goes_to_where_that_leads() {
    let folder = folder();
    let base = folder.path();
    make_tree(base, 5, 100);
    fs::create_dir(base.join("elsewhere")).unwrap();
    symlink("elsewhere/a.tar", base.join("link")).unwrap();
    // First there is nothing where it leads, then there is.
    for _ in 0..2 {
        let made = shell(base, "umask 027; ./partar -cf link tree");
        assert_eq!(code(&made), Some(0));
        assert!(is_link(&base.join("link")));
        assert_eq!(rights(&base.join("elsewhere/a.tar")).0, 0o640);
    }
}

#[test]
fn an_archive_goes_into_what_is_open_already_and_not_into_its_place() {
    let folder = folder();
    let base = folder.path();
    make_tree(base, 5, 100);
    // As /dev/stdout is.
    symlink("/proc/self/fd/1", base.join("stdout")).unwrap();
    let script = "(echo before; ./partar -cf stdout tree; echo behind) > out";
    assert_eq!(code(&shell(base, script)), Some(0));
    assert!(is_link(&base.join("stdout")));
    let written = fs::read(base.join("out")).unwrap();
    assert!(written.starts_with(b"before\n"));
    assert!(written.len() > 1 << 10);
    assert!(written.ends_with(b"\0behind\n"));
}

#[test]
fn a_new_archive_has_the_rights_of_a_new_file_and_one_that_is_replaced_keeps_its_own() {
    let folder = folder();
    let base = folder.path();
    make_tree(base, 5, 100);
    assert_eq!(
        code(&shell(base, "umask 077; ./partar -cf a.tar tree")),
        Some(0)
    );
    assert_eq!(rights(&base.join("a.tar")).0, 0o600);
    let path = base.join("a.tar");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    if is_root() {
        chown(&path, Some(7), None).unwrap();
    }
    let before = rights(&path);
    assert_eq!(
        code(&run(base, "partar", &["-cf", "a.tar", "tree"])),
        Some(0)
    );
    assert_eq!(rights(&path), before);
}

#[test]
fn lines_that_cannot_be_written_make_a_failure() {
    let folder = folder();
    let base = folder.path();
    let tree = make_tree(base, 20, 10);
    run(base, "partar", &["-cf", "a.tar", "tree"]);
    for (program, arguments, expected) in [
        ("partar", &["-tf", "a.tar"][..], 2),
        ("partar", &["-cvf", "b.tar", "tree"], 2),
        ("parcp", &["-av", "tree", "copy"], 1),
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = command(base, program, arguments);
        let ended = command.stdout(full).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(code(&ended), Some(expected), "{program}: {told}");
        assert!(told.contains("cannot write to standard output"), "{told}");
    }
    // What is done does not depend on who listens.
    assert!(is_same(&tree, &base.join("copy")));
}

#[test]
fn an_archive_in_the_tree_does_not_hold_itself() {
    let folder = folder();
    let base = folder.path();
    make_tree(base, 5, 100);
    let in_file = "cd tree; ../partar -cf a.tar .";
    for script in [in_file, in_file, "cd tree; ../partar -c . > b.tar"] {
        assert_eq!(code(&shell(base, script)), Some(0));
    }
    for (archive, expected) in [("tree/a.tar", 0), ("tree/b.tar", 1)] {
        let listed = run(base, "partar", &["-tf", archive]).stdout;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let archives = listed.lines().filter(|line| line.ends_with(".tar"));
        assert_eq!(archives.count(), expected, "{listed}");
        assert!(!listed.contains(".parcp-"), "{listed}");
    }
}

/// A user who owns nothing.
const NOBODY: u32 = 65534;

#[test]
fn who_cannot_give_a_copy_its_owner_does_not_lend_it_the_owners_rights() {
    let folder = folder();
    let base = folder.path();
    if !is_root() {
        return skipped("only root has files of others");
    }
    fs::set_permissions(base, fs::Permissions::from_mode(0o755)).unwrap();
    let tree = make_tree(base, 1, 10);
    for path in [tree.join("0/0"), tree.join("0")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o6755)).unwrap();
    }
    fs::create_dir(base.join("own")).unwrap();
    chown(base.join("own"), Some(NOBODY), Some(NOBODY)).unwrap();
    // The second time what is there is set right.
    for _ in 0..2 {
        let mut command = command(base, "parcp", &["--restore", "tree", "own/copy"]);
        let Ok(ended) = command.uid(NOBODY).gid(NOBODY).output() else {
            return skipped("others may not run the binary");
        };
        assert_eq!(code(&ended), Some(0), "{ended:?}");
        for path in ["own/copy/0/0", "own/copy/0"] {
            assert_eq!(rights(&base.join(path)), (0o755, NOBODY));
        }
    }
}

#[test]
fn a_file_that_cannot_get_its_owner_stays_and_is_told() {
    let folder = folder();
    let base = folder.path();
    let enters = Command::new("unshare").args(["-r", "true"]).status();
    if !is_root() || !enters.is_ok_and(|status| status.success()) {
        return skipped("only root with user namespaces");
    }
    let tree = make_tree(base, 2, 10);
    fs::write(tree.join("large"), vec![1; 2 << 20]).unwrap();
    for path in ["0/0", "1/1", "large"] {
        chown(tree.join(path), Some(7), Some(7)).unwrap();
    }
    run(base, "partar", &["-cf", "a.tar", "tree"]);
    fs::create_dir(base.join("out")).unwrap();
    for script in [
        "unshare -r ./parcp --restore tree copy",
        "unshare -r ./partar -xf a.tar -C out --numeric-owner",
    ] {
        let ended = shell(base, script);
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(matches!(code(&ended), Some(1 | 2)), "{script}: {told}");
        assert!(told.contains("3 failures"), "{told}");
    }
    assert!(is_same(&tree, &base.join("copy")));
    assert!(is_same(&tree, &base.join("out/tree")));
}

/// Tells a child to end, as often as said, and returns how it ended.
fn interrupted(mut child: Child, times: usize) -> Option<i32> {
    let pid = rustix::process::Pid::from_child(&child);
    for _ in 0..times {
        thread::sleep(Duration::from_millis(500));
        assert!(child.try_wait().unwrap().is_none());
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }
    let until = Instant::now() + PROMPT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.wait().unwrap().code()
}

#[test]
fn partar_that_waits_for_a_pipe_ends_at_the_first_signal() {
    let folder = folder();
    let base = folder.path();
    make_tree(base, 3000, 100);
    let program = fs::read(env!("CARGO_BIN_EXE_penstock")).unwrap();
    fs::write(base.join("tree/program"), &program[..8 << 20]).unwrap();
    run(base, "partar", &["-cf", "archive", "tree"]);
    rustix::fs::mkfifoat(rustix::fs::CWD, base.join("fifo"), rustix::fs::Mode::RWXU).unwrap();
    let archive = fs::read(base.join("archive")).unwrap();
    let waits: [(&[&str], &[u8]); 7] = [
        (&["-tvf", "archive"], b""),
        (&["-x"], b""),
        (&["-t"], b""),
        (&["-x"], &archive[..archive.len() / 2]),
        (&["-xf", "fifo"], b""),
        (&["-c", "tree"], b""),
        (&["-cz", "tree"], b""),
    ];
    for (arguments, begin) in waits {
        let mut child = command(base, "partar", arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.as_ref().unwrap().write_all(begin).unwrap();
        // Held open, so that the pipe is neither at its end nor broken.
        let held = (child.stdin.take(), child.stdout.take());
        assert_eq!(interrupted(child, 1), Some(130), "{arguments:?}");
        drop(held);
    }
}

#[test]
fn a_second_signal_ends_a_tool_at_once_and_it_says_so_by_its_status() {
    let folder = folder();
    let base = folder.path();
    make_tree(base, 1, 1);
    rustix::fs::mkfifoat(rustix::fs::CWD, base.join("fifo"), rustix::fs::Mode::RWXU).unwrap();
    // Nobody opens it to read.
    let child = command(base, "partar", &["-cf", "fifo", "tree"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(interrupted(child, 2), Some(130));
}

/// The limit that programs begin with is for those that call select(2).
#[test]
fn trees_may_be_deeper_than_files_may_be_open_at_first() {
    let folder = folder();
    fs::create_dir_all(folder.path().join("tree").join("d/".repeat(100))).unwrap();
    for arguments in [
        ["parcp", "-r", "tree", "copy"],
        ["parrm", "-r", "-f", "copy"],
    ] {
        let few = "ulimit -Sn 64; exec \"./$0\" \"$@\"";
        let mut limited = Command::new("sh");
        limited
            .current_dir(&folder)
            .args(["-c", few])
            .args(arguments);
        let output = limited.output().unwrap();
        assert_eq!(code(&output), Some(0), "{output:?}");
    }
}
