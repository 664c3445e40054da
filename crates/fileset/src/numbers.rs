//! Numbers for new files, taken from the engine in blocks: so that a create looks at no counter that others change.
//! What is left of a block when the process ends is never used.

use std::{ops::ControlFlow, ops::Range};

use penstock_base::{FsError, FsResult};
use penstock_vfs::Inode;
use tokio::sync::Mutex;

use crate::{
    engine::{Engine, Reads, Transaction, mark, transact},
    schema,
};

/// Numbers in a block.
const BLOCK: u64 = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    left: Mutex<Range<u64>>,
}

impl Numbers {
    /// A number that no file ever had.
    pub(crate) async fn next(&self, engine: &dyn Engine) -> FsResult<Inode> {
        let mut left = self.left.lock().await;
        if left.is_empty() {
            *left = transact(engine, |transaction| take(transaction)).await?;
        }
        left.start += 1;
        Ok(Inode(left.start - 1))
    }
}

fn take(transaction: &mut dyn Transaction) -> FsResult<Range<u64>> {
    let last = mark(transaction.get(schema::LAST_INODE)?.as_ref());
    if last + BLOCK > schema::FILE_MAX {
        return Err(FsError::NoSpace);
    }
    let block = last + 1..last + 1 + BLOCK;
    check_free(transaction, &block)?;
    transaction.advance(schema::LAST_INODE, last + BLOCK)?;
    Ok(block)
}

/// Fails with `Corrupt` where a file has one of these numbers: a new one would take its place.
fn check_free(reads: &dyn Reads, block: &Range<u64>) -> FsResult<()> {
    let [start, end] = [block.start, block.end].map(|number| schema::node(Inode(number)));
    let mut is_free = true;
    reads.scan(&start..&end, &mut |_, _| {
        is_free = false;
        ControlFlow::Break(())
    })?;
    match is_free {
        true => Ok(()),
        false => Err(schema::damaged("the last number of a file")),
    }
}
