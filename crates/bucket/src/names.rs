//! Making and removing names.
//!
//! Each change enters the gate (see [`crate::inode`]), changes the store, and then the tree. It
//! runs in a task of its own, so an interrupted caller leaves no half of it.

mod mkdir;
mod remove;
mod special;
mod symlink;
