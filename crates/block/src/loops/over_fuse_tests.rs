//! Several devices at once, straight through the transport.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::{BufferPool, FsResult, MIB, MemoryBudget, Payload, metrics::Registry};
use penstock_vfs::Disk;
use tokio::sync::watch;

use super::LoopOverFuse;
use crate::{device::DeviceName, tags::tagged_devices, transport::Transport};

const DISKS: usize = 3;
const READERS: usize = 330;

/// Every byte follows from its place; reads wait until they are let go.
struct Waiting {
    number: usize,
    waiting: Arc<AtomicUsize>,
    open: watch::Receiver<bool>,
}

fn byte_at(disk: usize, block: u64) -> u8 {
    (block * 7) as u8 ^ disk as u8
}

#[async_trait]
impl Disk for Waiting {
    fn size(&self) -> u64 {
        64 * MIB
    }

    async fn read(&self, offset: u64, length: u32) -> FsResult<Payload> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.clone();
        let _ = open.wait_for(|open| *open).await;
        let byte = |at: u64| byte_at(self.number, at / 4096);
        let bytes: Vec<u8> = (offset..offset + u64::from(length)).map(byte).collect();
        Ok(bytes.into())
    }
}

/// A block at an address that direct I/O accepts.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

fn read_block(node: &PathBuf, block: u64) -> [u8; 4096] {
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(node);
    let device: File = direct.expect("it is attached");
    let mut bytes = Box::new(Aligned([0; 4096]));
    device
        .read_exact_at(&mut bytes.0, block * 4096)
        .expect("it answers");
    bytes.0
}

#[tokio::test(flavor = "multi_thread")]
async fn more_reads_are_in_flight_than_one_device_has() {
    let folder = tempfile::Builder::new()
        .prefix("penstock-test-")
        .tempdir()
        .expect("a folder");
    let tag = format!("penstock-{}-flight", std::process::id());
    let waiting = Arc::new(AtomicUsize::new(0));
    let (gate, open) = watch::channel(true);
    let disk = |number| -> Arc<dyn Disk> {
        let (waiting, open) = (Arc::clone(&waiting), open.clone());
        Arc::new(Waiting {
            number,
            waiting,
            open,
        })
    };
    let transport = LoopOverFuse {
        state_directory: folder.path().to_owned(),
        pool: BufferPool::new(MemoryBudget::new(128 * MIB)),
        metrics: Registry::new(),
    };
    let attached = transport.attach((0..DISKS).map(disk).collect(), &tag).await;
    let mut attached = attached.expect("root, loop devices and FUSE are there");
    let nodes: Vec<_> = attached.devices().iter().map(DeviceName::node).collect();
    gate.send_replace(false);
    waiting.store(0, Ordering::SeqCst);
    let readers: Vec<_> = (0..READERS)
        .map(|number| {
            let (node, block) = (nodes[number % DISKS].clone(), (number / DISKS) as u64);
            std::thread::spawn(move || read_block(&node, block))
        })
        .collect();
    for _ in 0..2000 {
        if waiting.load(Ordering::SeqCst) >= READERS {
            break;
        }
        penstock_base::clock::sleep(Duration::from_millis(10)).await;
    }
    let in_flight = waiting.load(Ordering::SeqCst);
    gate.send_replace(true);
    for (number, reader) in readers.into_iter().enumerate() {
        let bytes = reader.join().expect("no panic");
        assert_eq!(
            bytes,
            [byte_at(number % DISKS, (number / DISKS) as u64); 4096]
        );
    }
    assert!(
        in_flight >= READERS,
        "only {in_flight} reads were in flight"
    );
    attached.leave_to_users().await.expect("nobody is there");
    attached.gone().await;
    assert_eq!(tagged_devices(&tag), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0);
}
