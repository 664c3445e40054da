//! On whose behalf an operation runs.

use std::sync::Arc;

use crate::CallId;

/// The user and the groups of whoever asked a door for an operation.
///
/// Cheap to clone: a door makes one for each connection or request and passes it by reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// First group. New files belong to it.
    pub gid: u32,
    /// Further groups.
    pub groups: Arc<[u32]>,
    /// Whether the door, or a kernel before it, has checked permissions already. A volume that keeps
    /// owners and modes checks an identity that is not trusted with [`crate::permission`].
    pub is_trusted: bool,
    /// The call in which names are changed, if it may come again.
    pub call: Option<CallId>,
}

impl Identity {
    /// A user without further groups whose permissions the door has checked.
    pub fn trusted(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            groups: Arc::default(),
            is_trusted: true,
            call: None,
        }
    }

    /// A user whose permissions nobody has checked.
    pub fn new(uid: u32, gid: u32, groups: impl Into<Arc<[u32]>>) -> Self {
        Self {
            uid,
            gid,
            groups: groups.into(),
            is_trusted: false,
            call: None,
        }
    }

    /// The process itself, as which a door acts when nobody asked it: trusted, and root.
    pub fn root() -> Self {
        Self::trusted(0, 0)
    }

    /// Whether `gid` is one of its groups.
    pub fn is_member_of(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Owner of what it makes.
    pub fn owner(&self) -> Owner {
        Owner {
            uid: self.uid,
            gid: self.gid,
        }
    }
}

/// The user and the group that a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}
