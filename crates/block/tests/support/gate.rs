//! What comes between a disk and its readers.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use penstock_base::{FsError, FsResult, Payload};
use tokio::sync::watch;

/// What goes wrong with reads.
#[derive(Debug, Clone, Default)]
pub enum Trouble {
    #[default]
    None,
    /// They fail.
    Error(FsError),
    /// They bring less than was asked for.
    Short,
}

/// Lets reads through, or not.
#[derive(Debug)]
pub struct Gate {
    closed: watch::Sender<bool>,
    trouble: Mutex<Trouble>,
    /// Reads that wait before the gate.
    pub waiting: AtomicUsize,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            closed: watch::Sender::new(false),
            trouble: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl Gate {
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    pub fn open(&self) {
        self.closed.send_replace(false);
    }

    pub fn fail(&self, trouble: Trouble) {
        *self.trouble.lock().expect("no panic") = trouble;
    }

    pub async fn pass(&self, mut bytes: Vec<u8>) -> FsResult<Payload> {
        let mut closed = self.closed.subscribe();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _ = closed.wait_for(|closed| !closed).await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let trouble = self.trouble.lock().expect("no panic").clone();
        match trouble {
            Trouble::None => {}
            Trouble::Error(error) => return Err(error),
            Trouble::Short => bytes.truncate(bytes.len() / 2),
        }
        Ok(bytes.into())
    }
}
