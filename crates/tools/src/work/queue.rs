//! Tasks that wait, by the directory in which they work.

use std::{collections::VecDeque, sync::Arc};

use super::Node;

/// A directory, as tasks are told apart by it: the same for all tasks that hold its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(usize);

impl Place {
    pub(crate) fn of<T>(node: &Arc<Node<T>>) -> Self {
        Self(Arc::as_ptr(node).addr())
    }
}

/// The tasks of each place, the place that was begun last at the end. Those without a place are a group too.
#[derive(Debug)]
pub(super) struct Queue<T> {
    groups: Vec<Group<T>>,
    length: usize,
}

#[derive(Debug)]
struct Group<T> {
    place: Option<Place>,
    tasks: VecDeque<T>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
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
        let same = |group: &&mut Group<T>| group.place == place;
        match self.groups.iter_mut().rev().find(same) {
            Some(group) => group.tasks.push_back(task),
            None => self.groups.push(Group {
                place,
                tasks: VecDeque::from([task]),
            }),
        }
        self.length += 1;
    }

    /// The newest task of the newest place that is not `taken`; of the newest place if all are.
    pub(super) fn pop_newest(&mut self, taken: &[Option<Place>]) -> Option<T> {
        let is_free = |group: &Group<T>| group.place.is_none() || !taken.contains(&group.place);
        let free = self.groups.iter().rposition(is_free);
        let index = free.or_else(|| self.groups.len().checked_sub(1))?;
        self.pop(index, VecDeque::pop_back)
    }

    /// The oldest task of the oldest place.
    pub(super) fn pop_oldest(&mut self) -> Option<T> {
        self.pop(0, VecDeque::pop_front)
    }

    fn pop(&mut self, index: usize, pop: fn(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        let group = self.groups.get_mut(index)?;
        let task = pop(&mut group.tasks);
        if group.tasks.is_empty() {
            self.groups.remove(index);
        }
        self.length -= usize::from(task.is_some());
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_a_directory_of_its_own_while_there_are_enough() {
        let mut queue = Queue::default();
        for (place, task) in [(1, 'a'), (1, 'b'), (2, 'c'), (2, 'd')] {
            queue.push(Some(Place(place)), task);
        }
        let first = queue.pop_newest(&[]);
        assert_eq!(first, Some('d'));
        let mut taken = vec![Some(Place(2))];
        assert_eq!(queue.pop_newest(&taken), Some('b'));
        taken.push(Some(Place(1)));
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
        queue.push(Some(Place(1)), 'a');
        queue.push(None, 'f');
        assert_eq!(queue.pop_newest(&[Some(Place(1)), None]), Some('f'));
        assert_eq!(queue.pop_newest(&[None]), Some('a'));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn tasks_without_a_place_come_as_they_went() {
        let mut queue = Queue::default();
        (0..5).for_each(|task| queue.push(None, task));
        let all: Vec<i32> = std::iter::from_fn(|| queue.pop_oldest()).collect();
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }
}
