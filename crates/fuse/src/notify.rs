//! Tells the kernel that what it caches is not true any more, or that it caches too much.
//!
//! The kernel takes locks for a notification that a request of its own may hold, so one must
//! never be sent while that request waits for the sender. Therefore a [`Notifier`] only queues;
//! a thread of its own sends.
//!
//! What a volume would like back ([`Watcher::references_wanted`]) newer kernels are asked to prune (Linux 6.18):
//! they give back what nobody uses. Older ones are told of each name that it may have changed, which
//! has the same effect on files. Of directories it has more: it would take a working directory out
//! of the tree and unmount what is mounted there, so they are left alone.
//!
//! Content that is another one ([`Watcher::content_changed`]) is never left out, for whoever has a file open or mapped would
//! go on with old pages for good: each file stands once among those that the kernel is to hear of, however many wait. Names
//! and attributes are believed for a moment only, and what of them has no place in the queue falls away.
//!
//! A name that leads elsewhere now ([`Watcher::name_changed`]) expires: the kernel asks anew when it is used, and a
//! directory that is still the same stays what it is to those who are in it. Kernels before Linux 6.2 cannot do that, and
//! believe the name as long as they were told to.

use std::{
    collections::BTreeSet,
    io::IoSlice,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use penstock_base::{FileName, Mutex, clock};
use penstock_vfs::{HeldFile, Inode, Watcher};
use tokio::sync::oneshot;
use tracing::debug;

use crate::{
    protocol::encode::{self, Body},
    transport::{SharedDevFuse, WeakDevFuse},
};

/// Notifications that may wait to be sent.
const QUEUE_MAX: usize = 4096;

/// How long a write past the page cache waits until the kernel has dropped the pages of its place: the kernel may
/// wait for other requests.
const DROP_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long somebody waits for room in the queue before it is tried again.
const ROOM_WAIT: Duration = Duration::from_millis(1);

/// Files that the kernel is asked to prune with one notification.
const PRUNED_AT_ONCE: usize = 4096;

/// Codes of notifications, sent where a reply has its error.
mod code {
    pub(super) const INVALIDATE_INODE: i32 = 2;
    pub(super) const INVALIDATE_ENTRY: i32 = 3;
    /// The flag of an entry that expires only.
    pub(super) const EXPIRE_ONLY: u32 = 1;
    pub(super) const RESEND: i32 = 7;
    pub(super) const PRUNE: i32 = 9;
}

/// Tells the kernel that what it caches is not true any more. Cheap to clone; may be used from
/// anywhere, also while a request is handled.
#[derive(Debug, Clone)]
pub struct Notifier {
    queue: SyncSender<Queued>,
    changed: Arc<Changed>,
    expires_names: bool,
}

/// Files with other content, of which the kernel has not heard.
#[derive(Debug, Default)]
struct Changed(Mutex<BTreeSet<Inode>>);

impl Changed {
    fn add(&self, inode: Inode) {
        self.0.lock().insert(inode);
    }

    fn take(&self) -> Option<Inode> {
        self.0.lock().pop_first()
    }
}

/// Asks the kernel to send again what a process took that is dead now. No request waits for that,
/// so it is sent at once.
pub(crate) fn ask_again(device: &SharedDevFuse) -> std::io::Result<()> {
    let header = encode::reply_header(0, code::RESEND, 0);
    device.send(&[IoSlice::new(&header)])
}

#[derive(Debug, Clone)]
enum Notification {
    /// Attributes and content.
    Inode(Inode),
    Attributes(Inode),
    Entry(Inode, FileName),
    /// The name is asked for anew.
    Expire(Inode, FileName),
    Prune(Vec<Inode>),
}

#[derive(Debug)]
enum Queued {
    One(Notification),
    /// One or more of [`Changed`].
    Changed,
    /// One whose sender waits until the kernel has acted on it, and on all before it, or who waits for these alone.
    Awaited(Option<Notification>, oneshot::Sender<()>),
    /// What shall be given back.
    Held(Vec<HeldFile>),
}

impl Notifier {
    /// Starts the thread that sends. It ends with the last notifier.
    pub(crate) fn start(device: &SharedDevFuse, expires_names: bool) -> std::io::Result<Self> {
        let (queue, waiting) = sync_channel(QUEUE_MAX);
        let device = Arc::downgrade(device);
        let changed = Arc::<Changed>::default();
        let of_thread = Arc::clone(&changed);
        thread::Builder::new()
            .name("fuse-notify".into())
            .spawn(move || send_all(&waiting, &of_thread, &device))?;
        Ok(Self {
            queue,
            changed,
            expires_names,
        })
    }

    /// Tells that the content of a file is another one, and waits until the kernel keeps nothing of it, at most for [`DROP_WAIT_MAX`]. Not for who holds up
    /// a READ or WRITE through the page cache meanwhile: the kernel waits for those.
    pub(crate) async fn drop_content(&self, inode: Inode) {
        // The notification goes on, and whoever reads meanwhile may see what was there before.
        self.acted_on(Some(Notification::Inode(inode))).await;
    }

    /// Waits until the kernel keeps nothing that the volume said before is not true, at most as long.
    pub(crate) async fn told(&self) {
        self.acted_on(None).await;
    }

    /// Waits until the kernel has acted on all that it was to hear of, and then on this.
    async fn acted_on(&self, notification: Option<Notification>) {
        let acted_on = async {
            loop {
                let (acted, done) = oneshot::channel();
                let queued = Queued::Awaited(notification.clone(), acted);
                match self.queue.try_send(queued) {
                    Ok(()) => return drop(done.await),
                    Err(TrySendError::Full(_)) => clock::sleep(ROOM_WAIT).await,
                    // Without a mount nobody acts.
                    Err(TrySendError::Disconnected(_)) => return,
                }
            }
        };
        let _ = clock::deadline(DROP_WAIT_MAX, acted_on).await;
    }

    /// Returns whether there was a place for it. A mount that is gone has no caches.
    fn queue(&self, queued: Queued) -> bool {
        self.queue.try_send(queued).is_ok()
    }
}

impl Watcher for Notifier {
    fn references_wanted(&self, held: Vec<HeldFile>) {
        // What cannot be asked for now is asked for again.
        self.queue(Queued::Held(held));
    }

    fn content_changed(&self, inode: Inode) {
        self.changed.add(inode);
        // In a full queue there is something behind which it is looked at.
        self.queue(Queued::Changed);
    }

    fn attributes_changed(&self, inode: Inode) {
        self.queue(Queued::One(Notification::Attributes(inode)));
    }

    fn name_changed(&self, parent: Inode, name: &FileName) {
        if self.expires_names {
            self.queue(Queued::One(Notification::Expire(parent, name.clone())));
        }
    }
}

fn send_all(waiting: &Receiver<Queued>, changed: &Changed, device: &WeakDevFuse) {
    let mut prunes = true;
    while let Ok(queued) = waiting.recv() {
        let Some(device) = device.upgrade() else {
            return;
        };
        while let Some(inode) = changed.take() {
            drop(Notification::Inode(inode).send(&device));
        }
        match queued {
            // ENOENT: the kernel does not cache it, which is as good.
            Queued::One(notification) => drop(notification.send(&device)),
            Queued::Changed => {}
            Queued::Awaited(notification, done) => {
                drop(notification.map(|notification| notification.send(&device)));
                // Who waited may have gone.
                let _ = done.send(());
            }
            Queued::Held(held) => {
                prunes = prunes && !prune(&device, &held).is_err_and(|error| is_unknown(&error));
                if !prunes {
                    forget_names(&device, held);
                }
            }
        }
    }
}

fn prune(device: &SharedDevFuse, held: &[HeldFile]) -> std::io::Result<()> {
    held.chunks(PRUNED_AT_ONCE).try_for_each(|held| {
        let inodes = held.iter().map(|held| held.inode).collect();
        Notification::Prune(inodes).send(device)
    })
}

/// Whether the kernel knows no such notification. What failed otherwise is asked for again.
fn is_unknown(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// What kernels know that do not prune.
fn forget_names(device: &SharedDevFuse, held: Vec<HeldFile>) {
    for file in held.into_iter().filter(|held| !held.is_directory) {
        drop(Notification::Entry(file.parent, file.name).send(device));
    }
}

impl Notification {
    fn send(&self, device: &SharedDevFuse) -> std::io::Result<()> {
        let (code, body) = self.encode();
        let header = encode::reply_header(0, code, body.len());
        let sent = device.send(&[IoSlice::new(&header), IoSlice::new(&body)]);
        sent.inspect_err(|error| debug!(notification = ?self, %error, "notification not taken"))
    }

    fn encode(&self) -> (i32, Vec<u8>) {
        let mut body = Body::default();
        match self {
            Self::Inode(inode) => {
                // All of it: from 0, for any length.
                body.u64(inode.0).u64(0).u64(0);
                (code::INVALIDATE_INODE, body.as_slice().to_vec())
            }
            Self::Attributes(inode) => {
                // From before the first byte: no content.
                body.u64(inode.0).u64(u64::MAX).u64(0);
                (code::INVALIDATE_INODE, body.as_slice().to_vec())
            }
            Self::Entry(parent, name) => (code::INVALIDATE_ENTRY, entry(*parent, name, 0)),
            Self::Expire(parent, name) => {
                let body = entry(*parent, name, code::EXPIRE_ONLY);
                (code::INVALIDATE_ENTRY, body)
            }
            Self::Prune(inodes) => {
                let count = u32::try_from(inodes.len()).expect("they are sent in parts");
                body.u32(count).u32(0).u64(0);
                let inodes = inodes.iter().flat_map(|inode| inode.0.to_ne_bytes());
                let mut all = body.as_slice().to_vec();
                all.extend(inodes);
                (code::PRUNE, all)
            }
        }
    }
}

fn entry(parent: Inode, name: &FileName, flags: u32) -> Vec<u8> {
    let (name, mut body) = (name.as_bytes(), Body::default());
    let length = u32::try_from(name.len()).expect("names are short");
    body.u64(parent.0).u32(length).u32(flags);
    body.bytes(name).zeros(1);
    body.as_slice().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever had a file open or mapped went on with its old pages.
    #[test]
    fn content_that_changed_is_told_however_much_waits() {
        let (queue, waiting) = sync_channel(QUEUE_MAX);
        let notifier = Notifier {
            queue,
            changed: Arc::default(),
            expires_names: true,
        };
        let inodes = || (2..20_000).map(Inode);
        inodes().for_each(|inode| notifier.attributes_changed(inode));
        for _ in 0..2 {
            inodes().for_each(|inode| notifier.content_changed(inode));
        }
        assert_eq!(waiting.try_iter().count(), QUEUE_MAX);
        let told = std::iter::from_fn(|| notifier.changed.take());
        assert!(told.eq(inodes()));
    }

    #[test]
    fn a_prune_that_failed_in_passing_is_asked_for_again() {
        let is_unknown = |code| is_unknown(&std::io::Error::from_raw_os_error(code));
        assert!(is_unknown(libc::EINVAL));
        for passing in [libc::ENOMEM, libc::EINTR, libc::EAGAIN, libc::ENOENT] {
            assert!(!is_unknown(passing));
        }
    }
}
