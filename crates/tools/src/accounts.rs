//! Names of users and groups, as the files of this machine have them.
//!
//! Directories of accounts on other machines are not asked: an archive holds numbers as well.

use std::{collections::HashMap, fs, path::Path};

/// The files are larger than this nowhere.
const FILE_MAX: usize = 16 << 20;

/// Names and numbers of users and groups.
#[derive(Debug, Default)]
pub struct Accounts {
    users: Table,
    groups: Table,
}

#[derive(Debug, Default)]
struct Table {
    names: HashMap<u64, Vec<u8>>,
    numbers: HashMap<Vec<u8>, u64>,
}

impl Accounts {
    /// Reads them. Without the files there are none.
    pub fn read() -> Self {
        Self {
            users: Table::read(Path::new("/etc/passwd")),
            groups: Table::read(Path::new("/etc/group")),
        }
    }

    /// The names of these numbers; empty if unknown.
    pub(crate) fn names(&self, owner: (u64, u64)) -> (Vec<u8>, Vec<u8>) {
        let name = |table: &Table, number| table.names.get(&number).cloned().unwrap_or_default();
        (name(&self.users, owner.0), name(&self.groups, owner.1))
    }

    /// The numbers that the names have here, or else the numbers of the archive.
    pub(crate) fn numbers(&self, names: &(Vec<u8>, Vec<u8>), owner: (u64, u64)) -> (u64, u64) {
        let number =
            |table: &Table, name: &Vec<u8>, or| table.numbers.get(name).copied().unwrap_or(or);
        (
            number(&self.users, &names.0, owner.0),
            number(&self.groups, &names.1, owner.1),
        )
    }

    /// The name of a user.
    pub fn user_name(&self, number: u32) -> Option<String> {
        self.users.name(number)
    }

    /// The name of a group.
    pub fn group_name(&self, number: u32) -> Option<String> {
        self.groups.name(number)
    }

    /// The number of a user, whose name or number this is.
    pub fn user(&self, text: &str) -> Option<u32> {
        self.users.number(text)
    }

    /// The number of a group, whose name or number this is.
    pub fn group(&self, text: &str) -> Option<u32> {
        self.groups.number(text)
    }
}

impl Table {
    fn name(&self, number: u32) -> Option<String> {
        let name = self.names.get(&u64::from(number))?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    fn number(&self, text: &str) -> Option<u32> {
        let known = self.numbers.get(text.as_bytes()).copied();
        let number = known.and_then(|number| number.try_into().ok());
        number.or_else(|| text.parse().ok())
    }

    fn read(path: &Path) -> Self {
        let mut table = Self::default();
        let text = fs::read(path).unwrap_or_default();
        for line in text[..text.len().min(FILE_MAX)].split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b':');
            let (Some(name), Some(number)) = (fields.next(), fields.nth(1)) else {
                continue;
            };
            let number = std::str::from_utf8(number)
                .ok()
                .and_then(|text| text.parse().ok());
            if let Some(number) = number {
                table.names.entry(number).or_insert_with(|| name.to_vec());
                table.numbers.entry(name.to_vec()).or_insert(number);
            }
        }
        table
    }
}
