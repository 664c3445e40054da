//! `penstock fileset trash set|show|list|restore|purge`: of a file system that is mounted, its process is asked.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use async_trait::async_trait;
use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_base::{ByteSize, FsError, FsResult};
use penstock_fileset::{
    FilesetVolume,
    engine::Engine,
    trash::{self, DAYS_MAX, Emptied, Item, State},
};
use serde::Serialize;

use super::{
    answered, mount_of, name_argument, named, refused, seconds, with_engine, with_store_options,
};
use crate::{
    command_line,
    control::{TrashAnswer, TrashItem, TrashOrder, client},
    environment::Environment,
    failure::{Failure, Outcome},
    legible::legible,
    options::duration,
    output, text_table,
};

/// How long a mount may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn command() -> Command {
    Command::new("trash")
        .about("Keep removed files for some days, and bring them back")
        .long_about(
            "Once `set` has said for how many days, a file that loses its last name, by a removal or because another one takes \
             its name, stays in the trash for so many: at .trash/HOUR/PARENT-INODE-NAME below the mount point, which only root can enter and no listing of the \
             root shows. Hours are those of UTC, the numbers are the inodes of the directory that it was in and of the file. Only regular files with bytes come \
             there. They count for their users and groups and for the file system as before, for quotas of directories no more; where such a \
             limit is nearly reached, from nine tenths of it on, files are removed at once, so that removing makes room. A mount removes what was there for \
             long enough. Root may also bring a file back with mv, and remove it with rm. Snapshots do not show the trash. The file \
             system may be mounted or not.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(set_command())
        .subcommand(show_command())
        .subcommand(list_command())
        .subcommand(restore_command())
        .subcommand(purge_command())
}

fn set_command() -> Command {
    let command = Command::new("set")
        .about("Say for how many days removed files stay")
        .long_about(
            "Says for how many days removed files stay, those that are in the trash by now too. It holds on all machines when the \
             command returns. With 0 none come into the trash any more, and what is in it stays until it is purged.",
        )
        .arg(name_argument())
        .arg(days_argument("days").required(true));
    with_store_options(command)
}

fn show_command() -> Command {
    let command = Command::new("show")
        .about("Show for how many days removed files stay, and how much is in the trash")
        .arg(name_argument())
        .arg(command_line::flag("json", "Print JSON"));
    with_store_options(command)
}

fn list_command() -> Command {
    let command = Command::new("list")
        .about("List the files in the trash")
        .long_about(
            "Lists the files in the trash by the hours in which they were removed, with the paths that they had; those whose \
             directory is gone have none.",
        )
        .arg(name_argument())
        .arg(command_line::flag("json", "Print JSON"));
    with_store_options(command)
}

fn restore_command() -> Command {
    let command = Command::new("restore")
        .about("Bring a file back from the trash")
        .long_about(
            "Brings a file back to where it was, under the name that it had, or to TARGET. No file is replaced. Prints its path.",
        )
        .after_help(
            "Examples:\n  penstock fileset trash restore home 2026-11-28-15/1-1042-report.odt\n  \
             penstock fileset trash restore home 1-1042-report.odt /found/report.odt",
        )
        .arg(name_argument())
        .arg(
            Arg::new("entry")
                .value_name("ENTRY")
                .required(true)
                .help("The file, as `list` shows it; the hour may be left out"),
        )
        .arg(Arg::new("target").value_name("TARGET").help(
            "Where it is to go, from the root of the file system on: a new name, or a directory",
        ));
    with_store_options(command)
}

fn purge_command() -> Command {
    let command = Command::new("purge")
        .about("Remove what is in the trash for good")
        .long_about(
            "Removes what is in the trash, or what came there in hours that were over so long ago. Prints how many files that were. \
             Their objects are deleted by the mount or by the next one, or by `penstock fileset gc`.",
        )
        .arg(name_argument())
        .arg(
            Arg::new("older-than")
                .long("older-than")
                .value_name("DURATION")
                .value_parser(older)
                .help("Only what was removed longer ago, such as 7d or 12h"),
        );
    with_store_options(command)
}

/// An option for days, for which files stay.
pub(super) fn days_argument(name: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("DAYS")
        .value_parser(value_parser!(u32).range(0..=i64::from(DAYS_MAX)))
        .help("For how many days removed files stay in the trash; with 0 they go at once")
}

fn older(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "a duration such as 12h or 7d is wanted".to_owned())
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    match matches.subcommand() {
        Some(("set", matches)) => set(matches, environment),
        Some(("show", matches)) => show(matches, environment),
        Some(("list", matches)) => list(matches, environment),
        Some(("restore", matches)) => restore(matches, environment),
        Some(("purge", matches)) => purge(matches, environment),
        _ => Err(Failure::usage(
            "`penstock fileset trash` does nothing by itself",
            "see `penstock fileset trash --help`",
        )),
    }
}

fn set(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let days = *matches.get_one::<u32>("days").expect("required");
    carry_out(TrashOrder::Set { days }, (matches, environment)).map(drop)
}

fn show(matches: &ArgMatches, environment: &Environment) -> Outcome {
    for answer in carry_out(TrashOrder::Show, (matches, environment))? {
        if let TrashAnswer::State { days, files, bytes } = answer {
            let state = State { days, files, bytes };
            match matches.get_flag("json") {
                true => output::print_json(&state)?,
                false => output::print_line(&text(&state))?,
            }
        }
    }
    Ok(())
}

/// What there is in words.
pub(super) fn text(state: &State) -> String {
    let State { days, files, bytes } = *state;
    let size = ByteSize(bytes);
    match days {
        0 => format!("{files} files, {size}; removed files do not come there"),
        days => format!("{files} files, {size}; removed files stay for {days} days"),
    }
}

/// A file in the trash as it is printed.
#[derive(Serialize)]
struct Listed {
    entry: String,
    path: Option<String>,
    removed: String,
    bytes: u64,
}

fn list(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let answers = carry_out(TrashOrder::List { after: None }, (matches, environment))?;
    let items = answers.into_iter().flat_map(|answer| match answer {
        TrashAnswer::Items { items } => items,
        _ => Vec::new(),
    });
    let listed = items.map(|item| Listed {
        entry: item.entry,
        path: item.path,
        removed: text_table::timestamp(UNIX_EPOCH + Duration::from_secs(item.removed)),
        bytes: item.bytes,
    });
    let listed: Vec<_> = listed.collect();
    if matches.get_flag("json") {
        return output::print_json(&listed);
    }
    if listed.is_empty() {
        return output::print_line("the trash is empty");
    }
    let head = ["ENTRY", "REMOVED", "SIZE", "PATH"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(listed.into_iter().map(|one| {
        let path = one.path.unwrap_or_else(|| "-".to_owned());
        vec![one.entry, one.removed, text_table::bytes(one.bytes), path]
    }));
    output::print(&text_table::columns(&rows))
}

fn restore(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let order = TrashOrder::Restore {
        entry: text("entry").expect("required"),
        target: text("target"),
    };
    for answer in carry_out(order, (matches, environment))? {
        if let TrashAnswer::Restored { path } = answer {
            output::print_line(&legible(&path))?;
        }
    }
    Ok(())
}

fn purge(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let older = matches.get_one::<Duration>("older-than");
    let order = TrashOrder::Purge {
        older: older.map(Duration::as_secs),
    };
    let answers = carry_out(order, (matches, environment))?;
    let files = answers.iter().map(|answer| match answer {
        TrashAnswer::Purged { files, .. } => *files,
        _ => 0,
    });
    output::print_line(&format!("{} files were removed", files.sum::<u64>()))
}

/// Carries an order out, in the process that has the file system open or here, with those that follow from its answers.
fn carry_out(order: TrashOrder, given: (&ArgMatches, &Environment)) -> Outcome<Vec<TrashAnswer>> {
    let (matches, environment) = given;
    let fileset = named(matches, environment)?;
    fileset.record()?;
    if let Some(mount) = mount_of(&fileset, environment) {
        let (mut answers, mut next) = (Vec::new(), Some(order));
        while let Some(order) = next {
            let answer = client::trash((&mount.socket, &fileset.name), order.clone(), PATIENCE);
            let answer = answered(&fileset, answer)?;
            next = following(order, &answer);
            answers.push(answer);
        }
        return Ok(answers);
    }
    with_engine(
        &fileset,
        given,
        async |engine| {
            let (mut answers, mut next) = (Vec::new(), Some(order.clone()));
            while let Some(order) = next {
                let answer = ordered(engine, &order).await?;
                next = following(order, &answer);
                answers.push(answer);
            }
            Ok(answers)
        },
        |error| refused(&fileset, refusal(&order, error), error),
    )
}

/// The order that asks for the rest, if there is more.
fn following(order: TrashOrder, answer: &TrashAnswer) -> Option<TrashOrder> {
    match answer {
        TrashAnswer::Items { items } => {
            let after = Some(items.last()?.entry.clone());
            Some(TrashOrder::List { after })
        }
        TrashAnswer::Purged { more: true, .. } => Some(order),
        _ => None,
    }
}

/// What has a trash: a file system that is open, or its engine.
#[async_trait]
pub(crate) trait HasTrash: Sync {
    async fn state(&self) -> FsResult<State>;

    async fn set(&self, days: u32) -> FsResult<()>;

    async fn list(&self, after: Option<&str>) -> FsResult<Vec<Item>>;

    async fn restore(&self, entry: String, target: Option<String>) -> FsResult<String>;

    async fn purge(&self, older: Option<Duration>) -> FsResult<Emptied>;
}

#[async_trait]
impl HasTrash for FilesetVolume {
    async fn state(&self) -> FsResult<State> {
        self.trash().await
    }

    async fn set(&self, days: u32) -> FsResult<()> {
        self.set_trash(days).await
    }

    async fn list(&self, after: Option<&str>) -> FsResult<Vec<Item>> {
        self.list_trash(after).await
    }

    async fn restore(&self, entry: String, target: Option<String>) -> FsResult<String> {
        FilesetVolume::restore(self, entry, target).await
    }

    async fn purge(&self, older: Option<Duration>) -> FsResult<Emptied> {
        self.purge_some(older).await
    }
}

#[async_trait]
impl HasTrash for Arc<dyn Engine> {
    async fn state(&self) -> FsResult<State> {
        trash::state(&**self).await
    }

    async fn set(&self, days: u32) -> FsResult<()> {
        trash::set(&**self, days).await
    }

    async fn list(&self, after: Option<&str>) -> FsResult<Vec<Item>> {
        trash::list(&**self, after).await
    }

    async fn restore(&self, entry: String, target: Option<String>) -> FsResult<String> {
        trash::restore(Arc::clone(self), entry, target).await
    }

    async fn purge(&self, older: Option<Duration>) -> FsResult<Emptied> {
        trash::purge_some(Arc::clone(self), older).await
    }
}

/// Carries an order out.
pub(crate) async fn ordered(place: &dyn HasTrash, order: &TrashOrder) -> FsResult<TrashAnswer> {
    Ok(match order {
        TrashOrder::Show => told(place.state().await?),
        TrashOrder::Set { days } => {
            place.set(*days).await?;
            told(place.state().await?)
        }
        TrashOrder::List { after } => {
            let items = place.list(after.as_deref()).await?;
            TrashAnswer::Items {
                items: items.into_iter().map(item).collect(),
            }
        }
        TrashOrder::Restore { entry, target } => TrashAnswer::Restored {
            path: place.restore(entry.clone(), target.clone()).await?,
        },
        TrashOrder::Purge { older } => {
            let emptied = place.purge(older.map(Duration::from_secs)).await?;
            TrashAnswer::Purged {
                files: emptied.files,
                more: !emptied.is_done,
            }
        }
    })
}

fn told(state: State) -> TrashAnswer {
    let State { days, files, bytes } = state;
    TrashAnswer::State { days, files, bytes }
}

fn item(item: Item) -> TrashItem {
    TrashItem {
        entry: item.entry,
        path: item.path,
        removed: seconds(item.removed),
        bytes: item.size,
    }
}

/// Why an order was not carried out.
pub(crate) fn refusal(order: &TrashOrder, error: &FsError) -> Option<(String, String)> {
    let TrashOrder::Restore { entry, target } = order else {
        return None;
    };
    match (error, target) {
        (FsError::AlreadyExists, _) => Some((
            "there is a file of that name already".to_owned(),
            "name another TARGET".to_owned(),
        )),
        (FsError::InvalidArgument(text), _) => {
            Some(((*text).to_owned(), "name another TARGET".to_owned()))
        }
        (FsError::NotFound, None) => Some((
            format!("`{entry}` is not in the trash"),
            "`penstock fileset trash list` shows what is there".to_owned(),
        )),
        (FsError::NotFound, Some(target)) => Some((
            format!("`{entry}` is not in the trash, or the directory of `{target}` is not there"),
            "`penstock fileset trash list` shows what is in the trash".to_owned(),
        )),
        _ => None,
    }
}
