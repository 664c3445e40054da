//! Symbolic links that a store has as objects, in stream volumes.

#![allow(clippy::disallowed_methods)]

use std::{fs, os::unix::fs::symlink, path::Path};

use penstock_tests::{
    Kind, Mount,
    data::noise,
    stream::{Rig, WAYS},
};

#[test]
fn symbolic_links_of_the_store_lead_where_they_say() {
    let mut rig = Rig::new(Kind::Oss);
    let content = noise(1, 50_000);
    rig.put("set/data/a", content.clone());
    rig.put("set/b", noise(2, 10));
    rig.put("outside", noise(3, 10));
    let links = [
        ("beside", "b", Some("b")),
        ("below", "data/a", Some("data/a")),
        ("data/up", "../b", Some("../b")),
        ("data/out", "../../outside", None),
    ];
    let mount = rig.bucket.mount();
    for (name, target, _) in links {
        let path = mount.join("set").join(name);
        symlink(target, path).expect("the store has links");
    }
    mount.unmount();
    let source = format!("{}/set", rig.bucket.source());
    for way in WAYS {
        let mount = Mount::stream(&source, &rig.way(way));
        for (name, _, shown) in links {
            let path = mount.join(name);
            let metadata = fs::symlink_metadata(&path).expect("it is listed");
            assert_eq!(metadata.is_symlink(), shown.is_some(), "{way}: {name}");
            if let Some(shown) = shown {
                let target = fs::read_link(&path).expect("a link");
                assert_eq!(target, Path::new(shown), "{way}: {name}");
                assert!(fs::metadata(&path).expect("it leads to a file").is_file());
            }
        }
        assert!(fs::read(mount.join("below")).expect("readable") == content);
        mount.unmount();
    }
}
