//! A stream volume, from options to a mount.
//!
//! ```text
//! SOURCE -> an index that is kept, or: listing -> image and map -> kept
//!                        |
//!           map + Store -> disks -> block devices -> mount       (as root)
//!                       -> volume -> FUSE                         (--transport=fuse)
//! ```

mod open;
mod settings;

pub(crate) use open::open;
pub(crate) use settings::{pool, processors, source, state_directory};
