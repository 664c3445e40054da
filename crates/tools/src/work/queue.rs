//! Tasks that wait, by the directory in which they work.
//!
//! The newest directory is the one that was entered last, so what is below comes before what is above. Of a directory those
//! tasks come first that exclude no others: its next page is listed when all that the page before led to is in hand.

use std::collections::{BTreeMap, VecDeque};

use super::Node;

/// A directory in which a task works, and whether it excludes others there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    directory: u64,
    excludes: bool,
}

impl Place {
    /// That of a task which changes names in a directory.
    pub(crate) fn of<T>(node: &Node<T>) -> Self {
        Self {
            directory: node.number(),
            excludes: true,
        }
    }

    /// That of a task which follows from a directory and changes no name there.
    pub(crate) fn beside<T>(node: &Node<T>) -> Self {
        Self {
            excludes: false,
            ..Self::of(node)
        }
    }
}

/// The tasks of each directory by its number; those without a place are of the oldest one.
#[derive(Debug)]
pub(super) struct Queue<T> {
    groups: BTreeMap<u64, Group<T>>,
    length: usize,
}

/// The tasks of a directory.
#[derive(Debug)]
struct Group<T> {
    /// Those that exclude no others.
    beside: VecDeque<T>,
    excluding: VecDeque<T>,
}

impl<T> Group<T> {
    fn is_empty(&self) -> bool {
        self.beside.is_empty() && self.excluding.is_empty()
    }

    fn pop(&mut self, pop: fn(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        pop(&mut self.beside).or_else(|| pop(&mut self.excluding))
    }
}

impl<T> Default for Group<T> {
    fn default() -> Self {
        Self {
            beside: VecDeque::new(),
            excluding: VecDeque::new(),
        }
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            groups: BTreeMap::new(),
            length: 0,
        }
    }
}

impl<T> Queue<T> {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn push(&mut self, place: Option<Place>, task: T) {
        let group = self.groups.entry(place.map_or(0, |place| place.directory));
        let group = group.or_default();
        match place.is_some_and(|place| place.excludes) {
            true => group.excluding.push_back(task),
            false => group.beside.push_back(task),
        }
        self.length += 1;
    }

    /// The newest task of the newest directory that has one which no task at a `taken` place excludes; of the newest
    /// directory if none has.
    pub(super) fn pop_newest(&mut self, taken: &[Option<Place>]) -> Option<T> {
        let is_free = |(directory, group): &(&u64, &Group<T>)| {
            let excluding = Place {
                directory: **directory,
                excludes: true,
            };
            !group.beside.is_empty() || !taken.contains(&Some(excluding))
        };
        let free = self.groups.iter().rev().find(is_free);
        let (directory, _) = free.or_else(|| self.groups.last_key_value())?;
        self.pop(*directory, VecDeque::pop_back)
    }

    /// The oldest task of the oldest directory.
    pub(super) fn pop_oldest(&mut self) -> Option<T> {
        let (directory, _) = self.groups.first_key_value()?;
        self.pop(*directory, VecDeque::pop_front)
    }

    fn pop(&mut self, directory: u64, pop: fn(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        let group = self.groups.get_mut(&directory)?;
        let task = group.pop(pop);
        if group.is_empty() {
            self.groups.remove(&directory);
        }
        self.length -= usize::from(task.is_some());
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(directory: u64, excludes: bool) -> Option<Place> {
        Some(Place {
            directory,
            excludes,
        })
    }

    #[test]
    fn each_thread_has_a_directory_of_its_own_while_there_are_enough() {
        let mut queue = Queue::default();
        for (directory, task) in [(1, 'a'), (1, 'b'), (2, 'c'), (2, 'd')] {
            queue.push(place(directory, true), task);
        }
        let first = queue.pop_newest(&[]);
        assert_eq!(first, Some('d'));
        let mut taken = vec![place(2, true)];
        assert_eq!(queue.pop_newest(&taken), Some('b'));
        taken.push(place(1, true));
        assert_eq!(
            queue.pop_newest(&taken),
            Some('c'),
            "the newest, for all are taken"
        );
        assert_eq!(queue.pop_newest(&taken), Some('a'));
        assert_eq!(queue.pop_newest(&taken), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn another_directory_is_begun_when_nothing_else_is_free() {
        let mut queue = Queue::default();
        queue.push(None, 'e');
        queue.push(place(1, true), 'a');
        queue.push(None, 'f');
        assert_eq!(queue.pop_newest(&[place(1, true), None]), Some('f'));
        assert_eq!(queue.pop_newest(&[None]), Some('a'));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn what_excludes_nobody_comes_before_what_does_in_its_directory() {
        let mut queue = Queue::default();
        for (excludes, task) in [(false, 'a'), (true, 'b'), (false, 'c'), (true, 'd')] {
            queue.push(place(1, excludes), task);
        }
        let taken = [place(1, true), place(1, false)];
        let all = std::iter::from_fn(|| queue.pop_newest(&taken));
        assert_eq!(all.collect::<String>(), "cadb");
    }

    #[test]
    fn a_directory_that_has_tasks_again_is_as_old_as_it_was() {
        let mut queue = Queue::default();
        queue.push(place(1, true), 'a');
        queue.push(place(2, true), 'b');
        assert_eq!(queue.pop_newest(&[place(2, true)]), Some('a'));
        queue.push(place(1, true), 'c');
        assert_eq!(queue.pop_newest(&[]), Some('b'));
    }

    #[test]
    fn tasks_without_a_place_come_as_they_went() {
        let mut queue = Queue::default();
        (0..5).for_each(|task| queue.push(None, task));
        let all: Vec<i32> = std::iter::from_fn(|| queue.pop_oldest()).collect();
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }
}
