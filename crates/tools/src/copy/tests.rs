use std::{
    ffi::CString,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::PathBuf,
    sync::Arc,
};

use super::{
    branch::{Branch, Item, Pair},
    *,
};
use crate::{
    local::{Directory, FileId, Temporary},
    work::Node,
};

/// A directory `from` and one `to`, of which names are copied one by one.
struct Bed {
    folder: tempfile::TempDir,
    report: Report,
    stop: Stop,
    settings: Settings,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["from", "to"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self {
            folder,
            report: Report::default(),
            stop: Stop::default(),
            settings: Settings {
                recursive: true,
                one_file_system: false,
                preserve: Preserve::NOTHING,
                unchanged: Unchanged::Never,
                exact: true,
                delete: false,
                update: false,
                dry_run: false,
                verify: false,
                exclude: Patterns::default(),
                umask: 0o022,
                threads: Threads::Fixed(1),
            },
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self, name: &str) -> Arc<Directory> {
        Directory::open(&self.path(name)).unwrap()
    }

    fn branch(&self, is_fresh: bool) -> Branch {
        let (source, target) = (self.open("from"), self.open("to"));
        let pair = Pair {
            stat: None,
            is_fresh,
            left: None,
            hands_down: false,
            target_name: CString::default(),
            device: source.own_stat().unwrap().st_dev,
            destination: FileId::from(&target.own_stat().unwrap()),
            source,
            target: Some(target),
        };
        Node::new(None, c"from".to_owned(), pair)
    }
}

fn item(name: &str) -> Item {
    Item {
        name: CString::new(name).unwrap(),
        renamed: None,
    }
}

/// The bits of a group are those of the list, as long as there is one.
#[test]
fn a_group_gets_no_rights_from_a_list_that_could_not_be_read() {
    let bed = Bed::new();
    fs::write(bed.path("from/file"), "new").unwrap();
    fs::write(bed.path("to/file"), "old").unwrap();
    fs::set_permissions(bed.path("to/file"), fs::Permissions::from_mode(0o664)).unwrap();
    let (branch, item) = (bed.branch(false), item("file"));
    let (source, target) = (bed.open("from"), bed.open("to"));
    let stat = source.stat(&item.name).unwrap();
    let existing = target.stat(&item.name).unwrap();
    let copy = Temporary::create(&target, &item.name).unwrap();
    // It went before anybody looked at its list.
    fs::remove_file(bed.path("to/file")).unwrap();
    let copying = Copying::new(&bed.settings, &bed.report, &bed.stop);
    let file = fs::File::open(bed.path("from/file")).unwrap().into();
    let copied = copying.complete(&branch, &item, (&stat, Some(&existing)), (&file, copy));
    copied.unwrap();
    assert_eq!(bed.report.failed(), 1, "{:?}", bed.report.summary());
    let mode = fs::metadata(bed.path("to/file")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o604);
}
