//! What holds for the table as a whole.

use std::collections::BTreeSet;

use super::*;

fn given(name: &str, text: &str, origin: Origin) -> Given {
    Given {
        spec: table::find(name).expect("known"),
        spelling: name.to_owned(),
        text: text.to_owned(),
        origin,
    }
}

#[test]
fn every_name_and_alias_and_letter_is_unique() {
    let names = table::ALL
        .iter()
        .flat_map(|spec| spec.aliases.iter().chain([&spec.name]));
    let mut seen = BTreeSet::new();
    for name in names {
        assert!(seen.insert(*name), "{name} is there twice");
        assert!(!name.contains('_'), "{name}: words are joined by -");
    }
    let letters: Vec<_> = table::ALL.iter().filter_map(|spec| spec.short).collect();
    assert_eq!(letters.iter().collect::<BTreeSet<_>>().len(), letters.len());
}

#[test]
fn every_default_is_valid() {
    for spec in table::ALL {
        if let Default::Is(text) = spec.default {
            assert!(spec.kind.parse(text).is_ok(), "{}: {text}", spec.name);
        }
    }
}

#[test]
fn what_is_read_without_asking_has_a_default() {
    for spec in table::ALL {
        let needs_default = matches!(
            spec.kind,
            Kind::Flag
                | Kind::Duration { .. }
                | Kind::FlagOrDuration { .. }
                | Kind::Mode
                | Kind::Choice(_)
                | Kind::FlagOrChoice(_)
        );
        // Whoever reads that one knows on what it depends.
        let depends = spec.name == table::ATTR_TIMEOUT.name;
        let has_default = depends || matches!(spec.default, Default::Is(_));
        assert!(!needs_default || has_default, "{}", spec.name);
    }
}

#[test]
fn every_option_is_explained_in_one_line() {
    for spec in table::ALL {
        assert!(
            !spec.help.is_empty() && !spec.help.ends_with('.'),
            "{}",
            spec.name
        );
        assert!(spec.help.len() <= 90, "{}: {}", spec.name, spec.help);
        for text in [spec.detail, spec.effect] {
            assert!(text.is_empty() || text.ends_with('.'), "{}", spec.name);
        }
    }
}

#[test]
fn stronger_places_win() {
    let file = Origin::File {
        path: "/etc/p.toml".into(),
        line: 1,
    };
    let ladder = [
        (Origin::Program("ossfs2"), "1"),
        (file, "2"),
        (Origin::Environment, "3"),
        (Origin::MountWord, "4"),
        (Origin::CommandLine, "5"),
    ];
    for top in 1..=ladder.len() {
        let mut all: Vec<_> = ladder[..top]
            .iter()
            .map(|(origin, text)| given("uid", text, origin.clone()))
            .collect();
        all.reverse();
        let values = Values::resolve(all).expect("valid");
        assert_eq!(values.count(&table::UID), Some(top as u64));
        assert_eq!(values.origin(&table::UID), Some(&ladder[top - 1].0));
    }
}

#[test]
fn an_overridden_mistake_is_still_a_mistake() {
    let all = vec![
        given("uid", "x", Origin::Environment),
        given("uid", "1", Origin::CommandLine),
    ];
    let failure = Values::resolve(all).expect_err("x is no number");
    assert_eq!(
        failure.to_string(),
        "`uid` cannot be `x` (from the environment); it must be a whole number from 0 to 4294967294"
    );
}

#[test]
fn secrets_are_refused_where_others_can_read_them() {
    for (origin, fine) in [
        (Origin::CommandLine, false),
        (Origin::MountWord, false),
        (Origin::Environment, true),
    ] {
        let outcome = Values::resolve(vec![given("access-key-secret", "hunter2", origin)]);
        assert_eq!(outcome.is_ok(), fine);
        let text = outcome
            .err()
            .map_or(String::new(), |failure| failure.to_string());
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_near_miss_finds_its_option() {
    let nearest = |name| table::nearest(name, table::ALL.into_iter());
    assert_eq!(nearest("attr_timeot"), Some("attr-timeout"));
    assert_eq!(nearest("readonly"), Some("read-only"));
    assert_eq!(nearest("something-else-entirely"), None);
}
