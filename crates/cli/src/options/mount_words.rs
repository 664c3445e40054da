//! The comma-separated words after `-o`, as mount(8) and fstab(5) pass them.
//!
//! A word is `name` or `name=value`; a backslash before a comma or a backslash makes it part of
//! the value. Words that concern mount(8) itself, or that every mount of ours obeys anyway, are
//! passed over.

use super::{Given, Origin, Scope, table};
use crate::failure::{Failure, Outcome};

/// One word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountWord {
    pub name: String,
    pub value: Option<String>,
}

/// Words that mean nothing to a mounted file system, or what it does unless it is told otherwise. Those that an option is named
/// after count with a value.
const PASSED_OVER: [&str; 25] = [
    "_netdev",
    "async",
    "atime",
    "auto",
    "default_permissions",
    "defaults",
    "dev",
    "exec",
    "group",
    "noatime",
    "noauto",
    "nodev",
    "nodiratime",
    "nofail",
    "nolazytime",
    "nosuid",
    "nouser",
    "owner",
    "relatime",
    "rw",
    "silent",
    "strictatime",
    "suid",
    "user",
    "users",
];

/// Beginnings of words that are notes for other programs.
const NOTES: [&str; 4] = ["x-", "X-", "comment=", "user="];

impl MountWord {
    /// Whether the word is of no concern to us.
    pub(crate) fn is_passed_over(&self) -> bool {
        let with_value = |note: &&str| match &self.value {
            Some(_) => format!("{}=", self.name).starts_with(*note),
            None => self.name.starts_with(*note),
        };
        PASSED_OVER.contains(&self.name.as_str()) || NOTES.iter().any(with_value)
    }
}

/// Splits a list into its words. Empty words are dropped.
pub(crate) fn split(list: &str) -> Vec<MountWord> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut letters = list.chars().peekable();
    while let Some(letter) = letters.next() {
        let escaped = letters.next_if(|next| letter == '\\' && matches!(next, ',' | '\\'));
        match (letter, escaped) {
            (_, Some(meant)) => word.push(meant),
            (',', None) => words.push(std::mem::take(&mut word)),
            (letter, None) => word.push(letter),
        }
    }
    words.push(word);
    let words = words.iter().filter(|word| !word.is_empty());
    words.map(|word| into_word(word)).collect()
}

fn into_word(text: &str) -> MountWord {
    match text.split_once('=') {
        Some((name, value)) => MountWord {
            name: name.to_owned(),
            value: Some(value.to_owned()),
        },
        None => MountWord {
            name: text.to_owned(),
            value: None,
        },
    }
}

/// Finds the options that the words of `list` name, of those that a command of `scope` has.
pub(crate) fn given(list: &str, scope: Scope) -> Outcome<Vec<Given>> {
    split(list)
        .into_iter()
        .filter_map(|word| match access_times(&word, scope) {
            Some(given) => Some(Ok(given)),
            None if word.is_passed_over() && !is_set(&word, scope) => None,
            None => Some(option_of(word, scope)),
        })
        .collect()
}

/// Whether an option is given a value. Bare words such as `suid` mount(8) keeps to itself, and mount.fuse3 adds them unasked.
fn is_set(word: &MountWord, scope: Scope) -> bool {
    word.value.is_some() && table::find(&word.name).is_some_and(|spec| scope.includes(spec))
}

/// A word of mount(8) about times of access, which the kernel leaves to a FUSE file system.
fn access_times(word: &MountWord, scope: Scope) -> Option<Given> {
    let spec = &table::ATIME_MODE;
    let is_mode = word.value.is_none() && spec.kind.parse(&word.name).is_ok();
    (is_mode && scope.includes(spec)).then(|| Given {
        spec,
        text: word.name.clone(),
        spelling: format!("-o {}", word.name),
        origin: Origin::MountWord,
    })
}

fn option_of(word: MountWord, scope: Scope) -> Outcome<Given> {
    let known = table::find(&word.name).filter(|spec| scope.includes(spec));
    let Some(spec) = known else {
        return Err(unknown(&word.name, scope));
    };
    Ok(Given {
        spec,
        text: word.value.unwrap_or_else(|| "on".to_owned()),
        spelling: format!("-o {}", word.name),
        origin: Origin::MountWord,
    })
}

fn unknown(name: &str, scope: Scope) -> Failure {
    let help = format!(
        "`penstock {} --help-all` lists all options",
        scope.command()
    );
    let remedy = match table::nearest(name, table::of(scope)) {
        _ if name == "remount" => {
            "the kernel does that by itself: `mount -i -o remount,ro MOUNTPOINT`".to_owned()
        }
        Some(near) => format!("did you mean `{near}`? {help}"),
        None => help,
    };
    Failure::usage(format!("`-o {name}` is not an option"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn given(list: &str) -> Outcome<Vec<Given>> {
        super::given(list, Scope::Mount)
    }

    fn word(name: &str, value: Option<&str>) -> MountWord {
        MountWord {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        }
    }

    #[test]
    fn splits_at_commas_that_are_not_escaped() {
        assert_eq!(
            split(r"ro,uid=0,,log_file=/a\,b\\c,config=x=y"),
            [
                word("ro", None),
                word("uid", Some("0")),
                word("log_file", Some(r"/a,b\c")),
                word("config", Some("x=y")),
            ]
        );
    }

    #[test]
    fn passes_over_what_fstab_lines_hold() {
        let given = given("rw,_netdev,nofail,x-systemd.automount,x-a=b,user=me,ro").expect("known");
        assert_eq!(given.len(), 1);
        assert_eq!(given[0].spec.name, "read-only");
    }

    #[test]
    fn words_about_times_of_access_are_a_mode_where_there_are_modes() {
        for mode in ["noatime", "relatime", "strictatime"] {
            let given = given(mode).expect("known");
            assert_eq!((given[0].spec.name, &*given[0].text), ("atime-mode", mode));
            assert_eq!(super::given(mode, Scope::Stream).expect("known").len(), 0);
        }
        assert_eq!(given("atime,nodiratime").expect("known").len(), 0);
    }

    #[test]
    fn words_that_mount_adds_unasked_count_with_a_value() {
        for word in ["suid", "dev"] {
            assert_eq!(given(word).expect("known").len(), 0);
            let found = given(&format!("{word}=on")).expect("known");
            assert_eq!((found[0].spec.name, &*found[0].text), (word, "on"));
        }
    }

    #[test]
    fn underscores_and_dashes_are_the_same() {
        for list in ["allow_other", "allow-other"] {
            assert_eq!(given(list).expect("known")[0].spec.name, "allow-other");
        }
    }

    #[test]
    fn an_unknown_word_is_an_error_that_suggests_a_known_one() {
        let failure = given("allow_others").expect_err("unknown");
        assert!(failure.to_string().contains("did you mean `allow-other`"));
    }

    proptest! {
        #[test]
        fn never_panics(list: String) {
            let _ = given(&list);
        }

        #[test]
        fn joining_and_splitting_are_inverse(
            values in proptest::collection::vec("[a-z,\\\\]{1,12}", 1..5)
        ) {
            let escaped = values.iter().map(|value| {
                format!("x={}", value.replace('\\', r"\\").replace(',', r"\,"))
            });
            let list = escaped.collect::<Vec<_>>().join(",");
            let words: Vec<_> = split(&list).into_iter().filter_map(|word| word.value).collect();
            prop_assert_eq!(words, values);
        }
    }
}
