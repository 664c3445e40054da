//! Who may do what.

use nfs3_client::RpcError;
use nfs3_types::{mount::mountstat3, nfs3::*};
use penstock_nfs::{Authentication, Rule, Squash};
use penstock_vfs::Owner;

use crate::support::*;

async fn set_mode(client: &mut Client, file: &nfs_fh3, bits: u32) -> nfsstat3 {
    let args = SETATTR3args {
        object: file.clone(),
        new_attributes: mode(bits),
        guard: Nfs3Option::None,
    };
    status(&client.setattr(&args).await.unwrap())
}

/// A directory in which everybody may make files.
async fn public(target: &Target) -> nfs_fh3 {
    let root = target.handle().await;
    let mut client = target.root().await;
    let directory = make_directory(&mut client, &root, "public").await;
    assert_eq!(
        set_mode(&mut client, &directory, 0o777).await,
        nfsstat3::NFS3_OK
    );
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn files_belong_to_who_makes_them() {
    let target = Target::new().await;
    let directory = public(&target).await;
    let mut client = target.user(1000, 100).await;
    let file = create(&mut client, &directory, "file").await;
    let found = attributes(&mut client, &file).await.unwrap();
    assert_eq!((found.uid, found.gid, found.mode), (1000, 100, 0o644));
}

/// What MKNOD says to who makes something in a directory.
async fn make_node(
    client: &mut Client,
    (directory, text): (&nfs_fh3, &str),
    what: mknoddata3,
) -> nfsstat3 {
    let args = MKNOD3args {
        where_: place(directory, text),
        what,
    };
    status(&client.mknod(&args).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_root_makes_devices() {
    let target = Target::new().await;
    let directory = public(&target).await;
    let disk = || devicedata3 {
        dev_attributes: mode(0o666),
        spec: specdata3 {
            specdata1: 8,
            specdata2: 0,
        },
    };
    let (ok, refused) = (nfsstat3::NFS3_OK, nfsstat3::NFS3ERR_PERM);
    let mut user = target.user(1000, 0).await;
    for what in [mknoddata3::NF3BLK(disk()), mknoddata3::NF3CHR(disk())] {
        let made = make_node(&mut user, (&directory, "device"), what).await;
        assert_eq!(
            made, refused,
            "whoever mounts it would open a disk of his own"
        );
    }
    let pipe = mknoddata3::NF3FIFO(mode(0o600));
    assert_eq!(make_node(&mut user, (&directory, "pipe"), pipe).await, ok);
    let again = make_node(&mut user, (&directory, "pipe"), mknoddata3::NF3BLK(disk())).await;
    assert_eq!(again, nfsstat3::NFS3ERR_EXIST);
    let mut root = target.root().await;
    let device = mknoddata3::NF3BLK(disk());
    assert_eq!(
        make_node(&mut root, (&directory, "device"), device).await,
        ok
    );
    // Root of a client that is nobody here makes none either.
    let squashing = Making {
        rule: Rule::default(),
        ..Making::default()
    };
    let squashing = target.again(squashing).await;
    let mut root = squashing.root().await;
    let device = mknoddata3::NF3CHR(disk());
    let made = make_node(&mut root, (&directory, "another"), device).await;
    assert_eq!(made, refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_nobody_may_give_is_left_out_of_what_is_made() {
    let target = Target::new().await;
    let directory = public(&target).await;
    let mut client = target.user_of(1000, 100, &[300]).await;
    // The group of the directory, as BSD and macOS have it, one of his own, and another user.
    for (number, (uid, gid, given)) in [(1000, 0, 100), (1000, 300, 300), (0, 100, 100)]
        .into_iter()
        .enumerate()
    {
        let made = CREATE3args {
            where_: place(&directory, &format!("file {number}")),
            how: createhow3::GUARDED(sattr3 {
                uid: Nfs3Option::Some(uid),
                gid: Nfs3Option::Some(gid),
                ..mode(0o640)
            }),
        };
        let made = client.create(&made).await.unwrap();
        assert_eq!(status(&made), nfsstat3::NFS3_OK, "{uid} {gid}");
        let told = made.unwrap().obj_attributes.unwrap();
        assert_eq!((told.uid, told.gid, told.mode), (1000, given, 0o640));
    }
    let mut root = target.root().await;
    let made = MKDIR3args {
        where_: place(&directory, "directory"),
        attributes: sattr3 {
            uid: Nfs3Option::Some(7),
            gid: Nfs3Option::Some(8),
            ..mode(0o755)
        },
    };
    let told = root.mkdir(&made).await.unwrap().unwrap().obj_attributes;
    let told = told.unwrap();
    assert_eq!((told.uid, told.gid), (7, 8));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_mode_forbids_is_refused() {
    let target = Target::new().await;
    let directory = public(&target).await;
    let mut owner = target.user(1000, 100).await;
    let file = create(&mut owner, &directory, "file").await;
    write(&mut owner, &file, (0, b"secret"), stable_how::FILE_SYNC)
        .await
        .unwrap();
    assert_eq!(set_mode(&mut owner, &file, 0o640).await, nfsstat3::NFS3_OK);
    let mut other = target.user(2000, 200).await;
    let refused = read(&mut other, &file, 0, 9).await;
    assert_eq!(refused, Err(nfsstat3::NFS3ERR_ACCES));
    let written = write(&mut other, &file, (0, b"x"), stable_how::UNSTABLE).await;
    assert_eq!(written, Err(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(
        set_mode(&mut other, &file, 0o777).await,
        nfsstat3::NFS3ERR_PERM
    );
    let mut member = target.user_of(2000, 200, &[7, 100]).await;
    let (bytes, _) = read(&mut member, &file, 0, 9).await.unwrap();
    assert_eq!(bytes, b"secret");
    let written = write(&mut member, &file, (0, b"x"), stable_how::UNSTABLE).await;
    assert_eq!(written, Err(nfsstat3::NFS3ERR_ACCES));
    let root = target.handle().await;
    let made = CREATE3args {
        where_: place(&root, "file"),
        how: createhow3::GUARDED(mode(0o644)),
    };
    let made = other.create(&made).await.unwrap();
    assert_eq!(status(&made), nfsstat3::NFS3ERR_ACCES);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_reads_and_writes_what_he_opened_whatever_its_mode_is_by_now() {
    let target = Target::new().await;
    let directory = public(&target).await;
    let mut owner = target.user(1000, 100).await;
    let file = create(&mut owner, &directory, "file").await;
    assert_eq!(set_mode(&mut owner, &file, 0).await, nfsstat3::NFS3_OK);
    write(&mut owner, &file, (0, b"mine"), stable_how::FILE_SYNC)
        .await
        .unwrap();
    assert_eq!(
        read(&mut owner, &file, 0, 9).await,
        Ok((b"mine".to_vec(), true))
    );
    let cut = SETATTR3args {
        object: file.clone(),
        new_attributes: sattr3 {
            size: Nfs3Option::Some(2),
            ..nothing()
        },
        guard: Nfs3Option::None,
    };
    assert_eq!(
        status(&owner.setattr(&cut).await.unwrap()),
        nfsstat3::NFS3_OK
    );
    let mut other = target.user(2000, 200).await;
    assert_eq!(
        status(&other.setattr(&cut).await.unwrap()),
        nfsstat3::NFS3ERR_ACCES
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_executed_may_be_read_by_who_executes_it() {
    let target = Target::new().await;
    let directory = public(&target).await;
    let mut owner = target.user(1000, 100).await;
    let file = create(&mut owner, &directory, "program").await;
    write(&mut owner, &file, (0, b"#!"), stable_how::FILE_SYNC)
        .await
        .unwrap();
    assert_eq!(set_mode(&mut owner, &file, 0o711).await, nfsstat3::NFS3_OK);
    let mut other = target.user(2000, 200).await;
    assert_eq!(
        read(&mut other, &file, 0, 9).await,
        Ok((b"#!".to_vec(), true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn access_tells_what_the_mode_lets_somebody_do() {
    let target = Target::new().await;
    let directory = public(&target).await;
    let mut owner = target.user(1000, 100).await;
    let file = create(&mut owner, &directory, "file").await;
    let granted = async |client: &mut Client, object: &nfs_fh3| {
        let args = ACCESS3args {
            object: object.clone(),
            access: 0xff,
        };
        client.access(&args).await.unwrap().unwrap().access
    };
    let writes = ACCESS3_MODIFY | ACCESS3_EXTEND;
    assert_eq!(granted(&mut owner, &file).await, ACCESS3_READ | writes);
    let mut other = target.user(2000, 200).await;
    assert_eq!(granted(&mut other, &file).await, ACCESS3_READ);
    let all = ACCESS3_READ | ACCESS3_LOOKUP | writes | ACCESS3_DELETE;
    assert_eq!(granted(&mut other, &directory).await, all);
    let some = ACCESS3args {
        object: directory,
        access: ACCESS3_LOOKUP,
    };
    let some = other.access(&some).await.unwrap().unwrap().access;
    assert_eq!(some, ACCESS3_LOOKUP, "only what was asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn root_of_a_client_is_nobody_unless_it_is_let() {
    let target = Target::with_rule(Rule::default()).await;
    let root = target.handle().await;
    let mut client = target.root().await;
    let made = CREATE3args {
        where_: place(&root, "file"),
        how: createhow3::UNCHECKED(mode(0o644)),
    };
    let made = client.create(&made).await.unwrap();
    assert_eq!(
        status(&made),
        nfsstat3::NFS3ERR_ACCES,
        "the root directory is root's"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn squashed_users_make_files_of_the_anonymous_one() {
    let rule = Rule {
        squash: Squash::All,
        anonymous: Owner { uid: 0, gid: 77 },
        ..Rule::default()
    };
    let target = Target::with_rule(rule).await;
    let root = target.handle().await;
    let mut client = target.user(1000, 100).await;
    let file = create(&mut client, &root, "file").await;
    let found = attributes(&mut client, &file).await.unwrap();
    assert_eq!((found.uid, found.gid), (0, 77));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_user_are_nobodys_or_refused() {
    let target = Target::new().await;
    let root = target.handle().await;
    let mut client = target.nobody().await;
    client.null().await.unwrap();
    assert!(attributes(&mut client, &root).await.is_ok());
    let made = CREATE3args {
        where_: place(&root, "file"),
        how: createhow3::UNCHECKED(mode(0o644)),
    };
    let made = client.create(&made).await.unwrap();
    assert_eq!(status(&made), nfsstat3::NFS3ERR_ACCES);
    let strict = Rule {
        authentication: Authentication::System,
        ..open_to_all()
    };
    let target = Target::with_rule(strict).await;
    let mut client = target.nobody().await;
    client.null().await.unwrap();
    let refused = client.getattr(&GETATTR3args { object: root }).await;
    assert!(matches!(refused, Err(RpcError::Auth(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_outside_the_networks_are_refused() {
    let rule = Rule {
        clients: vec!["10.0.0.0/8".parse().unwrap()],
        ..open_to_all()
    };
    let target = Target::with_rule(rule).await;
    assert_eq!(
        target.mount("/").await,
        Err(mountstat3::MNT3ERR_ACCES as u32)
    );
    let handle = Target::new().await.handle().await;
    let mut client = target.root().await;
    client.null().await.unwrap();
    let refused = client.getattr(&GETATTR3args { object: handle }).await;
    assert!(matches!(refused, Err(RpcError::Auth(_))), "{refused:?}");
    assert!(target.metric("nfs_refused_total") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unprivileged_ports_are_refused_where_that_is_asked_for() {
    let rule = Rule {
        privileged_port: true,
        ..open_to_all()
    };
    let target = Target::with_rule(rule).await;
    assert_eq!(
        target.mount("/").await,
        Err(mountstat3::MNT3ERR_ACCES as u32)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_export_refuses_every_change() {
    let rule = Rule {
        read_only: true,
        ..open_to_all()
    };
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let making = Making {
        rule,
        ..Making::default()
    };
    let target = target.again(making).await;
    let mut client = target.root().await;
    let read_only = nfsstat3::NFS3ERR_ROFS;
    assert_eq!(set_mode(&mut client, &file, 0o600).await, read_only);
    let written = write(&mut client, &file, (0, b"x"), stable_how::UNSTABLE).await;
    assert_eq!(written, Err(read_only));
    let made = MKDIR3args {
        where_: place(&root, "directory"),
        attributes: mode(0o755),
    };
    assert_eq!(status(&client.mkdir(&made).await.unwrap()), read_only);
    for how in [
        createhow3::UNCHECKED(mode(0o644)),
        createhow3::EXCLUSIVE(createverf3([1; 8])),
    ] {
        let made = CREATE3args {
            where_: place(&root, "new"),
            how,
        };
        assert_eq!(status(&client.create(&made).await.unwrap()), read_only);
    }
    let made = SYMLINK3args {
        where_: place(&root, "new"),
        symlink: symlinkdata3 {
            symlink_attributes: nothing(),
            symlink_data: b"anywhere".to_vec().into(),
        },
    };
    assert_eq!(status(&client.symlink(&made).await.unwrap()), read_only);
    let pipe = mknoddata3::NF3FIFO(mode(0o600));
    let made = make_node(&mut client, (&root, "new"), pipe).await;
    assert_eq!(made, read_only);
    assert_eq!(remove(&mut client, &root, "file").await, read_only);
    let removed = RMDIR3args {
        object: place(&root, "directory"),
    };
    assert_eq!(status(&client.rmdir(&removed).await.unwrap()), read_only);
    let moved = RENAME3args {
        from: place(&root, "file"),
        to: place(&root, "other"),
    };
    assert_eq!(status(&client.rename(&moved).await.unwrap()), read_only);
    let linked = LINK3args {
        file: file.clone(),
        link: place(&root, "other"),
    };
    assert_eq!(status(&client.link(&linked).await.unwrap()), read_only);
    assert_eq!(read(&mut client, &file, 0, 1).await, Ok((Vec::new(), true)));
    let args = ACCESS3args {
        object: root,
        access: 0x3f,
    };
    let granted = client.access(&args).await.unwrap().unwrap().access;
    assert_eq!(granted, ACCESS3_READ | ACCESS3_LOOKUP);
}
