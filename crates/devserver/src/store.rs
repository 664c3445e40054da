//! What the server holds, in memory: buckets of objects and unfinished uploads.
//!
//! An [`object::Object`] never changes once it is in its bucket; writing replaces it. So
//! readers hold a reference and need no lock while they send.

mod arena;
mod bucket;
mod content;
pub(crate) mod crowd;
mod data;
pub(crate) mod fill;
mod listing;
mod load;
mod object;
mod objects;
mod upload;

pub(crate) use bucket::{Bucket, Condition};
pub(crate) use content::{Content, ContentWriter};
pub use data::Data;
pub(crate) use listing::{Entry, Listing, ListingQuery};
pub(crate) use object::{Attributes, Kind, Object};
pub(crate) use objects::Listed;
pub(crate) use upload::{Part, Upload};
