//! `penstock fileset create NAME --store URL`.

use clap::{Arg, ArgMatches, Command};
use penstock_base::random;
use penstock_fileset::{FilesetVolume, Format, Label, LabelError, engine::Engine};
use penstock_vfs::Identity;

use super::{failure, name_argument, named, with_store_options};
use crate::{
    commands::listing,
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    filesets::Record,
    output, stores,
};

pub(super) fn command() -> Command {
    let command = Command::new("create")
        .about("Make an empty file system")
        .long_about(
            "Makes an empty file system whose data lies at URL, which must not hold another one. Its \
             root directory belongs to whoever makes it.",
        )
        .arg(name_argument())
        .arg(
            Arg::new("store")
                .long("store")
                .value_name("URL")
                .required(true)
                .help("Where its data lies: s3://BUCKET[/PREFIX], oss://BUCKET[/PREFIX] or file:///DIRECTORY"),
        );
    with_store_options(command)
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let fileset = named(matches, environment)?;
    let url = matches.get_one::<String>("store").expect("required");
    let values = listing::values(matches, environment)?;
    stores::check_source(url, &values)?;
    if fileset.exists() {
        return Err(Failure::usage(
            format!("there is a fileset `{}` already", fileset.name),
            "take another name, or see `penstock fileset list`",
        ));
    }
    listing::block_on(async {
        let look = listing::open(url, &values, environment)?;
        let format = Format::new(random::number());
        let label = Label::new(&fileset.name, &format);
        fileset.make(environment)?;
        let engine = fileset.engine(super::MEMORY)?;
        label
            .write(&*look.store)
            .await
            .map_err(|error| match error {
                LabelError::Store(error) => explain::store_error(url, &error),
                error => Failure::usage(
                    format!("{url}: {error}"),
                    "take another prefix of the bucket",
                ),
            })?;
        let by = Identity::trusted(penstock_base::user_id(), penstock_base::group_id());
        let made = FilesetVolume::format(&engine, &by, format).await;
        made.map_err(|error| failure(&fileset, &error))?;
        engine
            .close()
            .await
            .map_err(|error| failure(&fileset, &error.into()))?;
        fileset.write_record(&Record {
            version: label.version,
            identity: label.identity,
            store: url.clone(),
        })
    })?;
    output::print_line(&format!(
        "fileset {} is made: mount it with `penstock mount fileset://{} MOUNTPOINT`",
        fileset.name, fileset.name
    ))
}
