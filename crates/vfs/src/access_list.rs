//! Lists of who may do what with a file, as acl(5) has them and as Linux writes them into extended attributes.
//!
//! A file has an *access list* where its mode does not say all, and a directory may have a *default list*, which it hands
//! down to what is made in it. The mode and the access list are two views of one thing: the owner's bits and those of
//! others are the entries of these, and the bits of the group are the mask, which limits everybody but those two. So
//! each change of one changes the other here, and a list that a mode can say is kept as that mode.
//!
//! All of it is pure; a volume keeps [`AccessLists`] with its files and shows the access list in
//! [`Attributes`](crate::Attributes), from which [`crate::permission`] tells who may do what. Linux itself asks no list
//! whose mask is empty, and takes others' bits for those whom the list names then: here the list is followed.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use penstock_base::{FsError, FsResult};

use crate::{AccessMask, Attributes, FileKind, Identity, Owner, XattrMode};

/// Version of the attributes' layout.
const VERSION: u32 = 2;
/// Bytes of the version, and of each entry.
const HEAD: usize = 4;
const ENTRY: usize = 8;
/// Entries that a list may have: the kernel asks for a list with a page of room.
const ENTRIES_MAX: usize = (4096 - HEAD) / ENTRY;
/// The number of nobody, which entries have that need none.
const NO_ID: u32 = u32::MAX;
/// Bits of a mode that say who may do what.
const CLASSES: u16 = 0o777;
/// Set-group-id bit of a mode.
const SET_GROUP_ID: u16 = 0o2000;

/// Which of the two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    /// Who may do what with the file.
    Access,
    /// What a directory hands down to what is made in it.
    Default,
}

impl ListKind {
    /// Bytes of both names in a listing of attributes, each with the zero behind it.
    pub const NAMES_ROOM: usize = Self::Access.name().len() + Self::Default.name().len() + 2;

    /// The list that the extended attribute `name` is, if it is one.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        [Self::Access, Self::Default]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    /// The name of the extended attribute that is this list.
    pub const fn name(self) -> &'static [u8] {
        match self {
            Self::Access => b"system.posix_acl_access",
            Self::Default => b"system.posix_acl_default",
        }
    }
}

/// Whom an entry is about. Their order is that of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Who {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    /// All but the owner and others may do no more than this.
    Mask,
    Others,
}

impl Who {
    fn of(tag: u16, id: u32) -> Option<Self> {
        Some(match tag {
            0x01 => Self::Owner,
            0x02 if id != NO_ID => Self::User(id),
            0x04 => Self::OwningGroup,
            0x08 if id != NO_ID => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Others,
            _ => return None,
        })
    }

    fn tag_and_id(self) -> (u16, u32) {
        match self {
            Self::Owner => (0x01, NO_ID),
            Self::User(id) => (0x02, id),
            Self::OwningGroup => (0x04, NO_ID),
            Self::Group(id) => (0x08, id),
            Self::Mask => (0x10, NO_ID),
            Self::Others => (0x20, NO_ID),
        }
    }

    fn is_named(self) -> bool {
        matches!(self, Self::User(_) | Self::Group(_))
    }
}

/// One line of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct AccessEntry {
    pub who: Who,
    pub may: AccessMask,
}

/// A list that holds to the rules of acl(5): the owner, named users, the owning group, named groups, a mask, others, in
/// this order; those without a name once each, but for the mask, which only a list with names must have. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessList(Arc<[AccessEntry]>);

impl AccessList {
    /// A list of these entries. Fails with `InvalidArgument` if they are none, and with `NoSpace` if they are more than
    /// 511.
    pub fn new(entries: impl Into<Arc<[AccessEntry]>>) -> FsResult<Self> {
        let list = Self(entries.into());
        match list.is_valid() {
            false => Err(FsError::InvalidArgument("that is no list of acl(5)")),
            true if list.0.len() > ENTRIES_MAX => Err(FsError::NoSpace),
            true => Ok(list),
        }
    }

    /// The list that an extended attribute says, or nothing if it has no entries. Fails as [`AccessList::new`] does, and
    /// with `Unsupported` if the attribute has another layout.
    pub fn parse(mut value: &[u8]) -> FsResult<Option<Self>> {
        const DAMAGED: FsError = FsError::InvalidArgument("that is no list of acl(5)");
        if value.try_get_u32_le().map_err(|_| DAMAGED)? != VERSION {
            return Err(FsError::Unsupported(
                "an access list has version 2, as Linux writes it",
            ));
        }
        let (entries, rest) = value.as_chunks::<ENTRY>();
        if !rest.is_empty() {
            return Err(DAMAGED);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let entries = entries.iter().map(parse_entry).collect::<Option<Vec<_>>>();
        Self::new(entries.ok_or(DAMAGED)?).map(Some)
    }

    /// The extended attribute that says this list.
    pub fn encode(&self) -> Bytes {
        let mut value = Vec::with_capacity(HEAD + ENTRY * self.0.len());
        value.put_u32_le(VERSION);
        for entry in self.0.iter() {
            let (tag, id) = entry.who.tag_and_id();
            value.put_u16_le(tag);
            value.put_u16_le(entry.may.bits());
            value.put_u32_le(id);
        }
        value.into()
    }

    /// Its lines, in order.
    pub fn entries(&self) -> &[AccessEntry] {
        &self.0
    }

    fn is_valid(&self) -> bool {
        let place = |entry: &AccessEntry| entry.who.tag_and_id().0;
        let count = |who| self.0.iter().filter(|entry| entry.who == who).count();
        let is_named = self.0.iter().any(|entry| entry.who.is_named());
        self.0.is_sorted_by_key(place)
            && [Who::Owner, Who::OwningGroup, Who::Others].map(count) == [1; 3]
            && (usize::from(is_named)..=1).contains(&count(Who::Mask))
    }

    fn find(&self, who: Who) -> Option<AccessMask> {
        let found = self.0.iter().find(|entry| entry.who == who);
        found.map(|entry| entry.may)
    }

    /// Whether the bits of a mode say all that the list does.
    pub fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// The nine bits of a mode that go with it.
    pub fn classes(&self) -> u16 {
        let bits = |who| self.find(who).map(AccessMask::bits);
        let group = bits(Who::Mask).or_else(|| bits(Who::OwningGroup));
        let [owner, group, others] =
            [bits(Who::Owner), group, bits(Who::Others)].map(Option::unwrap_or_default);
        owner << 6 | group << 3 | others
    }

    /// The list with what `classes` say of the owner, of the mask (or the group, where there is none) and of others.
    #[must_use]
    pub fn with_classes(&self, classes: u16) -> Self {
        let group = match self.find(Who::Mask) {
            Some(_) => Who::Mask,
            None => Who::OwningGroup,
        };
        let entry = |entry: &AccessEntry| {
            let shift = match entry.who {
                Who::Owner => 6,
                who if who == group => 3,
                Who::Others => 0,
                _ => return *entry,
            };
            AccessEntry {
                may: AccessMask::of_bits(classes >> shift),
                ..*entry
            }
        };
        Self(self.0.iter().map(entry).collect())
    }

    /// Whether `by`, who is neither trusted nor root, may do all of `wanted` with a file of `owner`.
    pub fn allows(&self, owner: Owner, by: &Identity, wanted: AccessMask) -> bool {
        let mask = self.find(Who::Mask).unwrap_or(AccessMask::ALL);
        let is_user = |entry: &&AccessEntry| match entry.who {
            Who::Owner => by.uid == owner.uid,
            Who::User(uid) => by.uid == uid,
            _ => false,
        };
        match self.0.iter().find(is_user) {
            Some(entry) if entry.who == Who::Owner => return entry.may.contains(wanted),
            Some(entry) => return entry.may.intersection(mask).contains(wanted),
            None => {}
        }
        let is_group = |entry: &&AccessEntry| match entry.who {
            Who::OwningGroup => by.is_member_of(owner.gid),
            Who::Group(gid) => by.is_member_of(gid),
            _ => false,
        };
        let mut groups = self.0.iter().filter(is_group).peekable();
        match groups.peek() {
            // One of the groups must do: two that have a part each do not add up.
            Some(_) => groups.any(|entry| entry.may.intersection(mask).contains(wanted)),
            None => self.find(Who::Others).unwrap_or_default().contains(wanted),
        }
    }
}

fn parse_entry(entry: &[u8; ENTRY]) -> Option<AccessEntry> {
    let mut fields = &entry[..];
    let (tag, bits, id) = (
        fields.get_u16_le(),
        fields.get_u16_le(),
        fields.get_u32_le(),
    );
    let who = Who::of(tag, id)?;
    (bits <= AccessMask::ALL.bits()).then(|| AccessEntry {
        who,
        may: AccessMask::of_bits(bits),
    })
}

/// The lists that a file has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessLists {
    /// What its mode does not say.
    pub access: Option<AccessList>,
    /// What a directory hands down.
    pub default: Option<AccessList>,
}

impl AccessLists {
    /// The lists and the permission bits of a new file in a directory that hands `default` down, if anything. Who makes it
    /// asked for `permissions`, and wishes `umask` taken away where nothing is handed down.
    pub fn of_new_file(
        default: Option<&AccessList>,
        kind: FileKind,
        (permissions, umask): (u16, u16),
    ) -> (Self, u16) {
        if kind == FileKind::Symlink {
            return (Self::default(), permissions);
        }
        let Some(default) = default else {
            return (Self::default(), permissions & !(umask & CLASSES));
        };
        let access = default.with_classes(default.classes() & permissions);
        let permissions = permissions & !CLASSES | access.classes();
        let lists = Self {
            access: Some(access).filter(|access| !access.is_mode()),
            default: Some(default.clone()).filter(|_| kind == FileKind::Directory),
        };
        (lists, permissions)
    }

    /// One of them.
    pub fn get(&self, kind: ListKind) -> Option<&AccessList> {
        match kind {
            ListKind::Access => self.access.as_ref(),
            ListKind::Default => self.default.as_ref(),
        }
    }

    /// The names of the extended attributes that they are.
    pub fn names(&self) -> impl Iterator<Item = &'static [u8]> {
        let both = [ListKind::Access, ListKind::Default].into_iter();
        both.filter(|kind| self.get(*kind).is_some())
            .map(ListKind::name)
    }

    /// The mode of the file is `permissions` now.
    pub fn follow(&mut self, permissions: u16) {
        if let Some(access) = &mut self.access {
            *access = access.with_classes(permissions);
        }
    }

    /// Sets one of the lists of `file`, as an extended attribute says it, on behalf of `by`, and returns the permission
    /// bits of the file then. One without entries takes the list away, and whether there was one before is the same, as
    /// Linux has it. Fails as [`AccessList::parse`] does, with `Unsupported` for a symbolic link, with `PermissionDenied`
    /// for a default list of what is no directory, and with `NotPermitted` for all but the owner and root.
    pub fn set(
        &mut self,
        (file, by): (&Attributes, &Identity),
        (kind, value, mode): (ListKind, &[u8], XattrMode),
    ) -> FsResult<u16> {
        let list = AccessList::parse(value)?;
        check_change((file, by), (kind, list.is_some()))?;
        let Some(list) = list else {
            self.take(kind);
            return Ok(file.permissions);
        };
        if kind == ListKind::Default {
            self.default = Some(list);
            return Ok(file.permissions);
        }
        let mut permissions = file.permissions & !CLASSES | list.classes();
        self.access = Some(list).filter(|list| !list.is_mode());
        if mode == XattrMode::SetByStranger || is_stranger(file, by) {
            permissions &= !SET_GROUP_ID;
        }
        Ok(permissions)
    }

    /// Takes one of the lists of `file` away, if it is there. Fails as [`AccessLists::set`] does.
    pub fn remove(&mut self, of: (&Attributes, &Identity), kind: ListKind) -> FsResult<()> {
        check_change(of, (kind, false))?;
        self.take(kind);
        Ok(())
    }

    fn take(&mut self, kind: ListKind) {
        match kind {
            ListKind::Access => self.access = None,
            ListKind::Default => self.default = None,
        }
    }
}

/// Whether a list by `by` takes the set-group-id bit of a file away. Of who is trusted the door says so itself.
fn is_stranger(file: &Attributes, by: &Identity) -> bool {
    !by.is_trusted && by.uid != 0 && !by.is_member_of(file.gid)
}

fn check_change(
    (file, by): (&Attributes, &Identity),
    (kind, is_set): (ListKind, bool),
) -> FsResult<()> {
    if file.kind == FileKind::Symlink {
        return Err(FsError::Unsupported("symbolic links have no access lists"));
    }
    if kind == ListKind::Default && is_set && file.kind != FileKind::Directory {
        return Err(FsError::PermissionDenied);
    }
    match by.is_trusted || by.uid == 0 || by.uid == file.uid {
        true => Ok(()),
        false => Err(FsError::NotPermitted("only the owner changes access lists")),
    }
}

#[cfg(test)]
mod tests;
