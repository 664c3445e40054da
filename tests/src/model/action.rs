//! Random actions, which name things by index.
//!
//! An index is taken modulo what exists at that moment. So when shrinking removes an action, those
//! after it still mean something, and a sequence never has to be thrown away.

use proptest::{collection::vec, prelude::*, sample::select};

use super::step::{Access, OpenMode};

/// Names that files get: few, so that they collide, and some that need care in a URL, in XML or
/// in a signature.
pub(super) const NAMES: [&str; 8] = [
    "a",
    "b",
    "c",
    "a.txt",
    "with space",
    "é%2F+",
    "<&>",
    "~-_.=",
];

/// Sizes around which implementations change their mind: pages, FUSE requests, parts.
const SIZES: [usize; 9] = [
    1, 100, 4095, 4096, 4097, 131_072, 131_073, 1_048_576, 5_500_000,
];

/// A name in a directory, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which directory.
    pub parent: u8,
    /// Which of a fixed set of names.
    pub name: u8,
}

/// Where in a file to read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// At its end.
    End,
    /// So many bytes before its end, or at the start when it is shorter.
    BeforeEnd(u32),
    /// So many bytes beyond its end.
    BeyondEnd(u32),
    /// So many bytes after its start.
    Start(u32),
}

/// One operation on things named by index.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Action {
    Open(Place, OpenMode),
    Write(u8, Position, usize),
    Read(u8, Position, usize),
    TruncateOpen(u8, u32),
    Truncate(Place, u32),
    Sync(u8),
    Close(u8),
    StatusOpen(u8),
    Status(Place),
    /// A name below a name, which may be a file.
    StatusBelow(Place, u8),
    List(Place),
    MakeDirectory(Place),
    RemoveDirectory(Place),
    Remove(Place),
    Rename(Place, Place, bool),
}

/// What there is before the first action, put there by somebody else: in a bucket, directories
/// that nothing marks.
pub type Planted = &'static [&'static str];

const PLANTED: [Planted; 3] = [
    &[],
    &["a/b/c", "a/b/a.txt"],
    &["a/b", "b/c/a", "a.txt", "with space/a/b"],
];

/// What there is at first, and what happens then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Files, each with its own path as content.
    pub planted: Planted,
    /// What is done.
    pub actions: Vec<Action>,
}

/// Sequences of up to `length` actions.
pub fn sequences(length: usize) -> impl Strategy<Value = Sequence> {
    sequences_of(action(), length)
}

/// Sequences with many writes and truncations anywhere in a file.
pub(super) fn sequences_anywhere(length: usize) -> impl Strategy<Value = Sequence> {
    let handle = any::<u8>;
    let change = prop_oneof![
        8 => (handle(), position(), size()).prop_map(|(h, at, size)| Action::Write(h, at, size)),
        2 => (handle(), any_size()).prop_map(|(handle, size)| Action::TruncateOpen(handle, size)),
        1 => (place(), any_size()).prop_map(|(place, size)| Action::Truncate(place, size)),
    ];
    sequences_of(prop_oneof![2 => action(), 1 => change], length)
}

fn sequences_of(
    action: impl Strategy<Value = Action>,
    length: usize,
) -> impl Strategy<Value = Sequence> {
    (select(&PLANTED[..]), vec(action, 1..=length))
        .prop_map(|(planted, actions)| Sequence { planted, actions })
}

fn action() -> impl Strategy<Value = Action> {
    let handle = any::<u8>;
    prop_oneof![
        5 => (place(), creation()).prop_map(|(place, mode)| Action::Open(place, mode)),
        4 => (place(), opening()).prop_map(|(place, mode)| Action::Open(place, mode)),
        8 => (handle(), size()).prop_map(|(handle, size)| {
            Action::Write(handle, Position::End, size)
        }),
        1 => (handle(), position(), size()).prop_map(|(h, at, size)| Action::Write(h, at, size)),
        6 => (handle(), position(), size()).prop_map(|(h, at, size)| Action::Read(h, at, size)),
        1 => (handle(), new_size()).prop_map(|(handle, size)| Action::TruncateOpen(handle, size)),
        1 => (place(), new_size()).prop_map(|(place, size)| Action::Truncate(place, size)),
        2 => handle().prop_map(Action::Sync),
        6 => handle().prop_map(Action::Close),
        2 => handle().prop_map(Action::StatusOpen),
        4 => place().prop_map(Action::Status),
        1 => (place(), any::<u8>()).prop_map(|(place, name)| Action::StatusBelow(place, name)),
        3 => place().prop_map(Action::List),
        3 => place().prop_map(Action::MakeDirectory),
        2 => place().prop_map(Action::RemoveDirectory),
        3 => place().prop_map(Action::Remove),
        3 => (place(), place(), any::<bool>()).prop_map(|(from, to, no_replace)| {
            Action::Rename(from, to, no_replace)
        }),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    // Half of the time in the root, so that names meet often.
    let parent = prop_oneof![Just(0u8), any::<u8>()];
    (parent, 0..NAMES.len() as u8).prop_map(|(parent, name)| Place { parent, name })
}

fn creation() -> impl Strategy<Value = OpenMode> {
    let access = select(vec![
        Access::Write,
        Access::Write,
        Access::Write,
        Access::Both,
        Access::Both,
        Access::Read,
    ]);
    (access, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(access, exclusive, append, truncate)| OpenMode {
            access,
            create: true,
            exclusive,
            append: append && access.writes(),
            truncate: truncate && access.writes() && !append,
        },
    )
}

fn opening() -> impl Strategy<Value = OpenMode> {
    let access = select(vec![
        Access::Read,
        Access::Read,
        Access::Read,
        Access::Write,
        Access::Both,
    ]);
    (access, any::<bool>(), any::<bool>()).prop_map(|(access, append, truncate)| OpenMode {
        access,
        create: false,
        exclusive: false,
        append: append && access.writes(),
        truncate: truncate && access.writes() && !append,
    })
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 1..9000usize,
        4 => select(SIZES[..7].to_vec()),
        1 => select(SIZES.to_vec()),
    ]
}

fn position() -> impl Strategy<Value = Position> {
    prop_oneof![
        Just(Position::End),
        Just(Position::Start(0)),
        (1..10_000u32).prop_map(Position::BeforeEnd),
        (1..10_000u32).prop_map(Position::BeyondEnd),
        (0..2_000_000u32).prop_map(Position::Start),
    ]
}

fn any_size() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0u32), 1..10_000u32, 1..3_000_000u32]
}

fn new_size() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(0u32), 1 => 1..10_000u32]
}
