//! A snapshot of a path as a volume.
//!
//! ```text
//! SOURCE -> an index that is kept, or: listing -> image and map -> kept     (index)
//!                        |
//!           map + Store -> disks for a file system of the kernel  (open, as root)
//!                       -> files                                  (open, --transport=fuse)
//! ```

pub(crate) mod index;
mod layout;
mod manifest;
mod open;
mod progress;
mod settings;

pub(crate) use open::open;
pub(crate) use settings::source;
