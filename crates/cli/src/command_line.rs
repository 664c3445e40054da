//! The command line, made from the table of options.
//!
//! The arguments of each command are generated; nothing here knows an option by name. What clap
//! complains about becomes one line, as every other failure.

use std::{ffi::OsString, path::PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, error::ErrorKind};

use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
    filesets,
    options::{
        self, Accepts, Default, Given, Kind, Level, OptionSpec, Origin, Scope, Values, config_file,
        mount_words, table,
    },
    output,
};

/// The argument that takes mount words.
const MOUNT_WORDS: &str = "mount-words";

/// The flag that asks for help with every option.
const HELP_ALL: &str = "help-all";

/// Columns that help uses at most.
const HELP_WIDTH: usize = 100;

/// How every command looks.
pub(crate) fn styled(command: Command) -> Command {
    command
        .max_term_width(HELP_WIDTH)
        .disable_help_subcommand(true)
        .disable_version_flag(true)
        .args_override_self(true)
}

/// The options of a command that does `scope`.
pub(crate) fn option_arguments(scope: Scope) -> Vec<Arg> {
    let mut arguments = vec![help_all_argument()];
    arguments.extend(table::of(scope).map(argument));
    if scope.takes_words() {
        arguments.push(mount_words_argument());
    }
    arguments
}

/// `program` as `arguments` want its help: `--help-all` shows the options that `--help` leaves out.
pub(crate) fn as_asked(program: Command, arguments: &[OsString]) -> Command {
    let mut words = arguments.iter().take_while(|word| *word != "--");
    if !words.any(|word| word.to_str().and_then(|word| word.strip_prefix("--")) == Some(HELP_ALL)) {
        return program;
    }
    program.mut_subcommands(with_every_option)
}

/// `command` with help that leaves no option out.
pub(crate) fn with_every_option(command: Command) -> Command {
    command.mut_args(|argument| argument.hide_short_help(false).hide_long_help(false))
}

fn help_all_argument() -> Arg {
    Arg::new(HELP_ALL)
        .long(HELP_ALL)
        .action(ArgAction::HelpLong)
        .help("Print help with every option, also those for experts")
}

/// An argument without a value, which a command has besides its options.
pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

fn argument(spec: &'static OptionSpec) -> Arg {
    let argument = Arg::new(spec.name)
        .long(spec.name)
        .aliases(spec.aliases)
        .value_name(spec.kind.placeholder())
        .action(ArgAction::Append)
        .help_heading(spec.group.title())
        .hide(spec.accepts == Accepts::Privately)
        .hide_short_help(spec.level == Level::Expert)
        .hide_long_help(spec.level == Level::Expert)
        .help(short_help(spec))
        .long_help(long_help(spec));
    let argument = match spec.short {
        Some(letter) => argument.short(letter),
        None => argument,
    };
    if matches!(
        spec.kind,
        Kind::Flag | Kind::FlagOrDuration { .. } | Kind::FlagOrChoice(_)
    ) {
        return argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("on");
    }
    argument.num_args(1)
}

fn mount_words_argument() -> Arg {
    Arg::new(MOUNT_WORDS)
        .short('o')
        .value_name("WORD[=VALUE],...")
        .action(ArgAction::Append)
        .num_args(1)
        .help_heading(options::Group::Mount.title())
        .help("Options as mount(8) passes them")
        .long_help(
            "Options as mount(8) and fstab(5) pass them: names as above, with `_` or `-`, \
             separated by commas. A backslash before a comma makes it part of a value. Words that \
             concern only mount(8), such as _netdev and nofail, are passed over.",
        )
}

fn short_help(spec: &OptionSpec) -> String {
    match spec.default {
        Default::Is("off") if matches!(spec.kind, Kind::Flag | Kind::FlagOrDuration { .. }) => {
            spec.help.to_owned()
        }
        Default::Is(text) => format!("{} [default: {text}]", spec.help),
        Default::Depends(_) => spec.help.to_owned(),
    }
}

fn long_help(spec: &OptionSpec) -> String {
    let mut text = format!("{}.", spec.help);
    for sentences in [spec.detail, spec.effect] {
        if !sentences.is_empty() {
            text.push(' ');
            text.push_str(sentences);
        }
    }
    let mut facts = vec![format!("default: {}", spec.default_text())];
    if !matches!(
        spec.kind,
        Kind::Flag
            | Kind::Text(_)
            | Kind::Path
            | Kind::FileOrUrl
            | Kind::Choice(_)
            | Kind::FlagOrChoice(_)
    ) {
        facts.insert(0, spec.kind.range());
    }
    format!("{text} [{}]", facts.join("; "))
}

/// The options that are on the command line itself.
fn given(matches: &ArgMatches, scope: Scope) -> Outcome<Vec<Given>> {
    let mut given = given_by_name(matches, scope);
    if scope.takes_words() {
        let lists = matches.get_many::<String>(MOUNT_WORDS);
        for list in lists.into_iter().flatten() {
            given.extend(mount_words::given(list, scope)?);
        }
    }
    Ok(given)
}

/// Those of them that are not words after `-o`.
pub(crate) fn given_by_name(matches: &ArgMatches, scope: Scope) -> Vec<Given> {
    let mut given = Vec::new();
    for spec in table::of(scope) {
        // A command may have an argument of its own by that name.
        let values = matches.try_get_many::<String>(spec.name).ok().flatten();
        given.extend(values.into_iter().flatten().map(|text| Given {
            spec,
            spelling: format!("--{}", spec.name),
            text: text.clone(),
            origin: Origin::CommandLine,
        }));
    }
    given
}

/// Every option from every place.
pub(crate) fn values(
    matches: &ArgMatches,
    scope: Scope,
    environment: &Environment,
) -> Outcome<Values> {
    collect(given(matches, scope)?, source_of(matches), environment)
}

/// The same for a command that takes no words after `-o`.
pub(crate) fn values_without_words(
    matches: &ArgMatches,
    scope: Scope,
    environment: &Environment,
) -> Outcome<Values> {
    collect(
        given_by_name(matches, scope),
        source_of(matches),
        environment,
    )
}

/// What the command is about, if it is about a source.
fn source_of(matches: &ArgMatches) -> Option<&str> {
    let source = matches.try_get_one::<String>("source").ok().flatten();
    source.map(String::as_str)
}

/// Adds to `given` what the environment and the configuration file say, of everything and of `source`, and
/// reads it all.
pub(crate) fn collect(
    given: Vec<Given>,
    source: Option<&str>,
    environment: &Environment,
) -> Outcome<Values> {
    Values::resolve(gathered(given, source, environment)?)
}

/// The same before it is read.
pub(crate) fn gathered(
    mut given: Vec<Given>,
    source: Option<&str>,
    environment: &Environment,
) -> Outcome<Vec<Given>> {
    given = with_environment(given, environment);
    if let Some(path) = config_path(&given) {
        given.extend(config_file::read(&path, source)?);
    }
    if let Some(name) = source.and_then(filesets::name_in) {
        given.extend(filesets::kept_options(name, environment));
    }
    Ok(given)
}

/// The same and what the environment says.
pub(crate) fn with_environment(mut given: Vec<Given>, environment: &Environment) -> Vec<Given> {
    let (variables, unknown) = options::environment::given(environment);
    for name in unknown {
        output::complain(&format!(
            "warning: {name} in the environment names no option"
        ));
    }
    given.extend(variables);
    given
}

/// The configuration file that options name.
pub(crate) fn config_path(given: &[Given]) -> Option<PathBuf> {
    let files = given
        .iter()
        .filter(|given| std::ptr::eq(given.spec, &raw const table::CONFIG));
    let strongest = files.max_by_key(|given| given.origin.rank())?;
    Some(PathBuf::from(&strongest.text))
}

/// A clap error as our own, or its help printed.
pub(crate) fn explain(error: &clap::Error) -> Outcome {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        return output::print(&error.render().to_string());
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let cause = paragraphs.next().unwrap_or_default();
    let see = help_for(&text);
    let tips = paragraphs.filter_map(|paragraph| paragraph.strip_prefix("tip: "));
    // How a value could begin with a dash is hardly ever what somebody wanted to know.
    let tips = tips.filter(|tip| !tip.starts_with("to pass "));
    let remedy = tips.last().unwrap_or(&see);
    Err(Failure::usage(
        cause.trim_start_matches("error: "),
        remedy.lines().next().unwrap_or(remedy),
    ))
}

/// Where to read more: the help of the command whose usage clap shows.
fn help_for(complaint: &str) -> String {
    let mut lines = complaint.lines();
    let Some(usage) = lines.find_map(|line| line.strip_prefix("Usage: ")) else {
        return "see `penstock help`".to_owned();
    };
    let command: Vec<_> = usage
        .split(' ')
        .take_while(|word| word.starts_with(|letter: char| letter.is_ascii_lowercase()))
        .collect();
    format!("`{} --help` explains", command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values_of(arguments: &[&str], environment: &Environment) -> Outcome<Values> {
        let command = styled(Command::new("mount")).args(option_arguments(Scope::Mount));
        let matches = command
            .try_get_matches_from(std::iter::once("mount").chain(arguments.iter().copied()))
            .map_err(|error| explain(&error).expect_err("not help"))?;
        values(&matches, Scope::Mount, environment)
    }

    #[test]
    fn flags_words_environment_and_file_in_that_order() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("p.toml");
        std::fs::write(&file, "uid = 1\ngid = 1\nfile-mode = \"0600\"\nro = true\n")
            .expect("written");
        let environment = Environment::of(&[
            ("PENSTOCK_CONFIG", file.to_str().expect("plain")),
            ("PENSTOCK_UID", "2"),
            ("PENSTOCK_GID", "2"),
            ("PENSTOCK_DIR_MODE", "0700"),
        ]);
        let arguments = [
            "--uid",
            "4",
            "-o",
            "uid=3,gid=3,allow_other",
            "--fsync=off",
            "-f",
        ];
        let values = values_of(&arguments, &environment).expect("valid");
        assert_eq!(values.count(&table::UID), Some(4));
        assert_eq!(values.count(&table::GID), Some(3));
        assert_eq!(values.mode(&table::DIR_MODE), 0o700);
        assert_eq!(values.mode(&table::FILE_MODE), 0o600);
        assert!(values.flag(&table::READ_ONLY) && values.flag(&table::ALLOW_OTHER));
        assert!(values.choice(&table::FSYNC) == "off" && values.flag(&table::FOREGROUND));
    }

    #[test]
    fn the_last_of_equals_wins() {
        let values = values_of(&["--uid=1", "--uid=2"], &Environment::default()).expect("valid");
        assert_eq!(values.count(&table::UID), Some(2));
    }

    #[test]
    fn complaints_are_one_line() {
        let none = Environment::default();
        for (arguments, message) in [
            (
                &["--allow-others"][..],
                "unexpected argument '--allow-others' found; a similar argument exists: '--allow-other'",
            ),
            (
                &["--bogus"],
                "unexpected argument '--bogus' found; `mount --help` explains",
            ),
            (
                &["--memory=1K"],
                "`--memory` cannot be `1K` (from the command line); it must be a size from 64MiB to 1TiB",
            ),
            (
                &["--access-key-secret=hunter2"],
                "`--access-key-secret` is not taken from the command line, which every user of this \
                 machine can read; set PENSTOCK_ACCESS_KEY_SECRET in the environment, or put it \
                 into a file for --config",
            ),
            (
                &["--config", "/no/such/file"],
                "cannot read the configuration file `/no/such/file`: No such file or directory (os \
                 error 2); check the path and its permissions",
            ),
        ] {
            let failure = values_of(arguments, &none).expect_err("refused");
            assert_eq!(failure.to_string(), message);
        }
    }
}
