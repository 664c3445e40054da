//! `penstock ls SOURCE`: what is in a bucket, without mounting it.

use clap::{ArgMatches, Command};
use penstock_object::{ErrorKind, HeadOptions, Key, ListOptions, ListPage, ListedObject};
use serde_json::json;

use super::{
    listing::{self, Look},
    mount::source_argument,
};
use crate::{
    command_line,
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    legible::legible,
    options::Scope,
    output, text_table,
};

pub(crate) fn command() -> Command {
    Command::new("ls")
        .about("List a bucket or a prefix of it")
        .long_about(
            "Lists names, directories with a slash behind them. One request per 1000 names.",
        )
        .arg(source_argument())
        .arg(command_line::flag("long", "Show size, time and storage class").short('l'))
        .arg(command_line::flag("recursive", "Show everything below").short('R'))
        .arg(command_line::flag("json", "Print one JSON object per line"))
        .args(command_line::option_arguments(Scope::Store))
}

/// How entries are shown.
#[derive(Debug, Clone, Copy)]
struct Style {
    long: bool,
    recursive: bool,
    json: bool,
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let source = matches.get_one::<String>("source").expect("required");
    let style = Style {
        long: matches.get_flag("long"),
        recursive: matches.get_flag("recursive"),
        json: matches.get_flag("json"),
    };
    let values = listing::values(matches, environment)?;
    listing::block_on(async {
        let look = listing::open(source, &values, environment)?;
        if list(&look, style).await? > 0 {
            return Ok(());
        }
        // Perhaps it names one object.
        let Some((parent, name)) = listing::split_last(source) else {
            return Ok(());
        };
        let above = listing::open(parent, &values, environment)?;
        one_object(&above, name, source, style).await
    })
}

/// Lists everything, page by page; returns how much that was.
async fn list(look: &Look, style: Style) -> Outcome<usize> {
    let mut count = 0;
    let mut continuation = None;
    loop {
        let options = ListOptions {
            delimited: !style.recursive,
            continuation: continuation.take(),
            ..ListOptions::default()
        };
        let page = listing::request(&look.source, look.store.list(options)).await?;
        count += page.objects.len() + page.common_prefixes.len();
        output::print(&show_page(&page, style))?;
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(count);
        }
    }
}

async fn one_object(above: &Look, name: &str, source: &str, style: Style) -> Outcome {
    let Ok(key) = Key::new(name) else {
        return Err(nothing_there(source));
    };
    let info = match above.store.head(&key, HeadOptions::default()).await {
        Ok(info) => info,
        Err(error) if error.kind == ErrorKind::NotFound => return Err(nothing_there(source)),
        Err(error) => return Err(explain::store_error(source, &error)),
    };
    let object = ListedObject {
        key: name.to_owned(),
        size: info.size,
        etag: info.etag,
        modified: info.modified,
        kind: info.kind,
        storage_class: info.storage_class,
    };
    let page = ListPage {
        objects: vec![object],
        ..ListPage::default()
    };
    output::print(&show_page(&page, style))
}

fn nothing_there(source: &str) -> Failure {
    Failure::new(
        format!("there is nothing at {source}"),
        "list what is above it",
    )
}

fn show_page(page: &ListPage, style: Style) -> String {
    // Both lists are sorted; merged they are the order of the bucket.
    let mut entries: Vec<(&str, Option<&ListedObject>)> = Vec::new();
    entries.extend(
        page.common_prefixes
            .iter()
            .map(|prefix| (prefix.as_str(), None)),
    );
    entries.extend(
        page.objects
            .iter()
            .map(|object| (object.key.as_str(), Some(object))),
    );
    entries.sort_by_key(|(name, _)| *name);
    if style.json {
        return entries
            .iter()
            .map(|(name, object)| as_json(name, *object))
            .collect();
    }
    if style.long {
        let rows: Vec<_> = entries
            .iter()
            .map(|(name, object)| as_row(name, *object))
            .collect();
        return text_table::columns(&rows);
    }
    entries
        .iter()
        .map(|(name, _)| format!("{}\n", legible(name)))
        .collect()
}

fn as_json(name: &str, object: Option<&ListedObject>) -> String {
    let entry = match object {
        None => json!({ "prefix": name }),
        Some(object) => json!({
            "key": name,
            "size": object.size,
            "modified": text_table::timestamp(object.modified),
            "etag": object.etag.as_str(),
            "storage_class": object.storage_class,
        }),
    };
    format!("{entry}\n")
}

fn as_row(name: &str, object: Option<&ListedObject>) -> Vec<String> {
    match object {
        None => vec![
            "-".into(),
            "-".into(),
            "-".into(),
            legible(name).into_owned(),
        ],
        Some(object) => vec![
            format!("{:>12}", object.size),
            text_table::timestamp(object.modified),
            if object.storage_class.is_empty() {
                "-".to_owned()
            } else {
                object.storage_class.clone()
            },
            legible(name).into_owned(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_object::{ETag, ObjectKind};
    use std::time::SystemTime;

    fn page() -> ListPage {
        ListPage {
            objects: vec![ListedObject {
                key: "b\u{1b}[31m".to_owned(),
                size: 12,
                etag: ETag::new("x"),
                modified: SystemTime::UNIX_EPOCH,
                kind: ObjectKind::Normal,
                storage_class: String::new(),
            }],
            common_prefixes: vec!["a/".to_owned(), "c/".to_owned()],
            ..ListPage::default()
        }
    }

    #[test]
    fn names_come_in_order_and_cannot_control_the_terminal() {
        let mut style = Style {
            long: false,
            recursive: false,
            json: false,
        };
        assert_eq!(show_page(&page(), style), "a/\nb\\u{1b}[31m\nc/\n");
        style.long = true;
        assert_eq!(
            show_page(&page(), style),
            "-             -                     -  a/\n          \
             12  1970-01-01T00:00:00Z  -  b\\u{1b}[31m\n\
             -             -                     -  c/\n"
        );
        style.json = true;
        let text = show_page(&page(), style);
        assert_eq!(text.lines().next(), Some("{\"prefix\":\"a/\"}"));
        assert_eq!(text.lines().count(), 3);
    }
}
