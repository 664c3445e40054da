//! What was accepted of writes and is not in the metadata yet: nobody but this machine knows of it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use penstock_base::Mutex;

use super::Subject;

/// Bytes that were accepted, by whose use they will be.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    bytes: Mutex<HashMap<Subject, u64>>,
    /// Who is short of room finds out how much there is: one after the other.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl Accepted {
    /// Accepts so many bytes. Returns what was accepted before, too.
    pub(crate) fn take(
        self: &Arc<Self>,
        subjects: &[Subject],
        bytes: u64,
    ) -> (Room, BTreeMap<Subject, u64>) {
        let mut accepted = self.bytes.lock();
        let before = subjects.iter().map(|subject| {
            let accepted = accepted.entry(*subject).or_default();
            *accepted += bytes;
            (*subject, *accepted - bytes)
        });
        let before = before.collect();
        let room = Room {
            accepted: Arc::clone(self),
            subjects: subjects.to_vec(),
            bytes,
        };
        (room, before)
    }
}

/// Bytes that were accepted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    accepted: Arc<Accepted>,
    subjects: Vec<Subject>,
    bytes: u64,
}

impl Room {
    /// Whether some of it is of one of these.
    pub(crate) fn is_of(&self, subjects: &[Subject]) -> bool {
        self.bytes > 0 && self.subjects.iter().any(|one| subjects.contains(one))
    }

    /// Takes another one in if it is of the same ones, else returns it.
    pub(crate) fn merge(&mut self, mut other: Self) -> Option<Self> {
        if self.subjects != other.subjects {
            return Some(other);
        }
        self.bytes += std::mem::take(&mut other.bytes);
        None
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut accepted = self.accepted.bytes.lock();
        for subject in &self.subjects {
            if let Some(bytes) = accepted.get_mut(subject) {
                *bytes -= self.bytes;
                if *bytes == 0 {
                    accepted.remove(subject);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_is_there_until_it_is_dropped() {
        let accepted = Arc::new(Accepted::default());
        let (user, group) = (Subject::User(1), Subject::Group(2));
        let (mut room, before) = accepted.take(&[user, group], 5);
        assert_eq!(before[&user], 0);
        let (more, before) = accepted.take(&[user, group], 7);
        assert_eq!(before[&group], 5);
        assert!(room.merge(more).is_none());
        let (other, before) = accepted.take(&[user], 1);
        assert_eq!(before[&user], 12);
        let other = room.merge(other).unwrap();
        assert!(room.is_of(&[group]) && !other.is_of(&[group]));
        drop(room);
        assert_eq!(accepted.take(&[user], 0).1[&user], 1);
        drop(other);
        assert!(accepted.bytes.lock().is_empty());
    }
}
