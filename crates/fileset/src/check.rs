//! Whether a file system is whole: its keys fit each other, and its objects are in the bucket.
//!
//! A check changes nothing; [`plan`] and [`apply`] repair. It looks at all keys in one pass and at all objects in a listing; [`check`] fetches none of
//! them, so damage to the bytes of a block is found by who reads it or by [`check_data`]. It keeps about 100 bytes of
//! memory for each file. Commands see to it by the engine's lock that nobody has the file system open meanwhile. Where somebody
//! has, a check finds what there was when it surveyed the keys: what is uploaded or deleted since is not missed.

mod blocks;
mod contents;
mod kept;
mod marks;
mod overlay;
mod quotas;
mod ranges;
mod repair;
mod trash;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::ControlFlow,
    sync::Arc,
};

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_object::{ErrorKind, HeadOptions, ListOptions, Store};
use penstock_transfer::Transfer;
use penstock_vfs::{FileKind, Inode};

use crate::{
    data::{self, Ahead, DATA, ObjectId, UNKNOWN_LENGTH},
    engine::{Engine, Reads, counter, query},
    errors::object_failure,
    schema::{self, BLOCK_SIZE, Chunk, Entry, Node, ObjectUse, SNAPSHOTS, Share, Stored, kind},
};

pub use self::repair::{REPAIRS_MAX, Repair, apply, plan};
use self::{
    contents::Contents, kept::Snapshots, marks::Marks, quotas::Quotas, ranges::Places,
    trash::Misplaced,
};

/// What a check found.
#[derive(Debug, Default)]
pub struct Report {
    /// Files of all kinds.
    pub files: u64,
    /// Bytes of files that were written.
    pub bytes: u64,
    /// Objects that files refer to.
    pub objects: u64,
    /// Objects in the bucket that nothing refers to: a crash came between a PUT and what was to refer to it.
    pub leaked: u64,
    /// Bytes in the bucket that were compared with their checksums.
    pub compared: u64,
    /// Ranges of files whose bytes are not in the bucket as they were written, a line each: reads of them fail.
    pub damaged: Vec<String>,
    /// What is wrong, a line each, at most [`FINDINGS_MAX`].
    pub findings: Vec<String>,
    /// Wrong things that are not among them.
    pub more: u64,
}

/// Findings that are told.
pub const FINDINGS_MAX: usize = 1000;

impl Report {
    fn add(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// What the keys say of one inode.
#[derive(Debug, Default)]
struct Seen {
    node: Option<Node>,
    /// Entries that lead to it.
    entries: u32,
    /// The directory of the last of them.
    parent: u64,
    /// Directories in it.
    directories: i64,
    /// Entries in it.
    entries_in: u64,
    counted: i64,
    is_orphan: bool,
    /// A session says that it holds it without a name.
    is_held: bool,
    /// Bytes in the target of a symbolic link.
    target: u64,
    allocated: u64,
    /// Where its last extent ends.
    written_to: u64,
}

/// What the keys say of all.
#[derive(Debug, Default)]
struct Survey {
    inodes: HashMap<u64, Seen>,
    /// As the keys say, and as the extents do.
    objects: BTreeMap<ObjectId, (Option<ObjectUse>, Share)>,
    /// Lengths of objects of which no key but extents is.
    lengths: BTreeMap<ObjectId, u64>,
    garbage: BTreeMap<ObjectId, ()>,
    /// Bytes of objects that are with the metadata.
    contents: Contents,
    marks: Marks,
    snapshots: Snapshots,
    quotas: Quotas,
    files: i64,
    bytes: i64,
    spared: i64,
    unreadable: Vec<String>,
    misplaced: Vec<Misplaced>,
}

impl Survey {
    fn of(reads: &dyn Reads) -> FsResult<Self> {
        let mut survey = Self::default();
        reads.scan(&[0][..]..&[u8::MAX][..], &mut |key, value| {
            if let Err(error) = survey.look(key, value) {
                survey
                    .unreadable
                    .push(format!("key {}: {error}", hexadecimal(key)));
            }
            ControlFlow::Continue(())
        })?;
        Ok(survey)
    }

    fn inode(&mut self, inode: Inode) -> &mut Seen {
        self.inodes.entry(inode.0).or_default()
    }

    fn look(&mut self, key: &[u8], value: &Bytes) -> FsResult<()> {
        match key {
            schema::FORMAT => schema::Format::decode(value).map(drop)?,
            schema::LAST_INODE | schema::LAST_SNAPSHOT | schema::EPOCH => {
                self.marks.look(key, value);
            }
            schema::LAST_SWEEP | schema::GENERATION | schema::LOADING => {}
            schema::TRASH_DAYS => schema::decode_days(value).map(drop)?,
            schema::SCHEDULE => schema::Schedule::decode(value).map(drop)?,
            schema::FILES => self.files = counter(Some(value)),
            schema::BYTES => self.bytes = counter(Some(value)),
            schema::SPARED => self.spared = counter(Some(value)),
            schema::COMPRESSION => schema::Compression::decode(value).map(drop)?,
            [kind::MARKING, ..] => drop(schema::inode_in(key)?),
            [kind::USED | kind::QUOTA, ..] => self.quotas.look(key, value)?,
            [kind::OBJECT, ..] => {
                let object = schema::object_in(key)?;
                self.objects.entry(object).or_default().0 = Some(ObjectUse::decode(value)?);
            }
            [
                kind::SNAPSHOT | kind::SNAPSHOT_NAME | kind::KEPT | kind::HELD,
                ..,
            ] => {
                self.snapshots.look(key, value)?;
            }
            [kind::WRITER, ..] => {
                schema::writer_in(key)?;
                schema::decode_session(value)?;
            }
            [kind::LOCKS, ..] => {
                schema::inode_in(key)?;
                schema::FileLocks::decode(value)?;
            }
            [kind::WRITE_LEASE, ..] => {
                schema::inode_in(key)?;
                schema::WriteLease::decode(value)?;
            }
            // One that cannot be read is forgotten.
            [kind::CALL, ..] => {}
            [kind::CONTENT, ..] => self.contents.look(key, value),
            [kind::GARBAGE, ..] => {
                self.garbage.insert(schema::object_in(key)?, ());
            }
            _ => self.look_at_inode(key, value)?,
        }
        Ok(())
    }

    fn look_at_inode(&mut self, key: &[u8], value: &Bytes) -> FsResult<()> {
        let inode = schema::inode_in(key)?;
        if inode == SNAPSHOTS {
            return self.snapshots.look_at_directory(key, value);
        }
        self.marks.has_number(inode);
        match key[0] {
            kind::NODE => self.inode(inode).node = Some(Node::decode(value)?),
            kind::DIRECTORIES => self.inode(inode).counted = counter(Some(value)),
            kind::ORPHAN => {
                schema::decode_session(value)?;
                self.inode(inode).is_orphan = true;
            }
            kind::HOLDER => {
                schema::holder_in(key)?;
                self.inode(inode).is_held = true;
            }
            kind::TARGET => self.inode(inode).target = value.len() as u64,
            kind::TIMES | kind::XATTR => {
                self.inode(inode);
            }
            kind::ENTRY => {
                let entry = Entry::decode(value)?;
                let is_directory = entry.kind == FileKind::Directory;
                self.find_misplaced(inode, schema::name_in(key), entry);
                let above = self.inode(inode);
                above.directories += i64::from(is_directory);
                above.entries_in += 1;
                let found = self.inode(entry.inode);
                found.entries += 1;
                found.parent = inode.0;
            }
            kind::CHUNK => self.look_at_chunk(inode, schema::chunk_in(key)?, value)?,
            _ => return Err(schema::damaged("a key")),
        }
        Ok(())
    }

    fn find_misplaced(&mut self, directory: Inode, name: &[u8], entry: Entry) {
        if !trash::belongs(directory, name, entry) {
            self.misplaced.push(Misplaced {
                directory,
                name: String::from_utf8_lossy(name).into_owned(),
                inode: entry.inode,
            });
        }
    }

    fn look_at_chunk(&mut self, inode: Inode, index: u64, value: &Bytes) -> FsResult<()> {
        let chunk = Chunk::decode(value)?;
        let file = self.inode(inode);
        file.allocated += chunk.allocated();
        if let Some(last) = chunk.extents.last() {
            file.written_to = index * BLOCK_SIZE + u64::from(last.at + last.length);
        }
        for extent in &chunk.extents {
            let stored = &extent.stored;
            let (known, used) = self.objects.entry(stored.object).or_default();
            *used += extent.share();
            if known.is_none() {
                let length = u64::from(stored.object_length);
                self.lengths.insert(stored.object, length);
            }
            let fits_object = stored.offset.checked_add(stored.stored_length());
            let fits_run = extent.skip.checked_add(extent.length);
            if fits_object.is_none_or(|end| end > stored.object_length)
                || fits_run.is_none_or(|end| end > stored.length)
            {
                return Err(schema::damaged("an extent"));
            }
        }
        Ok(())
    }

    fn spared_by_extents(&self) -> i64 {
        self.objects.values().map(|(_, used)| used.spared).sum()
    }

    fn report(&self) -> Report {
        let mut report = Report::default();
        for text in &self.unreadable {
            report.add(text.clone());
        }
        for key in self.contents.unreadable() {
            let key = hexadecimal(key);
            report.add(format!("key {key}: does not say whose bytes it has"));
        }
        for Misplaced {
            directory,
            name,
            inode,
        } in &self.misplaced
        {
            report.add(format!(
                "entry `{name}` of directory {}: leads to inode {}, which does not belong there",
                directory.0, inode.0
            ));
        }
        for (inode, seen) in &self.inodes {
            for text in seen.problems(*inode) {
                report.add(format!("inode {inode}: {text}"));
            }
            report.files += u64::from(seen.node.is_some());
            report.bytes += seen.allocated;
        }
        for inode in self.rings() {
            report.add(format!("inode {inode}: is a directory that lies in itself"));
        }
        if self.files != report.files as i64 {
            let text = format!(
                "{} files are counted, {} are there",
                self.files, report.files
            );
            report.add(text);
        }
        if self.bytes != report.bytes as i64 {
            let text = format!(
                "{} bytes are counted, {} are there",
                self.bytes, report.bytes
            );
            report.add(text);
        }
        if self.spared != self.spared_by_extents() {
            let (there, counted) = (self.spared_by_extents(), self.spared);
            report.add(format!(
                "{counted} bytes are counted that compression spares, it spares {there}"
            ));
        }
        self.report_uses(&mut report);
        for wrong in self.quotas.wrong(&self.inodes) {
            report.add(wrong.to_string());
        }
        for text in self.snapshots.problems(&self.objects) {
            report.add(text);
        }
        for wrong in self.wrong_marks() {
            report.add(wrong.to_string());
        }
        report
    }

    /// Those of the objects that are not in the bucket which should be: not one that lost its last use behind the
    /// survey, and was deleted before the listing.
    fn missing<'a>(
        &self,
        reads: &dyn Reads,
        absent: impl Iterator<Item = &'a ObjectId>,
    ) -> FsResult<Vec<ObjectId>> {
        let mut missing = Vec::new();
        for object in absent {
            let was_counted = matches!(self.objects.get(object), Some((Some(_), _)));
            if !was_counted || reads.get(&schema::object(*object))?.is_some() {
                missing.push(*object);
            }
        }
        Ok(missing)
    }

    fn report_uses(&self, report: &mut Report) {
        for (object, (counted, used)) in &self.objects {
            let counted = counted.map_or(Share::default(), ObjectUse::share);
            if counted.bytes != used.bytes {
                let (used, counted) = (used.bytes, counted.bytes);
                report.add(format!(
                    "{object}: {used} bytes are in use, {counted} are counted"
                ));
            }
            if counted.spared != used.spared {
                let (used, counted) = (used.spared, counted.spared);
                report.add(format!(
                    "{object}: compression spares {used} bytes, {counted} are counted"
                ));
            }
            if self.garbage.contains_key(object) {
                report.add(format!("{object}: is to be deleted and in use"));
            }
            report.objects += 1;
        }
    }
}

impl Seen {
    fn problems(&self, inode: u64) -> Vec<String> {
        let Some(node) = &self.node else {
            return vec![format!("is missing, {} entries lead to it", self.entries)];
        };
        let mut problems = Vec::new();
        let names = self.entries + u32::from(trash::is_top(inode));
        if names != node.links {
            problems.push(format!(
                "{names} entries lead to it, {} are counted",
                node.links
            ));
        }
        if self.is_orphan != (node.links == 0) {
            problems.push("has no name and nobody collects it, or the other way round".to_owned());
        }
        if self.is_held && !self.is_orphan {
            problems.push("has a name, and is held as if it had none".to_owned());
        }
        if node.is_directory() {
            let parent = self.right_parent(inode).unwrap_or(node.parent);
            if parent != node.parent {
                problems.push(format!("is in {parent}, and says {}", node.parent));
            }
            if self.directories != self.counted {
                let (there, counted) = (self.directories, self.counted);
                problems.push(format!(
                    "{there} directories are in it, {counted} are counted"
                ));
            }
        }
        if self.right_project(node.project) != node.project {
            problems.push(
                "is in the trash and does not count for it, or the other way round".to_owned(),
            );
        }
        if self.lies_in_trash() && self.entries > 1 {
            problems.push("is in the trash and has another name".to_owned());
        }
        let access = node.lists.access.as_ref();
        if access.is_some_and(|list| list.classes() != node.permissions & 0o777) {
            problems.push("its mode and its access list do not fit".to_owned());
        }
        if self.allocated != node.allocated {
            let (there, counted) = (self.allocated, node.allocated);
            problems.push(format!("{there} bytes are written, {counted} are counted"));
        }
        if self.written_to > node.size {
            problems.push(format!("is written behind its end, at {}", self.written_to));
        }
        problems
    }
}

fn hexadecimal(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks the file system whose metadata is in `engine` and whose objects are in `store`, or wait for it.
pub async fn check(
    engine: &dyn Engine,
    store: &dyn Store,
    ahead: Option<&Ahead>,
) -> FsResult<Report> {
    let (mut report, survey, lost) = surveyed(engine, store, ahead).await?;
    report.damaged = query(engine, |reads| lost.ranges(reads, &survey)).await?;
    Ok(report)
}

/// What is lost of the bytes of files.
#[derive(Debug, Default)]
struct Lost {
    /// Objects that are missing in the bucket or have another length there.
    objects: BTreeSet<ObjectId>,
    /// Runs in other objects.
    runs: Places,
}

impl Lost {
    /// Ranges of files, a line each.
    fn ranges(&self, reads: &dyn Reads, survey: &Survey) -> FsResult<Vec<String>> {
        match self.objects.is_empty() && self.runs.is_empty() {
            true => Ok(Vec::new()),
            false => ranges::of(reads, survey, &|run| self.has(run)),
        }
    }

    fn has(&self, run: &Stored) -> bool {
        self.objects.contains(&run.object) || self.runs.contains(&(run.object, run.offset))
    }
}

/// What is found without a look at bytes, but which bytes of files are lost.
async fn surveyed(
    engine: &dyn Engine,
    store: &dyn Store,
    ahead: Option<&Ahead>,
) -> FsResult<(Report, Survey, Lost)> {
    let mut lost = Lost::default();
    let survey = query(engine, |reads| Survey::of(reads)).await?;
    let mut report = survey.report();
    if let Err(error) = engine.verify().await {
        report.add(error.to_string());
    }
    let mut there = 0;
    let mut expected: BTreeMap<ObjectId, u64> = BTreeMap::new();
    for (object, (counted, _)) in &survey.objects {
        expected.insert(*object, counted.map_or(0, |counted| counted.length));
    }
    // Before the listing: one that is uploaded meanwhile may be behind what was listed.
    let waits = |object: &ObjectId| {
        let is_ahead = ahead.is_some_and(|ahead| ahead.unsent().has(*object));
        is_ahead || survey.contents.has(object)
    };
    let waited: BTreeSet<ObjectId> = expected.keys().copied().filter(waits).collect();
    let mut options = ListOptions {
        prefix: DATA.to_owned(),
        ..ListOptions::default()
    };
    loop {
        let page = store.list(options.clone()).await;
        let page = page.map_err(|error| object_failure(&error))?;
        for listed in &page.objects {
            let Some(object) = ObjectId::of_key(&listed.key) else {
                continue;
            };
            there += 1;
            match expected.remove(&object) {
                // Who has no part in it any more may have sent more: what nobody here refers to.
                Some(length) if length > listed.size && length != u64::from(UNKNOWN_LENGTH) => {
                    let there = listed.size;
                    lost.objects.insert(object);
                    report.add(format!(
                        "{object}: has {there} bytes in the bucket, {length} were written"
                    ));
                }
                Some(_) => {}
                None if survey.garbage.contains_key(&object) => {}
                None => report.leaked += 1,
            }
        }
        if page.continuation.is_none() {
            break;
        }
        options.continuation = page.continuation;
    }
    let inlined = expected.keys().filter(|object| survey.contents.has(object));
    let inlined: BTreeSet<ObjectId> = inlined.copied().collect();
    for object in waited {
        if expected.contains_key(&object) && (waits(&object) || is_stored(store, object).await?) {
            expected.remove(&object);
        }
    }
    let missing = query(engine, |reads| survey.missing(reads, expected.keys())).await?;
    for object in missing {
        report.add(format!("{object}: is missing in the bucket"));
        lost.objects.insert(object);
    }
    tracing::debug!(objects = there, "the bucket was listed");
    lost.runs = lacking(engine, (&survey, &inlined), &mut report).await?;
    Ok((report, survey, lost))
}

/// The runs of objects that are not in the bucket of which the metadata lacks bytes.
async fn lacking(
    engine: &dyn Engine,
    (survey, inlined): (&Survey, &BTreeSet<ObjectId>),
    report: &mut Report,
) -> FsResult<Places> {
    if inlined.is_empty() {
        return Ok(Places::new());
    }
    let lacks = |run: &Stored| inlined.contains(&run.object) && survey.contents.lack(run);
    let runs = query(engine, |reads| ranges::runs(reads, &lacks)).await?;
    let objects: BTreeSet<ObjectId> = runs.iter().map(|(object, _)| *object).collect();
    for object in objects {
        report.add(format!(
            "{object}: bytes of it that files have are neither with the metadata nor in the bucket"
        ));
    }
    Ok(runs)
}

async fn is_stored(store: &dyn Store, object: ObjectId) -> FsResult<bool> {
    match store
        .head(&data::key(object)?, HeadOptions::default())
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(object_failure(&error)),
    }
}

/// The same, and compares all bytes with their checksums. `transfer` reads through what waits.
pub async fn check_data(
    engine: &dyn Engine,
    transfer: Arc<Transfer>,
    ahead: Option<&Ahead>,
) -> FsResult<Report> {
    let (mut report, survey, mut lost) = surveyed(engine, &**transfer.store(), ahead).await?;
    let wrong = blocks::check_blocks(engine, transfer, (&mut report, &lost.runs)).await?;
    lost.runs.extend(wrong);
    report.damaged = query(engine, |reads| lost.ranges(reads, &survey)).await?;
    Ok(report)
}

/// Deletes all objects of a file system, but for its label. Returns how many there were.
pub async fn destroy(store: &dyn Store) -> FsResult<u64> {
    let mut deleted = 0;
    loop {
        let options = ListOptions {
            prefix: DATA.to_owned(),
            ..ListOptions::default()
        };
        let page = store.list(options).await;
        let page = page.map_err(|error| object_failure(&error))?;
        let keys = page
            .objects
            .iter()
            .filter(|listed| ObjectId::of_key(&listed.key).is_some());
        let keys = keys.map(|listed| penstock_object::Key::new(&listed.key));
        let keys: Vec<_> = keys.filter_map(Result::ok).collect();
        if keys.is_empty() {
            return Ok(deleted);
        }
        let failed = store.delete_many(&keys).await;
        let failed = failed.map_err(|error| object_failure(&error))?;
        if let Some(first) = failed.first() {
            let text = format!("{} could not be deleted: {}", first.key, first.message);
            return Err(FsError::Io(text));
        }
        deleted += keys.len() as u64;
    }
}
