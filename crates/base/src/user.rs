//! Who runs this process, by its effective ids.

use rustix::process::{getegid, geteuid};

/// The user who runs this.
pub fn user_id() -> u32 {
    geteuid().as_raw()
}

/// The group of the user who runs this.
pub fn group_id() -> u32 {
    getegid().as_raw()
}

/// Whether this process may do what only root may.
pub fn is_root() -> bool {
    geteuid().is_root()
}
