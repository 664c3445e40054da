//! Random operations on a volume and on a small model, every result compared.
//!
//! The model is what a program may expect: a tree of directories and files, of which a handle may
//! hold a newer content that is not saved yet. At the end a fresh mount of the same bucket must
//! show the model's tree.

use std::{collections::BTreeMap, time::Duration};

use penstock_base::FsError;
use penstock_object::{ErrorKind, Operation as Request};
use penstock_vfs::{FileKind, HandleId, OpenOptions, RenameMode};
use proptest::prelude::*;

use crate::support::{Bed, WRITE};

/// Sequences that each test tries.
const CASES: u32 = 300;

/// Handles that a sequence uses.
const SLOTS: usize = 3;
/// With which files are made.
const NEW_PERMISSIONS: u16 = 0o644;

#[derive(Debug, Clone)]
enum Operation {
    WriteFile(String, u8),
    Open {
        slot: usize,
        path: String,
        truncate: bool,
    },
    Write {
        slot: usize,
        byte: u8,
    },
    Sync(usize),
    Close(usize),
    Read(String),
    Stat(String),
    List(String),
    /// Of a directory nothing is expected.
    Chmod(String, u16),
    Mode(String),
    Unlink(String),
    Mkdir(String),
    Rmdir(String),
    Rename {
        source: String,
        target: String,
        no_replace: bool,
    },
    Forget,
    Wait,
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4)
        .prop_map(|parts| parts.join("/"))
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let slot = 0..SLOTS;
    prop_oneof![
        3 => (path(), any::<u8>()).prop_map(|(path, byte)| WriteFile(path, byte)),
        3 => (slot.clone(), path(), any::<bool>())
            .prop_map(|(slot, path, truncate)| Open { slot, path, truncate }),
        4 => (slot.clone(), any::<u8>()).prop_map(|(slot, byte)| Write { slot, byte }),
        1 => slot.clone().prop_map(Sync),
        2 => slot.prop_map(Close),
        2 => path().prop_map(Read),
        2 => path().prop_map(Stat),
        2 => path().prop_map(List),
        2 => path().prop_map(Unlink),
        4 => path().prop_map(Mkdir),
        2 => path().prop_map(Rmdir),
        4 => (path(), path(), prop::bool::weighted(0.2)).prop_map(
            |(source, target, no_replace)| Rename { source, target, no_replace }
        ),
        1 => Just(Forget),
        1 => Just(Wait),
    ]
}

/// An error without its text.
fn kind(error: &FsError) -> String {
    format!("{error:?}")
        .split('(')
        .next()
        .unwrap_or_default()
        .to_owned()
}

type Outcome = Result<String, String>;

fn outcome<T>(result: Result<T, FsError>, show: impl FnOnce(T) -> String) -> Outcome {
    result.map(show).map_err(|error| kind(&error))
}

// The model.

#[derive(Debug, Clone, Default)]
struct File {
    content: Vec<u8>,
    permissions: u16,
    /// What a slot wrote and did not save.
    unsaved: Option<(usize, Vec<u8>)>,
    removed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Entry {
    Directory,
    File(usize),
}

#[derive(Debug, Default)]
struct Model {
    entries: BTreeMap<String, Entry>,
    files: Vec<File>,
    slots: [Option<usize>; SLOTS],
}

fn failed(name: &str) -> Outcome {
    Err(name.to_owned())
}

fn done() -> Outcome {
    Ok(String::new())
}

impl Model {
    /// Fails if the directory of a path cannot be walked to.
    fn walk(&self, path: &str) -> Result<(), String> {
        for (at, _) in path.match_indices('/') {
            match self.entries.get(&path[..at]) {
                None => return Err("NotFound".to_owned()),
                Some(Entry::File(_)) => return Err("NotADirectory".to_owned()),
                Some(Entry::Directory) => {}
            }
        }
        Ok(())
    }

    fn find(&self, path: &str) -> Result<Entry, String> {
        self.walk(path)?;
        self.entries
            .get(path)
            .copied()
            .ok_or_else(|| "NotFound".to_owned())
    }

    fn below(&self, path: &str) -> Vec<String> {
        let prefix = format!("{path}/");
        self.entries
            .keys()
            .filter(|key| key.starts_with(&prefix))
            .cloned()
            .collect()
    }

    fn save(&mut self, file: usize) {
        if let Some((_, content)) = self.files[file].unsaved.take() {
            self.files[file].content = content;
        }
    }

    fn drop_file(&mut self, file: usize) {
        self.files[file].removed = true;
        self.files[file].unsaved = None;
    }

    fn open(&mut self, slot: usize, path: &str, truncate: bool) -> Outcome {
        self.walk(path)?;
        match self.entries.get(path).copied() {
            Some(Entry::Directory) => return failed("IsADirectory"),
            Some(Entry::File(file)) => {
                let state = &mut self.files[file];
                if truncate {
                    match &state.unsaved {
                        Some(_) => return failed("Busy"),
                        None if state.content.is_empty() => {}
                        None => state.unsaved = Some((slot, Vec::new())),
                    }
                }
                self.slots[slot] = Some(file);
            }
            None => {
                let unsaved = Some((slot, Vec::new()));
                self.files.push(File {
                    unsaved,
                    permissions: NEW_PERMISSIONS,
                    ..File::default()
                });
                let file = self.files.len() - 1;
                self.entries.insert(path.to_owned(), Entry::File(file));
                self.slots[slot] = Some(file);
            }
        }
        done()
    }

    fn write(&mut self, slot: usize, byte: u8) -> Outcome {
        let Some(file) = self.slots[slot] else {
            return failed("BadHandle");
        };
        let state = &mut self.files[file];
        if state.removed {
            return failed("Stale");
        }
        let content = state.content.clone();
        let (owner, unsaved) = state.unsaved.get_or_insert((slot, content));
        if *owner != slot {
            return failed("Busy");
        }
        unsaved.push(byte);
        done()
    }

    fn sync(&mut self, slot: usize) -> Outcome {
        let Some(file) = self.slots[slot] else {
            return failed("BadHandle");
        };
        if self.files[file]
            .unsaved
            .as_ref()
            .is_some_and(|(owner, _)| *owner == slot)
        {
            self.save(file);
        }
        done()
    }

    fn read(&self, path: &str) -> Outcome {
        match self.find(path)? {
            Entry::Directory => failed("IsADirectory"),
            Entry::File(file) if self.files[file].unsaved.is_some() => failed("Busy"),
            Entry::File(file) => Ok(format!("{:?}", self.files[file].content)),
        }
    }

    fn stat(&self, path: &str) -> Outcome {
        Ok(match self.find(path)? {
            Entry::Directory => "directory".to_owned(),
            Entry::File(file) => {
                let File {
                    content, unsaved, ..
                } = &self.files[file];
                let content = unsaved.as_ref().map_or(content, |(_, unsaved)| unsaved);
                format!("file of {}", content.len())
            }
        })
    }

    fn chmod(&mut self, path: &str, permissions: u16) -> Outcome {
        if let Entry::File(file) = self.find(path)? {
            self.files[file].permissions = permissions;
        }
        done()
    }

    fn mode(&self, path: &str) -> Outcome {
        Ok(match self.find(path)? {
            Entry::Directory => "directory".to_owned(),
            Entry::File(file) => format!("{:o}", self.files[file].permissions),
        })
    }

    fn list(&self, path: &str) -> Outcome {
        match self.find(path)? {
            Entry::File(_) => failed("NotADirectory"),
            Entry::Directory => {
                let start = path.len() + 1;
                let below = self.below(path);
                let names = below
                    .iter()
                    .map(|key| &key[start..])
                    .filter(|key| !key.contains('/'));
                Ok(names.collect::<Vec<_>>().join(" "))
            }
        }
    }

    fn unlink(&mut self, path: &str) -> Outcome {
        match self.find(path)? {
            Entry::Directory => failed("IsADirectory"),
            Entry::File(file) => {
                self.drop_file(file);
                self.entries.remove(path);
                done()
            }
        }
    }

    fn mkdir(&mut self, path: &str) -> Outcome {
        self.walk(path)?;
        if self.entries.contains_key(path) {
            return failed("AlreadyExists");
        }
        self.entries.insert(path.to_owned(), Entry::Directory);
        done()
    }

    fn rmdir(&mut self, path: &str) -> Outcome {
        match self.find(path)? {
            Entry::File(_) => failed("NotADirectory"),
            Entry::Directory if !self.below(path).is_empty() => failed("DirectoryNotEmpty"),
            Entry::Directory => {
                self.entries.remove(path);
                done()
            }
        }
    }

    fn rename(&mut self, source: &str, target: &str, no_replace: bool) -> Outcome {
        self.walk(source)?;
        self.walk(target)?;
        let moved = self.find(source)?;
        let replaced = self.entries.get(target).copied();
        match (moved, replaced) {
            (_, Some(_)) if no_replace => return failed("AlreadyExists"),
            _ if source == target => return done(),
            (Entry::Directory, Some(Entry::File(_))) => return failed("NotADirectory"),
            (Entry::File(_), Some(Entry::Directory)) => return failed("IsADirectory"),
            _ => {}
        }
        match moved {
            Entry::File(file) => {
                self.save(file);
                if let Some(Entry::File(replaced)) = replaced {
                    self.drop_file(replaced);
                }
                self.entries.remove(source);
                self.entries.insert(target.to_owned(), moved);
            }
            Entry::Directory => self.rename_directory(source, target)?,
        }
        done()
    }

    fn rename_directory(&mut self, source: &str, target: &str) -> Result<(), String> {
        if target.starts_with(&format!("{source}/")) {
            return Err("InvalidArgument".to_owned());
        }
        // Saved before the target is looked at.
        for key in self.below(source) {
            if let Some(Entry::File(file)) = self.entries.get(&key).copied() {
                self.save(file);
            }
        }
        if !self.below(target).is_empty() {
            return Err("DirectoryNotEmpty".to_owned());
        }
        for key in self.below(source).into_iter().chain([source.to_owned()]) {
            let entry = self.entries.remove(&key).expect("it was listed");
            self.entries
                .insert(format!("{target}{}", &key[source.len()..]), entry);
        }
        Ok(())
    }

    /// Every path, directories with a slash, files with their content.
    fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        let paths = self.entries.iter().map(|(path, entry)| match entry {
            Entry::Directory => (format!("{path}/"), Vec::new()),
            Entry::File(file) => (path.clone(), self.files[*file].content.clone()),
        });
        paths.collect()
    }

    fn apply(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::WriteFile(path, byte) => {
                // A slot of its own that nobody else uses.
                let before = self.slots[0];
                let opened = self.open(0, path, true);
                let file = std::mem::replace(&mut self.slots[0], before);
                opened?;
                let file = file.expect("it was opened");
                self.files[file].unsaved = None;
                self.files[file].content = vec![*byte; usize::from(*byte)];
                done()
            }
            Operation::Open {
                slot,
                path,
                truncate,
            } => {
                if self.slots[*slot].is_some() {
                    return failed("in use");
                }
                self.open(*slot, path, *truncate)
            }
            Operation::Write { slot, byte } => self.write(*slot, *byte),
            Operation::Sync(slot) => self.sync(*slot),
            Operation::Close(slot) => {
                let saved = self.sync(*slot);
                self.slots[*slot] = None;
                saved
            }
            Operation::Read(path) => self.read(path),
            Operation::Stat(path) => self.stat(path),
            Operation::List(path) => self.list(path),
            Operation::Chmod(path, permissions) => self.chmod(path, *permissions),
            Operation::Mode(path) => self.mode(path),
            Operation::Unlink(path) => self.unlink(path),
            Operation::Mkdir(path) => self.mkdir(path),
            Operation::Rmdir(path) => self.rmdir(path),
            Operation::Rename {
                source,
                target,
                no_replace,
            } => self.rename(source, target, *no_replace),
            Operation::Forget | Operation::Wait => done(),
        }
    }
}

// The volume.

struct Real {
    bed: Bed,
    slots: [Option<HandleId>; SLOTS],
}

impl Real {
    async fn open(&mut self, slot: usize, path: &str, truncate: bool) -> Outcome {
        if self.slots[slot].is_some() {
            return failed("in use");
        }
        let options = OpenOptions {
            truncate,
            append: true,
            ..WRITE
        };
        match self.bed.created(path, options).await {
            Ok(created) => {
                self.slots[slot] = Some(created.opened.handle);
                done()
            }
            Err(error) => Err(kind(&error)),
        }
    }

    async fn apply(&mut self, operation: &Operation) -> Outcome {
        let bed = &self.bed;
        let handle = |slot: &usize| self.slots[*slot].ok_or_else(|| "BadHandle".to_owned());
        let nothing = |()| String::new();
        match operation {
            Operation::WriteFile(path, byte) => outcome(
                bed.write_file(path, vec![*byte; usize::from(*byte)]).await,
                nothing,
            ),
            Operation::Open {
                slot,
                path,
                truncate,
            } => self.open(*slot, path, *truncate).await,
            Operation::Write { slot, byte } => {
                outcome(bed.write(handle(slot)?, 0, [*byte]).await, nothing)
            }
            Operation::Sync(slot) => outcome(bed.sync(handle(slot)?).await, nothing),
            Operation::Close(slot) => {
                let closed = outcome(bed.close(handle(slot)?).await, nothing);
                self.slots[*slot] = None;
                closed
            }
            Operation::Read(path) => {
                outcome(bed.read_file(path).await, |content| format!("{content:?}"))
            }
            Operation::Stat(path) => outcome(bed.stat(path).await, |stat| match stat.kind {
                FileKind::Directory => "directory".to_owned(),
                _ => format!("file of {}", stat.size),
            }),
            Operation::List(path) => outcome(bed.ls(path).await, |mut names| {
                names.sort();
                names.join(" ")
            }),
            Operation::Chmod(path, permissions) => {
                outcome(bed.chmod(path, *permissions).await, nothing)
            }
            Operation::Mode(path) => outcome(bed.stat(path).await, |stat| match stat.kind {
                FileKind::Directory => "directory".to_owned(),
                _ => format!("{:o}", stat.permissions),
            }),
            Operation::Unlink(path) => outcome(bed.unlink(path).await, nothing),
            Operation::Mkdir(path) => outcome(bed.mkdir(path).await, |_| String::new()),
            Operation::Rmdir(path) => outcome(bed.rmdir(path).await, nothing),
            Operation::Rename {
                source,
                target,
                no_replace,
            } => {
                let mode = if *no_replace {
                    RenameMode::NoReplace
                } else {
                    RenameMode::Replace
                };
                outcome(bed.rename_as(source, target, mode).await, nothing)
            }
            Operation::Forget => {
                bed.forget_all();
                done()
            }
            Operation::Wait => {
                tokio::time::advance(Duration::from_secs(61)).await;
                done()
            }
        }
    }
}

/// Every path that a mount shows, directories with a slash, files with their content.
async fn tree(bed: &Bed) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for listed in bed.list(&directory, 7).await.unwrap() {
            let path = format!("{directory}{}", listed.name);
            if listed.entry.attributes.kind == FileKind::Directory {
                found.insert(format!("{path}/"), Vec::new());
                directories.push(format!("{path}/"));
            } else {
                found.insert(path.clone(), bed.read_file(&path).await.unwrap());
            }
        }
    }
    found
}

async fn compare(operations: &[Operation]) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    let mut real = Real {
        bed: Bed::new(),
        slots: [None; SLOTS],
    };
    for (step, operation) in operations.iter().enumerate() {
        let expected = model.apply(operation);
        let found = real.apply(operation).await;
        prop_assert_eq!(found, expected, "step {}: {:?}", step, operation);
    }
    for slot in 0..SLOTS {
        let close = Operation::Close(slot);
        prop_assert_eq!(
            real.apply(&close).await,
            model.apply(&close),
            "closing {}",
            slot
        );
    }
    let expected = model.tree();
    prop_assert_eq!(tree(&real.bed).await, expected.clone());
    prop_assert_eq!(tree(&real.bed.fresh()).await, expected);
    real.bed.forget_all();
    prop_assert_eq!(real.bed.metric("bucket_inodes"), 1);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn a_volume_does_what_the_model_does(operations in prop::collection::vec(operation(), 1..60)) {
        paused_runtime().block_on(compare(&operations))?;
    }
}

// Staged mode that saves behind.

#[derive(Debug, Clone)]
enum Event {
    Do(Operation),
    /// The mount is killed, and the next one goes on.
    Kill,
}

fn event() -> impl Strategy<Value = Event> {
    use Operation::*;
    let operation = prop_oneof![
        4 => (path(), any::<u8>()).prop_map(|(path, byte)| WriteFile(path, byte)),
        2 => path().prop_map(Read),
        2 => path().prop_map(Stat),
        2 => path().prop_map(List),
        4 => (path(), 0o600u16..0o700).prop_map(|(path, mode)| Chmod(path, mode)),
        4 => path().prop_map(Mode),
        4 => path().prop_map(Unlink),
        4 => path().prop_map(Mkdir),
        4 => path().prop_map(Rmdir),
        4 => (path(), path(), prop::bool::weighted(0.2)).prop_map(
            |(source, target, no_replace)| Rename { source, target, no_replace }
        ),
        1 => Just(Forget),
        1 => Just(Wait),
    ];
    prop_oneof![30 => operation.prop_map(Event::Do), 1 => Just(Event::Kill)]
}

async fn compare_behind(events: &[Event]) -> Result<(), TestCaseError> {
    let settings = crate::behind::behind(Duration::from_secs(30));
    let mut model = Model::default();
    let mut real = Real {
        bed: Bed::staged_with(settings.clone()),
        slots: [None; SLOTS],
    };
    for (step, event) in events.iter().enumerate() {
        match event {
            Event::Do(operation) => {
                let expected = model.apply(operation);
                let found = real.apply(operation).await;
                prop_assert_eq!(found, expected, "step {}: {:?}", step, operation);
            }
            Event::Kill => {
                // What goes on behind lets go of the volume first.
                penstock_base::clock::sleep(Duration::from_secs(5)).await;
                real.bed = real.bed.broken_off(settings.clone(), |_| ());
            }
        }
    }
    let expected = model.tree();
    prop_assert_eq!(tree(&real.bed).await, expected.clone());
    real.bed.recovered().await;
    let lost = penstock_vfs::Volume::shut_down(&*real.bed.volume).await;
    prop_assert_eq!(lost, []);
    prop_assert_eq!(tree(&real.bed.fresh()).await, expected);
    real.bed = real.bed.fresh_with(settings);
    for path in model.entries.keys() {
        let seen = real.apply(&Operation::Mode(path.clone())).await;
        prop_assert_eq!(seen, model.mode(path), "{}", path);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn a_volume_that_saves_behind_does_what_the_model_does(
        events in prop::collection::vec(event(), 1..60),
    ) {
        paused_runtime().block_on(compare_behind(&events))?;
    }
}

// Two clients.

#[derive(Debug, Clone)]
enum Step {
    Here(Operation),
    Put(String, u8),
    Delete(String),
    /// A request to come fails, carried out or not.
    Fail(usize, Request, ErrorKind, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => operation().prop_map(Step::Here),
        2 => (path(), any::<u8>()).prop_map(|(path, byte)| Step::Put(path, byte)),
        1 => path().prop_map(Step::Delete),
        1 => (0usize..3, request(), error(), any::<bool>())
            .prop_map(|(skip, request, error, late)| Step::Fail(skip, request, error, late)),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    prop::sample::select(vec![
        Request::Head,
        Request::List,
        Request::Get,
        Request::Put,
        Request::Copy,
        Request::Delete,
        Request::DeleteMany,
    ])
}

fn error() -> impl Strategy<Value = ErrorKind> {
    prop::sample::select(vec![
        ErrorKind::Unavailable,
        ErrorKind::Timeout,
        ErrorKind::NoSpace,
    ])
}

/// After the timeouts a mount shows what the bucket has, whatever it and another client did and
/// whatever failed.
async fn converge(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut real = Real {
        bed: Bed::new(),
        slots: [None; SLOTS],
    };
    for step in steps {
        match step {
            Step::Here(operation) => drop(real.apply(operation).await),
            Step::Put(path, byte) => real.bed.put(path, [*byte]).await,
            Step::Delete(path) => real.bed.delete(path).await,
            Step::Fail(skip, request, error, late) => {
                real.bed.probe.plan(*skip, *request, *error, *late);
            }
        }
    }
    real.bed.probe.mend();
    for slot in 0..SLOTS {
        let _ = real.apply(&Operation::Close(slot)).await;
    }
    tokio::time::advance(Duration::from_secs(61)).await;
    prop_assert_eq!(tree(&real.bed).await, tree(&real.bed.fresh()).await);
    prop_assert!(real.bed.unfinished_uploads().await.is_empty());
    real.bed.forget_all();
    prop_assert_eq!(real.bed.metric("bucket_inodes"), 1);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn a_mount_catches_up_with_other_clients(steps in prop::collection::vec(step(), 1..60)) {
        paused_runtime().block_on(converge(&steps))?;
    }
}

fn paused_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}
