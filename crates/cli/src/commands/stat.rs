//! `penstock stat SOURCE/KEY`: what the store knows about one object.

use clap::{ArgMatches, Command};
use penstock_object::{Checksum, HEADER_MARK, HeadOptions, Key, ObjectInfo};
use serde_json::json;

use super::{listing, mount::source_argument};
use crate::{
    command_line,
    environment::Environment,
    failure::{Failure, Outcome},
    legible::legible,
    options::Scope,
    output, text_table,
};

pub(crate) fn command() -> Command {
    Command::new("stat")
        .about("Show what the store knows about one object")
        .arg(
            source_argument()
                .help("The object: s3://BUCKET/KEY, oss://BUCKET/KEY or file:///DIRECTORY/KEY"),
        )
        .arg(command_line::flag("json", "Print JSON"))
        .args(command_line::option_arguments(Scope::Store))
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let source = matches.get_one::<String>("source").expect("required");
    let as_json = matches.get_flag("json");
    let values = listing::values(matches, environment)?;
    let Some((parent, name)) = listing::split_last(source) else {
        return Err(Failure::usage(
            format!("`{source}` names no object"),
            "write SOURCE/KEY; `penstock ls` lists the keys",
        ));
    };
    let key = Key::new(name).map_err(|error| {
        Failure::usage(
            format!("`{name}` cannot be a key: {error}"),
            "check the name",
        )
    })?;
    listing::block_on(async {
        let look = listing::open(parent, &values, environment)?;
        let info = look.store.head(&key, HeadOptions::default());
        let facts = facts(source, &listing::request(source, info).await?);
        if as_json {
            let object: serde_json::Map<_, _> = facts.into_iter().collect();
            return output::print_line(&json!(object).to_string());
        }
        output::print(&in_words(facts))
    })
}

fn facts(source: &str, info: &ObjectInfo) -> Vec<(String, serde_json::Value)> {
    let mut facts = vec![
        ("source".to_owned(), json!(source)),
        ("size".to_owned(), json!(info.size)),
        (
            "modified".to_owned(),
            json!(text_table::timestamp(info.modified)),
        ),
        ("etag".to_owned(), json!(info.etag.as_str())),
        (
            "kind".to_owned(),
            json!(format!("{:?}", info.kind).to_lowercase()),
        ),
        ("storage_class".to_owned(), json!(info.storage_class)),
        ("content_type".to_owned(), json!(info.content_type)),
    ];
    if let Some(checksum) = info.checksum {
        facts.push(("checksum".to_owned(), json!(in_hexadecimal(checksum))));
    }
    for (name, value) in &info.metadata {
        let shown = match name.strip_prefix(HEADER_MARK) {
            Some(header) => header.replace('-', "_"),
            None => format!("metadata.{name}"),
        };
        if facts.iter().all(|(name, _)| *name != shown) {
            facts.push((shown, json!(value)));
        }
    }
    facts
}

fn in_hexadecimal(checksum: Checksum) -> String {
    match checksum {
        Checksum::Crc64Ecma(value) => format!("crc64-ecma {value:016x}"),
        Checksum::Crc64Nvme(value) => format!("crc64-nvme {value:016x}"),
        Checksum::Crc32c(value) => format!("crc32c {value:08x}"),
    }
}

fn in_words(facts: Vec<(String, serde_json::Value)>) -> String {
    let rows = facts.into_iter().map(|(name, value)| {
        let text = match value {
            serde_json::Value::String(text) => legible(&text).into_owned(),
            other => other.to_string(),
        };
        vec![name.replace('_', " "), text]
    });
    let rows: Vec<_> = rows.filter(|row| !row[1].is_empty()).collect();
    text_table::columns(&rows)
}
