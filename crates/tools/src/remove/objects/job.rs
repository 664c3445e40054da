//! The tasks of a removal in a bucket.

use std::sync::Arc;

use penstock_object::{
    DELETE_MANY_MAX, DeleteFailure, ErrorKind, FlatPage, Key, KeyError, Known, ListOptions,
    ObjectError, is_expressible,
};

use super::{ObjectSettings, Own, Target, ranges::Range};
use crate::{
    Report, Stop,
    work::{self, Crew, Job},
};

/// Keys that one task deletes where each takes a request of its own: few, so that threads share them and all are done
/// within the deadline of one operation.
const SINGLE_MAX: usize = 32;

/// A piece of the work.
pub(super) enum Task {
    /// Find out what a path is.
    Look(Arc<Target>),
    /// Take the next page of a range of what is below it.
    List(Arc<Target>, Range),
    /// Delete these, at most [`DELETE_MANY_MAX`].
    Delete(Arc<Target>, Vec<Key>),
}

impl work::Task for Task {}

/// A removal.
pub(super) struct Removal<'a> {
    settings: ObjectSettings,
    report: &'a Report,
    stop: &'a Stop,
}

impl<'a> Removal<'a> {
    pub(super) fn new(settings: ObjectSettings, report: &'a Report, stop: &'a Stop) -> Self {
        Self {
            settings,
            report,
            stop,
        }
    }

    fn look(&self, target: &Arc<Target>, crew: &Crew<Task>) {
        let found = target.own().and_then(|own| {
            let is_asked = self.settings.recursive || own.is_none();
            let below = is_asked
                .then(|| target.page(self.first_page()))
                .transpose()?;
            Ok((own, below.unwrap_or_default()))
        });
        match found {
            Ok((own, below)) => self.begin(target, own, &below, crew),
            Err(error) => self.report.fail(target.give_up(&error)),
        }
    }

    /// One key tells whether anything is below.
    fn first_page(&self) -> ListOptions {
        ListOptions {
            max_keys: (!self.settings.recursive).then_some(1),
            ..ListOptions::default()
        }
    }

    fn begin(&self, target: &Arc<Target>, own: Option<Own>, below: &FlatPage, crew: &Crew<Task>) {
        match (&own, below.is_empty()) {
            (None, true) if self.settings.force => return,
            (None, true) => return self.refuse(target, "there is no such object"),
            (None, false) if !self.settings.recursive => {
                return self.refuse(target, "it is a directory; use -r");
            }
            _ => {}
        }
        if let Some(own) = own {
            crew.push(Task::Delete(Arc::clone(target), vec![own.key]));
        }
        if self.settings.recursive {
            self.find_out(target, below);
            self.take(target, Range::default(), below, crew);
        }
    }

    fn refuse(&self, target: &Target, why: &str) {
        let path = &target.path;
        self.report
            .fail(format_args!("cannot remove '{path}': {why}"));
    }

    /// Learns by the first key of `page` whether one request deletes many: all that are under way would otherwise.
    fn find_out(&self, target: &Target, page: &FlatPage) {
        let is_unknown = target.path.bucket.deletes_many() == Known::Unknown;
        let keys = page.objects().take(DELETE_MANY_MAX);
        let first = keys.filter_map(|object| Key::new(object.key).ok());
        let first = first.into_iter().find(is_expressible);
        if let Some(key) = first.filter(|_| is_unknown && page.len() > 1) {
            let bucket = &target.path.bucket;
            // Deleted here or not, it is deleted again with its page, which tells what fails.
            let _ = bucket.wait(bucket.store.delete_many(&[key]));
        }
    }

    fn list(&self, target: &Arc<Target>, range: Range, crew: &Crew<Task>) {
        let options = ListOptions {
            start_after: range.after.clone(),
            continuation: range.continuation.clone(),
            ..ListOptions::default()
        };
        match target.page(options) {
            Ok(page) => self.take(target, range, &page, crew),
            Err(error) if !target.is_over() => self.report.fail(target.give_up(&error)),
            Err(_) => {}
        }
    }

    /// Hands out what `page` of `range` has, and what is behind it. First in, last out: the page goes first.
    fn take(&self, target: &Arc<Target>, range: Range, page: &FlatPage, crew: &Crew<Task>) {
        let step = target.ranges.lock().receive(range, page, &target.prefix);
        for next in step.next.into_iter().rev().flatten() {
            crew.push(Task::List(Arc::clone(target), next));
        }
        for keys in self.batches(target, page, step.keys) {
            crew.push(Task::Delete(Arc::clone(target), keys));
        }
    }

    /// The first `count` keys of `page`, as requests take them.
    fn batches(&self, target: &Target, page: &FlatPage, count: usize) -> Vec<Vec<Key>> {
        let has_bulk = target.path.bucket.deletes_many() != Known::Absent;
        let (mut many, mut single) = (Vec::new(), Vec::new());
        for object in page.objects().take(count) {
            match Key::new(object.key) {
                Ok(key) if has_bulk && is_expressible(&key) => many.push(key),
                Ok(key) => single.push(key),
                Err(error) => self.unnamable(target, object.key, error),
            }
        }
        let batches = many
            .chunks(DELETE_MANY_MAX)
            .chain(single.chunks(SINGLE_MAX));
        batches.map(<[Key]>::to_vec).collect()
    }

    fn unnamable(&self, target: &Target, key: &str, error: KeyError) {
        self.report.fail(format_args!(
            "cannot remove '{}': {error}",
            target.shown(key)
        ));
    }

    fn delete(&self, target: &Arc<Target>, keys: Vec<Key>, crew: &Crew<Task>) {
        let bucket = &target.path.bucket;
        let deleted = match keys.as_slice() {
            [key] => bucket.wait(bucket.store.delete(key)).map(|()| Vec::new()),
            many => bucket.wait(bucket.store.delete_many(many)),
        };
        match deleted {
            Ok(failures) => {
                self.report.files.add((keys.len() - failures.len()) as u64);
                failures
                    .iter()
                    .for_each(|failure| self.fail(target, failure));
            }
            Err(error) if is_of_some(error.kind, keys.len()) => {
                self.find_failing(target, keys, &error, crew);
            }
            Err(error) => self.fail_all(target, &keys, &error),
        }
    }

    /// The request makes no sense to the store, perhaps for one of its keys: halves tell.
    fn find_failing(
        &self,
        target: &Arc<Target>,
        mut keys: Vec<Key>,
        error: &ObjectError,
        crew: &Crew<Task>,
    ) {
        match keys.as_slice() {
            [] => {}
            [key] => self.report.fail(format_args!(
                "cannot remove '{}': {}",
                target.shown(key.as_str()),
                words(&error.code, &error.message)
            )),
            many => {
                let upper = keys.split_off(many.len() / 2);
                crew.push(Task::Delete(Arc::clone(target), upper));
                crew.push(Task::Delete(Arc::clone(target), keys));
            }
        }
    }

    fn fail(&self, target: &Target, failure: &DeleteFailure) {
        self.report.fail(format_args!(
            "cannot remove '{}': {}",
            target.shown(failure.key.as_str()),
            words(&failure.code, &failure.message)
        ));
    }

    /// The store refuses, or is away, after all that could be repeated: what else there is would only wait for the same.
    fn fail_all(&self, target: &Target, keys: &[Key], error: &ObjectError) {
        let why = target.give_up(error);
        let shown =
            |key: Option<&Key>| key.map_or_else(String::new, |key| target.shown(key.as_str()));
        let (first, last) = (shown(keys.first()), shown(keys.last()));
        self.report.fail(match keys.len() {
            1 => format!("cannot remove '{first}': {why}"),
            count => format!("cannot remove {count} objects, '{first}' to '{last}': {why}"),
        });
    }
}

/// Whether an error of a request for `count` keys may be that of some of them.
fn is_of_some(kind: ErrorKind, count: usize) -> bool {
    match kind {
        ErrorKind::InvalidRequest | ErrorKind::Protocol | ErrorKind::Unsupported => true,
        ErrorKind::PermissionDenied | ErrorKind::PreconditionFailed => count == 1,
        _ => false,
    }
}

/// What a store says of a key.
fn words(code: &str, message: &str) -> String {
    match (code, message) {
        ("", "") => "the store does not say why".to_owned(),
        ("", words) | (words, "") => words.to_owned(),
        (code, message) => format!("{message} ({code})"),
    }
}

impl Job for Removal<'_> {
    type Task = Task;

    fn run(&self, task: Task, crew: &Crew<Task>) {
        match task {
            Task::Look(target) => self.look(&target, crew),
            Task::List(target, range) if !target.is_over() => self.list(&target, range, crew),
            Task::Delete(target, keys) if !target.is_over() && !self.stop.is_set() => {
                self.delete(&target, keys, crew);
            }
            Task::List(..) | Task::Delete(..) => {}
        }
    }

    fn work(&self) -> u64 {
        self.report.work()
    }
}
