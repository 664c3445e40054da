use std::{
    ffi::CString,
    sync::Arc,
    time::{Duration, SystemTime},
};

use penstock_base::FsError;
use penstock_vfs::{
    AttributeChanges, Detail, FileKind, Identity, NewKind, OpenOptions, SpecialFile, TimeChange,
};
use penstock_vfs_conformance::MemoryVolume;
use rustix::io::Errno;
use tokio::runtime::{Builder, Runtime};

use super::*;

fn runtime() -> Runtime {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1).build().unwrap()
}

fn tree(runtime: &Runtime) -> VolumeTree {
    let volume = Arc::new(MemoryVolume::new());
    VolumeTree::new(volume, Identity::root(), runtime.handle().clone())
}

fn errno<T>(done: io::Result<T>) -> Option<Errno> {
    done.err().and_then(|error| errno_of(&error))
}

#[test]
fn a_file_holds_what_was_written_and_what_it_was_given() {
    let runtime = runtime();
    let root = tree(&runtime).root().unwrap();
    let (node, file) = root.create(c"a", 0o600, OpenOptions::READ_WRITE).unwrap();
    file.write_at(0, "some ".into()).unwrap();
    file.write_at(5, "bytes".into()).unwrap();
    assert_eq!(file.read_at(3, 100).unwrap().to_vec(), b"e bytes");
    file.finish().unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123);
    let changes = AttributeChanges {
        permissions: Some(0o711),
        uid: Some(7),
        modified: Some(TimeChange::To(time)),
        ..AttributeChanges::default()
    };
    node.set_attributes(changes).unwrap();
    node.set_xattr(b"user.x", b"value").unwrap();
    assert_eq!(node.xattrs().unwrap(), ["user.x"]);
    assert_eq!(node.xattr(b"user.x").unwrap(), "value");
    node.remove_xattr(b"user.x").unwrap();
    let found = root.stat(c"a").unwrap();
    assert_eq!((found.permissions, found.uid, found.size), (0o711, 7, 10));
    assert_eq!(found.modified, time);
    assert_eq!(node.stat().unwrap(), found);
}

#[test]
fn a_directory_is_listed_in_pages_that_go_on_after_a_name() {
    let runtime = runtime();
    let root = tree(&runtime).root().unwrap();
    let directory = root.make_directory(c"many", 0o755).unwrap();
    for number in 0..2500 {
        let name = CString::new(format!("{number:04}")).unwrap();
        directory.make(&name, NewKind::Regular, 0o644).unwrap();
    }
    let mut sizes = Vec::new();
    let mut last = None;
    loop {
        let page = directory.list(last.as_deref(), Detail::Names).unwrap();
        let Some(end) = page.last() else { break };
        assert!(end.node.is_none());
        last = Some(end.name.clone());
        sizes.push(page.len());
    }
    assert_eq!(sizes, [1000, 1000, 500]);
    let listing = directory.open_listing(Detail::Names).unwrap();
    let pages: Vec<_> = (0..4).map(|_| listing.next_page().unwrap().len()).collect();
    assert_eq!(pages, [1000, 1000, 500, 0]);
    let page = root.list(None, Detail::Attributes).unwrap();
    let node = page.into_iter().next().unwrap().node.unwrap();
    assert!(VolumeDirectory::of(node).is_ok());
}

#[test]
fn every_kind_of_file_is_made_renamed_and_removed() {
    let runtime = runtime();
    let root = tree(&runtime).root().unwrap();
    let link = root.make_symlink(c"link", b"to/somewhere").unwrap();
    assert_eq!(link.read_link().unwrap(), "to/somewhere");
    root.link(&link, c"again").unwrap();
    assert_eq!(root.stat(c"again").unwrap().links, 2);
    let pipe = NewKind::Special(SpecialFile::Pipe);
    root.make(c"pipe", pipe, 0o600).unwrap();
    root.rename(c"pipe", c"again").unwrap();
    let kind = root.stat(c"again").unwrap().kind;
    assert_eq!(kind, FileKind::Special(SpecialFile::Pipe));
    root.remove_file(c"again").unwrap();
    assert_eq!(root.stat_if_any(c"again").unwrap(), None);
    root.make_directory(c"d", 0o700).unwrap();
    root.open_in(c"d")
        .unwrap()
        .make_directory(c"e", 0o700)
        .unwrap();
    assert_eq!(errno(root.remove_directory(c"d")), Some(Errno::NOTEMPTY));
    assert_eq!(errno(root.open_in(c"link")), Some(Errno::NOTDIR));
    assert_eq!(errno(root.stat(c"none")), Some(Errno::NOENT));
    assert_eq!(errno(root.make_directory(c"d", 0o700)), Some(Errno::EXIST));
}

#[test]
fn an_error_has_a_number_and_the_words_of_the_volume() {
    let error = io_error(FsError::Io("the store said no".to_owned()));
    assert_eq!(errno_of(&error), Some(Errno::IO));
    assert_eq!(error.to_string(), "input/output error: the store said no");
    let error = io_error(FsError::NotFound);
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(errno_of(&error), Some(Errno::NOENT));
}
