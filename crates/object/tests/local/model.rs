//! Random operations on a directory and on a map, with every answer compared.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Put(String),
    PutIfAbsent(String),
    Append(String),
    Copy(String, String),
    Delete(String),
    List(ListOptions),
}

/// Few letters, so that keys meet as names, as directories of each other and as escapes.
fn keys() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[ab./]{1,5}",
        2 => "(a|b|\\.penstock)/(a|\\.penstock=|\\.penstock-object)",
        1 => "[ab]{250,260}(/a)?",
        1 => "[a!0-]{1,3}(/[a!0-]{1,2})?",
    ]
}

fn lists() -> impl Strategy<Value = ListOptions> {
    let after = prop_oneof![Just(None), keys().prop_map(Some)];
    ("[ab./]{0,3}", any::<bool>(), after, 1..6_u32).prop_map(
        |(prefix, delimited, start_after, max_keys)| ListOptions {
            prefix,
            delimited,
            start_after,
            continuation: None,
            max_keys: Some(max_keys),
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => keys().prop_map(Step::Put),
        1 => keys().prop_map(Step::PutIfAbsent),
        1 => keys().prop_map(Step::Append),
        1 => (keys(), keys()).prop_map(|(source, target)| Step::Copy(source, target)),
        4 => keys().prop_map(Step::Delete),
        3 => lists().prop_map(Step::List),
    ];
    prop::collection::vec(step, 1..40)
}

/// Everything about the answer that two stores must agree on.
async fn answer(store: &dyn Store, step: &Step) -> String {
    let kind = |error: ObjectError| error.kind;
    match step {
        Step::Put(name) => {
            let put = store
                .put(&key(name), body(name), PutOptions::default())
                .await;
            format!("{:?}", put.map(|_| ()).map_err(kind))
        }
        Step::PutIfAbsent(name) => {
            let options = PutOptions {
                condition: WriteCondition::IfAbsent,
                ..PutOptions::default()
            };
            let put = store.put(&key(name), body("once"), options).await;
            format!("{:?}", put.map(|_| ()).map_err(kind))
        }
        Step::Append(name) => {
            let append = store
                .append(&key(name), 0, body("piece"), PutOptions::default())
                .await;
            format!("{:?}", append.map(|done| done.next_position).map_err(kind))
        }
        Step::Copy(source, target) => {
            let copy = store
                .copy(&key(source), &key(target), CopyOptions::default())
                .await;
            format!("{:?}", copy.map(|_| ()).map_err(kind))
        }
        Step::Delete(name) => format!("{:?}", store.delete(&key(name)).await.map_err(kind)),
        Step::List(options) => listed(store, options).await,
    }
}

async fn listed(store: &dyn Store, options: &ListOptions) -> String {
    let mut options = options.clone();
    let mut answer = String::new();
    loop {
        let page = store.list(options.clone()).await.expect("listing works");
        for object in &page.objects {
            let mut bytes = Vec::new();
            let got = store
                .get(&key(&object.key), GetOptions::default(), &mut bytes)
                .await;
            let got = got.expect("what is listed can be read");
            assert_eq!((&got.info.etag, got.info.size), (&object.etag, object.size));
            let line = format!(
                "{} {} {:?} {bytes:?}\n",
                object.key, object.size, object.kind
            );
            answer.push_str(&line);
        }
        answer.push_str(&format!("{:?}\n", page.common_prefixes));
        options.continuation = page.continuation;
        if options.continuation.is_none() {
            return answer;
        }
    }
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("it can be listed");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("it can be listed").file_name();
        name.into_string().expect("names are text")
    };
    entries.map(name).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_directory_answers_like_a_map(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().expect("it can be built");
        runtime.block_on(async {
            let (directory, store) = bucket();
            let model = MemoryStore::new();
            for step in &steps {
                assert_eq!(answer(&store, step).await, answer(&model, step).await, "{step:?}");
            }
            let everything = Step::List(ListOptions::default());
            assert_eq!(answer(&store, &everything).await, answer(&model, &everything).await);
            let page = store.list(ListOptions::default()).await.expect("listing works");
            for object in page.objects {
                store.delete(&key(&object.key)).await.expect("deleting works");
            }
            let left = names_in(directory.path());
            assert!(left.iter().all(|name| name == ".penstock"), "{left:?}");
        });
    }
}
