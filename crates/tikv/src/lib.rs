//! TiKV as the database that has the metadata of a fileset: for those who outgrow one database server.
//!
//! ```text
//!   engine::database ──► Tikv ──► steps ──► state ──► client ──► PD and TiKV
//!    batches, retries     seam    what a     one key     deadlines
//!                                 step does  says it all
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`database`] | the seam to the engine, and maintenance |
//! | [`steps`] | what each step looks at and changes |
//! | [`state`] | one state of all keys, and how it becomes the next one |
//! | [`pages`] | pages of keys, out of one state |
//! | [`records`] | what is written, as bytes |
//! | [`client`] | trips with deadlines |
//! | [`address`] | which cluster |
//!
//! # One key commits
//!
//! The released client of TiKV can say that a transaction of many keys was made of which a part was written: where it looks
//! for the region of a key and fails, it leaves out that key and those behind it. It can also say that nothing was made of
//! what was. A transaction of **one key** cannot be made in part. So one key, the **head**, says which state there is: how
//! many changes were made, and what the last ones changed, the **pending** ones. Each step replaces the head, if nobody else did
//! since it looked, and is made or not by that alone. Who reads sees what is pending above what the keys say.
//!
//! When more is pending than [`PENDING_MAX`](state) the next step first **folds** it into the keys, by transactions of many
//! keys of which it believes nothing: it reads all keys back and compares, and does it again until they are as they should be.
//! Then it replaces the head by one without them. Folding changes what is seen in no way, so a part of it, or one that
//! is repeated, does no harm. One that comes late is refused: it locks the head first, and TiKV refuses to lock what was put since.
//!
//! Each head has a random **stamp**. After each commit, whatever came of it, the head is read back: with this stamp, the step
//! was made. With another one it may have been, and is done again; a batch then finds its number taken by itself. An
//! attempt that is still on its way and lands behind the answer finds that the head was put since, and is refused.
//!
//! All steps of all machines so are one after the other, whatever they read: there is no write skew. What that costs is that a
//! cluster makes as many batches a second as one key can be replaced, however many servers it has; its servers share what
//! is read and what is kept.

mod address;
mod client;
mod database;
mod pages;
mod records;
mod state;
mod steps;

use std::{path::PathBuf, sync::Arc, time::Duration};

use penstock_fileset::engine::{
    EngineResult,
    database::{self as engine, Database, DatabaseSettings, Tenancy},
};

pub use address::TikvAddress;

/// Where a file system's keys are, and how much it may use.
#[derive(Debug, Clone)]
pub struct TikvSettings {
    /// A directory of this user's, which is made: one process at a time has it, and it says which machine this is.
    pub directory: PathBuf,
    /// The cluster.
    pub address: TikvAddress,
    /// Which file system: the cluster may hold others.
    pub identity: u64,
    /// Bytes of memory for what is known of the keys.
    pub memory: u64,
    /// How long an operation waits for a cluster that does not answer.
    pub patience: Duration,
    /// How long a session lives of which nothing is heard.
    pub lease: Duration,
    /// Whether others may have the file system at the same time.
    pub is_shared: bool,
}

impl TikvSettings {
    /// How long an operation waits, usually.
    pub const PATIENCE: Duration = engine::PATIENCE;
    /// How long a session lives of which nothing is heard, usually.
    pub const LEASE: Duration = engine::LEASE;
}

impl DatabaseSettings for TikvSettings {
    fn tenancy(&self) -> Tenancy {
        Tenancy {
            directory: self.directory.clone(),
            memory: self.memory,
            patience: self.patience,
            lease: self.lease,
            is_shared: self.is_shared,
        }
    }

    fn database(&self) -> EngineResult<Arc<dyn Database>> {
        Ok(Arc::new(database::Tikv::new(&self.address, self.identity)))
    }
}
