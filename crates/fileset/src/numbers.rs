//! Numbers for new files, taken from the engine in blocks: so that a create looks at no counter that others change.
//! What is left of a block when the process ends is never used.

use penstock_base::{FsError, FsResult};
use penstock_vfs::Inode;
use tokio::sync::Mutex;

use crate::{
    engine::{Engine, Transaction, mark, transact},
    schema,
};

/// Numbers in a block.
const BLOCK: u64 = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    left: Mutex<std::ops::Range<u64>>,
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

fn take(transaction: &mut dyn Transaction) -> FsResult<std::ops::Range<u64>> {
    let last = mark(transaction.get(schema::LAST_INODE)?.as_ref());
    if last + BLOCK > schema::FILE_MAX {
        return Err(FsError::NoSpace);
    }
    transaction.advance(schema::LAST_INODE, last + BLOCK)?;
    Ok(last + 1..last + 1 + BLOCK)
}
