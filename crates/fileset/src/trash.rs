//! The trash: removed files stay for so many days below `.trash` in the root directory, if that is wanted.
//!
//! ```text
//!  the last name goes ──► an entry `PARENT-INODE-NAME` in the directory of the hour, in place of the key of an orphan
//!  rename out of it   ──► a file like any other
//!  unlink in it, purge, the days are over ──► an orphan, which is collected
//! ```
//!
//! Only what holds bytes comes there: regular files with a size. Each is still a file with one name, which nobody but root can
//! reach, so who has it open goes on with it; to them it shows as a file without a name. Nothing is made in the trash or moved
//! into it.
//!
//! The directory of an hour is made by the first removal in it, and has a number that follows from the hour. Later ones only
//! look at it, put an entry of their own, and advance a mark, so they do not wait for each other.
//!
//! A file in the trash counts for the file system and for its owners as before. For the quota of a directory it counts no more:
//! it counts for the trash, as if that was such a directory. So how much is in it is known without looking. Where a limit of the
//! owner or of the file system is nearly reached a removal passes the trash over, so that it makes room.
//!
//! A snapshot does not show the trash. It shows what it has by its own names.
//!
//! | part | what it does |
//! |---|---|
//! | `filling` | what becomes of a file whose last name goes |
//! | `guarding` | what may be done in the trash |
//! | `listing` | what is in it |
//! | `restoring` | brings a file back |
//! | `emptying` | removes what is too old, or all |

mod emptying;
mod filling;
mod guarding;
mod listing;
mod restoring;

use penstock_base::{FileName, FsError, FsResult, clock};
use penstock_vfs::{Dentry, FileKind, Inode};
use serde::Serialize;

pub use emptying::{Emptied, purge_some};
pub(crate) use emptying::{empty_some, expire, until};
pub(crate) use filling::{close_hour, keeps, put, take_out};
pub(crate) use guarding::{check_changeable, check_removal, check_rename};
pub use listing::{Item, list};
pub use restoring::restore;
pub(crate) use restoring::restore_now;

use crate::{
    engine::{Engine, Reads, Transaction, counter, query, transact},
    operations::{self, raise_format},
    quotas::{self, Amount, Owner, Subject, Use},
    schema::{self, Entry, Format, Node, TRASH, TRASH_DAYS, TRASH_NAME},
};

/// For how many days files stay at most.
pub const DAYS_MAX: u32 = 36_500;

/// What the trash is set to, and what is in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct State {
    /// For how many days removed files stay; 0 if none come into it.
    pub days: u32,
    /// Files in it.
    pub files: u64,
    /// Bytes that they occupy.
    pub bytes: u64,
}

/// How it is now, in constant time.
pub async fn state(engine: &dyn Engine) -> FsResult<State> {
    query(engine, |reads| {
        let Use { bytes, files } = quotas::used(reads, Subject::Directory(TRASH))?;
        Ok(State {
            days: days(reads)?.unwrap_or(0),
            files,
            bytes,
        })
    })
    .await
}

/// Has removed files stay for so many days from now on, those that are in the trash too. With 0 they do not come there any more,
/// and what is in it stays until somebody removes it. It holds when this returns, on all machines, and is durable. While a volume
/// has the file system open its [`set_trash`](crate::FilesetVolume::set_trash) does it.
pub async fn set(engine: &dyn Engine, days: u32) -> FsResult<()> {
    if days > DAYS_MAX {
        return Err(FsError::InvalidArgument(
            "files stay in the trash for 36500 days at most",
        ));
    }
    transact(engine, move |transaction| set_now(transaction, days)).await?;
    Ok(engine.sync().await?)
}

fn set_now(transaction: &mut dyn Transaction, days: u32) -> FsResult<()> {
    if days == 0 {
        transaction.delete(TRASH_DAYS);
        return Ok(());
    }
    let name = trash_file_name();
    let place = schema::entry(Dentry::new(Inode::ROOT, &name));
    if transaction.get(&place)?.is_some() {
        return Err(FsError::InvalidArgument(
            "the root directory has a file `.trash`: rename it, for the trash is seen there",
        ));
    }
    raise_format(transaction, Format::with_trash)?;
    if transaction.get(&schema::node(TRASH))?.is_none() {
        make_directory(transaction, TRASH, Inode::ROOT)?;
    }
    transaction.put(TRASH_DAYS, schema::encode_days(days));
    Ok(())
}

/// For how many days removed files stay, if they come into the trash.
pub(crate) fn days(reads: &dyn Reads) -> FsResult<Option<u32>> {
    let value = reads.get(TRASH_DAYS)?;
    value.map(|value| schema::decode_days(&value)).transpose()
}

/// What `.trash` in the root directory leads to, where nothing else has that name: as long as files come there, or are there.
pub(crate) fn entry(reads: &dyn Reads, dentry: Dentry<'_>) -> FsResult<Option<Entry>> {
    if dentry.parent != Inode::ROOT || dentry.name.as_bytes() != TRASH_NAME {
        return Ok(None);
    }
    let hours = || reads.get(&schema::directories(TRASH));
    let is_seen = days(reads)?.is_some() || counter(hours()?.as_ref()) > 0;
    Ok(is_seen.then_some(Entry {
        inode: TRASH,
        kind: FileKind::Directory,
    }))
}

fn trash_file_name() -> FileName {
    FileName::new(TRASH_NAME).expect("it is a name")
}

/// Makes the trash or one of its hours, which nobody but root may enter.
fn make_directory(transaction: &mut dyn Transaction, inode: Inode, parent: Inode) -> FsResult<()> {
    let node = Node {
        permissions: 0o700,
        parent: parent.0,
        ..Node::new(FileKind::Directory, clock::wall_time())
    };
    operations::put_node(transaction, inode, &node);
    quotas::charge(transaction, Owner::of(inode, &node), Amount::FILE)
}
