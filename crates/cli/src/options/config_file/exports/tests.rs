use std::path::Path;

use super::*;
use crate::options::config_file::parse;

const HEAD: &str = "[volume.home]\nsource = \"file:///srv/home\"\n\
                    [target.a]\nlisten = \"127.0.0.1:1001\"\n";
const EXPORT: &str = "[[export]]\npath = \"/home\"\nvolume = \"home\"\n";

fn faults(text: &str) -> Vec<String> {
    let (_, faults) = parse(Path::new("/p"), text);
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn sections_become_targets_and_exports_with_rules_in_their_order() {
    let text = "
        [volume.home]
        source = \"file:///srv/home\"
        [target.a]
        listen = \"127.0.0.1:1001\"
        type = \"HPMT-20\"
        [target.b]
        listen = \"127.0.0.1:1002\"
        portmap = \"127.0.0.1:111\"
        [[export]]
        path = \"/home\"
        volume = \"home\"
        targets = [\"a\", \"b\"]
        [[export.rule]]
        source = [\"10.0.0.0/8\", \"fd00::1\"]
        access = \"READ_ONLY\"
        identity-squash = \"ALL\"
        anonymous-uid = 7
        anonymous-gid = 8
        require-privileged-source-port = true
        allowed-auth = [\"SYS\"]
        [[export.rule]]
        [[export]]
        path = \"/all\"
        volume = \"home\"
        targets = \"b\"
    ";
    let (file, faults) = parse(Path::new("/p"), text);
    assert_eq!(faults, []);
    let targets: Vec<_> = file
        .targets
        .iter()
        .map(|target| (&*target.name, target.listen.port(), target.target_type))
        .collect();
    let expected = [
        ("a", 1001, TargetType::Hpmt20),
        ("b", 1002, TargetType::Unlimited),
    ];
    assert_eq!(targets, expected);
    assert_eq!(file.targets[1].portmap, "127.0.0.1:111".parse().ok());
    let first = Rule {
        clients: vec!["10.0.0.0/8".parse().unwrap(), "fd00::1".parse().unwrap()],
        read_only: true,
        squash: Squash::All,
        anonymous: penstock_vfs::Owner { uid: 7, gid: 8 },
        privileged_port: true,
        authentication: Authentication::System,
    };
    let home = &file.exports[0].export;
    assert_eq!((&*home.path, &*home.volume), ("/home", "home"));
    assert_eq!(home.targets, ["a", "b"]);
    assert_eq!(home.rules, [first, Rule::default()]);
    let all = &file.exports[1].export;
    assert_eq!(all.targets, ["b"]);
    assert_eq!(all.rules, [Rule::default()], "for everybody");
}

#[test]
fn the_only_target_need_not_be_named() {
    let (file, faults) = parse(Path::new("/p"), &format!("{HEAD}{EXPORT}"));
    assert_eq!(faults, []);
    assert_eq!(file.exports[0].export.targets, ["a"]);
}

/// Each fault is told, with a remedy.
fn check_faults(text: impl Fn(&str) -> String, cases: &[(&str, &str)]) {
    for (part, message) in cases {
        let found = faults(&text(part));
        let told = found.iter().find(|fault| fault.contains(message));
        assert!(
            told.is_some_and(|fault| fault.contains("; ")),
            "{part}\n{found:?}"
        );
    }
}

#[test]
fn each_fault_is_told_with_its_line_and_a_remedy() {
    let rule = |text: &str| format!("{HEAD}{EXPORT}[[export.rule]]\n{text}\n");
    check_faults(
        rule,
        &[
            (
                "sorce = \"10.0.0.1\"",
                "/p:9: `sorce` is no key of a rule; it has `source`",
            ),
            (
                "source = \"10.0.0.0/33\"",
                "/p:9: `source`: `10.0.0.0/33` is neither an address",
            ),
            (
                "source = []",
                "/p:9: `source` must be a text, or a list of some; ",
            ),
            (
                "access = \"rw\"",
                "/p:9: `access` cannot be `rw`; it must be read-only or read-write",
            ),
            (
                "identity-squash = \"some\"",
                "/p:9: `identity-squash` cannot be `some`; ",
            ),
            (
                "anonymous-uid = -1",
                "`anonymous-uid` cannot be `-1` (from /p:9); it must be",
            ),
            (
                "allowed-auth = [\"krb5\"]",
                "/p:9: `allowed-auth` cannot be `krb5`; it must be a list",
            ),
            (
                "require-privileged-source-port = 7",
                "`require-privileged-source-port` cannot be `7` (from /p:9)",
            ),
        ],
    );
    let export = |text: &str| format!("{HEAD}{EXPORT}{text}\n");
    check_faults(
        export,
        &[
            ("rule = []", "/p:8: an empty list of rules is for nobody; "),
            (
                "name = \"x\"",
                "/p:8: `name` is no key of an export; it has `path`",
            ),
            (
                "targets = [\"c\"]",
                "/p:5: `/home` is for the target `c`, which is not there; ",
            ),
        ],
    );
    check_faults(
        str::to_owned,
        &[(
            "[export]\npath = \"/\"",
            "/p:1: exports are a list; write [[export]]",
        )],
    );
}

#[test]
fn exports_of_what_is_not_there_or_that_overlap_are_faults() {
    let other = |text: &str| format!("{HEAD}{EXPORT}[[export]]\n{text}\n");
    check_faults(
        other,
        &[
            ("volume = \"home\"", "/p:8: the export has no `path`; "),
            ("path = \"/a\"", "/p:8: the export has no `volume`; "),
            (
                "path = \"/a\"\nvolume = \"hme\"",
                "/p:8: `/a` exports the volume `hme`, which is not there",
            ),
            (
                "path = \"//home/\"\nvolume = \"home\"",
                "/p:8: `//home/` is exported twice at the target `a`",
            ),
            (
                "path = \"a\"\nvolume = \"home\"",
                "/p:8: `a` is no path that can be mounted; ",
            ),
            (
                "path = \"/a/../b\"\nvolume = \"home\"",
                "/p:8: `/a/../b` is no path that can be mounted; ",
            ),
        ],
    );
    let (_, faults) = parse(
        Path::new("/p"),
        &other("path = \"/home/below\"\nvolume = \"home\""),
    );
    assert_eq!(faults, [], "below another one");
}

#[test]
fn targets_without_an_address_of_their_own_are_faults() {
    let target =
        |text: &str| format!("{HEAD}{EXPORT}targets = [\"a\", \"b\"]\n[target.b]\n{text}\n");
    let free = "listen = \"127.0.0.1:1\"\n";
    let with = |text: &str| target(&format!("{free}{text}"));
    let same =
        "/p:9: [target.b] listens on `127.0.0.1:1001`, which is `127.0.0.1:1001` of [target.a]";
    check_faults(
        target,
        &[
            ("", "/p:9: [target.b] has no address to listen on; "),
            ("listen = \"127.0.0.1:1001\"", same),
            (
                "listen = \"0.0.0.0:1001\"",
                "/p:9: [target.b] listens on `0.0.0.0:1001`, which is",
            ),
            (
                "listen = \"localhost:1\"",
                "`listen` cannot be `localhost:1` (from /p:10); it must be",
            ),
        ],
    );
    check_faults(
        with,
        &[
            ("portmap = \"127.0.0.1:1001\"", same),
            (
                "type = \"hpmt-60\"",
                "`type` cannot be `hpmt-60` (from /p:11); it must be",
            ),
            (
                "listen-on = \"x\"",
                "/p:11: `listen-on` is no key of a mount target; it has `listen`",
            ),
        ],
    );
}

/// Each of these has one cause, which is told in one line.
#[test]
fn one_cause_is_told_in_one_line() {
    let two = |text: &str| format!("{HEAD}[target.b]\nlisten = \"127.0.0.1:2\"\n{text}");
    let other = "[[export]]\npath = \"/\"\nvolume = \"home\"\ntargets = [\"b\"]\n";
    for (text, told) in [
        (
            format!("{HEAD}{EXPORT}targets = [\"c\"]\n"),
            "which is not there",
        ),
        (
            format!("{HEAD}{EXPORT}targets = 7.5\n"),
            "which is not there",
        ),
        (
            two(&format!("{EXPORT}targets = []\n{other}")),
            "must be a text",
        ),
        (
            two(&format!("{EXPORT}targets = [[1]]\n{other}")),
            "must be a text",
        ),
        (
            format!("{HEAD}{EXPORT}").replace("source", "sorce"),
            "has no source",
        ),
        (
            format!("{HEAD}{EXPORT}").replace("source =", "uid = 1\n#"),
            "has no source",
        ),
        (
            format!("volume.home = 1\n{EXPORT}[target.a]\nlisten = \"127.0.0.1:1\"\n"),
            "must be a section",
        ),
        (
            format!("target.a = 1\n{EXPORT}[volume.home]\nsource = \"file:///a\"\n"),
            "must be a section",
        ),
        (
            format!("{HEAD}[[export]]\nvolume = \"home\"\n{EXPORT}")
                .replace("/home\"\nv", "/\"\nv"),
            "the export has no `path`",
        ),
        (two(""), "nothing is exported"),
        (
            format!(
                "{EXPORT}targets = [\"a\", \"b\"]\n{other}[volume.home]\nsource = \"file:///a\"\n"
            ),
            "nothing says where exports are",
        ),
        (
            format!("{HEAD}{EXPORT}").replace("/home\"\nv", "\"\nv"),
            "`path` is empty",
        ),
        (
            format!("{HEAD}[[export]]\npath = \"/\"\nvolume = \"\"\n"),
            "`volume` is empty",
        ),
    ] {
        let found = faults(&text);
        let lines = found
            .iter()
            .filter(|fault| !fault.contains("is not an option"));
        assert_eq!(lines.count(), 1, "{text}\n{found:?}");
        assert!(
            found.iter().any(|fault| fault.contains(told)),
            "{text}\n{found:?}"
        );
    }
}

#[test]
fn names_that_would_lead_elsewhere_are_no_names() {
    for (name, is_fine) in [
        ("a.b-c_D9", true),
        ("../../x", false),
        (".hidden", false),
        ("a/b", false),
        ("a b", false),
        ("", false),
    ] {
        let volume =
            format!("{HEAD}{EXPORT}").replace("[volume.home]", &format!("[volume.\"{name}\"]"));
        let volume = volume.replace("volume = \"home\"", &format!("volume = \"{name}\""));
        let target =
            format!("{HEAD}{EXPORT}").replace("[target.a]", &format!("[target.\"{name}\"]"));
        for text in [volume, target] {
            let found = faults(&text);
            assert_eq!(found.is_empty(), is_fine, "{text}\n{found:?}");
            assert!(found.len() <= 1, "{found:?}");
        }
    }
    // Of what is not exported it is a name for people.
    let (_, found) = parse(
        Path::new("/p"),
        "[volume.\"my data\"]\nsource = \"s3://data\"\n",
    );
    assert_eq!(found, []);
}

#[test]
fn every_fault_of_a_file_is_told_in_the_order_of_lines() {
    let text = format!(
        "memry = 1\n{HEAD}type = \"x\"\n{EXPORT}[[export.rule]]\nsource = \"x\"\naccess = \"y\"\n"
    );
    let found = faults(&text);
    let lines: Vec<_> = found
        .iter()
        .map(|fault| {
            fault.split("/p:").nth(1).unwrap()[..2]
                .trim_end_matches([':', ')'])
                .to_owned()
        })
        .collect();
    assert_eq!(lines, ["1", "6", "11", "12"], "{found:?}");
}

#[test]
fn an_export_without_a_target_of_several_must_name_some() {
    let text = format!("{HEAD}[target.b]\nlisten = \"127.0.0.1:2\"\n{EXPORT}");
    let found = faults(&text);
    assert!(
        found
            .iter()
            .any(|fault| fault.contains("does not say at which targets")),
        "{found:?}"
    );
}
