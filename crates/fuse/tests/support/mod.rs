//! What the tests with a real kernel mount share: a small file system in memory, and a mount of
//! it that goes away whatever happens.

#![allow(dead_code, unreachable_pub, unused_imports)]

mod hooks;
mod node;
mod volume;

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use penstock_base::{BufferPool, MIB, MemoryBudget, metrics::Registry};
use penstock_fuse::{FuseSettings, MountError, Session, THREADS_MIN, UnmountMode, Unsaved};
use penstock_vfs::Volume;
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub use hooks::{Hooks, Stop};
pub use volume::{MemoryVolume, writes_of};

/// A mounted volume; dropping it unmounts, also when the test fails.
pub struct TestMount {
    session: Option<Arc<Session>>,
    pub runtime: Arc<Runtime>,
    pub metrics: Arc<Registry>,
    pub pool: Arc<BufferPool>,
    directory: TempDir,
}

/// Whether this machine can mount; says so if not.
pub fn can_mount() -> bool {
    let possible = Path::new("/dev/fuse").exists();
    if !possible {
        penstock_skips::skipped("/dev/fuse is missing");
    }
    possible
}

impl TestMount {
    pub fn new(volume: Arc<dyn Volume>) -> Self {
        Self::with(volume, |_| {})
    }

    pub fn with(volume: Arc<dyn Volume>, change: impl FnOnce(&mut FuseSettings)) -> Self {
        Self::with_memory(volume, 256 * MIB, change).expect("mounted")
    }

    pub fn with_memory(
        volume: Arc<dyn Volume>,
        memory: u64,
        change: impl FnOnce(&mut FuseSettings),
    ) -> Result<Self, MountError> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let runtime = Arc::new(runtime());
        let (metrics, pool) = (Registry::new(), BufferPool::new(MemoryBudget::new(memory)));
        let mut settings = FuseSettings::new(directory.path(), "memory");
        // Each holds memory: as many on every machine.
        settings.threads = NonZeroUsize::new(THREADS_MIN);
        change(&mut settings);
        let mount = Session::mount(
            volume,
            settings,
            Arc::clone(&pool),
            Arc::clone(&metrics),
            runtime.handle().clone(),
        );
        let session = Some(Arc::new(runtime.block_on(mount)?));
        Ok(Self {
            session,
            runtime,
            metrics,
            pool,
            directory,
        })
    }

    pub fn session(&self) -> &Arc<Session> {
        self.session.as_ref().expect("mounted")
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Unmounts and waits for the end, which must come within ten seconds.
    pub fn unmount(&self) -> Unsaved {
        self.runtime.block_on(async {
            let session = self.session();
            session
                .unmount(UnmountMode::Plain)
                .await
                .expect("unmounted");
            let end = penstock_base::clock::deadline(Duration::from_secs(10), session.wait());
            end.await.expect("the session ends")
        })
    }

    /// Checks that every handle came back and that the door kept the rules, and unmounts. The
    /// kernel sends RELEASE behind the caller's back and forgets those that it has not sent when
    /// the mount goes away, so handles are counted before.
    pub fn finish(&self, volume: &MemoryVolume) {
        eventually("all handles are released", || volume.open_handles() == 0);
        self.unmount();
        assert_eq!(volume.violations(), [""; 0]);
    }

    /// The value of a counter, summed over its labels or of one operation.
    pub fn counted(&self, name: &str, operation: Option<&str>) -> u64 {
        let samples = self.metrics.samples();
        let wanted = samples.iter().filter(|sample| {
            sample.name == name
                && operation.is_none_or(|wanted| sample.labels.iter().any(|(_, is)| is == wanted))
        });
        wanted.map(|sample| sample.value).sum()
    }
}

impl TestMount {
    /// Ends the mount, and waits until it holds nothing more.
    pub fn end(mut self) {
        let session = self.session.take().unwrap();
        self.runtime.block_on(async {
            session.unmount(UnmountMode::Force).await.unwrap();
            session.wait().await;
        });
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = self.runtime.block_on(session.unmount(UnmountMode::Force));
        }
    }
}

/// Tests wait in real time, since the kernel's clock cannot be paused.
#[allow(clippy::disallowed_methods)]
pub fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Waits up to half a minute, since the machine may be busy with others.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..3000 {
        if condition() {
            return;
        }
        pause();
    }
    panic!("never happened: {what}");
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Bytes that differ everywhere, so that what lands in a wrong place is seen.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_ne_bytes());
    }
    bytes.truncate(length);
    bytes
}
