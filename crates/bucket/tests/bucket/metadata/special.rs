//! Pipes, sockets and devices.

use penstock_base::FsError;
use penstock_vfs::{
    Access, Dentry, Device, Exclusivity, FileKind, Inode, New, NewKind, OpenOptions, SpecialFile,
    Volume,
};

use super::{CALLER, bed, change, put, settings, stored};
use crate::support::{Bed, READ, name};

async fn make(bed: &Bed, path: &str, special: SpecialFile) -> Result<FileKind, FsError> {
    let new = New {
        kind: NewKind::Special(special),
        permissions: 0o640,
        umask: 0,
        exclusivity: Exclusivity::New,
    };
    let name = name(path);
    let dentry = Dentry::new(Inode::ROOT, &name);
    let made = bed.volume.make(&CALLER, dentry, new, None);
    let kind = made.await?.entry.attributes.kind;
    Ok(kind)
}

#[tokio::test(start_paused = true)]
async fn special_files_are_empty_objects_that_say_what_they_are() {
    let bed = bed();
    let cases = [
        (SpecialFile::Pipe, "4512", None),
        (SpecialFile::Socket, "49568", None),
        (
            SpecialFile::CharacterDevice(Device(0x103)),
            "8608",
            Some("103"),
        ),
        (
            SpecialFile::BlockDevice(Device(0x1001_0370)),
            "24992",
            Some("10010370"),
        ),
    ];
    // The old form of a directory's marker is looked for, too, and afterwards the name is known.
    let mut asked = "head 2, list 1, put 1";
    for (special, mode, device) in cases {
        let kind = FileKind::Special(special);
        assert_eq!(make(&bed, "made", special).await, Ok(kind));
        assert_eq!(bed.requests(), asked);
        asked = "put 1";
        assert_eq!(
            make(&bed, "made", special).await,
            Err(FsError::AlreadyExists)
        );
        assert!(bed.object("made").await.unwrap().is_empty());
        let metadata = stored(&bed, "made").await;
        let text = |name: &str| metadata.get(name).map(String::as_str);
        assert_eq!((text("mode"), text("rdev")), (Some(mode), device));
        assert_eq!((text("uid"), text("gid")), (Some("7"), Some("8")));
        bed.rename("made", "moved").await.unwrap();
        change(&bed, "moved", super::mode(0o604)).await.unwrap();
        for bed in [&bed, &bed.fresh_with(settings())] {
            let shown = bed.stat("moved").await.unwrap();
            assert_eq!((shown.kind, shown.permissions), (kind, 0o604));
            let listed = bed.list("", 9).await.unwrap();
            assert_eq!(listed[0].entry.attributes.kind, kind);
            let inode = bed.inode("moved").await.unwrap();
            let opened = bed.volume.open(&CALLER, inode, READ).await;
            assert!(matches!(opened, Err(FsError::InvalidArgument(_))));
        }
        bed.unlink("moved").await.unwrap();
        bed.requests();
    }
}

#[tokio::test(start_paused = true)]
async fn without_posix_metadata_there_are_no_special_files() {
    let bed = Bed::new();
    let refused = make(&bed, "pipe", SpecialFile::Pipe).await;
    assert!(matches!(refused, Err(FsError::NotPermitted(_))));
    assert_eq!(bed.requests(), "");
}

#[tokio::test(start_paused = true)]
async fn what_has_content_is_a_file_whatever_its_mode_says() {
    let bed = bed();
    put(&bed, "file", "content", &[("mode", "4512")]).await;
    assert_eq!(bed.stat("file").await.unwrap().kind, FileKind::Regular);
    let options = OpenOptions {
        access: Access::Read,
        ..READ
    };
    let inode = bed.inode("file").await.unwrap();
    assert!(bed.volume.open(&CALLER, inode, options).await.is_ok());
}
