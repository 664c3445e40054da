//! Keys with their values, some at a time, in the order of their bytes.

use std::ops::ControlFlow;

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{ChecksumKind, FsResult, Summing, run_blocking};

use super::{PAGE_BYTES, PAGE_KEYS};
use crate::{
    engine::{ALL, Engine, Frozen, Reads, behind},
    schema::{self, kind},
};

/// Some keys with their values.
pub type Page = Vec<(Bytes, Bytes)>;

/// Where pages come from.
#[async_trait]
pub trait Pages: Send {
    /// The next keys; `None` behind the last one.
    async fn next(&mut self) -> FsResult<Option<Page>>;
}

/// The pages of one state of an engine.
pub struct FrozenPages {
    state: Frozen,
    /// Nothing before this key is to come.
    from: Bytes,
}

impl FrozenPages {
    /// Of the state that is durable now.
    pub async fn of(engine: &dyn Engine) -> FsResult<Self> {
        Ok(Self {
            state: engine.freeze().await?,
            from: Bytes::from_static(ALL.start),
        })
    }
}

#[async_trait]
impl Pages for FrozenPages {
    async fn next(&mut self) -> FsResult<Option<Page>> {
        let page = run_blocking(|| page(&*self.state, &self.from))?;
        let Some((last, _)) = page.last() else {
            return Ok(None);
        };
        self.from = behind(last);
        Ok(Some(page))
    }
}

fn page(state: &dyn Reads, from: &[u8]) -> FsResult<Page> {
    let (mut page, mut bytes) = (Page::new(), 0);
    state.scan(from..ALL.end, &mut |key, value| {
        bytes += key.len() + value.len();
        page.push((Bytes::copy_from_slice(key), value.clone()));
        match bytes < PAGE_BYTES && page.len() < PAGE_KEYS {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(page)
}

/// What all keys and values, in their order, come to.
#[derive(Debug, Clone)]
pub struct Digest {
    count: u64,
    sum: Summing,
}

impl Default for Digest {
    fn default() -> Self {
        Self {
            count: 0,
            sum: Summing::new(ChecksumKind::Crc64Nvme),
        }
    }
}

impl Digest {
    /// One more key with its value.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        self.count += 1;
        for part in [key, value] {
            self.sum.add(&(part.len() as u64).to_le_bytes());
            self.sum.add(part);
        }
    }

    /// How many keys there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A checksum of 64 bits of all of them.
    pub fn sum(&self) -> u64 {
        self.sum.checksum().value()
    }
}

/// What a key says elsewhere; nothing if it is of this machine, of a file system that is on its way, or bytes that the bucket
/// is to have before that.
pub(super) fn carried(key: &[u8], value: &Bytes) -> Option<Bytes> {
    match key {
        schema::LOADING
        | schema::GENERATION
        | [
            kind::HOLDER
            | kind::LOCKS
            | kind::WRITE_LEASE
            | kind::WRITER
            | kind::CALL
            | kind::CONTENT,
            ..,
        ] => None,
        // Nobody holds it there.
        [kind::ORPHAN, ..] => Some(Bytes::new()),
        _ => Some(value.clone()),
    }
}
