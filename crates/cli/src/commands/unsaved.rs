//! `penstock unsaved MOUNTPOINT`: what the store lacks yet.

use std::{path::PathBuf, time::Duration};

use clap::{Arg, ArgMatches, Command, value_parser};

use crate::{
    command_line,
    commands::{stats, umount},
    control::{UnsavedItem, client},
    environment::Environment,
    failure::Outcome,
    options::duration,
    output, places, sharing, text_table,
};

pub(crate) fn command() -> Command {
    Command::new("unsaved")
        .about("Show what of a mount the store lacks yet: paths, ages, reasons")
        .long_about(
            "Shows the files of a mount that the store lacks yet, and with save=behind the names: directories \
             and links that were made, and what was removed. What waits longest comes first, with its size, \
             for how long it has waited and, if an attempt to save it failed, why. `penstock sync` waits until \
             nothing is left. Does not touch the mount itself, so it works while a store hangs.",
        )
        .arg(
            Arg::new("mountpoint")
                .value_name("MOUNTPOINT")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Where the bucket is mounted"),
        )
        .arg(command_line::flag("json", "Print JSON"))
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let path = matches.get_one::<PathBuf>("mountpoint").expect("required");
    let mountpoint = umount::resolve(path)?;
    let sockets = sharing::sockets_at(&places::sockets(environment), &mountpoint)?;
    let mut answers = sockets
        .iter()
        .filter_map(|socket| client::unsaved(socket).ok());
    let items = match answers.next() {
        Some(items) => items,
        None => {
            client::unsaved(&sockets[0]).map_err(|error| stats::silence(&mountpoint, &error))?
        }
    };
    if matches.get_flag("json") {
        return output::print_json(&items);
    }
    if items.is_empty() {
        return output::print_line("everything is saved");
    }
    output::print(&table(&items))
}

fn table(items: &[UnsavedItem]) -> String {
    let head = ["AGE", "SIZE", "WHAT", "PATH", "LAST FAILURE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(items.iter().map(|item| {
        let age = item
            .age
            .map(|age| duration::display(Duration::from_secs(age)));
        vec![
            age.unwrap_or_else(|| "-".to_owned()),
            text_table::bytes(item.bytes),
            item.kind.word().to_owned(),
            item.path.clone(),
            item.reason.clone().unwrap_or_default(),
        ]
    }));
    text_table::columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::UnsavedKind;

    #[test]
    fn a_table_has_ages_paths_and_reasons() {
        let item = |kind, age, reason: Option<&str>| UnsavedItem {
            path: "a/b".to_owned(),
            kind,
            bytes: 2048,
            age,
            reason: reason.map(str::to_owned),
        };
        let items = [
            item(UnsavedKind::File, Some(61), Some("no space")),
            item(UnsavedKind::Removal, None, None),
        ];
        assert_eq!(
            table(&items),
            "AGE   SIZE      WHAT     PATH  LAST FAILURE\n\
             1m1s  2.00 KiB  file     a/b   no space\n\
             -     2.00 KiB  removal  a/b\n"
        );
    }
}
