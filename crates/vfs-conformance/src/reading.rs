//! What every volume must do for those who only read.

use std::collections::BTreeSet;

use penstock_base::FsError;
use penstock_vfs::{
    AccessMask, AttributeChanges, Detail, FileKind, Identity, Inode, ListFrom, NewKind, NodeId,
    OpenOptions, Position, RemoveKind,
};

use crate::{
    Bed,
    bed::{FILES, name, new},
};

/// Names lead to what they are of.
pub async fn names_lead_to_files_and_directories(bed: &Bed) {
    for (path, content) in FILES {
        let file = bed.at(path).await.unwrap();
        assert_eq!(
            (file.kind, file.size),
            (FileKind::Regular, content.len() as u64),
            "{path}"
        );
        assert_eq!(bed.at(path).await.unwrap().inode, file.inode, "{path}");
    }
    for path in ["", "d", "d/e"] {
        assert_eq!(
            bed.at(path).await.unwrap().kind,
            FileKind::Directory,
            "{path}"
        );
    }
    assert_eq!(bed.at("").await.unwrap().inode, Inode::ROOT);
}

/// What is not there is absent.
pub async fn what_is_absent_is_not_found(bed: &Bed) {
    for path in ["b", "d/a", "d/e/g", "e"] {
        assert_eq!(bed.at(path).await, Err(FsError::NotFound), "{path}");
    }
}

/// Only directories have names.
pub async fn names_below_a_file_are_refused(bed: &Bed) {
    assert_eq!(bed.at("a/b").await, Err(FsError::NotADirectory));
    let file = bed.at("a").await.unwrap().inode;
    let opened = bed.volume().open_directory(&bed.by, file).await;
    assert_eq!(opened, Err(FsError::NotADirectory));
}

/// Any range of a file is what was stored there.
pub async fn files_are_read_anywhere(bed: &Bed) {
    let file = bed.at("d/b").await.unwrap().inode;
    let handle = bed.open(file, OpenOptions::READ).await.unwrap();
    for (start, end) in [(0, 10), (3, 7), (9, 10), (0, 1)] {
        let read = bed.read(handle, start, (end - start) as u32).await.unwrap();
        assert_eq!(read, b"0123456789"[start as usize..end as usize]);
    }
    bed.close(handle).await.unwrap();
    for (path, content) in FILES {
        assert_eq!(bed.content(path).await.unwrap(), content, "{path}");
    }
}

/// Behind the end there is nothing, and that is no error.
pub async fn a_file_ends_where_its_size_says(bed: &Bed) {
    let file = bed.at("d/b").await.unwrap().inode;
    let handle = bed.open(file, OpenOptions::READ).await.unwrap();
    assert_eq!(bed.read(handle, 8, 100).await.unwrap(), b"89");
    assert_eq!(bed.read(handle, 10, 100).await.unwrap(), b"");
    assert_eq!(bed.read(handle, 1 << 40, 1).await.unwrap(), b"");
    bed.close(handle).await.unwrap();
}

/// A listing has every name once, with what a lookup says of it.
pub async fn directories_list_every_name_once(bed: &Bed) {
    for room in [1, 2, 100] {
        for (path, names) in [("", vec!["a", "d", "z"]), ("d", vec!["b", "c", "e", "e-"])] {
            let directory = bed.at(path).await.unwrap().inode;
            let listed = bed.list(directory, room).await;
            assert_eq!(listed.keys().collect::<Vec<_>>(), names, "{room}");
            for (name, listed) in listed {
                let found = bed.find(directory, &name).await.unwrap();
                let told = |file: &penstock_vfs::Attributes| (file.inode, file.kind);
                assert_eq!(told(&found), told(&listed.attributes), "{name}");
            }
        }
    }
}

/// Each position that was given out leads to what comes next, however often.
pub async fn a_listing_goes_on_from_any_position(bed: &Bed) {
    let directory = bed.at("d").await.unwrap().inode;
    let handle = bed
        .volume()
        .open_directory(&bed.by, directory)
        .await
        .unwrap();
    let some = (100, Detail::Attributes);
    let all = bed.list_some(handle, ListFrom::START, some).await.unwrap();
    for (index, entry) in all.iter().enumerate().rev() {
        let from = ListFrom::Position(entry.next);
        let rest = bed.list_some(handle, from, some).await.unwrap();
        let names = |listed: &[crate::bed::Listed]| -> Vec<String> {
            listed.iter().map(|listed| listed.name.clone()).collect()
        };
        assert_eq!(names(&rest), names(&all[index + 1..]));
    }
    bed.volume().release_directory(handle).await;
}

/// A door without handles goes on after a name, also one that is not there.
pub async fn a_listing_goes_on_after_a_name(bed: &Bed) {
    let directory = bed.at("d").await.unwrap().inode;
    for room in [1, 2, 100] {
        let mut found: Vec<String> = Vec::new();
        loop {
            let last = found.last().map(|last| name(last));
            let from = last.as_ref().map_or(ListFrom::START, ListFrom::After);
            let some = bed.list_after(directory, from, room).await.unwrap();
            if some.is_empty() {
                break;
            }
            found.extend(some.into_iter().map(|listed| listed.name));
        }
        let set: BTreeSet<_> = found.iter().map(String::as_str).collect();
        assert_eq!(set, BTreeSet::from(["b", "c", "e", "e-"]), "{room}");
        assert_eq!(found.len(), 4, "each once: {found:?}");
    }
    let absent = name("bb");
    let after = bed
        .list_after(directory, ListFrom::After(&absent), 100)
        .await
        .unwrap();
    assert_eq!(after.len(), 3);
}

/// Who wants names only has nothing to give back.
pub async fn a_listing_of_names_gives_no_references(bed: &Bed) {
    let directory = bed.at("d").await.unwrap().inode;
    let handle = bed
        .volume()
        .open_directory(&bed.by, directory)
        .await
        .unwrap();
    let names = (100, Detail::Names);
    let listed = bed.list_some(handle, ListFrom::START, names).await.unwrap();
    bed.volume().release_directory(handle).await;
    let file = listed.iter().find(|listed| listed.name == "b").unwrap();
    assert_eq!(file.attributes.kind, FileKind::Regular);
    let found = bed.find(directory, "b").await.unwrap();
    assert_eq!(
        bed.volume()
            .attributes(&bed.by, found.inode)
            .await
            .unwrap()
            .attributes
            .size,
        10
    );
}

/// `..` of a directory, and of the root.
pub async fn a_directory_knows_the_one_above(bed: &Bed) {
    for (path, above) in [("d/e", "d"), ("d", ""), ("", "")] {
        let directory = bed.at(path).await.unwrap().inode;
        let parent = bed.volume().parent(&bed.by, directory).await.unwrap();
        assert_eq!(
            parent.attributes.inode,
            bed.at(above).await.unwrap().inode,
            "{path}"
        );
    }
}

/// A reference that was taken by number counts like any other.
pub async fn a_file_that_is_held_once_more_is_forgotten_once_more(bed: &Bed) {
    let file = bed.at("a").await.unwrap().inode;
    let held = bed.volume().hold(&bed.by, file).await.unwrap();
    assert_eq!(held.attributes.inode, file);
    bed.volume().forget(file, 1);
    assert_eq!(
        bed.volume()
            .attributes(&bed.by, file)
            .await
            .unwrap()
            .attributes
            .size,
        9
    );
    bed.volume().forget_all(&mut std::iter::once((file, 1)));
    assert_eq!(bed.content("a").await.unwrap(), b"the first");
}

/// A number that outlives a mount leads to the same file, and a made-up one to none.
pub async fn numbers_that_outlive_a_mount_lead_back(bed: &Bed) {
    let file = bed.at("d/e/f").await.unwrap().inode;
    let number = bed.volume().node_id(file);
    assert_eq!(number.is_some(), bed.volume().features().persistent_ids);
    if let Some(number) = number {
        let found = bed.volume().resolve(&bed.by, &number).await.unwrap();
        assert_eq!(found.attributes.inode, file);
        let other = bed.at("d/e").await.unwrap().inode;
        assert_ne!(bed.volume().node_id(other), Some(number.clone()));
        bed.leads_there_after_a_restart(&number).await;
    }
    let made_up = NodeId::new(&[0xff; NodeId::LENGTH_MAX]).unwrap();
    let found = bed.volume().resolve(&bed.by, &made_up).await;
    assert_eq!(found.err(), Some(FsError::Stale));
}

impl Bed {
    /// `number` is that of `d/e/f`.
    async fn leads_there_after_a_restart(&self, number: &NodeId) {
        let volume = self.volume_again();
        let found = volume.resolve(&self.by, number).await.unwrap();
        let inode = found.attributes.inode;
        assert_eq!(volume.node_id(inode).as_ref(), Some(number));
        let opened = volume.open(&self.by, inode, OpenOptions::READ).await;
        let handle = opened.unwrap().handle;
        let at = Position { handle, offset: 0 };
        let read = volume.read(&self.by, at, 100).await.unwrap();
        assert_eq!(read.to_vec(), b"deep");
        volume.release(handle).await;
        volume.forget(inode, 1);
        let root = self.volume().node_id(Inode::ROOT).unwrap();
        let root = volume.resolve(&self.by, &root).await.unwrap();
        assert_eq!(root.attributes.inode, Inode::ROOT);
        volume.forget(Inode::ROOT, 1);
    }
}

/// Files are not listed and directories not read.
pub async fn directories_and_files_are_opened_apart(bed: &Bed) {
    let directory = bed.at("d").await.unwrap().inode;
    let opened = bed.open(directory, OpenOptions::READ).await;
    assert_eq!(opened, Err(FsError::IsADirectory));
}

/// The kernel, or the door, has checked what a trusted caller may do.
pub async fn what_a_trusted_caller_may_do_is_everything(bed: &Bed) {
    let file = bed.at("a").await.unwrap().inode;
    let everything = AccessMask::READ
        .union(AccessMask::WRITE)
        .union(AccessMask::EXECUTE);
    let stranger = Identity::trusted(4711, 4711);
    let allowed = bed.volume().access(&stranger, file).await.unwrap();
    assert!(allowed.contains(everything));
}

/// Nothing is larger than what it is part of.
pub async fn statistics_add_up(bed: &Bed) {
    let statistics = bed.volume().statistics(&bed.by, Inode::ROOT).await.unwrap();
    assert!(statistics.block_size > 0);
    assert!(statistics.blocks_available <= statistics.blocks_free);
    assert!(statistics.blocks_free <= statistics.blocks);
    assert!(statistics.files_free <= statistics.files);
    assert_eq!(
        statistics.name_length_max,
        bed.volume().features().name_bytes_max
    );
}

/// A volume that cannot be changed says so at each change, and stays as it is.
pub async fn what_cannot_be_changed_is_refused(bed: &Bed) {
    if bed.is_writable() {
        return;
    }
    let made = bed.make(Inode::ROOT, "new", new(NewKind::Directory)).await;
    assert_eq!(made, Err(FsError::ReadOnly));
    let made = bed.make(Inode::ROOT, "new", new(NewKind::Regular)).await;
    assert_eq!(made, Err(FsError::ReadOnly));
    let file = bed.at("a").await.unwrap().inode;
    let opened = bed.open(file, OpenOptions::WRITE).await;
    assert_eq!(opened, Err(FsError::ReadOnly));
    let removed = bed.remove(Inode::ROOT, "a", RemoveKind::File).await;
    assert_eq!(removed, Err(FsError::ReadOnly));
    let size = AttributeChanges {
        size: Some(0),
        ..AttributeChanges::default()
    };
    assert_eq!(bed.change(file, size).await, Err(FsError::ReadOnly));
    assert_eq!(bed.content("a").await.unwrap(), b"the first");
}
