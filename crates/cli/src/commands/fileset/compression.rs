//! `penstock fileset compression NAME [SETTING]`: of a file system that is mounted, its process is asked.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use penstock_base::{FsError, FsResult};
use penstock_fileset::{
    FilesetVolume,
    compression::{self, Compression},
};

use super::{answered, mount_of, name_argument, named, refused, with_engine, with_store_options};
use crate::{control::client, environment::Environment, failure::Outcome, output};

/// How long a mount may take to write it down.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn command() -> Command {
    let command = Command::new("compression")
        .about("Show or change how what is saved is compressed")
        .long_about(
            "Without SETTING it shows what is so. With one, what is saved from then on is compressed so, on all \
             machines that have the file system mounted: with lz4, or with zstd of a level from 1 to 19, which is \
             3 unless it is given. Each 128 KiB are compressed by themselves, and stored as they are where that \
             does not spare an eighth. What is stored already stays as it is and is read all the same. \
             From the first setting on other than none, older versions refuse the file system.",
        )
        .after_help(
            "Examples:\n  penstock fileset compression home lz4\n  penstock fileset compression home zstd:9\n  \
             penstock fileset compression home none\n  penstock fileset compression home",
        )
        .arg(name_argument())
        .arg(setting_argument(Arg::new("setting").value_name("SETTING")).help("none, lz4 or zstd[:LEVEL]"));
    with_store_options(command)
}

/// An argument that is a setting.
pub(super) fn setting_argument(argument: Arg) -> Arg {
    argument.value_parser(|text: &str| {
        let setting: FsResult<Compression> = text.parse();
        setting.map_err(|error| error.to_string())
    })
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    fileset.record()?;
    let change = matches.get_one::<Compression>("setting").copied();
    let setting = match mount_of(&fileset, environment) {
        Some(mount) => {
            let told = change.map(|setting| setting.to_string());
            let answer = client::compression((&mount.socket, &fileset.name), told, PATIENCE);
            answered(&fileset, answer)?
        }
        None => {
            let setting = with_engine(
                &fileset,
                (matches, environment),
                async |engine| match change {
                    Some(setting) => {
                        compression::set(&**engine, setting).await?;
                        Ok(setting)
                    }
                    None => compression::get(&**engine).await,
                },
                |error| refused(&fileset, refusal(error), error),
            );
            setting?.to_string()
        }
    };
    match change {
        Some(_) => Ok(()),
        None => output::print_line(&setting),
    }
}

/// Changes the setting of a file system that is open, if a change is given, and tells it.
pub(crate) async fn ordered(
    fileset: &FilesetVolume,
    change: Option<&str>,
) -> FsResult<Compression> {
    if let Some(change) = change {
        fileset.set_compression(change.parse()?).await?;
    }
    fileset.compression().await
}

/// Why an order was not carried out.
pub(crate) fn refusal(error: &FsError) -> Option<(String, String)> {
    match error {
        FsError::InvalidArgument(text) => Some((
            (*text).to_owned(),
            "give a setting that the version of the mount knows".to_owned(),
        )),
        _ => None,
    }
}
