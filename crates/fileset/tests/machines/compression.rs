//! How what is saved is compressed where several machines have the file system.

use penstock_fileset::{compression::Compression, usage};

use crate::{
    database::on_each_engine,
    ground::{Ground, Machine},
    support::ROOT,
};

on_each_engine!(a_setting_holds_for_what_all_machines_save);

async fn spared(machine: &Machine) -> u64 {
    machine.catch_up().await;
    usage(&*machine.place.engine).await.unwrap().spared
}

async fn set(machine: &Machine, setting: Compression) {
    machine.place.volume.set_compression(setting).await.unwrap();
}

async fn store(machine: &Machine, name: &str) {
    machine.catch_up().await;
    let content = name.repeat(100_000);
    let stored = machine.place.store(ROOT, name, content.as_bytes());
    stored.await.unwrap();
}

async fn a_setting_holds_for_what_all_machines_save(ground: Ground) {
    let [one, other] = ground.two().await;
    set(&one, Compression::Lz4).await;
    store(&other, "a").await;
    let after_one = spared(&one).await;
    assert!(after_one > 90_000, "{after_one}");
    set(&other, Compression::None).await;
    store(&one, "b").await;
    assert_eq!(spared(&other).await, after_one);
    set(&one, Compression::Zstd(3)).await;
    store(&other, "c").await;
    assert!(spared(&one).await > after_one + 90_000);
    for (machine, name) in [(&one, "a"), (&other, "b"), (&one, "c")] {
        let content = machine.place.content(ROOT, name).await.unwrap();
        assert!(content == name.repeat(100_000).as_bytes(), "{name}");
    }
}
