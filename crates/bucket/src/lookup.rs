//! Finding names.
//!
//! A name may lead to an object `p/name`, to a directory that an object `p/name/` marks, or to a
//! directory that exists only because keys begin with `p/name/`. One HEAD and one LIST of a
//! single key, sent at once, tell which. When both a file and a directory answer, the directory
//! wins: hiding one object is better than hiding everything below it.
//!
//! Memory answers first: what was looked up, listed or made here within its time, and, after a
//! complete listing of a directory, that there is nothing else in it.

use std::{iter, sync::Arc};

use penstock_base::{FsError, FsResult, Utf8Name, clock, clock::Instant};
use penstock_object::{ErrorKind, HeadOptions, Key, ListOptions, ObjectError, ObjectInfo};
use penstock_vfs::{Entry, FileKind, Inode, Lookup};

use crate::{
    errors::{Purpose, for_reading, object_failure},
    inode::{Known, Observation, Patience, Place, Recall, Reference, Resolved},
    key,
    metadata::Pace,
    mount::Mount,
    open_file::OpenFile,
    write_back::shown_as,
};

/// Objects to be removed for which a page is made longer, at most: a page has a thousand.
const REMOVED_MAX: usize = 990;

/// How often a question is asked whose answer is outdated by a change made here meanwhile.
const ATTEMPTS_MAX: usize = 3;
/// To take such a name for free would make a new file in place of one that may be there.
const CHANGING: FsError = FsError::Busy(
    "the name is changed here again and again while the store is asked about it; try again",
);

/// What begins with a directory's prefix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Below {
    /// Whether an object marks the directory.
    pub(crate) marker: bool,
}

/// Finds names, in memory or in the store, and what is known of them.
#[derive(Debug)]
pub(crate) struct Lookups {
    pub(crate) mount: Arc<Mount>,
    /// How many requests for the metadata of listed objects are under way at once.
    pub(crate) metadata_pace: Pace,
}

impl Lookups {
    /// Of what `mount` shows.
    pub(crate) fn new(mount: &Arc<Mount>) -> Arc<Self> {
        Arc::new(Self {
            mount: Arc::clone(mount),
            metadata_pace: Pace::new(mount.settings.metadata.requests_max),
        })
    }

    /// Finds a name for a door.
    pub(crate) async fn lookup(
        self: &Arc<Self>,
        parent: Inode,
        name: &Utf8Name,
    ) -> FsResult<Lookup> {
        let Some(found) = self
            .find(parent, name, self.mount.lookup_patience())
            .await?
        else {
            return Ok(Lookup::Absent(self.mount.settings.negative_timeout));
        };
        Ok(Lookup::Found(self.mount.given_away(found)?))
    }

    /// Finds a name, in memory or in the store.
    pub(crate) async fn find(
        self: &Arc<Self>,
        parent: Inode,
        name: &Utf8Name,
        patience: Patience,
    ) -> FsResult<Option<Reference>> {
        let recall = self.mount.namespace.lock().recall(parent, name, patience)?;
        let recall = match recall {
            Recall::Unknown if self.learn_names(parent, name).await? => {
                self.mount.namespace.lock().recall(parent, name, patience)?
            }
            recall => recall,
        };
        let found = match recall {
            Recall::Present => self.mount.namespace.hold(parent, name),
            Recall::Absent => None,
            Recall::Unknown => return self.find_in_store(parent, name).await,
        };
        self.mount.metrics.lookups_remembered.increment();
        if let Some(found) = &found {
            self.prolong(found.inode());
        }
        Ok(found)
    }

    /// Checks that there is nothing under a name that is to be made. Somebody else may still make
    /// it in the same moment.
    pub(crate) async fn check_free(
        self: &Arc<Self>,
        parent: Inode,
        name: &Utf8Name,
    ) -> FsResult<()> {
        match self
            .find(parent, name, self.mount.change_patience())
            .await?
        {
            Some(_) => Err(FsError::AlreadyExists),
            None => Ok(()),
        }
    }

    /// Finds a name by asking the store, whatever memory says.
    pub(crate) async fn find_in_store(
        self: &Arc<Self>,
        parent: Inode,
        name: &Utf8Name,
    ) -> FsResult<Option<Reference>> {
        self.mount.metrics.lookups_asked.increment();
        for _ in 0..ATTEMPTS_MAX {
            match self.ask(parent, name).await? {
                Resolved::Found(found) => {
                    self.note_look(found.inode());
                    return Ok(Some(found));
                }
                Resolved::Absent => return Ok(None),
                Resolved::Outdated => self.mount.namespace.wait_for_change(parent, name).await?,
            }
        }
        // Only what was removed here is known to be absent.
        let tree = self.mount.namespace.lock();
        match tree.recall(parent, name, self.mount.change_patience())? {
            Recall::Absent => Ok(None),
            Recall::Present | Recall::Unknown => Err(CHANGING),
        }
    }

    fn note_look(&self, inode: Inode) {
        if let Ok(node) = self.mount.namespace.lock().node_mut(inode)
            && node.kind == FileKind::Regular
        {
            node.note_look(clock::now());
        }
    }

    async fn ask(self: &Arc<Self>, parent: Inode, name: &Utf8Name) -> FsResult<Resolved> {
        let observation = self.mount.namespace.observe(parent)?;
        let prefix = self.mount.namespace.lock().prefix(parent)?;
        let key = key::file_key(&prefix, name)?;
        let below_prefix = key::directory_prefix(&prefix, name);
        let (object, below) =
            tokio::join!(self.mount.head(&key), self.mount.first_below(&below_prefix));
        let begun = observation.begun();
        let object = object.map(|info| info.map(|info| self.mount.known_object(&info, begun)));
        if let (Ok(Some(known)), Ok(Some(_))) = (&object, &below)
            && known.kind != FileKind::Directory
        {
            self.mount.note_hidden_file(&key);
        }
        let found_below = below.as_ref().ok().copied().flatten();
        let mut answer = self.weigh(object, below, begun)?;
        if self.mount.keeps_metadata() {
            answer = self
                .complete(answer, found_below, (&prefix, name, begun))
                .await?;
        }
        let resolved = observation.resolve(name, answer);
        if let (Resolved::Found(found), Some(below)) = (&resolved, found_below) {
            self.mount.note_marker(found.inode(), below.marker);
        }
        Ok(resolved)
    }

    /// What a name is, after both questions about it were answered.
    fn weigh(
        &self,
        object: Result<Option<Known>, ObjectError>,
        below: Result<Option<Below>, ObjectError>,
        begun: Instant,
    ) -> FsResult<Option<Known>> {
        match (object, below) {
            (Ok(Some(known)), Ok(Some(_))) if known.kind == FileKind::Directory => Ok(Some(known)),
            (_, Ok(Some(_))) => Ok(Some(Known::directory(self.mount.believed_until(begun)))),
            (Ok(Some(known)), Ok(None)) => Ok(Some(known)),
            (Ok(Some(known)), Err(error)) if error.kind == ErrorKind::PermissionDenied => {
                self.mount.note_unlistable(&error);
                Ok(Some(known))
            }
            (Ok(None), Ok(None)) => Ok(None),
            (Err(error), _) | (_, Err(error)) => Err(object_failure(&error, Purpose::Read)),
        }
    }

    /// Asks the store again about a file or directory that memory holds. Fails with `Stale` if
    /// it was removed or replaced by another kind of file.
    pub(crate) async fn refresh(self: &Arc<Self>, inode: Inode) -> FsResult<()> {
        self.refresh_with(inode, Observation::settle).await
    }

    /// The same on behalf of a handle, which goes on with what the store has now if nobody has seen what it had.
    pub(crate) async fn refresh_open(self: &Arc<Self>, file: &OpenFile) -> FsResult<()> {
        self.refresh_with(file.inode, Observation::settle_for_handle)
            .await
    }

    async fn refresh_with(
        self: &Arc<Self>,
        inode: Inode,
        settle: impl Fn(&Observation, &Utf8Name, Option<Known>) -> bool,
    ) -> FsResult<()> {
        for _ in 0..ATTEMPTS_MAX {
            let (place, kind) = {
                let tree = self.mount.namespace.lock();
                let node = tree.node(inode)?;
                (node.place.clone().ok_or(FsError::Stale)?, node.kind)
            };
            let observation = self.mount.namespace.observe(place.parent)?;
            let answer = self.describe(&place, kind, observation.begun()).await?;
            let settled = settle(&observation, &place.name, answer);
            let tree = self.mount.namespace.lock();
            // Until its change ends, it is what memory has.
            if settled || tree.is_changing(place.parent, &place.name) {
                break;
            }
        }
        let replaced = self.mount.namespace.lock().node(inode)?.place.is_none();
        if replaced {
            Err(FsError::Stale)
        } else {
            Ok(())
        }
    }

    /// What the store has under a name that led to this kind of file.
    async fn describe(
        &self,
        place: &Place,
        kind: FileKind,
        begun: Instant,
    ) -> FsResult<Option<Known>> {
        let prefix = self.mount.namespace.lock().prefix(place.parent)?;
        if kind == FileKind::Directory {
            return self.describe_directory(&prefix, &place.name, begun).await;
        }
        let info = for_reading(self.mount.head(&key::file_key(&prefix, &place.name)?).await)?;
        Ok(info.map(|info| self.mount.known_object(&info, begun)))
    }

    async fn describe_directory(
        &self,
        prefix: &str,
        name: &Utf8Name,
        begun: Instant,
    ) -> FsResult<Option<Known>> {
        let below = key::directory_prefix(prefix, name);
        let below = for_reading(self.mount.first_below(&below).await)?;
        let answer = below.map(|_| Known::directory(self.mount.believed_until(begun)));
        if !self.mount.keeps_metadata() {
            return Ok(answer);
        }
        // Unless it is marked as usual, an object of its name may do that.
        let answer = match below {
            Some(below) if below.marker => answer,
            _ => {
                let info = for_reading(self.mount.head(&key::file_key(prefix, name)?).await)?;
                let known = info.map(|info| self.mount.known_object(&info, begun));
                known
                    .filter(|known| known.kind == FileKind::Directory)
                    .or(answer)
            }
        };
        self.complete(answer, below, (prefix, name, begun)).await
    }

    /// Believes what is known of a file for longer, because it was used, if the settings say so.
    fn prolong(&self, inode: Inode) {
        if !self.mount.settings.metadata.stat_cache_interval {
            return;
        }
        let until = self.mount.believed_until(clock::now());
        if let Ok(node) = self.mount.namespace.lock().node_mut(inode)
            && let Some(known) = &mut node.known
        {
            known.until = known.until.max(until);
        }
    }
}

impl Mount {
    /// What a file shows that was found or made, whose reference goes to the door.
    pub(crate) fn given_away(&self, file: Reference) -> FsResult<Entry> {
        let entry = self.entry(file.inode())?;
        file.give_away();
        Ok(entry)
    }

    /// Describes an object, if there is one, as it is to be described here.
    pub(crate) async fn head(&self, key: &Key) -> Result<Option<ObjectInfo>, ObjectError> {
        if self.is_removed(key) {
            return Ok(None);
        }
        let before = self.redescribed(key);
        match self.store().head(key, HeadOptions::default()).await {
            Ok(info) => match self.redescribed(key).or(before) {
                Some(new) => Ok(Some(shown_as(info, &new))),
                None => Ok(Some(info)),
            },
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Looks whether any key begins with a directory's prefix.
    pub(crate) async fn first_below(&self, prefix: &str) -> Result<Option<Below>, ObjectError> {
        let first = self.first_keys_below(prefix, 1).await?.into_iter().next();
        Ok(first.map(|key| Below {
            marker: key == prefix,
        }))
    }

    /// The first `count` keys that begin with `prefix`. One that the store does not tell is there as the
    /// sign for what cannot be said.
    pub(crate) async fn first_keys_below(
        &self,
        prefix: &str,
        count: u32,
    ) -> Result<Vec<String>, ObjectError> {
        let mut keys = Vec::new();
        if Key::new(prefix).is_err() {
            return Ok(keys);
        }
        // Those that are to be removed take up room on a page.
        let removed = self.removed_below(prefix).len().min(REMOVED_MAX) as u32;
        let mut options = ListOptions {
            prefix: prefix.to_owned(),
            max_keys: Some(count + removed),
            ..Default::default()
        };
        loop {
            let page = self.list(options.clone()).await?;
            keys.extend(page.objects.into_iter().map(|object| object.key));
            let hidden = format!("{prefix}{}", char::REPLACEMENT_CHARACTER);
            keys.extend(iter::repeat_n(hidden, page.hidden));
            options.continuation = page.continuation;
            if keys.len() >= count as usize || options.continuation.is_none() {
                return Ok(keys);
            }
        }
    }

    /// Counts a file that a directory of the same name hides.
    pub(crate) fn note_hidden_file(&self, key: &Key) {
        self.metrics.hidden_files.increment();
        if self.notices.hidden_file.first() {
            tracing::warn!(
                "`{key}` is both an object and a directory: the directory is shown, the object is \
                 hidden; rename the object in the store to see it (later cases are only counted)"
            );
        }
    }

    fn note_unlistable(&self, error: &ObjectError) {
        if self.notices.unlistable.first() {
            tracing::warn!(
                "{error}: without permission to list, directories that no object marks and the \
                 contents of all directories stay hidden; allow listing the bucket"
            );
        }
    }

    /// Notes whether an object marks a directory.
    pub(crate) fn note_marker(&self, directory: Inode, marker: bool) {
        if let Ok(directory) = self.namespace.lock().directory_mut(directory) {
            directory.marker = Some(marker);
        }
    }
}
