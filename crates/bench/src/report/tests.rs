mod colours;
mod documents;
mod page;
mod pictures;
pub(crate) mod specimen;

use super::*;

fn version(text: Option<&str>, name: &str) -> String {
    let mut client = specimen::report().clients[0].clone();
    client.version = text.map(str::to_owned);
    name.clone_into(&mut client.name);
    version_of(&client)
}

#[test]
fn a_legend_shows_the_version_alone() {
    let cases = [
        ("penstock 0.1.0", "0.1.0"),
        (
            "Amazon Simple Storage Service File System V1.90 (commit:unknown) with GnuTLS",
            "1.90",
        ),
        ("rclone v1.60.1-DEV", "1.60.1-DEV"),
        ("juicefs version 1.4.1+2026-07-30.0b90c7db", "1.4.1"),
        ("goofys version unknown", "version unknown"),
    ];
    for (text, shown) in cases {
        let name = text.split(' ').next().expect("a word");
        assert_eq!(version(Some(text), name), shown);
    }
    assert_eq!(version(None, "x"), "");
}

#[test]
fn markup_is_only_text() {
    assert_eq!(plain("<b>|a`*_[x]\n#"), r"&lt;b&gt;\|a\`\*\_\[x\] \#");
}

#[test]
fn code_is_fenced_by_more_than_it_holds() {
    assert_eq!(code("a ``b`` | c"), "``` a ``b`` \\| c ```");
    let block =
        |lines: &[&str]| code_block(&lines.iter().map(|&it| it.to_owned()).collect::<Vec<_>>());
    assert_eq!(block(&["a", "b"]), "```sh\na\nb\n```");
    assert!(block(&["````"]).starts_with("`````sh\n"));
}

#[test]
fn the_same_note_has_one_number() {
    let notes = Mutex::default();
    let marks = ["a", "b", "a"].map(|note| footnote(&notes, note.to_owned()));
    assert_eq!(marks, ["[^1]", "[^2]", "[^1]"]);
    assert_eq!(*notes.lock(), ["a", "b"]);
}
