//! Access lists of a volume decide with the mode, for users as the rule of the export takes them.

use nfs3_types::nfs3::*;
use penstock_nfs::{Rule, Squash};
use penstock_vfs::{
    AccessEntry, AccessList, AccessMask, Identity, ListKind, Owner, Volume, Who, XattrMode,
};

use crate::support::*;

const NONE: AccessMask = AccessMask::EXISTS;
const READ: AccessMask = AccessMask::READ;
const SEARCH: AccessMask = AccessMask::READ.union(AccessMask::EXECUTE);
const CHANGE: AccessMask = AccessMask::READ.union(AccessMask::WRITE);
const ALL: AccessMask = CHANGE.union(AccessMask::EXECUTE);

const USER: u32 = 1000;
const GROUP: u32 = 200;
const STRANGER: u32 = 3000;
const REFUSED: nfsstat3 = nfsstat3::NFS3ERR_ACCES;

/// What the user and the group may do; all that others than the owner may do is less than the mask.
fn list(user: AccessMask, group: AccessMask, mask: AccessMask) -> AccessList {
    let entries = [
        (Who::Owner, ALL),
        (Who::User(USER), user),
        (Who::OwningGroup, NONE),
        (Who::Group(GROUP), group),
        (Who::Mask, mask),
        (Who::Others, NONE),
    ];
    let entries = entries.map(|(who, may)| AccessEntry { who, may });
    AccessList::new(entries).unwrap()
}

/// Gives a file that is found by its number, as all of this volume are, a list.
async fn set(target: &Target, file: &fattr3, list: &AccessList) {
    let name = ListKind::Access.name();
    let inode = penstock_vfs::Inode(file.fileid);
    let (by, value) = (Identity::root(), list.encode());
    let volume = &target.volume.inner;
    let set = volume.set_xattr(&by, inode, name, &value, XattrMode::Set);
    set.await.unwrap();
}

/// A directory of root that the user and the group may search, and a file in it that the user may read and the group may
/// change. The mode lets nobody but root do anything.
async fn private(target: &Target) -> (nfs_fh3, nfs_fh3) {
    let root = target.handle().await;
    let mut client = target.root().await;
    let directory = make_directory(&mut client, &root, "private").await;
    let file = create(&mut client, &directory, "file").await;
    write(&mut client, &file, (0, b"secret"), stable_how::FILE_SYNC)
        .await
        .unwrap();
    for (handle, list) in [
        (&directory, list(SEARCH, SEARCH, ALL)),
        (&file, list(READ, CHANGE, CHANGE)),
    ] {
        let found = attributes(&mut client, handle).await.unwrap();
        set(target, &found, &list).await;
    }
    let found = attributes(&mut client, &file).await.unwrap();
    assert_eq!(
        found.mode, 0o760,
        "the mask is the group's part of the mode"
    );
    (directory, file)
}

async fn granted(client: &mut Client, object: &nfs_fh3) -> u32 {
    let args = ACCESS3args {
        object: object.clone(),
        access: 0x3f,
    };
    client.access(&args).await.unwrap().unwrap().access
}

async fn change(client: &mut Client, file: &nfs_fh3) -> Option<nfsstat3> {
    let written = write(client, file, (0, b"changed"), stable_how::FILE_SYNC).await;
    written.err()
}

async fn make(client: &mut Client, directory: &nfs_fh3) -> nfsstat3 {
    let args = CREATE3args {
        where_: place(directory, "new"),
        how: createhow3::GUARDED(mode(0o644)),
    };
    status(&client.create(&args).await.unwrap())
}

const CHANGES: u32 = ACCESS3_MODIFY | ACCESS3_EXTEND;

#[tokio::test(flavor = "multi_thread")]
async fn a_list_lets_in_whom_it_names_and_nobody_else() {
    let target = Target::new().await;
    let (directory, file) = private(&target).await;

    let mut user = target.user(USER, USER).await;
    assert_eq!(
        lookup(&mut user, &directory, "file").await,
        Ok(file.clone())
    );
    let (bytes, _) = read(&mut user, &file, 0, 9).await.unwrap();
    assert_eq!(bytes, b"secret");
    assert_eq!(granted(&mut user, &file).await, ACCESS3_READ);
    let searched = ACCESS3_READ | ACCESS3_LOOKUP;
    assert_eq!(granted(&mut user, &directory).await, searched);
    assert_eq!(change(&mut user, &file).await, Some(REFUSED));
    assert_eq!(make(&mut user, &directory).await, REFUSED);

    let mut stranger = target.user(STRANGER, STRANGER).await;
    let found = lookup(&mut stranger, &directory, "file").await;
    assert_eq!(found, Err(REFUSED));
    assert_eq!(read(&mut stranger, &file, 0, 9).await, Err(REFUSED));
    assert_eq!(change(&mut stranger, &file).await, Some(REFUSED));
    for object in [&directory, &file] {
        assert_eq!(granted(&mut stranger, object).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_lets_in_the_members_of_a_group_as_far_as_its_mask_does() {
    let target = Target::new().await;
    let (directory, file) = private(&target).await;
    let mut members = [
        target.user(STRANGER, GROUP).await,
        target.user_of(STRANGER, STRANGER, &[7, GROUP]).await,
    ];
    for member in &mut members {
        assert!(lookup(member, &directory, "file").await.is_ok());
        assert_eq!(granted(member, &file).await, ACCESS3_READ | CHANGES);
        assert_eq!(change(member, &file).await, None);
    }
    // The user is named, and so no group counts.
    let mut user = target.user_of(USER, GROUP, &[GROUP]).await;
    assert_eq!(change(&mut user, &file).await, Some(REFUSED));
    let limits = SETATTR3args {
        object: file.clone(),
        new_attributes: mode(0o640),
        guard: Nfs3Option::None,
    };
    let limited = target.root().await.setattr(&limits).await.unwrap();
    assert_eq!(status(&limited), nfsstat3::NFS3_OK);
    for member in &mut members {
        assert_eq!(granted(member, &file).await, ACCESS3_READ);
        assert_eq!(change(member, &file).await, Some(REFUSED));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_of_those_that_the_rule_takes_callers_for() {
    let target = Target::new().await;
    let (directory, file) = private(&target).await;
    let squashed = async |squash, uid, gid| {
        let rule = Rule {
            squash,
            anonymous: Owner { uid, gid },
            ..Rule::default()
        };
        let making = Making {
            rule,
            ..Making::default()
        };
        target.again(making).await
    };
    let user = squashed(Squash::All, USER, USER).await;
    let mut client = user.user(STRANGER, STRANGER).await;
    assert!(read(&mut client, &file, 0, 9).await.is_ok());
    assert_eq!(change(&mut client, &file).await, Some(REFUSED));
    let group = squashed(Squash::All, STRANGER, GROUP).await;
    let mut client = group.user_of(USER, USER, &[]).await;
    assert_eq!(change(&mut client, &file).await, None);
    let nobody = squashed(Squash::All, STRANGER, STRANGER).await;
    let mut client = nobody.user_of(USER, GROUP, &[GROUP]).await;
    assert_eq!(lookup(&mut client, &directory, "file").await, Err(REFUSED));
    let root = squashed(Squash::Root, STRANGER, STRANGER).await;
    let mut client = root.root().await;
    assert_eq!(granted(&mut client, &file).await, 0);
    let mut client = root.user(USER, USER).await;
    assert_eq!(granted(&mut client, &file).await, ACCESS3_READ);
}
