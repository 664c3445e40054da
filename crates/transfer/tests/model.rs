//! Random sequences of reads and writes, compared with plain byte vectors.

mod support;

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::{KIB, MIB};
use penstock_object::{Capabilities, Operation, PutOptions, Store};
use penstock_object_testing::MemoryStore;
use penstock_transfer::{ObjectVersion, Reader, TransferSettings, WriteStart};
use proptest::prelude::*;
use support::{Bench, Fault, Network, TestStore, key, pattern};

#[derive(Debug, Clone)]
enum Read {
    /// The next bytes after the last read of this stream.
    Next {
        stream: usize,
        length: u32,
    },
    /// Some distance before or after where this stream is.
    Near {
        stream: usize,
        distance: i64,
        length: u32,
    },
    At {
        offset: u64,
        length: u32,
    },
    /// Several consecutive reads at once, in any order.
    Burst {
        stream: usize,
        order: Vec<usize>,
    },
    /// The next GET breaks after so many bytes.
    Break {
        after: u64,
    },
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![1u32..5000, Just(128 << 10), Just(1 << 20), 1u32..(3 << 20)]
}

fn read(size: u64) -> impl Strategy<Value = Read> {
    let distance = -(6 * MIB as i64)..(6 * MIB as i64);
    prop_oneof![
        8 => (0..3usize, length()).prop_map(|(stream, length)| Read::Next { stream, length }),
        2 => (0..3usize, distance, length())
            .prop_map(|(stream, distance, length)| Read::Near { stream, distance, length }),
        2 => (0..size + MIB, length()).prop_map(|(offset, length)| Read::At { offset, length }),
        3 => (0..3usize, Just((0..6).collect::<Vec<_>>()).prop_shuffle())
            .prop_map(|(stream, order)| Read::Burst { stream, order }),
        1 => (0..2 * MIB).prop_map(|after| Read::Break { after }),
    ]
}

/// Reads, once more after a failure that was injected, and compares.
async fn check(reader: &Reader, offset: u64, length: u32) {
    let size = reader.version().size;
    let range = offset.min(size)..size.min(offset + u64::from(length));
    let mut tries = 0;
    let read = loop {
        match reader.read(offset, length).await {
            Ok(read) => break read,
            Err(error) => assert!(tries < 20, "{error}"),
        }
        tries += 1;
    };
    assert!(read.to_vec() == pattern(range), "wrong bytes at {offset}");
}

async fn run_reads(size: u64, reads: Vec<Read>, memory: u64) {
    let network = Network {
        latency: Duration::from_millis(3),
        bandwidth: Some(1e9),
    };
    let bench = Bench::new(TestStore::new(network), memory, TransferSettings::default());
    let reader = Arc::new(bench.transfer.reader(bench.store.fill("a", size).await));
    let mut positions = [0, size / 3, size / 2];
    for read in reads {
        match read {
            Read::Next { stream, length } => {
                check(&reader, positions[stream], length).await;
                positions[stream] += u64::from(length);
            }
            Read::Near {
                stream,
                distance,
                length,
            } => {
                positions[stream] = positions[stream].saturating_add_signed(distance);
                check(&reader, positions[stream], length).await;
                positions[stream] += u64::from(length);
            }
            Read::At { offset, length } => check(&reader, offset, length).await,
            Read::Burst { stream, order } => {
                let start = positions[stream];
                let reads = order
                    .iter()
                    .map(|index| check(&reader, start + *index as u64 * 256 * KIB, 256 << 10));
                futures_util::future::join_all(reads).await;
                positions[stream] += order.len() as u64 * 256 * KIB;
            }
            Read::Break { after } => {
                bench
                    .store
                    .fail_next(Operation::Get, Fault::CutAfter(after));
            }
        }
    }
    assert!(bench.budget().peak() <= memory);
    drop(reader);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.budget().used(), 0);
}

#[derive(Debug, Clone)]
enum Write {
    Piece(usize),
    Sync,
    /// Finishes, and begins again after what is there.
    Reopen,
    /// Drops the writer, and begins again after what is there.
    Drop,
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        12 => prop_oneof![1usize..5000, Just(128 << 10), (500usize << 10)..(1 << 20), Just(1 << 20)]
            .prop_map(Write::Piece),
        1 => Just(Write::Sync),
        1 => Just(Write::Reopen),
        1 => Just(Write::Drop),
    ]
}

/// What the object is to hold: the written bytes, and how many of them are visible.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    visible: Option<usize>,
}

async fn version(bench: &Bench) -> Option<ObjectVersion> {
    let info = bench
        .store
        .head(&key("a"), penstock_object::HeadOptions::default())
        .await
        .ok()?;
    Some(ObjectVersion {
        key: key("a"),
        etag: info.etag,
        size: info.size,
    })
}

async fn start(bench: &Bench) -> WriteStart {
    version(bench)
        .await
        .map_or(WriteStart::Empty, WriteStart::After)
}

async fn run_writes(writes: Vec<Write>, limits: Range<u64>) {
    let limits = Capabilities {
        part_size_min: limits.start,
        part_size_max: limits.end,
        ..MemoryStore::like_s3().capabilities().clone()
    };
    let store = TestStore::around(MemoryStore::with_capabilities(limits), Network::default());
    let settings = TransferSettings {
        upload_part_size: 2 * MIB,
        ..TransferSettings::default()
    };
    let bench = Bench::new(store, 64 * MIB, settings);
    let mut model = Model::default();
    let open = |start| {
        bench
            .transfer
            .writer(key("a"), start, PutOptions::default())
    };
    let mut writer = open(WriteStart::Empty);
    for write in writes {
        match write {
            Write::Piece(length) => {
                let at = model.bytes.len() as u64;
                let data = pattern(at..at + length as u64);
                model.bytes.extend(&data);
                writer.write(Bytes::from(data)).await.expect("written");
            }
            Write::Sync => {
                writer.sync().await.expect("synced");
                model.visible = Some(model.bytes.len());
            }
            Write::Reopen => {
                writer.finish().await.expect("finished");
                model.visible = Some(model.bytes.len());
                writer = open(start(&bench).await);
            }
            Write::Drop => {
                writer = open(start(&bench).await);
                model.bytes.truncate(model.visible.unwrap_or(0));
            }
        }
        assert_eq!(writer.size(), model.bytes.len() as u64);
        let content = bench.store.content(&key("a")).await;
        let visible = model
            .visible
            .map(|end| &model.bytes[..end.min(model.bytes.len())]);
        assert!(
            content.as_deref() == visible,
            "{visible:?} is to be visible"
        );
    }
    drop(writer);
    bench.transfer.settle().await;
    assert_eq!(bench.store.uploads().await, 0);
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("built")
        .block_on(test);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn reads_return_what_the_object_holds(
        size in prop_oneof![1..MIB, MIB..(40 * MIB)],
        reads in prop::collection::vec(read(40 * MIB), 1..40),
        memory in prop_oneof![Just(4 * MIB), Just(12 * MIB), Just(256 * MIB)],
    ) {
        run(run_reads(size, reads, memory));
    }

    #[test]
    fn the_object_holds_what_was_written(
        writes in prop::collection::vec(write(), 1..30),
        limits in prop_oneof![Just(1..64 * MIB), Just(MIB..3 * MIB), Just(5 * MIB..64 * MIB)],
    ) {
        run(run_writes(writes, limits));
    }
}
