//! A bucket: objects by key and uploads by key and id.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, RwLock},
    time::SystemTime,
};

use super::{
    crowd::Members,
    listing::{Listing, ListingQuery},
    object::Object,
    objects::Objects,
    upload::Upload,
};
use crate::{clock, sync};

/// What must hold for a write to happen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Condition {
    #[default]
    Always,
    /// Nothing is there.
    Absent,
    /// What is there has this tag.
    Tag(String),
}

/// The condition of a write did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConditionFailed;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) name: String,
    pub(crate) created: SystemTime,
    objects: RwLock<Objects>,
    uploads: Mutex<BTreeMap<(String, String), Arc<Upload>>>,
}

impl Bucket {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            created: clock::wall_time(),
            objects: RwLock::default(),
            uploads: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Object>> {
        sync::read(&self.objects).get(key.as_bytes())
    }

    pub(crate) fn put(&self, key: &str, object: Object) -> Arc<Object> {
        let object = Arc::new(object);
        let replaced = sync::write(&self.objects).insert(key.as_bytes(), Arc::clone(&object));
        // Giving memory back takes its time and must not happen under the lock.
        drop(replaced);
        object
    }

    /// Puts the object if the condition holds at that moment.
    pub(crate) fn put_if(
        &self,
        key: &str,
        object: Object,
        condition: &Condition,
    ) -> Result<Arc<Object>, ConditionFailed> {
        self.replace(key, |current| {
            condition_holds(condition, current)
                .then_some(object)
                .ok_or(ConditionFailed)
        })
    }

    /// Puts what `make` makes of the object that is there, with nobody in between.
    pub(crate) fn replace<E>(
        &self,
        key: &str,
        make: impl FnOnce(Option<&Arc<Object>>) -> Result<Object, E>,
    ) -> Result<Arc<Object>, E> {
        let mut objects = sync::write(&self.objects);
        let object = Arc::new(make(objects.get(key.as_bytes()).as_ref())?);
        let replaced = objects.insert(key.as_bytes(), Arc::clone(&object));
        drop(objects);
        drop(replaced);
        Ok(object)
    }

    /// Whether the condition holds now; a write checks again when it happens.
    pub(crate) fn check(&self, key: &str, condition: &Condition) -> Result<(), ConditionFailed> {
        let holds = condition_holds(condition, self.get(key).as_ref());
        holds.then_some(()).ok_or(ConditionFailed)
    }

    pub(crate) fn delete(&self, key: &str) -> Option<Arc<Object>> {
        sync::write(&self.objects).remove(key.as_bytes())
    }

    pub(crate) fn list(&self, query: &ListingQuery) -> Listing {
        Listing::of(&sync::read(&self.objects), query)
    }

    /// Objects and their bytes.
    pub(crate) fn totals(&self) -> (u64, u64) {
        sync::read(&self.objects).totals()
    }

    pub(super) fn add_crowd(&self, members: Members) {
        sync::write(&self.objects).add_crowd(members);
    }

    pub(crate) fn is_empty(&self) -> bool {
        sync::read(&self.objects).is_empty()
    }

    pub(crate) fn add_upload(&self, upload: Upload) {
        let name = (upload.key.clone(), upload.id.clone());
        sync::lock(&self.uploads).insert(name, Arc::new(upload));
    }

    pub(crate) fn upload(&self, key: &str, id: &str) -> Option<Arc<Upload>> {
        let uploads = sync::lock(&self.uploads);
        let upload = uploads.get(&(key.to_owned(), id.to_owned())).cloned();
        upload.inspect(|upload| upload.note_named())
    }

    pub(crate) fn remove_upload(&self, key: &str, id: &str) -> Option<Arc<Upload>> {
        sync::lock(&self.uploads).remove(&(key.to_owned(), id.to_owned()))
    }

    /// All unfinished uploads by key, then id.
    pub(crate) fn uploads(&self) -> Vec<Arc<Upload>> {
        sync::lock(&self.uploads).values().cloned().collect()
    }
}

fn condition_holds(condition: &Condition, current: Option<&Arc<Object>>) -> bool {
    match condition {
        Condition::Always => true,
        Condition::Absent => current.is_none(),
        Condition::Tag(tag) => current.is_some_and(|object| object.etag == *tag),
    }
}
