//! Random operations in random trouble: each succeeds and takes effect exactly once.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Put(u8, Vec<u8>),
    Create(u8, Vec<u8>),
    Append(u8, Vec<u8>),
    Upload(u8, Vec<u8>),
    CopyIfAbsent(u8, u8),
    Delete(u8),
    Read(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..4_u8;
    // Long enough never to be equal: two writers of the same bytes may both be first.
    let bytes = || prop::collection::vec(any::<u8>(), 16..40);
    let step = prop_oneof![
        (name.clone(), bytes()).prop_map(|(name, bytes)| Step::Put(name, bytes)),
        (name.clone(), bytes()).prop_map(|(name, bytes)| Step::Create(name, bytes)),
        (name.clone(), bytes()).prop_map(|(name, bytes)| Step::Append(name, bytes)),
        (name.clone(), bytes()).prop_map(|(name, bytes)| Step::Upload(name, bytes)),
        (name.clone(), name.clone()).prop_map(|(from, to)| Step::CopyIfAbsent(from, to)),
        name.clone().prop_map(Step::Delete),
        name.prop_map(Step::Read),
    ];
    prop::collection::vec(step, 1..30)
}

/// What should be there: content, and whether an append began it.
type Model = BTreeMap<u8, (Vec<u8>, bool)>;

fn name_of(name: u8) -> Key {
    key(&format!("dir/{name}"))
}

async fn carry_out(store: &dyn Store, model: &mut Model, step: &Step) {
    match step {
        Step::Put(name, bytes) => {
            let stored = store
                .put(&name_of(*name), body(bytes), PutOptions::default())
                .await;
            stored.expect("it gets through");
            model.insert(*name, (bytes.clone(), false));
        }
        Step::Create(name, bytes) => {
            let created = store
                .put(&name_of(*name), body(bytes), only_if_absent())
                .await;
            assert_eq!(created.is_ok(), !model.contains_key(name), "{created:?}");
            model.entry(*name).or_insert_with(|| (bytes.clone(), false));
        }
        Step::Append(name, bytes) => append(store, model, *name, bytes).await,
        Step::Upload(name, bytes) => {
            upload(store, *name, bytes).await;
            model.insert(*name, (bytes.clone(), false));
        }
        Step::CopyIfAbsent(from, to) => {
            let options = CopyOptions {
                condition: WriteCondition::IfAbsent,
                ..CopyOptions::default()
            };
            let copied = store.copy(&name_of(*from), &name_of(*to), options).await;
            let bytes = |name| model.get(name).map(|(bytes, _)| bytes.clone());
            let possible = model.contains_key(from) && !model.contains_key(to);
            // An earlier copy of the same bytes may be taken for this one.
            let same = from != to && bytes(from) == bytes(to);
            assert!(copied.is_ok() == possible || same, "{copied:?}");
            if possible {
                model.insert(*to, (model[from].0.clone(), false));
            }
        }
        Step::Delete(name) => {
            store
                .delete(&name_of(*name))
                .await
                .expect("it gets through");
            model.remove(name);
        }
        Step::Read(name) => {
            let found = read(store, name_of(*name).as_str()).await;
            assert_eq!(found.ok(), model.get(name).map(|(bytes, _)| bytes.clone()));
        }
    }
}

async fn append(store: &dyn Store, model: &mut Model, name: u8, bytes: &[u8]) {
    let position = model
        .get(&name)
        .map_or(0, |(content, _)| content.len() as u64);
    let options = PutOptions::default();
    let appended = store
        .append(&name_of(name), position, body(bytes), options)
        .await;
    match model.get_mut(&name) {
        Some((_, false)) => {
            assert_eq!(
                appended.expect_err("it is whole").kind,
                ErrorKind::Unsupported
            );
        }
        Some((content, true)) => {
            content.extend(bytes);
            assert_eq!(
                appended.expect("it grows").next_position,
                content.len() as u64
            );
        }
        None => {
            appended.expect("it begins");
            model.insert(name, (bytes.to_vec(), true));
        }
    }
}

async fn upload(store: &dyn Store, name: u8, bytes: &[u8]) {
    let name = name_of(name);
    let upload = store.create_upload(&name, PutOptions::default()).await;
    let upload = upload.expect("it gets through");
    let mut parts = Vec::new();
    for (index, piece) in bytes.chunks(7).enumerate() {
        let part = store
            .upload_part(&name, &upload, index as u32 + 1, body(piece))
            .await;
        parts.push(part.expect("it gets through"));
    }
    let completed = store.complete_upload(&name, &upload, &parts, CompleteOptions::default());
    completed.await.expect("it gets through");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn operations_take_effect_exactly_once_in_any_trouble(seed: u64, steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("it can be built");
        runtime.block_on(async {
            let faults = Faults::new(seed);
            for kind in [ErrorKind::Unavailable, ErrorKind::Timeout, ErrorKind::Interrupted] {
                faults.rate(None, 0.08, Fault::fail(kind));
                faults.rate(None, 0.08, Fault::LoseAnswer(kind));
            }
            faults.rate(Some(Operation::Get), 0.3, Fault::Cut { after: 3 });
            let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new()), Arc::clone(&faults)));
            let settings = RetrySettings {
                attempts_max: 100,
                total: Duration::from_secs(3600),
                ride_out: true,
            };
            let store = standard(store, 4, &settings, &Registry::default());
            let mut model = Model::new();
            for step in &steps {
                carry_out(&*store, &mut model, step).await;
            }
            faults.clear();
            for name in 0..4 {
                carry_out(&*store, &mut model, &Step::Read(name)).await;
            }
        });
    }
}
