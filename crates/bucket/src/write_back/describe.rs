//! Describing saved files anew, behind.
//!
//! A change of owner, mode, times or attributes of a file whose object the store has copies that object onto itself. What
//! waits says of which version ([`Redescription`]), so the file itself is a saved one meanwhile: memory believes it no
//! longer than another, and each answer about that version is shown with what waits ([`Mount::head`]). The copy is made
//! on the condition that the store still has the version. Where it has not, an earlier attempt of ours may have been
//! made: then the object says what was wanted. Else it is another client's, and stays as it is.
//!
//! A copy may have another tag and has another time. So whoever is about to write under the key, or to remove what is
//! there, lets what waits fall away ([`Mount::forgo_description`]) or, when it was begun, waits for its end.

use std::sync::Arc;

use penstock_base::FsResult;
use penstock_object::{
    CopyOptions, Description, ETag, ErrorKind, HeadOptions, Key, ObjectInfo, ObjectResult,
    Operation, WriteCondition,
};
use penstock_transfer::staging::{NameChange, Redescription};

use crate::{
    errors::{Purpose, object_failure},
    inode::{Change, Dentry},
    mount::Mount,
    write_back::{
        Next, Wait, WriteBack,
        carry_out::Durability,
        pending::{Task, Waiting},
    },
};

impl Waiting {
    /// How a version is to be described, if that is what waits.
    pub(super) fn redescription(&self) -> Option<&Redescription> {
        match &*self.change {
            NameChange::Describe(new) => Some(new),
            _ => None,
        }
    }

    /// Whether it is how a version is to be described, and was not begun.
    fn may_be_taken_back(&self) -> bool {
        self.redescription().is_some() && !self.is_begun()
    }

    /// The same, if the store may have it already.
    pub(super) fn is_described(&self) -> bool {
        self.redescription().is_some() && self.is_begun()
    }
}

impl WriteBack {
    /// Has a version of an object described anew.
    pub(crate) async fn describe_version(
        self: &Arc<Self>,
        key: &Key,
        (etag, description): (ETag, Description),
    ) -> Wait {
        let describe = move |there: Option<&Waiting>| {
            let is_free = match there {
                None => true,
                Some(there) => {
                    let same = there.redescription().is_some_and(|new| new.etag == etag);
                    same && !there.is_begun()
                }
            };
            match is_free {
                true => Next::change(NameChange::Describe(Redescription { etag, description })),
                false => Next::Refused,
            }
        };
        self.wait(key, describe, None).await
    }

    /// Keeps how an object is to be described from being begun, if it waits and was not.
    pub(super) fn hold_description(self: &Arc<Self>, key: &Key) -> Option<HeldDescription> {
        let mut pending = self.pending();
        if !pending.get(key)?.may_be_taken_back() {
            return None;
        }
        pending.hold(key);
        Some(HeldDescription {
            write_back: Arc::clone(self),
            key: key.clone(),
        })
    }

    /// How the version `info` is to be described that the store has of a key.
    fn redescribed(&self, key: &Key) -> Option<Redescription> {
        self.pending().get(key)?.redescription().cloned()
    }

    pub(super) async fn carry_out_description(self: &Arc<Self>, mount: &Arc<Mount>, task: Task) {
        let NameChange::Describe(new) = &*task.change else {
            return;
        };
        let changes = mount.begin_changes(std::slice::from_ref(&task));
        let mut change = changes.into_iter().flatten().next();
        match mount.copy_described(&task.key, new).await {
            Ok(Some(etag)) => {
                mount.follow_description(&task.key, &new.etag, &etag);
                change.take().into_iter().for_each(Change::end);
            }
            Ok(None) => tracing::warn!(
                "another client changed `{}` before it was described anew: theirs stays",
                task.key
            ),
            Err(error)
                if error.kind == ErrorKind::PermissionDenied
                    && error.operation == Operation::Copy =>
            {
                let reason = object_failure(&error, Purpose::Write);
                tracing::error!(
                    "`{}` could not be described anew and is as it was: {reason}",
                    task.key
                );
                self.give_up(&task, reason);
            }
            Err(error) => return self.fail(&task, &error),
        }
        let key = task.key.clone();
        drop(self.end(vec![task], Durability::Process).await);
        if let Some(change) = change {
            // Not before it is doubted.
            drop(change);
            mount.tell_undescribed(&key);
        }
        self.ended.notify_waiters();
    }
}

/// How an object is to be described, which is not begun while this lives.
pub(crate) struct HeldDescription {
    write_back: Arc<WriteBack>,
    key: Key,
}

impl HeldDescription {
    /// Lets it fall away. Says whether it did: not if the disk refuses to note that.
    pub(crate) async fn forgo(self) -> bool {
        let take_back = |there: Option<&Waiting>| match there {
            Some(there) if there.may_be_taken_back() => Next::Nothing,
            _ => Next::Refused,
        };
        self.write_back.wait(&self.key, take_back, None).await == Wait::Noted
    }
}

impl Drop for HeldDescription {
    fn drop(&mut self) {
        self.write_back.release(&self.key);
    }
}

impl Mount {
    /// Holds how the object of a key is to be described, since a file is about to take its place. Waits for the store if
    /// that was begun.
    pub(crate) async fn hold_description(&self, key: &Key) -> FsResult<Option<HeldDescription>> {
        let Some(write_back) = self.write_back() else {
            return Ok(None);
        };
        let held = write_back.hold_description(key);
        if held.is_none() && write_back.redescribed(key).is_some() {
            write_back.settle(key).await?;
        }
        Ok(held)
    }

    /// Lets fall away how the object of a key is to be described, since something is to be stored under it that
    /// replaces the object and its description. Waits for the store if that was begun.
    pub(crate) async fn forgo_description(&self, key: &Key) -> FsResult<()> {
        match self.hold_description(key).await? {
            Some(held) => match held.forgo().await {
                true => Ok(()),
                false => self.settle(key).await,
            },
            None => Ok(()),
        }
    }

    /// Tells the doors that a file is not described as they believe.
    fn tell_undescribed(&self, key: &Key) {
        let tree = self.namespace.lock();
        let place = tree.place_in_memory(key);
        let entry = place.and_then(|place| tree.entry(place.parent, &place.name));
        if let Some(inode) = entry.and_then(Dentry::held) {
            tree.tell_content_changed(inode);
        }
    }

    /// What waits to be said of the object of a key.
    pub(crate) fn redescribed(&self, key: &Key) -> Option<Redescription> {
        self.write_back()?.redescribed(key)
    }

    /// Copies an object onto itself. Returns the version that is described so now; `None` where another client's is.
    async fn copy_described(&self, key: &Key, new: &Redescription) -> ObjectResult<Option<ETag>> {
        let options = CopyOptions {
            if_match: Some(new.etag.clone()),
            condition: WriteCondition::IfMatch(new.etag.clone()),
            description: Some(new.description.clone()),
        };
        let refused = match self.store().copy(key, key, options).await {
            Ok(stored) => return Ok(Some(stored.etag)),
            Err(error) => error,
        };
        if !matches!(
            refused.kind,
            ErrorKind::PreconditionFailed | ErrorKind::NotFound
        ) {
            return Err(refused);
        }
        match self.store().head(key, HeadOptions::default()).await {
            Ok(there) if there.metadata == new.description.metadata => Ok(Some(there.etag)),
            Ok(there) if there.etag == new.etag => Err(refused),
            Ok(_) => Ok(None),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What an object shows that is to be described anew.
pub(crate) fn shown_as(mut info: ObjectInfo, new: &Redescription) -> ObjectInfo {
    if info.etag == new.etag {
        info.metadata = new.description.metadata.clone();
        info.content_type = match &new.description.content_type {
            Some(content_type) => content_type.clone(),
            None => info.content_type,
        };
    }
    info
}
