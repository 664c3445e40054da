//! Tells the kernel that what it caches is not true any more.
//!
//! The kernel takes locks for a notification that a request of its own may hold, so one must
//! never be sent while that request waits for the sender. Therefore a [`Notifier`] only queues;
//! a thread of its own sends.

use std::{
    io::IoSlice,
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread,
};

use penstock_base::FileName;
use penstock_vfs::Inode;
use thiserror::Error;
use tracing::debug;

use crate::{
    protocol::encode::{self, Body},
    transport::{SharedDevFuse, WeakDevFuse},
};

/// Notifications that may wait to be sent.
const QUEUE_MAX: usize = 4096;

/// Codes of notifications, sent where a reply has its error.
mod code {
    pub(super) const INVALIDATE_INODE: i32 = 2;
    pub(super) const INVALIDATE_ENTRY: i32 = 3;
    pub(super) const RESEND: i32 = 7;
}

/// Tells the kernel that what it caches is not true any more. Cheap to clone; may be used from
/// anywhere, also while a request is handled.
#[derive(Debug, Clone)]
pub struct Notifier {
    queue: SyncSender<Notification>,
}

/// A notification could not be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotifyError {
    /// Too many wait already; the caller may try again later.
    #[error("more than {QUEUE_MAX} notifications wait for the kernel")]
    Full,
    /// The mount is gone, and its caches with it.
    #[error("the mount is gone")]
    Unmounted,
}

/// Asks the kernel to send again what a process took that is dead now. No request waits for that,
/// so it is sent at once.
pub(crate) fn ask_again(device: &SharedDevFuse) -> std::io::Result<()> {
    let header = encode::reply_header(0, code::RESEND, 0);
    device.send(&[IoSlice::new(&header)])
}

#[derive(Debug)]
enum Notification {
    Inode(Inode),
    Entry(Inode, FileName),
}

impl Notifier {
    /// Starts the thread that sends. It ends with the last notifier.
    pub(crate) fn start(device: &SharedDevFuse) -> std::io::Result<Self> {
        let (queue, waiting) = sync_channel(QUEUE_MAX);
        let device = std::sync::Arc::downgrade(device);
        thread::Builder::new()
            .name("fuse-notify".into())
            .spawn(move || send_all(&waiting, &device))?;
        Ok(Self { queue })
    }

    /// Attributes and content of a file may have changed: nothing cached is believed any more.
    pub fn content_changed(&self, inode: Inode) -> Result<(), NotifyError> {
        self.queue(Notification::Inode(inode))
    }

    /// A name may lead elsewhere, or nowhere, or to something where nothing was.
    pub fn name_changed(&self, parent: Inode, name: &FileName) -> Result<(), NotifyError> {
        self.queue(Notification::Entry(parent, name.clone()))
    }

    fn queue(&self, notification: Notification) -> Result<(), NotifyError> {
        self.queue
            .try_send(notification)
            .map_err(|error| match error {
                TrySendError::Full(_) => NotifyError::Full,
                TrySendError::Disconnected(_) => NotifyError::Unmounted,
            })
    }
}

fn send_all(waiting: &Receiver<Notification>, device: &WeakDevFuse) {
    while let Ok(notification) = waiting.recv() {
        let Some(device) = device.upgrade() else {
            return;
        };
        let (code, body) = notification.encode();
        let header = encode::reply_header(0, code, body.as_slice().len());
        let parts = [IoSlice::new(&header), IoSlice::new(body.as_slice())];
        // ENOENT: the kernel does not cache it, which is as good.
        if let Err(error) = device.send(&parts) {
            debug!(?notification, %error, "notification not taken");
        }
    }
}

impl Notification {
    fn encode(&self) -> (i32, Body) {
        let mut body = Body::default();
        match self {
            Self::Inode(inode) => {
                // All of it: from 0, for any length.
                body.u64(inode.0).u64(0).u64(0);
                (code::INVALIDATE_INODE, body)
            }
            Self::Entry(parent, name) => {
                let name = name.as_str().as_bytes();
                let length = u32::try_from(name.len()).expect("names are short");
                body.u64(parent.0).u32(length).u32(0);
                body.bytes(name).zeros(1);
                (code::INVALIDATE_ENTRY, body)
            }
        }
    }
}
