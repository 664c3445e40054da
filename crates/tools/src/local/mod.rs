//! Files of this machine, named by one name below an open directory.

mod content;
mod directory;
#[allow(unsafe_code)]
mod flush;
mod metadata;
mod temporary;

pub(crate) use content::{
    Segments, copy_range, is_equal, is_on_fuse, read_fully, set_size, write_fully,
};
pub(crate) use directory::{Directory, Entry, Origin, Place, c_string, kind_of, last_name};
pub(crate) use flush::close;
pub use flush::flush;
pub use metadata::FileId;
pub(crate) use metadata::{
    Attempts, Attributes, Handle, LENT, access_list, after_writing, attributes, date_in, give,
    hands_down, is_root, is_same_file, may_give_to, mode_with, modified, owner, permissions,
    remove_access_list, set_attributes, set_mode, stat_of_kind, stat_of_same, times, would_change,
};
pub(crate) use temporary::{
    Temporary, Unfinished, clear_way, is_temporary, left_in, make_under, temporary_name,
};
