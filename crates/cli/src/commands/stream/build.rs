//! `penstock stream build SOURCE`: the index of a path without a mount.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_base::metrics::Registry;
use penstock_stream::Refresh;

use super::listed_source;
use crate::{
    command_line,
    environment::Environment,
    failure::{Failure, Outcome},
    logging,
    options::{Scope, Values, table},
    output, stores, text_table,
    volumes::stream::index,
};

pub(super) fn command() -> Command {
    let options = command_line::option_arguments(Scope::Stream).into_iter();
    Command::new("build")
        .about("Build the index of a path without mounting it")
        .long_about(
            "Lists the path and builds its index. Without -o it is kept for the next mount of the \
             same path, in place of an older one.",
        )
        .arg(listed_source())
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("IMAGE")
                .value_parser(value_parser!(PathBuf))
                .help("Write the image here, and the map of its objects to IMAGE.objects"),
        )
        // `-o` names the image here.
        .args(options.filter(|argument| argument.get_short() != Some('o')))
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let values = command_line::values_without_words(matches, Scope::Stream, environment)?;
    let level = match values.origin(&table::LOG_LEVEL) {
        Some(_) => values.choice(&table::LOG_LEVEL),
        None => "warn",
    };
    logging::start(level, None);
    let source = matches.get_one::<String>("source").expect("required");
    let output = matches.get_one::<PathBuf>("output");
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::new(format!("cannot start: {error}"), "try again"))?;
    runtime.block_on(build(
        source,
        &values,
        environment,
        output.map(PathBuf::as_path),
    ))
}

async fn build(
    source: &str,
    values: &Values,
    environment: &Environment,
    output: Option<&Path>,
) -> Outcome {
    let store = stores::open(source, values, environment, &Registry::new())?;
    let request = index::request(source, values, environment, &store)?;
    let Some(image) = output else {
        let index = index::get(source, &request, Refresh::Always).await?;
        return output::print_line(&format!("the index is kept: {}", index.image.display()));
    };
    let objects = objects_of(image);
    let (new_image, new_objects) = (beside(image), beside(&objects));
    let built = index::build_into(source, &request, &new_image, &new_objects).await;
    let placed = built.and_then(|summary| {
        let moved = fs::rename(&new_objects, &objects);
        let moved = moved.and_then(|()| fs::rename(&new_image, image));
        moved
            .map(|()| summary)
            .map_err(|error| unwritable(image, &error))
    });
    let Ok(summary) = &placed else {
        // Half an image is of no use.
        let _ = (fs::remove_file(&new_image), fs::remove_file(&new_objects));
        return placed.map(|_| ());
    };
    output::print_line(&format!(
        "{}: {} objects, {}, in {} directories; the image has {}",
        image.display(),
        summary.objects,
        text_table::bytes(summary.bytes),
        summary.image.directories,
        text_table::bytes(summary.image.bytes),
    ))
}

fn objects_of(image: &Path) -> PathBuf {
    with_ending(image, ".objects")
}

fn beside(path: &Path) -> PathBuf {
    with_ending(path, &format!(".new-{}", std::process::id()))
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn unwritable(image: &Path, error: &io::Error) -> Failure {
    Failure::new(
        format!("cannot write `{}`: {error}", image.display()),
        "choose another place",
    )
}
