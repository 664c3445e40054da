//! Names of users and groups, as the files of this machine have them.
//!
//! Directories of accounts on other machines are not asked: an archive holds numbers as well.

use std::{collections::HashMap, fs, path::Path};

/// The files are larger than this nowhere.
const FILE_MAX: usize = 16 << 20;

/// Names and numbers of users and groups.
#[derive(Debug, Default)]
pub(super) struct Accounts {
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
    pub(super) fn read() -> Self {
        Self {
            users: Table::read(Path::new("/etc/passwd")),
            groups: Table::read(Path::new("/etc/group")),
        }
    }

    /// The names of these numbers; empty if unknown.
    pub(super) fn names(&self, owner: (u64, u64)) -> (Vec<u8>, Vec<u8>) {
        let name = |table: &Table, number| table.names.get(&number).cloned().unwrap_or_default();
        (name(&self.users, owner.0), name(&self.groups, owner.1))
    }

    /// The numbers that the names have here, or else the numbers of the archive.
    pub(super) fn numbers(&self, names: &(Vec<u8>, Vec<u8>), owner: (u64, u64)) -> (u64, u64) {
        let number =
            |table: &Table, name: &Vec<u8>, or| table.numbers.get(name).copied().unwrap_or(or);
        (
            number(&self.users, &names.0, owner.0),
            number(&self.groups, &names.1, owner.1),
        )
    }
}

impl Table {
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
