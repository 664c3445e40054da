//! Making, finding, moving and removing.

use std::time::SystemTime;

use nfs3_types::nfs3::*;
use penstock_base::FsError;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_finds_what_is_there_and_itself_and_the_one_above() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let directory = make_directory(&mut client, &root, "a").await;
    let file = create(&mut client, &directory, "file").await;
    assert_eq!(
        lookup(&mut client, &directory, "file").await,
        Ok(file.clone())
    );
    assert_eq!(
        lookup(&mut client, &directory, ".").await,
        Ok(directory.clone())
    );
    assert_eq!(
        lookup(&mut client, &directory, "..").await,
        Ok(root.clone())
    );
    assert_eq!(lookup(&mut client, &root, "..").await, Ok(root.clone()));
    for (name, expected) in [
        ("none", nfsstat3::NFS3ERR_NOENT),
        ("", nfsstat3::NFS3ERR_INVAL),
        ("a/b", nfsstat3::NFS3ERR_INVAL),
        ("x\0", nfsstat3::NFS3ERR_INVAL),
        (&"x".repeat(256), nfsstat3::NFS3ERR_NAMETOOLONG),
    ] {
        assert_eq!(
            lookup(&mut client, &root, name).await,
            Err(expected),
            "{name}"
        );
    }
    let below = lookup(&mut client, &file, "x").await;
    assert_eq!(below, Err(nfsstat3::NFS3ERR_NOTDIR));
    let missing = LOOKUP3args {
        what: place(&directory, "none"),
    };
    let Nfs3Result::Err((_, told)) = client.lookup(&missing).await.unwrap() else {
        panic!("it is not there");
    };
    assert!(
        told.dir_attributes.is_some(),
        "a client may keep that it is not there"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_create_is_new_and_an_unchecked_one_takes_what_is_there() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    write(&mut client, &file, (0, b"content"), stable_how::FILE_SYNC)
        .await
        .unwrap();
    let guarded = CREATE3args {
        where_: place(&root, "file"),
        how: createhow3::GUARDED(mode(0o600)),
    };
    let refused = client.create(&guarded).await.unwrap();
    assert_eq!(status(&refused), nfsstat3::NFS3ERR_EXIST);
    assert_eq!(create(&mut client, &root, "file").await, file);
    assert_eq!(read(&mut client, &file, 0, 99).await.unwrap().0, b"content");
    let emptied = CREATE3args {
        where_: place(&root, "file"),
        how: createhow3::UNCHECKED(sattr3 {
            size: Nfs3Option::Some(0),
            ..mode(0o600)
        }),
    };
    let emptied = client.create(&emptied).await.unwrap().unwrap();
    let told = emptied.obj_attributes.unwrap();
    assert_eq!((told.size, told.mode), (0, 0o644), "only its size is set");
    make_directory(&mut client, &root, "directory").await;
    let taken = CREATE3args {
        where_: place(&root, "directory"),
        how: createhow3::UNCHECKED(mode(0o600)),
    };
    let taken = client.create(&taken).await.unwrap();
    assert_eq!(status(&taken), nfsstat3::NFS3ERR_EXIST);
}

async fn exclusive(client: &mut Client, root: &nfs_fh3, verifier: u8) -> Result<nfs_fh3, nfsstat3> {
    let args = CREATE3args {
        where_: place(root, "file"),
        how: createhow3::EXCLUSIVE(createverf3([verifier; 8])),
    };
    match client.create(&args).await.unwrap() {
        Nfs3Result::Ok(made) => Ok(made.obj.unwrap()),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_create_is_repeated_by_who_has_its_verifier() {
    let without = Shaped::new(Shape {
        verifies: false,
        ..Shape::default()
    });
    for volume in [Shaped::default(), without] {
        let target = Target::over(volume.into()).await;
        let mut client = target.root().await;
        let root = target.handle().await;
        let made = exclusive(&mut client, &root, 1).await.unwrap();
        assert_eq!(exclusive(&mut client, &root, 1).await, Ok(made.clone()));
        assert_eq!(
            exclusive(&mut client, &root, 2).await,
            Err(nfsstat3::NFS3ERR_EXIST)
        );
        create(&mut client, &root, "other").await;
        let set = SETATTR3args {
            object: made,
            new_attributes: mode(0o644),
            guard: Nfs3Option::None,
        };
        client.setattr(&set).await.unwrap().unwrap();
        assert_eq!(
            exclusive(&mut client, &root, 1).await,
            Err(nfsstat3::NFS3ERR_EXIST),
            "another client with the same number, as its clock and its processes begin with"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_directory_is_told_with_what_it_was_before() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let before = attributes(&mut client, &root).await.unwrap();
    let made = MKDIR3args {
        where_: place(&root, "a"),
        attributes: mode(0o750),
    };
    let made = client.mkdir(&made).await.unwrap().unwrap();
    assert_eq!(made.dir_wcc.before.unwrap().ctime, before.ctime);
    let now = attributes(&mut client, &root).await.unwrap();
    let after = made.dir_wcc.after.unwrap();
    assert_eq!(after.ctime, now.ctime);
    let told = made.obj_attributes.unwrap();
    assert_eq!((told.type_, told.mode), (ftype3::NF3DIR, 0o750));
}

#[tokio::test(flavor = "multi_thread")]
async fn links_pipes_sockets_and_devices_are_what_they_were_made() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let link = SYMLINK3args {
        where_: place(&root, "link"),
        symlink: symlinkdata3 {
            symlink_attributes: nothing(),
            symlink_data: b"../any/where".to_vec().into(),
        },
    };
    let link = client.symlink(&link).await.unwrap().unwrap();
    assert_eq!(link.obj_attributes.unwrap().type_, ftype3::NF3LNK);
    let read = READLINK3args {
        symlink: link.obj.unwrap(),
    };
    let read = client.readlink(&read).await.unwrap().unwrap();
    assert_eq!(read.data.as_ref(), b"../any/where");
    let device = devicedata3 {
        dev_attributes: mode(0o600),
        spec: specdata3 {
            specdata1: 300,
            specdata2: 70_000,
        },
    };
    for (number, (what, kind)) in [
        (mknoddata3::NF3FIFO(mode(0o600)), ftype3::NF3FIFO),
        (mknoddata3::NF3SOCK(mode(0o600)), ftype3::NF3SOCK),
        (mknoddata3::NF3CHR(device), ftype3::NF3CHR),
    ]
    .into_iter()
    .enumerate()
    {
        let args = MKNOD3args {
            where_: place(&root, &number.to_string()),
            what,
        };
        let made = client.mknod(&args).await.unwrap().unwrap();
        let told = made.obj_attributes.unwrap();
        assert_eq!((told.type_, told.mode), (kind, 0o600));
        if kind == ftype3::NF3CHR {
            assert_eq!((told.rdev.specdata1, told.rdev.specdata2), (300, 70_000));
        }
        let file = made.obj.unwrap();
        let content = crate::support::read(&mut client, &file, 0, 1).await;
        assert_eq!(content, Err(nfsstat3::NFS3ERR_INVAL));
    }
    let no_link = READLINK3args { symlink: root };
    let refused = client.readlink(&no_link).await.unwrap();
    assert_eq!(status(&refused), nfsstat3::NFS3ERR_INVAL);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_removed_files_and_directories_apart() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let directory = make_directory(&mut client, &root, "directory").await;
    create(&mut client, &directory, "in it").await;
    let remove_directory = async |client: &mut Client, text: &str| {
        let args = RMDIR3args {
            object: place(&root, text),
        };
        status(&client.rmdir(&args).await.unwrap())
    };
    let ok = nfsstat3::NFS3_OK;
    assert_eq!(
        remove(&mut client, &root, "directory").await,
        nfsstat3::NFS3ERR_ISDIR
    );
    assert_eq!(
        remove_directory(&mut client, "file").await,
        nfsstat3::NFS3ERR_NOTDIR
    );
    assert_eq!(
        remove_directory(&mut client, "directory").await,
        nfsstat3::NFS3ERR_NOTEMPTY
    );
    assert_eq!(
        remove_directory(&mut client, ".").await,
        nfsstat3::NFS3ERR_INVAL
    );
    assert_eq!(
        remove(&mut client, &root, "none").await,
        nfsstat3::NFS3ERR_NOENT
    );
    assert_eq!(remove(&mut client, &directory, "in it").await, ok);
    assert_eq!(remove_directory(&mut client, "directory").await, ok);
    assert_eq!(remove(&mut client, &root, "file").await, ok);
    assert_eq!(
        attributes(&mut client, &file).await.err(),
        Some(nfsstat3::NFS3ERR_STALE)
    );
    let stale = lookup(&mut client, &directory, "x").await;
    assert_eq!(stale, Err(nfsstat3::NFS3ERR_STALE));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_keeps_the_handle_and_replaces_what_is_there() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let directory = make_directory(&mut client, &root, "directory").await;
    let file = create(&mut client, &root, "old").await;
    let replaced = create(&mut client, &directory, "new").await;
    let moved = async |client: &mut Client, from, to| {
        let args = RENAME3args { from, to };
        status(&client.rename(&args).await.unwrap())
    };
    let ok = moved(&mut client, place(&root, "old"), place(&directory, "new")).await;
    assert_eq!(ok, nfsstat3::NFS3_OK);
    assert_eq!(lookup(&mut client, &directory, "new").await, Ok(file));
    let gone = attributes(&mut client, &replaced).await.err();
    assert_eq!(gone, Some(nfsstat3::NFS3ERR_STALE));
    let none = moved(&mut client, place(&root, "old"), place(&root, "x")).await;
    assert_eq!(none, nfsstat3::NFS3ERR_NOENT);
    let into_itself = moved(
        &mut client,
        place(&root, "directory"),
        place(&directory, "x"),
    )
    .await;
    assert_eq!(into_itself, nfsstat3::NFS3ERR_INVAL);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sticky_directory_keeps_the_files_of_others() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let directory = make_directory(&mut client, &root, "directory").await;
    let sticky = SETATTR3args {
        object: directory.clone(),
        new_attributes: mode(0o1777),
        guard: Nfs3Option::None,
    };
    client.setattr(&sticky).await.unwrap().unwrap();
    let mut owner = target.user(1000, 100).await;
    create(&mut owner, &directory, "file").await;
    let mut other = target.user(2000, 100).await;
    assert_eq!(
        remove(&mut other, &directory, "file").await,
        nfsstat3::NFS3ERR_PERM
    );
    assert_eq!(
        remove(&mut owner, &directory, "file").await,
        nfsstat3::NFS3_OK
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_more_names_where_the_volume_has_hard_links() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "one").await;
    let link = |file: &nfs_fh3, text: &str| LINK3args {
        file: file.clone(),
        link: place(&root, text),
    };
    let linked = client.link(&link(&file, "two")).await.unwrap().unwrap();
    assert_eq!(linked.file_attributes.unwrap().nlink, 2);
    assert_eq!(lookup(&mut client, &root, "two").await, Ok(file.clone()));
    let again = client.link(&link(&file, "two")).await.unwrap();
    assert_eq!(status(&again), nfsstat3::NFS3ERR_EXIST);
    let directory = client.link(&link(&root, "three")).await.unwrap();
    assert_eq!(status(&directory), nfsstat3::NFS3ERR_ISDIR);
    let shape = Shape {
        links_max: 1,
        ..Shape::default()
    };
    let target = Target::over(Shaped::new(shape).into()).await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "one").await;
    let args = LINK3args {
        file,
        link: place(&root, "two"),
    };
    let refused = client.link(&args).await.unwrap();
    assert_eq!(status(&refused), nfsstat3::NFS3ERR_NOTSUPP);
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_are_set_and_guarded() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let time = nfstime3 {
        seconds: 1_000_000_000,
        nseconds: 5,
    };
    let all = sattr3 {
        mode: Nfs3Option::Some(0o100_751),
        uid: Nfs3Option::Some(5),
        gid: Nfs3Option::Some(6),
        size: Nfs3Option::Some(7),
        atime: set_atime::SET_TO_CLIENT_TIME(time),
        mtime: set_mtime::SET_TO_SERVER_TIME,
    };
    let set = |guard| SETATTR3args {
        object: file.clone(),
        new_attributes: all.clone(),
        guard,
    };
    let seen = attributes(&mut client, &file).await.unwrap();
    client
        .setattr(&set(Nfs3Option::Some(seen.ctime)))
        .await
        .unwrap()
        .unwrap();
    let now = attributes(&mut client, &file).await.unwrap();
    assert_eq!((now.mode, now.uid, now.gid, now.size), (0o751, 5, 6, 7));
    assert_eq!(now.atime, time);
    assert!(SystemTime::from(now.mtime) >= SystemTime::from(seen.mtime));
    let late = client
        .setattr(&set(Nfs3Option::Some(seen.ctime)))
        .await
        .unwrap();
    assert_eq!(status(&late), nfsstat3::NFS3ERR_NOT_SYNC);
    let sized = SETATTR3args {
        object: root,
        new_attributes: sattr3 {
            size: Nfs3Option::Some(0),
            ..nothing()
        },
        guard: Nfs3Option::None,
    };
    let refused = client.setattr(&sized).await.unwrap();
    assert_eq!(status(&refused), nfsstat3::NFS3ERR_INVAL);
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_are_those_of_the_volume() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let args = FSINFO3args {
        fsroot: root.clone(),
    };
    let facts = client.fsinfo(&args).await.unwrap().unwrap();
    assert_eq!(
        (facts.rtmax, facts.wtmax, facts.dtpref),
        (1 << 20, 1 << 20, 65_536)
    );
    let all = FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME;
    assert_eq!(facts.properties, all);
    let args = FSSTAT3args {
        fsroot: root.clone(),
    };
    let statistics = client.fsstat(&args).await.unwrap().unwrap();
    assert_eq!((statistics.tbytes, statistics.fbytes), (4 << 30, 2 << 30));
    let args = PATHCONF3args { object: root };
    let path = client.pathconf(&args).await.unwrap().unwrap();
    assert_eq!((path.linkmax, path.name_max), (1000, 255));
    assert!(path.no_trunc && path.case_preserving && !path.case_insensitive);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_of_more_than_may_be_moved_at_once_is_not_asked_for_again() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    make_directory(&mut client, &root, "directory").await;
    let renamed = RENAME3args {
        from: place(&root, "directory"),
        to: place(&root, "other"),
    };
    let later = nfsstat3::NFS3ERR_JUKEBOX;
    for (error, expected) in [
        (FsError::LimitReached("too many"), nfsstat3::NFS3ERR_NOTSUPP),
        (FsError::Busy("another one is under way"), later),
    ] {
        *target.volume.rename_fails.lock().unwrap() = Some(error);
        let told = client.rename(&renamed).await.unwrap();
        assert_eq!(status(&told), expected);
    }
}
