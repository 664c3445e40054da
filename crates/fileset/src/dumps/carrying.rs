//! Bringing keys into an engine that has none, so that an interruption loses nothing and shows nothing.

use std::ops::ControlFlow;

use bytes::{Buf, BufMut, Bytes};
use penstock_base::{FsError, FsResult};

use super::pages::{Digest, FrozenPages, Page, Pages, carried};
use crate::{
    engine::{ALL, Engine, Reads, Transaction, transact},
    schema::{FORMAT, Format, GENERATION, LOADING},
};

/// Keys that are removed in one operation.
const STEP: usize = 1000;

/// All keys are there and are what they were, and nobody sees the file system yet.
#[derive(Debug)]
pub struct Carried {
    head: Bytes,
    digest: Digest,
}

impl Carried {
    /// Keys that are there.
    pub fn keys(&self) -> u64 {
        self.digest.count()
    }

    /// Makes the file system visible, in one operation, durably: in this [`crate::Label::generation`] of it.
    pub async fn publish(self, target: &dyn Engine, generation: u64) -> FsResult<()> {
        let head = self.head;
        transact(target, move |transaction| -> FsResult<()> {
            transaction.put(FORMAT, head.clone());
            if generation > 0 {
                let generation = generation.to_le_bytes();
                transaction.put(GENERATION, Bytes::copy_from_slice(&generation));
            }
            transaction.delete(LOADING);
            Ok(())
        })
        .await?;
        Ok(target.sync().await?)
    }
}

/// How far an engine is: from what, and up to which key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    of: u64,
    last: Bytes,
}

impl Place {
    fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(8 + self.last.len());
        bytes.put_u64_le(self.of);
        bytes.put_slice(&self.last);
        bytes.into()
    }

    fn decode(mut value: Bytes) -> FsResult<Self> {
        let of = value.try_get_u64_le();
        Ok(Self {
            of: of.map_err(|_| crate::schema::damaged("the place"))?,
            last: value,
        })
    }
}

/// Brings all keys into `target`, but those that are of the machines that have the file system, and compares them. `of` says
/// what they come from: who was interrupted goes on with the same one, and begins anew with another. `tell` is told how many
/// keys are there. Fails with `AlreadyExists` where a file system is.
pub async fn carry(
    pages: &mut dyn Pages,
    (target, of): (&dyn Engine, u64),
    tell: &(dyn Fn(u64) + Sync),
) -> FsResult<Carried> {
    let there = begin(target, of).await?;
    let (mut head, mut digest) = (None, Digest::default());
    while let Some(page) = pages.next().await? {
        let page = taken(page, (&mut head, &mut digest));
        let is_new = page.last().is_some_and(|(key, _)| *key > there.last);
        if is_new {
            put(target, of, page).await?;
        }
        tell(digest.count());
    }
    target.sync().await?;
    let found = digest_of(target).await?;
    if (found.count(), found.sum()) != (digest.count(), digest.sum()) {
        return Err(FsError::Corrupt(format!(
            "{} keys were brought, and {} are there or say something else",
            digest.count(),
            found.count()
        )));
    }
    let head = head.ok_or(FsError::NotFound)?;
    Format::decode(&head)?;
    Ok(Carried { head, digest })
}

/// What is brought of a page. The head of the file system comes last.
fn taken(page: Page, (head, digest): (&mut Option<Bytes>, &mut Digest)) -> Page {
    let mut taken = Page::new();
    for (key, value) in page {
        if &key[..] == FORMAT {
            *head = Some(value);
        } else if let Some(value) = carried(&key, &value) {
            digest.add(&key, &value);
            taken.push((key, value));
        }
    }
    taken
}

/// What all keys of an engine come to, that are to be there so far.
async fn digest_of(engine: &dyn Engine) -> FsResult<Digest> {
    let (mut pages, mut digest) = (FrozenPages::of(engine).await?, Digest::default());
    while let Some(page) = pages.next().await? {
        taken(page, (&mut None, &mut digest));
    }
    Ok(digest)
}

async fn put(target: &dyn Engine, of: u64, page: Page) -> FsResult<()> {
    transact(target, move |transaction| -> FsResult<()> {
        for (key, value) in &page {
            transaction.put(key, value.clone());
        }
        let last = page.last().map(|(key, _)| key.clone()).unwrap_or_default();
        transaction.put(LOADING, Place { of, last }.encode());
        Ok(())
    })
    .await
}

/// Says where to go on.
async fn begin(target: &dyn Engine, of: u64) -> FsResult<Place> {
    loop {
        let begun = transact(target, move |transaction| -> FsResult<_> {
            match transaction.get(LOADING)?.map(Place::decode).transpose()? {
                Some(place) if place.of == of => Ok(Some(place)),
                Some(_) => clear(transaction, of),
                None if some_keys(transaction)?.is_empty() => clear(transaction, of),
                None => Err(FsError::AlreadyExists),
            }
        });
        if let Some(place) = begun.await? {
            return Ok(place);
        }
    }
}

/// A step of removing what another attempt brought; begins where nothing is left of it.
fn clear(transaction: &mut dyn Transaction, of: u64) -> FsResult<Option<Place>> {
    let keys = some_keys(transaction)?;
    if !keys.is_empty() {
        keys.iter().for_each(|key| transaction.delete(key));
        return Ok(None);
    }
    let place = Place {
        of,
        last: Bytes::new(),
    };
    transaction.put(LOADING, place.encode());
    Ok(Some(place))
}

fn some_keys(reads: &dyn Reads) -> FsResult<Vec<Bytes>> {
    let mut keys = Vec::new();
    reads.scan(ALL, &mut |key, _| {
        if key != LOADING {
            keys.push(Bytes::copy_from_slice(key));
        }
        match keys.len() < STEP {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(keys)
}
