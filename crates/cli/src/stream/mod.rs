//! A stream volume, from options to a mount.
//!
//! ```text
//! SOURCE -> an index that is kept, or: listing -> image and map -> kept     (index)
//!                        |
//!           map + Store -> disks -> block devices -> mount       (open, as root)
//!                       -> volume -> FUSE                         (open, --transport=fuse)
//! ```

mod index;
mod layout;
mod manifest;
mod open;
mod progress;
mod settings;

pub(crate) use index::{Index, IndexRequest, build_into};
pub(crate) use open::open;
pub(crate) use settings::{pool, processors, requests, source, state_directory, volume_at};
