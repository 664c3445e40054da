//! Staged mode: the mount is killed while it saves a file that is still being written.

#![allow(clippy::disallowed_methods)]

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use penstock_devserver::{Fault, FaultRule, Faults, Operation};
use penstock_tests::{BUCKET, Bucket, Kind, Mount, Patience, Scratch, data::noise, soak::Chance};

const MIB: usize = 1 << 20;
const PATIENCE: Patience = Patience::seconds(60);

struct Bed {
    bucket: Bucket,
    scratch: Scratch,
}

impl Bed {
    fn new(kind: Kind) -> Self {
        Self {
            bucket: Bucket::new(kind),
            scratch: Scratch::new(),
        }
    }

    #[track_caller]
    fn mount(&self) -> Mount {
        let staging = self.scratch.path().join("staging");
        let options = self.bucket.staged_options(&staging);
        let options = options.option("max-dirty-data", "5MiB");
        self.bucket.mount_with(&options)
    }

    /// Every answer to a PUT is lost, and nobody can look what became of it.
    fn lose_answers(&self) {
        let lost = FaultRule::new(Fault::LoseAnswer);
        self.bucket
            .fail(Faults::rule(lost.on(&[Operation::PutObject])));
        let blind = FaultRule::new(Fault::InternalError);
        // The first look is at what the save replaces.
        let blind = blind.on(&[Operation::HeadObject]).skip(1);
        self.bucket.server(|server| server.faults().add(blind));
    }

    fn stored(&self) -> Option<Vec<u8>> {
        self.bucket.data().get(BUCKET, "file")
    }

    fn kept(&self) -> usize {
        let kept = self.scratch.path().join("staging/kept");
        fs::read_dir(kept).expect("a staging directory").count()
    }
}

#[test]
fn a_file_that_is_written_after_a_save_that_nobody_heard_of_is_recovered_whole() {
    for kind in Kind::REMOTE {
        let bed = Bed::new(kind);
        let mount = bed.mount();
        let path = mount.join("file");
        fs::write(&path, "the version before").expect("a write");
        let file = File::options().write(true).open(&path).expect("an open");
        file.write_all_at(b"the snapshot......", 0)
            .expect("a write");
        let closed = File::options().write(true).open(&path).expect("an open");
        bed.lose_answers();
        thread::scope(|scope| {
            // It waits for an answer. A sync would keep the kernel from passing on the next write.
            scope.spawn(|| drop(closed));
            PATIENCE.until("the save to arrive", || {
                bed.stored().as_deref() == Some(b"the snapshot......")
            });
            file.write_all_at(b"THE snapshot...... and more", 0)
                .expect("a write");
            mount.kill_and_unmount();
        });
        drop(file);
        bed.bucket.heal();
        let mount = bed.mount();
        PATIENCE.until("the rest to be saved", || {
            bed.stored().as_deref() == Some(b"THE snapshot...... and more")
        });
        mount.unmount();
        assert_eq!(bed.kept(), 0, "another client's: {kind:?}");
    }
}

#[test]
fn an_appended_file_is_recovered_whenever_its_mount_is_killed() {
    let bed = Bed::new(Kind::S3);
    let content = noise(3, 64 * MIB);
    let mut chance = Chance::new(8);
    for round in 0..8 {
        bed.bucket.fail(Faults::latency(Duration::from_millis(15)));
        let mount = bed.mount();
        let path = mount.join("file");
        let (written, synced) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut file = File::create(&path).expect("a create");
                for (number, piece) in content.chunks(MIB / 4).enumerate() {
                    if file.write_all(piece).is_err() {
                        break;
                    }
                    let length = written.fetch_add(piece.len(), Ordering::SeqCst) + piece.len();
                    if number % 7 == 6 && file.sync_all().is_ok() {
                        synced.store(length, Ordering::SeqCst);
                    }
                }
            });
            thread::sleep(Duration::from_millis(200 + chance.below(600) as u64));
            mount.kill_and_unmount();
        });
        bed.bucket.heal();
        let mount = bed.mount();
        let (written, synced) = (written.into_inner(), synced.into_inner());
        PATIENCE.until("the rest to be saved", || {
            bed.stored().is_some_and(|stored| stored.len() >= written)
        });
        mount.unmount();
        let stored = bed.stored().expect("an object");
        assert!(content.starts_with(&stored), "{round}: {written} {synced}");
        assert_eq!(bed.kept(), 0, "{round}: put aside, and nobody else wrote");
    }
}
