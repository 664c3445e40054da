//! Who may do what, as one pure function of attributes and identity.
//!
//! Where a file has an access list, [`crate::AccessList`] takes the place of the nine bits of its mode. A kernel with
//! `default_permissions` checks before it asks a door; such a door passes identities that
//! are trusted. Everybody else uses these functions: a volume that keeps owners and modes inside its
//! transactions, an NFS door for volumes that do not check. The rules are those of path_resolution(7),
//! chmod(2), chown(2), utime(2) and unlink(2).

use penstock_base::{FsError, FsResult};

use crate::{AttributeChanges, Attributes, FileKind, Identity, SpecialFile, TimeChange};

/// Set-group-id bit of a mode.
const SET_GROUP_ID: u16 = 0o2000;
/// Sticky bit of a mode.
const STICKY: u16 = 0o1000;
/// All three bits that allow execution.
const ANY_EXECUTE: u16 = 0o111;

/// What somebody wants to do with a file: a set of read, write and execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AccessMask(u16);

impl AccessMask {
    /// Nothing: the file must exist.
    pub const EXISTS: Self = Self(0);
    /// Execute a file or search a directory.
    pub const EXECUTE: Self = Self(1);
    /// Write a file or change the names in a directory.
    pub const WRITE: Self = Self(2);
    /// Read a file or list a directory.
    pub const READ: Self = Self(4);
    /// Each of them, lowest bit first.
    pub const EACH: [Self; 3] = [Self::EXECUTE, Self::WRITE, Self::READ];

    /// Read, write and execute.
    pub(crate) const ALL: Self = Self(0o7);

    /// Three bits of a mode.
    pub(crate) const fn of_bits(bits: u16) -> Self {
        Self(bits & Self::ALL.0)
    }

    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in it.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Each thing that `by` may do with a file. Who wants several at once asks [`check`]: an access list may give each to one
/// group and both to none.
pub fn allowed(file: &Attributes, by: &Identity) -> AccessMask {
    let each = AccessMask::EACH.into_iter();
    each.filter(|one| is_allowed(file, by, *one))
        .fold(AccessMask::EXISTS, AccessMask::union)
}

fn is_allowed(file: &Attributes, by: &Identity, wanted: AccessMask) -> bool {
    if by.is_trusted {
        return true;
    }
    if by.uid == 0 {
        // Root reads and writes everything, and executes what anybody may execute.
        let may_execute = file.kind == FileKind::Directory || file.permissions & ANY_EXECUTE != 0;
        return AccessMask(0o6 | u16::from(may_execute)).contains(wanted);
    }
    match &file.access_list {
        Some(list) => list.allows(file.owner(), by, wanted),
        None => AccessMask::of_bits(class_of(file, by)).contains(wanted),
    }
}

/// The bits of the mode that are about `by`, as its low three bits.
fn class_of(file: &Attributes, by: &Identity) -> u16 {
    if by.uid == file.uid {
        file.permissions >> 6
    } else if by.is_member_of(file.gid) {
        file.permissions >> 3
    } else {
        file.permissions
    }
}

/// Fails with `PermissionDenied` unless `by` may do all of `wanted` with a file.
pub fn check(file: &Attributes, by: &Identity, wanted: AccessMask) -> FsResult<()> {
    match is_allowed(file, by, wanted) {
        true => Ok(()),
        false => Err(FsError::PermissionDenied),
    }
}

/// Fails unless `by` may make these changes. What is to be changed of the mode then is for
/// [`permissions_after`] to say.
pub fn check_changes(file: &Attributes, by: &Identity, changes: &AttributeChanges) -> FsResult<()> {
    if by.is_trusted || by.uid == 0 {
        return Ok(());
    }
    let is_owner = by.uid == file.uid;
    let gives_away = changes.uid.is_some_and(|uid| uid != file.uid);
    let leaves_groups = changes
        .gid
        .is_some_and(|gid| gid != file.gid && !by.is_member_of(gid));
    let changes_owner = changes.uid.is_some() || changes.gid.is_some();
    if gives_away || leaves_groups || changes_owner && !is_owner {
        return Err(FsError::NotPermitted(
            "only the owner changes the group, and only root the owner",
        ));
    }
    if changes.permissions.is_some() && !is_owner {
        return Err(FsError::NotPermitted("only the owner changes the mode"));
    }
    let times = [changes.accessed, changes.modified];
    let sets_times = times
        .iter()
        .any(|time| matches!(time, Some(TimeChange::To(_))));
    if sets_times && !is_owner {
        return Err(FsError::NotPermitted("only the owner sets times"));
    }
    let touches = times.iter().any(Option::is_some);
    // Who opened a file for writing may change its size whatever its mode is by now.
    let changes_size = changes.size.is_some() && changes.handle.is_none();
    if changes_size || touches && !is_owner {
        check(file, by, AccessMask::WRITE)?;
    }
    Ok(())
}

/// The permission bits after these changes: changing the owner, or the mode by somebody outside the group,
/// takes set-id bits away. Of who is trusted the kernel has judged the mode, and knows groups that the door is not told.
pub fn permissions_after(file: &Attributes, by: &Identity, changes: &AttributeChanges) -> u16 {
    let is_privileged = by.uid == 0 || by.is_trusted;
    let mut permissions = changes.permissions.unwrap_or(file.permissions);
    let group = changes.gid.unwrap_or(file.gid);
    if changes.permissions.is_some() && !is_privileged && !by.is_member_of(group) {
        permissions &= !SET_GROUP_ID;
    }
    let changes_owner = changes.uid.is_some() || changes.gid.is_some();
    // As Linux does it, also for root.
    if changes_owner && file.kind != FileKind::Directory {
        permissions = without_set_id(permissions);
    }
    permissions
}

/// The permission bits of a file after a write by somebody who is not root.
pub fn without_set_id(permissions: u16) -> u16 {
    let cleared = permissions & !0o4000;
    // Without execution for the group the bit means mandatory locks, not another group.
    if permissions & 0o010 != 0 {
        cleared & !SET_GROUP_ID
    } else {
        cleared
    }
}

/// Fails unless `by` may take the name of `file` out of `directory`, by removing or renaming it.
pub fn check_removal(directory: &Attributes, file: &Attributes, by: &Identity) -> FsResult<()> {
    let entered = AccessMask::WRITE.union(AccessMask::EXECUTE);
    check(directory, by, entered)?;
    let is_sticky = directory.permissions & STICKY != 0;
    let owns_one = by.uid == file.uid || by.uid == directory.uid;
    if is_sticky && !by.is_trusted && by.uid != 0 && !owns_one {
        return Err(FsError::NotPermitted(
            "the directory is sticky and the file another user's",
        ));
    }
    Ok(())
}

/// Fails unless `by` may make files of a kind: a device opens the machine on which it is seen to whoever may open it.
pub fn check_kind(kind: FileKind, by: &Identity) -> FsResult<()> {
    use SpecialFile::{BlockDevice, CharacterDevice};
    let is_device = matches!(kind, FileKind::Special(BlockDevice(_) | CharacterDevice(_)));
    match is_device && by.uid != 0 && !by.is_trusted {
        true => Err(FsError::NotPermitted("only root makes devices")),
        false => Ok(()),
    }
}

/// The group and the permission bits of what `by` makes in `directory`: a directory with the set-group-id
/// bit hands its group on.
pub fn of_new_file(
    directory: &Attributes,
    by: &Identity,
    (kind, permissions): (FileKind, u16),
) -> (u32, u16) {
    if directory.permissions & SET_GROUP_ID == 0 {
        return (by.gid, permissions);
    }
    let group = directory.gid;
    let permissions = match kind {
        FileKind::Directory => permissions | SET_GROUP_ID,
        _ if by.uid != 0 && !by.is_member_of(group) => permissions & !SET_GROUP_ID,
        _ => permissions,
    };
    (group, permissions)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::Inode;

    fn file(permissions: u16) -> Attributes {
        let attributes = Attributes::new(Inode(9), FileKind::Regular, SystemTime::UNIX_EPOCH);
        Attributes {
            permissions,
            uid: 10,
            gid: 20,
            ..attributes
        }
    }

    fn directory(permissions: u16) -> Attributes {
        Attributes {
            kind: FileKind::Directory,
            ..file(permissions)
        }
    }

    fn user(uid: u32, gid: u32) -> Identity {
        Identity::new(uid, gid, [77])
    }

    fn changes(change: impl FnOnce(&mut AttributeChanges)) -> AttributeChanges {
        let mut changes = AttributeChanges::default();
        change(&mut changes);
        changes
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let is_allowed = |mode, by: &Identity| {
            AccessMask::EACH.map(|wanted| check(&file(mode), by, wanted).is_ok())
        };
        assert_eq!(is_allowed(0o421, &user(10, 20)), [false, false, true]);
        assert_eq!(is_allowed(0o421, &user(11, 20)), [false, true, false]);
        assert_eq!(is_allowed(0o421, &user(11, 21)), [true, false, false]);
        assert_eq!(is_allowed(0o077, &user(10, 20)), [false; 3]);
        let in_further_group = Identity::new(11, 21, [20]);
        assert_eq!(is_allowed(0o070, &in_further_group), [true; 3]);
    }

    #[test]
    fn root_executes_only_what_somebody_may_execute() {
        let root = user(0, 0);
        let all = AccessMask::READ
            .union(AccessMask::WRITE)
            .union(AccessMask::EXECUTE);
        assert!(check(&file(0), &root, AccessMask::WRITE).is_ok());
        assert_eq!(
            check(&file(0o666), &root, all),
            Err(FsError::PermissionDenied)
        );
        assert!(check(&file(0o001), &root, all).is_ok());
        assert!(check(&directory(0), &root, all).is_ok());
    }

    #[test]
    fn who_is_trusted_was_checked_before() {
        let trusted = Identity::trusted(11, 21);
        assert!(check(&file(0), &trusted, AccessMask::WRITE).is_ok());
        let gives_away = changes(|changes| changes.uid = Some(1));
        assert!(check_changes(&file(0), &trusted, &gives_away).is_ok());
    }

    #[test]
    fn only_the_owner_changes_mode_group_and_times() {
        let mode = changes(|changes| changes.permissions = Some(0o600));
        let group = changes(|changes| changes.gid = Some(77));
        let elsewhere = changes(|changes| changes.gid = Some(78));
        let owner = changes(|changes| changes.uid = Some(11));
        let time = TimeChange::To(SystemTime::UNIX_EPOCH);
        let time = changes(|changes| changes.modified = Some(time));
        for allowed in [&mode, &group, &time] {
            assert!(check_changes(&file(0), &user(10, 20), allowed).is_ok());
            assert!(check_changes(&file(0o777), &user(11, 20), allowed).is_err());
        }
        for refused in [&elsewhere, &owner] {
            assert!(check_changes(&file(0o777), &user(10, 20), refused).is_err());
            assert!(check_changes(&file(0), &user(0, 0), refused).is_ok());
        }
    }

    #[test]
    fn touching_and_truncating_need_permission_to_write() {
        let touch = changes(|changes| changes.modified = Some(TimeChange::Now));
        let truncate = changes(|changes| changes.size = Some(0));
        let opened = changes(|changes| {
            changes.size = Some(0);
            changes.handle = Some(crate::HandleId(1));
        });
        assert!(check_changes(&file(0o002), &user(11, 21), &touch).is_ok());
        assert!(check_changes(&file(0o004), &user(11, 21), &touch).is_err());
        assert!(check_changes(&file(0), &user(10, 20), &touch).is_ok());
        assert!(check_changes(&file(0), &user(10, 20), &truncate).is_err());
        assert!(check_changes(&file(0), &user(10, 20), &opened).is_ok());
    }

    #[test]
    fn set_id_bits_go_when_the_owner_or_a_stranger_to_the_group_changes() {
        let after = |by: &Identity, changes: &AttributeChanges| {
            permissions_after(&file(0o6775), by, changes)
        };
        let group = changes(|changes| changes.gid = Some(77));
        assert_eq!(after(&user(10, 20), &group), 0o775);
        assert_eq!(after(&user(0, 0), &group), 0o775, "Linux does so");
        let mode = changes(|changes| changes.permissions = Some(0o2755));
        assert_eq!(after(&user(10, 20), &mode), 0o2755);
        assert_eq!(after(&user(10, 21), &mode), 0o755);
        assert_eq!(without_set_id(0o6745), 0o2745);
        // A kernel takes it away itself, from who is no member by any of his groups.
        assert_eq!(after(&Identity::trusted(10, 21), &mode), 0o2755);
        assert_eq!(after(&Identity::trusted(10, 21), &group), 0o775);
    }

    #[test]
    fn only_root_makes_devices() {
        use SpecialFile::{BlockDevice, CharacterDevice, Pipe, Socket};
        let device = crate::Device(0x0801);
        for special in [BlockDevice(device), CharacterDevice(device)] {
            let kind = FileKind::Special(special);
            assert!(check_kind(kind, &user(10, 0)).is_err());
            assert!(check_kind(kind, &user(0, 0)).is_ok());
            assert!(check_kind(kind, &Identity::trusted(10, 0)).is_ok());
        }
        for kind in [FileKind::Special(Pipe), FileKind::Special(Socket)] {
            assert!(check_kind(kind, &user(10, 0)).is_ok());
        }
    }

    #[test]
    fn a_sticky_directory_keeps_the_files_of_others() {
        let sticky = Attributes {
            uid: 1,
            ..directory(0o1777)
        };
        assert!(check_removal(&sticky, &file(0), &user(10, 20)).is_ok());
        assert!(check_removal(&sticky, &file(0), &user(1, 1)).is_ok());
        assert!(check_removal(&sticky, &file(0), &user(11, 20)).is_err());
        assert!(check_removal(&directory(0o777), &file(0), &user(11, 21)).is_ok());
        assert!(check_removal(&directory(0o775), &file(0), &user(11, 21)).is_err());
    }

    #[test]
    fn a_directory_with_the_set_group_id_bit_hands_its_group_on() {
        let shared = directory(0o2775);
        let made = |by: &Identity, kind, bits| of_new_file(&shared, by, (kind, bits));
        let by = user(11, 21);
        assert_eq!(made(&by, FileKind::Directory, 0o755), (20, 0o2755));
        assert_eq!(made(&by, FileKind::Regular, 0o2755), (20, 0o755));
        assert_eq!(
            of_new_file(&directory(0o755), &by, (FileKind::Regular, 0o644)),
            (21, 0o644)
        );
    }
}
