//! Carrying out what waits.

use std::{
    io, slice,
    sync::{Arc, Weak},
    time::Duration,
};

use penstock_base::{
    FsError, Payload,
    clock::{self, Instant},
};
use penstock_object::{
    DELETE_MANY_MAX, ErrorKind, GetOptions, Key, ObjectError, ObjectResult, Operation, PutOptions,
    Stored, WriteCondition,
};
use penstock_transfer::staging::{NameChange, SmallObject, disk_failure};
use penstock_vfs::FileKind;
use tokio::sync::Notify;

use crate::{
    errors::{Purpose, object_failure},
    inode::{Change, Node, Place, Reference},
    mount::Mount,
    posix::{KeptMetadata, LinkTarget},
    staged::behind::Turn,
    write_back::{
        WriteBack,
        pending::{Due, Room, Task, Waiting},
        versions::Removed,
    },
};

/// The shortest time between two looks at what is due.
const LOOK_MIN: Duration = Duration::from_millis(5);

/// Begins to carry out what waits as long as the volume lives, where there is a runtime to do it.
pub(crate) fn begin(mount: &Arc<Mount>) {
    if let (Some(write_back), Ok(runtime)) =
        (mount.write_back(), tokio::runtime::Handle::try_current())
    {
        let bell = Arc::clone(&write_back.bell);
        runtime.spawn(carry_out_what_is_due(Arc::downgrade(mount), bell));
    }
}

async fn carry_out_what_is_due(mount: Weak<Mount>, bell: Arc<Notify>) {
    loop {
        let Some(mount) = mount.upgrade() else { return };
        let next = mount.write_back().and_then(|write_back| {
            let due = write_back.take_due();
            let next = due.next;
            write_back.begin_tasks(&mount, due);
            next
        });
        drop(mount);
        // What comes in one go is looked at in one go.
        clock::sleep(LOOK_MIN).await;
        match next {
            Some(next) => {
                let pause = next.duration_since(clock::now());
                let _ = clock::deadline(pause, bell.notified()).await;
            }
            None => bell.notified().await,
        }
    }
}

impl WriteBack {
    fn take_due(&self) -> Due {
        let room = Room {
            writes: self.writes.available_permits(),
            removals: self.removals.available_permits(),
        };
        self.pending().take_due(room)
    }

    fn begin_tasks(self: &Arc<Self>, mount: &Arc<Mount>, due: Due) {
        for task in due.writes {
            let turn = Turn::take(&self.writes, &self.bell);
            let (this, mount) = (Arc::clone(self), Arc::clone(mount));
            tokio::spawn(async move {
                match &*task.change {
                    NameChange::Describe(_) => this.carry_out_description(&mount, task).await,
                    _ => this.carry_out_marked(&mount, task).await,
                }
                drop(turn);
            });
        }
        for tasks in due.removals.chunks(DELETE_MANY_MAX) {
            let turn = Turn::take(&self.removals, &self.bell);
            let (this, mount, tasks) = (Arc::clone(self), Arc::clone(mount), tasks.to_vec());
            tokio::spawn(async move {
                this.carry_out_removals(&mount, tasks).await;
                drop(turn);
            });
        }
    }

    /// Writes an object. What the store was asked before it was there is not believed after it: the node was, meanwhile.
    async fn carry_out_marked(self: &Arc<Self>, mount: &Arc<Mount>, task: Task) {
        let changes = mount.begin_changes(slice::from_ref(&task));
        self.carry_out_write(mount, task).await;
        changes.into_iter().flatten().for_each(Change::end);
    }

    async fn carry_out_write(self: &Arc<Self>, mount: &Arc<Mount>, task: Task) {
        let NameChange::Write(object) = &*task.change else {
            return;
        };
        match mount.put_small(&task.key, object).await {
            Ok(stored) => self.end_write(mount, task, Some(stored)).await,
            Err(error) if error.kind == ErrorKind::AlreadyExists => {
                let object = object.clone();
                self.give_up_write(mount, task, object).await;
            }
            Err(error) => self.fail(&task, &error),
        }
    }

    /// The key was taken: by an attempt of ours whose answer was lost or that came before it was described anew, or
    /// by another client.
    async fn give_up_write(self: &Arc<Self>, mount: &Arc<Mount>, task: Task, object: SmallObject) {
        match mount.rewrite_small(&task.key, &object).await {
            Ok(Some(stored)) => self.end_write(mount, task, Some(stored)).await,
            Ok(None) => {
                self.tell_taken(&task, &object);
                self.end_write(mount, task, None).await;
            }
            Err(error) => self.fail(&task, &error),
        }
    }

    fn tell_taken(&self, task: &Task, object: &SmallObject) {
        let (key, text) = (
            &task.key,
            "another client took the name meanwhile; theirs stays",
        );
        let target = KeptMetadata::described(&object.description).posix.link;
        let target = match target {
            Some(LinkTarget::Header(target)) => target,
            _ => String::from_utf8_lossy(&object.body).into_owned(),
        };
        tracing::error!("the link `{key}` to `{target}` could not be made: {text}");
        self.give_up(task, FsError::Busy(text));
    }

    /// Whoever waits for it, the next fsync and shutting down tell what is not made.
    pub(super) fn give_up(&self, task: &Task, reason: FsError) {
        let path = task.key.to_string();
        match *task.change {
            NameChange::Remove(_) => self.lost.add_removed(path, reason.clone()),
            NameChange::Write(_) | NameChange::Describe(_) => {
                self.lost.add(path, reason.clone());
            }
        }
        self.pending().note_given_up(&task.key, reason);
    }

    /// Notes that an object is in the store, or another client's.
    async fn end_write(self: &Arc<Self>, mount: &Arc<Mount>, task: Task, stored: Option<Stored>) {
        let key = task.key.clone();
        // A node locks the tree when it goes: after the lock.
        let nodes: Vec<Reference> = {
            let ended = self.end(vec![task], Durability::Process).await;
            ended.into_iter().filter_map(|ended| ended.node).collect()
        };
        {
            let mut tree = mount.namespace.lock();
            for node in &nodes {
                let has_more = self.has(&key);
                if let Ok(node) = tree.node_mut(node.inode())
                    && !has_more
                {
                    node.note_stored(stored.as_ref(), mount.believed_until(clock::now()));
                }
            }
        }
        // Who waits for it goes on with the version that is noted now.
        self.ended.notify_waiters();
    }

    async fn carry_out_removals(self: &Arc<Self>, mount: &Arc<Mount>, tasks: Vec<Task>) {
        let changes = mount.begin_changes(&tasks);
        let mut removed = mount.remove_versions(&tasks).await;
        let (mut ended, mut known) = (Vec::new(), Vec::new());
        for (task, change) in tasks.into_iter().zip(changes) {
            match removed.remove(&task.key) {
                Some(Removed::Failed(error)) if !is_refusal(&error) => {
                    self.fail(&task, &error);
                    continue;
                }
                Some(Removed::Failed(error)) => self.give_up_removal(&task, &error),
                Some(Removed::Changed) => note_changed(&task),
                Some(Removed::Gone) | None => known.extend(change),
            }
            ended.push(task);
        }
        known.into_iter().for_each(Change::end);
        drop(self.end(ended, Durability::Machine).await);
        self.ended.notify_waiters();
    }

    fn give_up_removal(&self, task: &Task, error: &ObjectError) {
        let error = object_failure(error, Purpose::Write);
        let key = &task.key;
        tracing::error!("`{key}` could not be removed and is there again: {error}");
        self.give_up(task, error);
    }

    /// Takes changes out of the log, and out of what waits unless another one of the key took their place. Returns
    /// what waited. What the disk does not note goes on waiting, and is carried out once more.
    pub(super) async fn end(
        self: &Arc<Self>,
        tasks: Vec<Task>,
        durability: Durability,
    ) -> Vec<Waiting> {
        let this = Arc::clone(self);
        let ended = self.on_disk(durability == Durability::Process, move || {
            let noted = this.note_done(&tasks, durability);
            let _log = this.staging.names();
            if let Err(error) = noted {
                let reason = disk_failure(&error);
                tracing::warn!("the log of names does not know what is done: {reason}");
                let mut pending = this.pending();
                for task in &tasks {
                    pending.fail(task, reason.clone());
                }
                return Ok(Vec::new());
            }
            let mut pending = this.pending();
            let ended = tasks.iter().filter_map(|task| pending.end(task));
            Ok(ended.collect::<Vec<_>>())
        });
        ended.await.unwrap_or_default()
    }

    fn note_done(&self, tasks: &[Task], durability: Durability) -> io::Result<()> {
        {
            let mut log = self.staging.names();
            for task in tasks {
                // What took its place is noted already.
                if self.pending().is_current(task) {
                    log.note_done(&task.key)?;
                }
            }
        }
        match durability {
            Durability::Machine => self.staging.force_log(),
            Durability::Process => Ok(()),
        }
    }

    pub(super) fn fail(&self, task: &Task, error: &ObjectError) {
        self.note_failure(task, object_failure(error, Purpose::Write));
    }

    fn note_failure(&self, task: &Task, reason: FsError) {
        let what = match *task.change {
            NameChange::Remove(_) => "removed",
            NameChange::Write(_) => "stored",
            NameChange::Describe(_) => "described anew",
        };
        let key = &task.key;
        tracing::warn!("`{key}` could not be {what} yet: {reason}; it is tried again");
        self.pending().fail(task, reason);
        self.ended.notify_waiters();
        self.bell.notify_one();
    }
}

/// Whether the store does not let us remove an object. One that does not let us look may let us remove it.
fn is_refusal(error: &ObjectError) -> bool {
    error.kind == ErrorKind::PermissionDenied
        && matches!(error.operation, Operation::Delete | Operation::DeleteMany)
}

fn note_changed(task: &Task) {
    let key = &task.key;
    tracing::warn!("another client changed `{key}` before it was removed: theirs stays");
}

/// What a note of what is done survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// The end of the process.
    Process,
    /// The end of the machine, too: what was removed must not be removed once more after it, for by then the key may
    /// have another object with the same bytes.
    Machine,
}

impl Node {
    /// Notes that the store has the node as it is, or something else under its name.
    fn note_stored(&mut self, stored: Option<&Stored>, until: Instant) {
        self.late = None;
        match (stored, &mut self.known) {
            (Some(stored), Some(known)) => {
                known.until = until;
                known.stored = None;
                if known.kind != FileKind::Directory {
                    known.etag = Some(stored.etag.clone());
                }
            }
            _ => self.distrust(clock::now()),
        }
    }
}

impl Mount {
    /// Marks the names that are changed in the store from now on, as far as memory has the directories that they are
    /// in.
    pub(super) fn begin_changes(&self, tasks: &[Task]) -> Vec<Option<Change>> {
        let places: Vec<Option<Place>> = {
            let tree = self.namespace.lock();
            tasks
                .iter()
                .map(|task| tree.place_in_memory(&task.key))
                .collect()
        };
        let begin = |place| self.namespace.begin_change(place);
        places.into_iter().map(|place| place.map(begin)).collect()
    }

    async fn put_small(&self, key: &Key, object: &SmallObject) -> ObjectResult<Stored> {
        // Two clients may make one directory.
        let condition = match object.is_new && !key.as_str().ends_with('/') {
            true => WriteCondition::IfAbsent,
            false => WriteCondition::Always,
        };
        self.put_small_if(key, object, condition).await
    }

    /// Describes an object that is there as `object` says, if it is the same link. Returns nothing if it is not.
    async fn rewrite_small(&self, key: &Key, object: &SmallObject) -> ObjectResult<Option<Stored>> {
        let Some(there) = self.head(key).await? else {
            let text = "it was there a moment ago";
            return Err(ObjectError::new(
                ErrorKind::Unavailable,
                Operation::Put,
                text,
            ));
        };
        let mut body = Vec::new();
        if there.size == object.body.len() as u64 && there.size > 0 {
            let options = GetOptions::default();
            self.store().get(key, options, &mut body).await?;
        }
        let ours = KeptMetadata::described(&object.description).posix.link;
        let is_same = there.size == object.body.len() as u64
            && body == object.body
            && KeptMetadata::of(&there).posix.link == ours;
        if !is_same {
            return Ok(None);
        }
        if there.metadata == object.description.metadata {
            return Ok(Some(Stored {
                etag: there.etag,
                checksum: None,
            }));
        }
        let condition = WriteCondition::IfMatch(there.etag);
        self.put_small_if(key, object, condition).await.map(Some)
    }

    async fn put_small_if(
        &self,
        key: &Key,
        object: &SmallObject,
        condition: WriteCondition,
    ) -> ObjectResult<Stored> {
        let description = &object.description;
        let options = PutOptions {
            content_type: description.content_type.clone(),
            metadata: description.metadata.clone(),
            condition,
        };
        let body = Payload::from(object.body.to_vec());
        self.store().put(key, body, options).await
    }
}
