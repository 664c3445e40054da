//! Files of this machine, named by one name below an open directory.

mod directory;

pub(crate) use directory::{Directory, Entry, Place, c_string, kind_of};
