//! READDIR and READDIRPLUS.

use std::collections::BTreeSet;

use nfs3_types::nfs3::*;

use crate::support::*;

/// A directory with files whose names are numbers.
async fn filled(target: &Target, count: usize) -> (Client, nfs_fh3) {
    let mut client = target.root().await;
    let root = target.handle().await;
    let directory = make_directory(&mut client, &root, "directory").await;
    for number in 0..count {
        create(&mut client, &directory, &format!("file {number:04}")).await;
    }
    (client, directory)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_has_every_name_once_however_small_its_pages_are() {
    let target = Target::new().await;
    let (mut client, directory) = filled(&target, 300).await;
    for bytes in [200, 1000, 65_536, u32::MAX] {
        let names = names(&mut client, &directory, bytes).await;
        assert_eq!(names[..2], [".", ".."]);
        assert_eq!(names.len(), 302);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 302);
    }
    let args = READDIR3args {
        dir: directory,
        cookie: 0,
        cookieverf: cookieverf3([0; 8]),
        count: 100,
    };
    let small = client.readdir(&args).await.unwrap();
    assert_eq!(status(&small), nfsstat3::NFS3ERR_TOOSMALL);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_goes_on_where_it_was_though_names_come_and_go() {
    let target = Target::new().await;
    let (mut client, directory) = filled(&target, 100).await;
    let (mut seen, mut cookie) = (Vec::new(), 0);
    loop {
        let args = READDIR3args {
            dir: directory.clone(),
            cookie,
            cookieverf: cookieverf3([0; 8]),
            count: 700,
        };
        let page = client.readdir(&args).await.unwrap().unwrap();
        for entry in page.reply.entries.into_inner() {
            let text = String::from_utf8(entry.name.0.to_vec()).unwrap();
            cookie = entry.cookie;
            if !text.starts_with('.') {
                // What was listed is removed, the last of the page included, and something new comes.
                assert_eq!(
                    remove(&mut client, &directory, &text).await,
                    nfsstat3::NFS3_OK
                );
                seen.push(text);
            }
        }
        if page.reply.eof {
            break;
        }
    }
    let expected: Vec<_> = (0..100).map(|number| format!("file {number:04}")).collect();
    assert_eq!(seen, expected);
    assert_eq!(names(&mut client, &directory, 4096).await, [".", ".."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_goes_on_behind_any_name_that_was_listed_or_removed() {
    let target = Target::new().await;
    let (mut client, directory) = filled(&target, 50).await;
    let args = |cookie| READDIR3args {
        dir: directory.clone(),
        cookie,
        cookieverf: cookieverf3([0; 8]),
        count: 65_536,
    };
    let all = client.readdir(&args(0)).await.unwrap().unwrap();
    let all = all.reply.entries.into_inner();
    // The one server has listed the names, the other one removes them.
    let another = target.again(Making::default()).await;
    let mut other = another.root().await;
    for number in 20..30 {
        let text = format!("file {number:04}");
        let removed = remove(&mut other, &directory, &text).await;
        assert_eq!(removed, nfsstat3::NFS3_OK);
        for client in [&mut client, &mut other] {
            let args = args(all[number + 2].cookie);
            let rest = client.readdir(&args).await.unwrap().unwrap();
            assert_eq!(rest.reply.entries.into_inner().len(), 50 - number - 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_of_any_entry_is_good_also_after_a_restart() {
    let target = Target::new().await;
    let (mut client, directory) = filled(&target, 50).await;
    let args = |cookie| READDIR3args {
        dir: directory.clone(),
        cookie,
        cookieverf: cookieverf3([0; 8]),
        count: 65_536,
    };
    let all = client.readdir(&args(0)).await.unwrap().unwrap();
    let all = all.reply.entries.into_inner();
    let again = target.again(Making::default()).await;
    let mut client = again.root().await;
    for (index, entry) in all.iter().enumerate().step_by(7) {
        let rest = client.readdir(&args(entry.cookie)).await.unwrap().unwrap();
        let rest = rest.reply.entries.into_inner();
        assert_eq!(rest.len(), all.len() - index - 1);
    }
    let invented = client.readdir(&args(1 << 40)).await.unwrap();
    assert_eq!(status(&invented), nfsstat3::NFS3ERR_BAD_COOKIE);
    let mut wrong = args(all[5].cookie);
    wrong.cookieverf = cookieverf3([1; 8]);
    let wrong = client.readdir(&wrong).await.unwrap();
    assert_eq!(status(&wrong), nfsstat3::NFS3ERR_BAD_COOKIE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_with_attributes_has_handles_that_lead_there() {
    let target = Target::new().await;
    let (mut client, directory) = filled(&target, 400).await;
    let (mut count, mut cookie) = (0, 0);
    loop {
        let args = READDIRPLUS3args {
            dir: directory.clone(),
            cookie,
            cookieverf: cookieverf3([0; 8]),
            dircount: 4096,
            maxcount: 16_384,
        };
        let page = client.readdirplus(&args).await.unwrap().unwrap();
        for entry in page.reply.entries.into_inner() {
            cookie = entry.cookie;
            count += 1;
            let told = entry.name_attributes.unwrap();
            assert_eq!(told.fileid, entry.fileid);
            if count % 50 == 1 {
                let found = attributes(&mut client, &entry.name_handle.unwrap()).await;
                assert_eq!(found.unwrap().fileid, entry.fileid);
            }
        }
        if page.reply.eof {
            break;
        }
    }
    assert_eq!(count, 402);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_directories_that_may_be_read_are_listed() {
    let target = Target::new().await;
    let (mut client, directory) = filled(&target, 1).await;
    let hidden = SETATTR3args {
        object: directory.clone(),
        new_attributes: mode(0o711),
        guard: Nfs3Option::None,
    };
    client.setattr(&hidden).await.unwrap().unwrap();
    let mut other = target.user(1000, 100).await;
    let args = READDIR3args {
        dir: directory.clone(),
        cookie: 0,
        cookieverf: cookieverf3([0; 8]),
        count: 4096,
    };
    let refused = other.readdir(&args).await.unwrap();
    assert_eq!(status(&refused), nfsstat3::NFS3ERR_ACCES);
    let file = lookup(&mut other, &directory, "file 0000").await.unwrap();
    let args = READDIR3args { dir: file, ..args };
    let refused = other.readdir(&args).await.unwrap();
    assert_eq!(status(&refused), nfsstat3::NFS3ERR_NOTDIR);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_search_a_directory_is_told_names_and_no_handles() {
    let target = Target::new().await;
    let (mut client, directory) = filled(&target, 3).await;
    let seen = SETATTR3args {
        object: directory.clone(),
        new_attributes: mode(0o744),
        guard: Nfs3Option::None,
    };
    client.setattr(&seen).await.unwrap().unwrap();
    let mut other = target.user(1000, 100).await;
    let refused = lookup(&mut other, &directory, "file 0000").await;
    assert_eq!(refused, Err(nfsstat3::NFS3ERR_ACCES));
    for (client, is_told) in [(&mut other, false), (&mut client, true)] {
        let args = READDIRPLUS3args {
            dir: directory.clone(),
            cookie: 0,
            cookieverf: cookieverf3([0; 8]),
            dircount: 4096,
            maxcount: 16_384,
        };
        let page = client.readdirplus(&args).await.unwrap().unwrap();
        let entries = page.reply.entries.into_inner();
        assert_eq!(entries.len(), 5);
        for entry in entries {
            assert_eq!(entry.name_handle.is_some(), is_told, "{:?}", entry.name);
            assert_eq!(entry.name_attributes.is_some(), is_told);
        }
    }
}
