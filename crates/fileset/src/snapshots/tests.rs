use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{preserve::Preserving, trees::Trees, *};
use crate::{
    engine::MemoryEngine,
    schema::{Entry, Format, in_snapshot},
};
use penstock_vfs::FileKind;
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Clone)]
enum Act {
    /// File, name and value of an attribute.
    Put(u64, u8, u8),
    Delete(u64, u8),
    /// Counts and marks.
    Count(u64),
    NewFile,
    Take,
    /// One of those that are there.
    Remove(usize),
    Clear,
    /// What was in memory is forgotten.
    Reopen,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => (1u64..12, 0u8..4, any::<u8>()).prop_map(|(file, name, value)| Act::Put(file, name, value)),
        4 => (1u64..12, 0u8..4).prop_map(|(file, name)| Act::Delete(file, name)),
        2 => (1u64..12).prop_map(Act::Count),
        2 => Just(Act::NewFile),
        3 => Just(Act::Take),
        2 => any::<usize>().prop_map(Act::Remove),
        1 => Just(Act::Clear),
        1 => Just(Act::Reopen),
    ];
    proptest::collection::vec(act, 1..80)
}

fn key(file: u64, name: u8) -> Vec<u8> {
    // One name is the beginning of the next.
    schema::xattr(Inode(file), &b"aaaa"[..=usize::from(name)]).to_vec()
}

/// All keys of attributes and counters of a tree.
fn tree(reads: &dyn Reads, snapshot: u64) -> Model {
    let mut found = Model::new();
    for file in 1..40 {
        let inode = in_snapshot(snapshot, Inode(file));
        let prefix = schema::of_xattrs(inode);
        let mut visit = |key: &[u8], value: &Bytes| {
            let plain = schema::xattr(Inode(file), schema::name_in(key));
            found.insert(plain.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        };
        let end = schema::behind(&prefix);
        reads.scan(&prefix..&end, &mut visit).unwrap();
        for (own, plain) in [
            (schema::directories(inode), schema::directories(Inode(file))),
            (schema::times(inode), schema::times(Inode(file))),
        ] {
            if let Some(value) = reads.get(&own).unwrap() {
                found.insert(plain.to_vec(), value.to_vec());
            }
        }
    }
    found
}

struct Bench {
    memory: Arc<MemoryEngine>,
    engine: Preserving,
    last: u64,
    taken: u64,
    there: BTreeMap<u64, Model>,
}

impl Bench {
    async fn new() -> Self {
        let memory: Arc<MemoryEngine> = Arc::default();
        transact(&*memory, |transaction| -> FsResult<()> {
            transaction.put(schema::FORMAT, Format::new(1).encode());
            Ok(transaction.advance(schema::LAST_INODE, 8)?)
        })
        .await
        .unwrap();
        Self {
            engine: Preserving::new(memory.clone()),
            memory,
            last: 8,
            taken: 0,
            there: BTreeMap::new(),
        }
    }

    async fn change(&self, change: impl Fn(&mut dyn Transaction) + Send + 'static) {
        let changed = transact(&self.engine, move |transaction| -> FsResult<()> {
            change(transaction);
            Ok(())
        });
        changed.await.unwrap();
    }

    async fn live(&self) -> Model {
        query(&self.engine, |reads| FsResult::Ok(tree(reads, 0)))
            .await
            .unwrap()
    }

    async fn act(&mut self, act: &Act) {
        let last = self.last;
        match act.clone() {
            Act::Put(file, name, value) if file <= last => {
                self.change(move |it| it.put(&key(file, name), Bytes::from(vec![value])))
                    .await;
            }
            Act::Delete(file, name) => self.change(move |it| it.delete(&key(file, name))).await,
            Act::Count(file) if file <= last => {
                self.change(move |it| {
                    it.add(&schema::directories(Inode(file)), 1).unwrap();
                    it.advance(&schema::times(Inode(file)), 0).unwrap();
                })
                .await;
            }
            Act::NewFile if last < 30 => {
                self.last += 1;
                self.change(move |it| it.advance(schema::LAST_INODE, last + 1).unwrap())
                    .await;
            }
            Act::Take => {
                let model = self.live().await;
                let name = FileName::new(self.taken.to_string().as_bytes()).unwrap();
                let snapshot = take(&self.engine, &name).await.unwrap();
                self.taken += 1;
                assert_eq!(snapshot.number, self.taken, "no number is used again");
                self.there.insert(snapshot.number, model);
            }
            Act::Remove(which) if !self.there.is_empty() => {
                let number = *self.there.keys().nth(which % self.there.len()).unwrap();
                self.there.remove(&number);
                let name = FileName::new((number - 1).to_string().as_bytes()).unwrap();
                remove(&self.engine, &name).await.unwrap();
            }
            Act::Clear => drop(clear(&self.engine).await.unwrap()),
            Act::Reopen => self.engine = Preserving::new(self.memory.clone()),
            _ => {}
        }
    }

    async fn check(&self) {
        let listed = list(&self.engine).await.unwrap().into_iter();
        let listed = listed.filter(|snapshot| !snapshot.is_removed);
        let listed: BTreeSet<u64> = listed.map(|snapshot| snapshot.number).collect();
        assert_eq!(listed, self.there.keys().copied().collect());
        query(&self.engine, |reads| {
            let trees = Trees::new(reads);
            for (number, model) in &self.there {
                assert_eq!(&tree(&trees, *number), model, "snapshot {number}");
            }
            FsResult::Ok(())
        })
        .await
        .unwrap();
    }

    /// Keys that are there because of snapshots.
    async fn left(&self) -> Vec<Vec<u8>> {
        query(&self.engine, |reads| {
            let mut left = Vec::new();
            for kind in [kind::KEPT, kind::HELD, kind::SNAPSHOT, kind::SNAPSHOT_NAME] {
                reads.scan(&[kind]..&[kind + 1], &mut |key, _| {
                    left.push(key.to_vec());
                    ControlFlow::Continue(())
                })?;
            }
            assert!(!left.is_empty() || reads.get(schema::EPOCH)?.is_none());
            FsResult::Ok(left)
        })
        .await
        .unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_snapshot_shows_what_was_there_when_it_was_taken(acts in acts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut bench = Bench::new().await;
            for act in &acts {
                bench.act(act).await;
                bench.check().await;
            }
            for number in bench.there.keys() {
                let name = FileName::new((number - 1).to_string().as_bytes()).unwrap();
                remove(&bench.engine, &name).await.unwrap();
            }
            clear(&bench.engine).await.unwrap();
            assert_eq!(bench.left().await, Vec::<Vec<u8>>::new());
        });
    }
}

/// What was merged was found a page at a time, and what lay behind the last key of one of both was lost.
#[tokio::test]
async fn a_directory_of_many_changed_names_is_listed_as_it_was() {
    let bench = Bench::new().await;
    let entry = |number: u64| {
        let mut key = schema::of_directory(Inode(2));
        key.extend_from_slice(format!("{number:05}").as_bytes());
        let kind = FileKind::Regular;
        let inode = Inode(number);
        (key, Entry { inode, kind }.encode())
    };
    bench
        .change(move |it| {
            for (key, value) in (1..3000).map(entry) {
                it.put(&key, value);
            }
        })
        .await;
    take(&bench.engine, &FileName::new(b"s").unwrap())
        .await
        .unwrap();
    bench
        .change(move |it| {
            for (key, _) in (1..2000).filter(|number| number % 3 > 0).map(entry) {
                it.delete(&key);
            }
            for (key, value) in (3000..4000).map(entry) {
                it.put(&key, value);
            }
        })
        .await;
    let names = look(&bench.engine, |reads| {
        let prefix = schema::of_directory(in_snapshot(1, Inode(2)));
        let mut found = Vec::new();
        reads.scan(&prefix..&schema::behind(&prefix), &mut |key, value| {
            let number = Entry::decode(value).unwrap().inode;
            assert_eq!(schema::snapshot_of(number).0, 1);
            found.push(String::from_utf8(schema::name_in(key).to_vec()).unwrap());
            ControlFlow::Continue(())
        })?;
        Ok(found)
    });
    let expected: Vec<_> = (1..3000).map(|number| format!("{number:05}")).collect();
    assert_eq!(names.await.unwrap(), expected);
}

#[tokio::test]
async fn nothing_is_kept_of_files_that_are_younger_than_the_snapshot() {
    let bench = Bench::new().await;
    take(&bench.engine, &FileName::new(b"s").unwrap())
        .await
        .unwrap();
    bench
        .change(|it| {
            it.advance(schema::LAST_INODE, 9).unwrap();
            it.put(&key(9, 1), Bytes::from_static(b"new"));
        })
        .await;
    assert_eq!(bench.left().await.len(), 2, "the snapshot and its name");
}
