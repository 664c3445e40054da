use std::{
    collections::BTreeMap,
    ffi::CString,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use penstock_skips::skipped;
use penstock_vfs::{Attributes, Detail, FileKind, Identity, OpenOptions};
use penstock_vfs_conformance::MemoryVolume;
use rustix::process::{Gid, Uid};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::{
    Patterns, Threads,
    copy::{Preserve, Unchanged},
    local,
    tree::{Content, Facts, Found, Listing, Source, Target, Xattrs, volume::VolumeTarget},
    volume::{VolumeDirectory, VolumeTree},
};

/// A volume in memory and a folder of this machine.
struct Bed {
    tree: VolumeTree,
    folder: tempfile::TempDir,
    _runtime: Runtime,
}

impl Bed {
    fn new() -> Self {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).build().unwrap();
        let volume = Arc::new(MemoryVolume::new());
        Self {
            tree: VolumeTree::new(volume, Identity::root(), runtime.handle().clone()),
            folder: tempfile::tempdir().unwrap(),
            _runtime: runtime,
        }
    }

    fn local(&self, name: &str) -> Place {
        Place::Local(self.folder.path().join(name))
    }

    fn volume(&self, path: &str) -> Place {
        let names = path.split('/').filter(|name| !name.is_empty());
        let path: Vec<_> = names.map(|name| CString::new(name).unwrap()).collect();
        Place::Volume(VolumePlace {
            tree: self.tree.clone(),
            keeps_metadata: true,
            shown: format!("volume://{path:?}"),
            name: path.last().cloned().unwrap_or_else(|| c"volume".to_owned()),
            path,
            is_directory: false,
        })
    }

    fn make_tree(&self) {
        let top = self.folder.path().join("a");
        fs::create_dir_all(top.join("d/e")).unwrap();
        fs::write(top.join("d/one"), "one").unwrap();
        fs::write(top.join("d/two.o"), vec![3; 3 << 20]).unwrap();
        fs::hard_link(top.join("d/one"), top.join("also")).unwrap();
        symlink("d/one", top.join("link")).unwrap();
    }

    fn copy(&self, from: &Place, to: &Place, settings: &Settings) -> crate::Summary {
        let report = Report::default();
        copy(
            std::slice::from_ref(from),
            to,
            settings,
            &report,
            &Stop::default(),
        );
        report.summary()
    }

    /// Every path in the volume with its kind and size.
    fn listed(&self) -> BTreeMap<String, (FileKind, u64)> {
        let mut all = BTreeMap::new();
        list("", &self.tree.root().unwrap(), &mut all);
        all
    }
}

/// Does something as user 1001, and so do the threads that are begun there.
fn as_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (user, group) = (Uid::from_raw(1001), Gid::from_raw(1001));
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            work()
        });
        other.join().unwrap()
    })
}

fn list(path: &str, directory: &Arc<VolumeDirectory>, all: &mut BTreeMap<String, (FileKind, u64)>) {
    for entry in directory.list(None, Detail::Attributes).unwrap() {
        let path = format!("{path}/{}", entry.name.to_str().unwrap());
        let attributes = &entry.attributes;
        all.insert(path.clone(), (attributes.kind, attributes.size));
        if attributes.kind == FileKind::Directory {
            list(&path, &directory.open_in(&entry.name).unwrap(), all);
        }
    }
}

fn everything() -> Settings {
    Settings {
        recursive: true,
        one_file_system: true,
        preserve: Preserve::ALL,
        unchanged: Unchanged::ByTime,
        exact: true,
        delete: false,
        update: false,
        dry_run: false,
        verify: true,
        exclude: Patterns::default(),
        umask: 0o022,
        threads: Threads::Fixed(4),
    }
}

fn assert_done(summary: &crate::Summary, files: u64) {
    assert_eq!(summary.failures, Vec::<String>::new());
    assert_eq!((summary.files, summary.failed), (files, 0), "{summary:?}");
}

#[test]
fn what_is_there_and_the_same_is_not_copied_again() {
    let bed = Bed::new();
    bed.make_tree();
    let (from, to) = (bed.local("a"), bed.volume("copy"));
    assert_done(&bed.copy(&from, &to, &everything()), 4);
    assert_done(&bed.copy(&from, &to, &everything()), 0);
    assert_done(&bed.copy(&to, &bed.local("back"), &everything()), 4);
    let of = |path: &str| fs::symlink_metadata(bed.folder.path().join(path)).unwrap();
    assert_eq!(of("back/also").ino(), of("back/d/one").ino());
    assert_eq!(
        of("back/d/two.o").mtime_nsec(),
        of("a/d/two.o").mtime_nsec()
    );
    assert_done(&bed.copy(&to, &bed.volume("third"), &everything()), 4);
    let listed = bed.listed();
    assert_eq!(listed["/third/d/two.o"], (FileKind::Regular, 3 << 20));
    assert!(
        listed.keys().all(|path| !path.contains(".parcp-")),
        "{listed:?}"
    );
}

/// The content may have been on its way under another name of the file than the one that it is copied under now.
#[test]
fn what_a_killed_copy_left_of_another_name_of_a_file_goes() {
    let bed = Bed::new();
    let top = bed.folder.path().join("a");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("one"), "one").unwrap();
    fs::hard_link(top.join("one"), top.join("other")).unwrap();
    symlink("one", top.join("link")).unwrap();
    let root = bed.tree.root().unwrap();
    let target = root.make_directory(c"copy", 0o755).unwrap();
    for name in [c"one", c"other", c"link"] {
        let left = local::temporary_name(name);
        target.create(&left, 0o600, OpenOptions::WRITE).unwrap();
    }
    let (from, to) = (bed.local("a"), bed.volume("copy"));
    assert_done(&bed.copy(&from, &to, &everything()), 3);
    let listed: Vec<_> = bed.listed().into_keys().collect();
    assert_eq!(listed, ["/copy", "/copy/link", "/copy/one", "/copy/other"]);
}

#[test]
fn a_mirror_loses_what_its_source_lost_but_what_patterns_leave_out() {
    let bed = Bed::new();
    bed.make_tree();
    let (from, to) = (bed.local("a"), bed.volume("copy"));
    assert_done(&bed.copy(&from, &to, &everything()), 4);
    let top = bed.folder.path().join("a");
    for gone in ["also", "d/one", "d/two.o"] {
        fs::remove_file(top.join(gone)).unwrap();
    }
    fs::remove_dir(top.join("d/e")).unwrap();
    let mut settings = everything();
    settings.delete = true;
    settings.exclude.add(b"*.o").unwrap();
    let summary = bed.copy(&from, &to, &settings);
    assert_done(&summary, 0);
    assert_eq!(summary.removed, 3);
    let left: Vec<_> = bed.listed().into_keys().collect();
    assert_eq!(left, ["/copy", "/copy/d", "/copy/d/two.o", "/copy/link"]);
}

#[test]
fn a_dry_run_tells_and_does_nothing() {
    let bed = Bed::new();
    bed.make_tree();
    let mut settings = everything();
    settings.dry_run = true;
    assert_done(
        &bed.copy(&bed.local("a"), &bed.volume("copy"), &settings),
        4,
    );
    assert_eq!(bed.listed(), BTreeMap::new());
}

#[test]
fn a_directory_goes_below_one_that_is_there_and_never_into_itself() {
    let bed = Bed::new();
    bed.make_tree();
    let mut settings = everything();
    settings.exact = false;
    assert_done(&bed.copy(&bed.local("a"), &bed.volume(""), &settings), 4);
    assert_done(&bed.copy(&bed.local("a"), &bed.volume("a"), &settings), 4);
    assert!(bed.listed().contains_key("/a/a/d/one"));
    let refused = bed.copy(&bed.volume("a"), &bed.volume("a/d"), &settings);
    assert!(refused.failures[0].contains("into itself"), "{refused:?}");
    let missing = bed.copy(&bed.volume("none"), &bed.local("x"), &settings);
    assert!(missing.failures[0].contains("No such file"), "{missing:?}");
    assert!(!Path::new(&bed.folder.path().join("x")).exists());
}

/// All of the directory went, and the file took its place.
#[test]
fn a_mirror_of_a_file_in_the_place_of_a_directory_is_refused() {
    let bed = Bed::new();
    bed.make_tree();
    let (tree, copied) = (bed.local("a"), bed.volume("copied"));
    assert_eq!(bed.copy(&tree, &copied, &everything()).failed, 0);
    let mirror = Settings {
        delete: true,
        ..everything()
    };
    let before = bed.listed();
    for (from, to) in [
        (bed.local("a/also"), bed.volume("copied")),
        (bed.volume("copied/also"), bed.volume("copied/d")),
        (bed.volume("copied/also"), bed.local("a/d")),
    ] {
        let summary = bed.copy(&from, &to, &mirror);
        assert_eq!((summary.failed, summary.removed), (1, 0), "{summary:?}");
        assert!(summary.failures[0].contains("--delete"), "{summary:?}");
    }
    assert_eq!(bed.listed(), before);
    assert!(bed.folder.path().join("a/d/one").exists());
}

/// They were closed to all but their owner for good.
#[test]
fn directories_of_a_copy_that_was_cut_off_are_open_to_whom_they_are_for() {
    let bed = Bed::new();
    bed.make_tree();
    let plain = Settings {
        preserve: Preserve::NOTHING,
        unchanged: Unchanged::Never,
        threads: Threads::Fixed(1),
        ..everything()
    };
    let stop = Stop::default();
    let heard = stop.clone();
    let report = Report::telling(Box::new(move |line| {
        if line.ends_with("also") {
            heard.set();
        }
    }));
    copy(
        &[bed.local("a")],
        &bed.volume("copy"),
        &plain,
        &report,
        &stop,
    );
    let permissions = || {
        let root = bed.tree.root().unwrap();
        root.find(c"copy").unwrap().attributes().permissions
    };
    assert_eq!(permissions(), 0o755);
    assert_eq!(
        bed.copy(&bed.local("a"), &bed.volume("copy"), &plain)
            .failed,
        0
    );
    assert_eq!(permissions(), 0o755);
}

#[test]
fn update_leaves_what_is_newer_under_each_name_of_a_file() {
    let bed = Bed::new();
    let top = bed.folder.path().join("a");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("a"), "source").unwrap();
    for name in ["b", "c"] {
        fs::hard_link(top.join("a"), top.join(name)).unwrap();
    }
    let old = std::time::SystemTime::UNIX_EPOCH;
    fs::File::open(top.join("a"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    let update = Settings {
        update: true,
        ..everything()
    };
    for edited in ["a", "b"] {
        let target = bed.volume(edited);
        fs::create_dir_all(bed.folder.path().join("edited")).unwrap();
        let place = bed.folder.path().join("edited").join(edited);
        fs::write(&place, "edited!").unwrap();
        assert_done(&bed.copy(&bed.local("edited"), &target, &everything()), 1);
        fs::remove_file(&place).unwrap();
        assert_done(&bed.copy(&bed.local("a"), &target, &update), 2);
        let listed = bed.listed();
        for name in ["a", "b", "c"] {
            let expected = if name == edited { 7 } else { 6 };
            let found = listed[&format!("/{edited}/{name}")];
            assert_eq!(found, (FileKind::Regular, expected), "{edited}/{name}");
        }
    }
}

/// As where it is written into.
#[test]
fn new_content_lends_no_rights_of_an_owner_who_wrote_it() {
    if !local::is_root() {
        return skipped("only root becomes another user");
    }
    let bed = Bed::new();
    let to = bed.folder.path().join("to");
    for (name, content) in [("from", "new"), ("to", "old")] {
        fs::write(bed.folder.path().join(name), content).unwrap();
    }
    assert_done(
        &bed.copy(&bed.local("from"), &bed.volume("file"), &everything()),
        1,
    );
    for path in [bed.folder.path(), &to] {
        std::os::unix::fs::chown(path, Some(1001), Some(1001)).unwrap();
    }
    fs::set_permissions(&to, fs::Permissions::from_mode(0o6755)).unwrap();
    let plain = Settings {
        preserve: Preserve::NOTHING,
        unchanged: Unchanged::Never,
        ..everything()
    };
    let done = as_user(|| bed.copy(&bed.volume("file"), &bed.local("to"), &plain));
    assert_done(&done, 1);
    assert_eq!(fs::read(&to).unwrap(), b"new");
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o755);
}

/// A file that can be read once.
#[derive(Debug)]
struct ReadOnce {
    facts: Facts,
    error: io::ErrorKind,
}

struct Remembering(std::sync::atomic::AtomicUsize, io::ErrorKind);

impl Source for ReadOnce {
    fn facts(&self) -> io::Result<Facts> {
        Ok(self.facts.clone())
    }

    fn listing(&self) -> io::Result<Box<dyn Listing>> {
        Err(self.error.into())
    }

    fn read_link(&self) -> io::Result<Vec<u8>> {
        Err(self.error.into())
    }

    fn xattrs(&self) -> io::Result<Xattrs> {
        Ok(Vec::new())
    }

    fn open(&self) -> io::Result<Box<dyn Content>> {
        Ok(Box::new(Remembering(0.into(), self.error)))
    }
}

impl Content for Remembering {
    fn read_at(&self, _offset: u64, _length: usize) -> io::Result<Bytes> {
        match self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Ok(Bytes::from_static(b"new")),
            _ => Err(self.1.into()),
        }
    }

    fn has_changed(&self, _seen: &Attributes) -> io::Result<bool> {
        Ok(false)
    }
}

/// In a bucket it was removed, and what it had replaced was gone already.
#[test]
fn a_copy_that_could_not_be_verified_stays_and_is_told() {
    for error in [io::ErrorKind::Interrupted, io::ErrorKind::Other] {
        let bed = Bed::new();
        let settings = everything();
        let (report, stop) = (Report::default(), Stop::default());
        let direct = Direct::new(&settings, &report, &stop);
        let root = bed.tree.root().unwrap();
        let target: Arc<dyn Target> = Arc::new(VolumeTarget {
            directory: Arc::clone(&root),
            keeps_metadata: true,
        });
        let mut facts = target.facts().unwrap();
        let destination = facts.key();
        facts.attributes.kind = FileKind::Regular;
        facts.attributes.links = 1;
        facts.attributes.size = 3;
        let pair = job::Pair {
            source: None,
            target: Some(target),
            is_fresh: true,
            target_name: None,
            destination,
        };
        let branch = crate::work::Node::new(None, c"from".to_owned(), pair);
        let item = job::Item {
            found: Found {
                name: c"file".to_owned(),
                is_directory: false,
                file: Box::new(ReadOnce { facts, error }),
            },
            renamed: None,
        };
        direct.copy_file(&branch, &item).unwrap();
        let summary = report.summary();
        assert_eq!((summary.files, summary.failed), (1, 1), "{summary:?}");
        assert!(summary.failures[0].contains("verify"), "{summary:?}");
        assert_eq!(bed.listed()["/file"], (FileKind::Regular, 3));
    }
}

/// It was opened by the mode that the source has now.
#[test]
fn a_directory_that_a_copy_closed_is_written_into_when_its_source_was_opened() {
    if !local::is_root() {
        return skipped("only root becomes another user");
    }
    let bed = Bed::new();
    let (source, copy) = (bed.folder.path().join("a"), bed.folder.path().join("copy"));
    fs::create_dir(&source).unwrap();
    for path in [bed.folder.path(), &source] {
        std::os::unix::fs::chown(path, Some(1001), Some(1001)).unwrap();
    }
    for (name, mode) in [("one", 0o555), ("two", 0o755)] {
        fs::write(source.join(name), name).unwrap();
        fs::set_permissions(&source, fs::Permissions::from_mode(mode)).unwrap();
        assert_done(
            &bed.copy(&bed.local("a"), &bed.volume("a"), &everything()),
            1,
        );
        let done = as_user(|| bed.copy(&bed.volume("a"), &bed.local("copy"), &everything()));
        assert_done(&done, 1);
        assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o7777, mode);
    }
}
