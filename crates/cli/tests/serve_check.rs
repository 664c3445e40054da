//! `penstock serve --check`: faults of a file of exports.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods, clippy::panic)]

mod support;

use support::{Ended, Scratch, run};

/// Runs `serve --check` on a file that says this.
fn check(scratch: &Scratch, text: &str) -> Ended {
    let file = scratch.file("serve.toml", text);
    run(scratch
        .penstock()
        .args(["serve", "--check", "--config"])
        .arg(file))
}

/// A file without a fault.
fn sound(bucket: &str) -> String {
    format!(
        "[volume.a]\nsource = \"{bucket}\"\n[target.t]\nlisten = \"127.0.0.1:1\"\n\
         [[export]]\npath = \"/a\"\nvolume = \"a\"\n"
    )
}

#[test]
fn a_check_tells_every_fault_in_a_line_and_serves_nothing() {
    let scratch = Scratch::new();
    let bucket = format!("file://{}", scratch.folder("bucket").display());
    let check = |text: &str| check(&scratch, text);
    let sound = sound(&bucket);
    let ended = check(&sound);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.out.contains("1 export of 1 volume at 1 mount target"),
        "{ended:?}"
    );

    let faulty = format!(
        "squash = \"all\"\n{sound}readonly = true\n[[export]]\npath = \"/b\"\nvolume = \"c\"\n\
         [[export.rule]]\nsource = \"10.0.0.0/40\"\n"
    );
    let ended = check(&faulty);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let lines: Vec<_> = ended.err.lines().collect();
    assert_eq!(lines.len(), 5, "{ended:?}");
    for (line, told) in lines.iter().zip([
        "serve.toml:9: `readonly` is no key of an export; ",
        "serve.toml:10: `/b` exports the volume `c`, which is not there; ",
        "serve.toml:14: `source`: `10.0.0.0/40` is neither an address",
        "`squash` (from ",
        "4 faults in what `",
    ]) {
        assert!(line.contains(told), "{told}\n{line}");
    }
    let ended = check(&sound.replace(&bucket, "fileset://no-such-fileset"));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("[volume.a]: "), "{ended:?}");
    let twice = sound.replace(
        "[target.t]",
        &format!("[volume.b]\nsource = \"{bucket}\"\n[target.t]"),
    );
    let ended = check(&(twice + "[[export]]\npath = \"/b\"\nvolume = \"b\"\n"));
    assert!(
        ended
            .err
            .contains("[volume.a] and [volume.b] have the same source"),
        "{ended:?}"
    );
    let ended = check(&format!("memory = \"1K\"\n{sound}"));
    let told = ended.err.matches("`memory` cannot be `1K`").count();
    assert_eq!(told, 1, "{ended:?}");
    let ended = check("");
    assert!(
        ended.err.contains("has no [target.NAME] and no [[export]]"),
        "{ended:?}"
    );
    let file = scratch.file("serve.toml", &sound);
    let mut both = scratch.penstock();
    both.args(["serve", &bucket, "--listen", "127.0.0.1:1", "--config"])
        .arg(file);
    let ended = run(&mut both);
    assert!(
        ended.code == Some(2) && ended.err.contains("and so does SOURCE"),
        "{ended:?}"
    );
}

#[test]
fn volumes_that_name_the_same_directory_are_a_fault_of_a_file() {
    let scratch = Scratch::new();
    let bucket = format!("file://{}", scratch.folder("bucket").display());
    let sound = sound(&bucket);
    let another = scratch.folder("another");
    let two = sound.replace(
        "[target.t]",
        &format!(
            "[volume.b]\nsource = \"file://{}\"\n[target.t]",
            another.display()
        ),
    ) + "[[export]]\npath = \"/b\"\nvolume = \"b\"\n";
    for shared in [
        "cache-dir = \"/d\"\n",
        "mode = \"staged\"\nstaging-dir = \"/d\"\n",
    ] {
        let ended = check(&scratch, &format!("{shared}{two}"));
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended
                .err
                .contains("[volume.a] and [volume.b] have the same directory `/d`"),
            "{ended:?}"
        );
    }
    let read_only = format!("mode = \"staged\"\nstaging-dir = \"/d\"\nread-only = true\n{two}");
    let ended = check(&scratch, &read_only);
    assert_eq!(
        ended.code,
        Some(0),
        "what changes nothing stages nothing: {ended:?}"
    );
}

/// Two volumes with these keys, each of which is exported.
fn two(first: &str, second: &str) -> String {
    let mut text = String::from("[target.t]\nlisten = \"127.0.0.1:1\"\n");
    for (name, keys) in [("a", first), ("b", second)] {
        text += &format!(
            "[volume.{name}]\n{keys}\n[[export]]\npath = \"/{name}\"\nvolume = \"{name}\"\n"
        );
    }
    text
}

#[test]
fn volumes_that_reach_into_one_another_by_links_slashes_or_nesting_are_faults() {
    let scratch = Scratch::new();
    let one = scratch.folder("one");
    scratch.folder("one/below");
    let link = scratch.path("link");
    std::os::unix::fs::symlink(&one, &link).expect("scratch is writable");
    let source = |path: &str| format!("source = \"file://{}\"", scratch.path(path).display());
    let cache = |path: &str| format!("cache-dir = \"{}\"", scratch.path(path).display());
    let both = |of: &str, keys: &str| format!("{}\n{keys}", source(of));
    scratch.folder("other");
    for (first, second, told) in [
        (source("one"), source("link"), "have the same source"),
        (source("one"), source("one//"), "have the same source"),
        (
            source("one"),
            source("one/below/.."),
            "have the same source",
        ),
        (
            source("one"),
            source("link/below"),
            "and both can be changed",
        ),
        (
            both("one", &cache("c")),
            both("other", &cache("c/d")),
            "`cache-dir` of [volume.b]",
        ),
        (
            both("one", &cache("c")),
            both("other", &cache("./c/")),
            "have the same directory",
        ),
        (
            source("one"),
            both("other", &cache("link/cache")),
            "its files would be files of clients",
        ),
        (
            both("one", &cache("c")),
            source("c/d"),
            "lies within `cache-dir` of [volume.a]",
        ),
    ] {
        let ended = check(&scratch, &two(&first, &second));
        assert_eq!(ended.code, Some(2), "{first} {second}: {ended:?}");
        assert!(ended.err.contains(told), "{first} {second}: {ended:?}");
        assert_eq!(ended.err.lines().count(), 2, "one cause: {ended:?}");
    }
    for (first, second) in [
        (source("one"), source("other")),
        (source("one"), both("one/below", "read-only = true")),
        (both("link", "read-only = true"), source("one/below")),
        (
            both("one", &cache("c/one")),
            both("other", &cache("c/other")),
        ),
        (
            "source = \"s3://bucket/a\"".to_owned(),
            "source = \"s3://bucket/ab\"".to_owned(),
        ),
    ] {
        let ended = check(&scratch, &two(&first, &second));
        assert_eq!(ended.code, Some(0), "{first} {second}: {ended:?}");
    }
}

#[test]
fn prefixes_of_a_bucket_that_contain_one_another_and_state_among_objects_are_faults() {
    let scratch = Scratch::new();
    let source = |name: &str| format!("source = \"file://{}\"", scratch.folder(name).display());
    let nested = two("source = \"s3://bucket/a\"", "source = \"s3://bucket\"");
    let ended = check(&scratch, &nested);
    assert!(ended.err.contains("and both can be changed"), "{ended:?}");
    let state = format!("state-dir = \"{}\"\n", scratch.path("one/state").display());
    let ended = check(&scratch, &(state + &two(&source("one"), &source("other"))));
    assert!(
        ended.err.contains("clients could read its key"),
        "{ended:?}"
    );
}

#[test]
fn a_cause_that_is_of_all_volumes_is_told_once() {
    let scratch = Scratch::new();
    let source = |name: &str| format!("source = \"file://{}\"", scratch.folder(name).display());
    let text = two(&source("one"), &source("other"))
        + &format!("[volume.c]\n{}\n", source("third"))
        + "[[export]]\npath = \"/c\"\nvolume = \"c\"\n";
    let lines = |ended: &Ended| ended.err.lines().count();
    let ended = check(&scratch, &format!("cache-dir = \"/d\"\n{text}"));
    assert_eq!(lines(&ended), 2, "{ended:?}");
    let all = "[volume.a], [volume.b] and [volume.c] have the same directory `/d`";
    assert!(ended.err.contains(all), "{ended:?}");
    let file = scratch.file("serve.toml", &text);
    let mut command = scratch.penstock();
    command.args(["serve", "--check", "--memory", "1K", "--config"]);
    let ended = run(command.arg(file));
    assert_eq!(lines(&ended), 2, "{ended:?}");
    let ended = check(&scratch, "[volume.a\n");
    assert_eq!(lines(&ended), 2, "{ended:?}");
}
