//! Files of this machine that stand in for something else.

use std::{fmt, os::fd::AsFd};

/// An open file that holds exactly the bytes of a version of an object, and will as long as this
/// lives. Whoever holds it keeps the room that the file takes occupied.
pub trait LocalFile: AsFd + fmt::Debug + Send + Sync {}
