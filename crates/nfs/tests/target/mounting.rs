//! MOUNT.

use nfs3_types::mount::{dirpath, mountstat3};
use nfs3_types::xdr_codec::Opaque;

use penstock_nfs::Rule;

use crate::support::{
    Making, Target, attributes, create, export, lookup, make_directory, open_to_all,
};

fn path(text: &str) -> dirpath<'static> {
    dirpath(Opaque::owned(text.as_bytes().to_vec()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_and_directories_below_are_mounted() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    assert_eq!(target.mount("").await, Ok(root.clone()));
    let directory = make_directory(&mut client, &root, "a").await;
    let below = make_directory(&mut client, &directory, "b").await;
    create(&mut client, &root, "file").await;
    assert_eq!(target.mount("/a").await, Ok(directory));
    assert_eq!(target.mount("//a/b/").await, Ok(below));
    assert_eq!(
        target.mount("/c").await,
        Err(mountstat3::MNT3ERR_NOENT as u32)
    );
    assert_eq!(
        target.mount("/file").await,
        Err(mountstat3::MNT3ERR_NOTDIR as u32)
    );
    assert_eq!(
        target.mount("/a/..").await,
        Err(mountstat3::MNT3ERR_INVAL as u32)
    );
    let long = format!("/{}", "x".repeat(300));
    assert_eq!(
        target.mount(&long).await,
        Err(mountstat3::MNT3ERR_NAMETOOLONG as u32)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_has_a_path() {
    let making = Making {
        path: "/exports/home",
        ..Making::default()
    };
    let target = Target::made(making, std::sync::Arc::default()).await;
    let root = target.mount("/exports/home").await.unwrap();
    let mut client = target.root().await;
    let directory = make_directory(&mut client, &root, "a").await;
    assert_eq!(target.mount("/exports/home/a").await, Ok(directory));
    for elsewhere in ["/", "/exports", "/exports/homes", "/a"] {
        let refused = target.mount(elsewhere).await;
        assert_eq!(
            refused,
            Err(mountstat3::MNT3ERR_NOENT as u32),
            "{elsewhere}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_mounted_what_is_told_until_it_is_let_go() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    make_directory(&mut client, &root, "a").await;
    let mut mounts = target.mounts().await;
    mounts.null().await.unwrap();
    mounts.mnt(path("/a")).await.unwrap();
    mounts.mnt(path("/a")).await.unwrap();
    let told = |list: nfs3_types::mount::mountlist<'static, 'static>| {
        let list = list.into_inner().into_iter();
        let told = list.map(|one| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            format!(
                "{}:{}",
                text(one.ml_hostname.0.as_ref()),
                text(one.ml_directory.0.as_ref())
            )
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(
        told(mounts.dump().await.unwrap()),
        ["127.0.0.1:/", "127.0.0.1:/a"]
    );
    mounts.umnt(path("/a")).await.unwrap();
    assert_eq!(told(mounts.dump().await.unwrap()), ["127.0.0.1:/"]);
    mounts.umntall().await.unwrap();
    assert!(told(mounts.dump().await.unwrap()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_are_told_with_their_clients() {
    let rule = penstock_nfs::Rule {
        clients: vec!["127.0.0.0/8".parse().unwrap()],
        ..crate::support::open_to_all()
    };
    let target = Target::with_rule(rule).await;
    let exports = target.mounts().await.export().await.unwrap().into_inner();
    assert_eq!(exports[0].ex_dir.0.as_ref(), b"/");
    let groups: Vec<_> = exports[0]
        .ex_groups
        .0
        .iter()
        .map(|name| name.0.to_vec())
        .collect();
    assert_eq!(groups, [b"127.0.0.0/8"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_survive_a_restart() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let again = target.again(Making::default()).await;
    assert_eq!(again.handle().await, root);
    let mut client = again.root().await;
    assert_eq!(lookup(&mut client, &root, "file").await, Ok(file.clone()));
    assert!(attributes(&mut client, &file).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_rule_is_told_of_no_exports_and_mounts() {
    let target = Target::new().await;
    target.mount("/").await.unwrap();
    let mut mounts = target.mounts().await;
    assert_eq!(mounts.dump().await.unwrap().into_inner().len(), 1);
    assert_eq!(mounts.export().await.unwrap().into_inner().len(), 1);
    let rule = Rule {
        clients: vec!["10.0.0.0/8".parse().unwrap()],
        ..open_to_all()
    };
    target
        .server
        .change(&[export("/", vec![rule])], &[])
        .unwrap();
    assert_eq!(mounts.dump().await.unwrap().into_inner().len(), 0);
    assert_eq!(mounts.export().await.unwrap().into_inner().len(), 0);
}
