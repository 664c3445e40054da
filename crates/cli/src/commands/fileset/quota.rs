//! `penstock fileset quota set|list|remove`: of a file system that is mounted, its process is asked.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use clap::{Arg, ArgGroup, ArgMatches, Command, value_parser};
use penstock_base::{ByteSize, FsError, FsResult, clock};
use penstock_fileset::{
    FilesetVolume,
    engine::Engine,
    quotas::{self, Change, Counting, LimitChange, Quota, Subject},
};
use penstock_tools::accounts::Accounts;
use penstock_vfs::Inode;
use serde::Serialize;

use super::{
    answered, dump::progress, mount_of, name_argument, refused, seconds, with_engine,
    with_store_options,
};
use crate::{
    command_line,
    commands::listing,
    control::{self, QuotaChange, QuotaItem, QuotaOrder, QuotaPart, QuotaSubject, client},
    environment::Environment,
    failure::{Failure, Outcome},
    filesets::Fileset,
    options::duration,
    output, text_table,
};

/// How long a mount may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a mount is asked whether it has counted all files.
const ASK_INTERVAL: Duration = Duration::from_millis(500);

pub(super) fn command() -> Command {
    Command::new("quota")
        .about("Limit what users, groups, directories and the whole file system may use")
        .long_about(
            "A quota limits the bytes and the files of a user, of a group, of a directory with all below it or of the whole file system. A hard limit \
             is never exceeded: what would exceed it fails with EDQUOT, or with ENOSPC where it is that of the file \
             system. df shows limits of directories and of the file system as its size. A soft limit may be exceeded for the grace time. Bytes are those \
             that are written: holes and what only snapshots have take no room. Root's own work is counted and held \
             to limits of directories and of the file system alone. Nothing is moved or linked into or out of a directory with a \
             quota: mv copies. The file system may be mounted or not; other machines that have \
             it mounted hold to a limit at once.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(set_command())
        .subcommand(list_command())
        .subcommand(remove_command())
}

fn set_command() -> Command {
    let command = Command::new("set")
        .about("Set or change limits")
        .long_about(
            "Sets limits, and leaves those that are not given as they are; 0 takes one away. Without --user, --group and --path they are the \
             file system's. The first limit of a user or a group has all files counted, and that of a directory all that are below it, \
             which goes on beside programs that use them: the limit holds when the command returns. One that was \
             interrupted is gone on with by the mount, or by the same command.",
        )
        .after_help(
            "Examples:\n  penstock fileset quota set home --user alice --hard 100GiB\n  \
             penstock fileset quota set home --group staff --soft 900GiB --hard 1TiB --grace 3d\n  \
             penstock fileset quota set home --path /projects/one --hard 2TiB\n  \
             penstock fileset quota set home --hard 10TiB --inodes-hard 50000000",
        )
        .args(subject_arguments())
        .arg(size_argument("soft", "Bytes that may be exceeded for the grace time"))
        .arg(size_argument("hard", "Bytes that may not be exceeded"))
        .arg(count_argument("inodes-soft", "The same of files of all kinds"))
        .arg(count_argument("inodes-hard", "The same of files of all kinds"))
        .arg(
            Arg::new("grace")
                .long("grace")
                .value_name("DURATION")
                .value_parser(grace)
                .help("How long a soft limit may be exceeded; 7d unless it is given"),
        )
        .group(
            ArgGroup::new("limits")
                .args(["soft", "hard", "inodes-soft", "inodes-hard", "grace"])
                .multiple(true)
                .required(true),
        );
    with_store_options(command)
}

fn list_command() -> Command {
    let command = Command::new("list")
        .about("List quotas with what is used of them")
        .long_about(
            "Shows limits and what is used of them. What a mount has in memory and has not saved is not among it. \
             GRACE is until when a soft limit that is exceeded may be.",
        )
        .arg(name_argument())
        .arg(command_line::flag("json", "Print JSON"));
    with_store_options(command)
}

fn remove_command() -> Command {
    let command = Command::new("remove")
        .about("Take limits away")
        .long_about(
            "Takes all limits of a user, a group or a directory away, or without --user, --group and --path those of the file system.",
        )
        .args(subject_arguments());
    with_store_options(command)
}

fn subject_arguments() -> [Arg; 4] {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    [
        name_argument(),
        option("user", "USER", "The user, by name or number").conflicts_with_all(["group", "path"]),
        option("group", "GROUP", "The group, by name or number").conflicts_with("path"),
        option(
            "path",
            "PATH",
            "The directory, from the root of the file system on",
        ),
    ]
}

fn size_argument(name: &'static str, help: &'static str) -> Arg {
    let read = |text: &str| {
        let size: Result<ByteSize, _> = text.parse();
        size.map(|size| size.0).map_err(|error| error.to_string())
    };
    let argument = Arg::new(name).long(name).value_name("SIZE");
    argument.value_parser(read).help(help)
}

fn count_argument(name: &'static str, help: &'static str) -> Arg {
    let argument = Arg::new(name).long(name).value_name("NUMBER");
    argument.value_parser(value_parser!(u64)).help(help)
}

fn grace(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "a duration such as 12h or 7d is wanted".to_owned())
}

pub(super) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    match matches.subcommand() {
        Some(("set", matches)) => set(matches, environment),
        Some(("list", matches)) => list(matches, environment),
        Some(("remove", matches)) => remove(matches, environment),
        _ => Err(Failure::usage(
            "`penstock fileset quota` does nothing by itself",
            "see `penstock fileset quota --help`",
        )),
    }
}

/// Whose quota the command line means.
fn subject(matches: &ArgMatches) -> Outcome<QuotaSubject> {
    let accounts = Accounts::read();
    let given = |name| matches.get_one::<String>(name).map(String::as_str);
    let unknown = |what: &str, text: &str| {
        Failure::usage(
            format!("there is no {what} `{text}` on this machine"),
            "a number names one that is known elsewhere",
        )
    };
    if let Some(text) = given("user") {
        let number = accounts.user(text).ok_or_else(|| unknown("user", text))?;
        return Ok(QuotaSubject::User { number });
    }
    if let Some(text) = given("group") {
        let number = accounts.group(text).ok_or_else(|| unknown("group", text))?;
        return Ok(QuotaSubject::Group { number });
    }
    Ok(
        given("path").map_or(QuotaSubject::FileSystem, |path| QuotaSubject::Directory {
            path: absolute(path),
        }),
    )
}

/// A path as it is told: each name once behind a slash.
fn absolute(path: &str) -> String {
    let names = path.split('/').filter(|name| !name.is_empty());
    format!("/{}", names.collect::<Vec<_>>().join("/"))
}

fn change(matches: &ArgMatches) -> QuotaChange {
    let limit = |name| matches.get_one::<u64>(name).copied();
    QuotaChange {
        bytes: control::LimitChange {
            soft: limit("soft"),
            hard: limit("hard"),
        },
        files: control::LimitChange {
            soft: limit("inodes-soft"),
            hard: limit("inodes-hard"),
        },
        grace: matches.get_one("grace").map(Duration::as_secs),
    }
}

fn set(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let (subject, change) = (subject(matches)?, change(matches));
    let order = QuotaOrder::Set {
        subject: subject.clone(),
        change,
    };
    let way = Way::new(matches, environment)?;
    let mut items = way.carry_out(&order)?;
    let tell = progress(|()| "files are being counted".to_owned());
    // What is not mounted was counted by then.
    while items
        .iter()
        .any(|item| item.subject == subject && item.counting)
    {
        tell(());
        listing::block_on(async {
            clock::sleep(ASK_INTERVAL).await;
            Ok(())
        })?;
        items = way.carry_out(&QuotaOrder::List)?;
    }
    output::draw(None);
    Ok(())
}

fn remove(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let order = QuotaOrder::Remove {
        subject: subject(matches)?,
    };
    Way::new(matches, environment)?.carry_out(&order).map(drop)
}

fn list(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let items = Way::new(matches, environment)?.carry_out(&QuotaOrder::List)?;
    if matches.get_flag("json") {
        let listed = items.iter().map(Listed::of);
        return output::print_json(&listed.collect::<Vec<_>>());
    }
    if items.is_empty() {
        return output::print_line("there are no quotas");
    }
    output::print(&table(&items, clock::wall_time()))
}

/// A quota as it is printed for programs.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    subject: &'a QuotaSubject,
    state: &'static str,
    bytes: Part,
    files: Part,
    grace_seconds: u64,
}

#[derive(Serialize)]
struct Part {
    used: u64,
    soft: Option<u64>,
    hard: Option<u64>,
    grace_ends: Option<String>,
}

impl<'a> Listed<'a> {
    fn of(item: &'a QuotaItem) -> Self {
        let limit = |limit: u64| (limit != 0).then_some(limit);
        let part = |part: &QuotaPart| Part {
            used: part.used,
            soft: limit(part.soft),
            hard: limit(part.hard),
            grace_ends: part.until.map(|until| text_table::timestamp(time(until))),
        };
        Self {
            subject: &item.subject,
            state: state(item),
            bytes: part(&item.bytes),
            files: part(&item.files),
            grace_seconds: item.grace,
        }
    }
}

fn state(item: &QuotaItem) -> &'static str {
    match item.counting {
        true => "counting",
        false => "ready",
    }
}

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn table(items: &[QuotaItem], now: SystemTime) -> String {
    let accounts = Accounts::read();
    let head = [
        "WHOSE", "BYTES", "SOFT", "HARD", "GRACE", "FILES", "SOFT", "HARD", "GRACE",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(items.iter().map(|item| {
        let mut row = vec![shown(&item.subject, &accounts)];
        row.extend(cells(item.counting, &item.bytes, now, text_table::bytes));
        row.extend(cells(item.counting, &item.files, now, |count| {
            count.to_string()
        }));
        row
    }));
    text_table::columns(&rows)
}

fn cells(
    is_counting: bool,
    part: &QuotaPart,
    now: SystemTime,
    number: impl Fn(u64) -> String,
) -> [String; 4] {
    let limit = |limit| match limit {
        0 => "-".to_owned(),
        limit => number(limit),
    };
    let used = match is_counting {
        true => "counting".to_owned(),
        false => number(part.used),
    };
    let grace = part.until.map_or_else(
        || "-".to_owned(),
        |until| match time(until).duration_since(now) {
            Ok(left) => duration::display(Duration::from_secs(left.as_secs())).to_string(),
            Err(_) => "over".to_owned(),
        },
    );
    [used, limit(part.soft), limit(part.hard), grace]
}

fn shown(subject: &QuotaSubject, accounts: &Accounts) -> String {
    let named = |what, number: u32, name: Option<String>| match name {
        Some(name) => format!("{what} {name}"),
        None => format!("{what} {number}"),
    };
    match subject {
        QuotaSubject::FileSystem => "file system".to_owned(),
        QuotaSubject::User { number } => named("user", *number, accounts.user_name(*number)),
        QuotaSubject::Group { number } => named("group", *number, accounts.group_name(*number)),
        QuotaSubject::Directory { path } => path.clone(),
    }
}

/// The way to a file system: the process that has it open, or its engine.
struct Way<'a> {
    fileset: Fileset,
    matches: &'a ArgMatches,
    environment: &'a Environment,
}

impl<'a> Way<'a> {
    fn new(matches: &'a ArgMatches, environment: &'a Environment) -> Outcome<Self> {
        Ok(Self {
            fileset: super::named(matches, environment)?,
            matches,
            environment,
        })
    }

    /// Carries an order out, and returns all quotas that there are then.
    fn carry_out(&self, order: &QuotaOrder) -> Outcome<Vec<QuotaItem>> {
        let fileset = &self.fileset;
        fileset.record()?;
        if let Some(mount) = mount_of(fileset, self.environment) {
            let answer = client::quotas((&mount.socket, &fileset.name), order.clone(), PATIENCE);
            return answered(fileset, answer);
        }
        with_engine(
            fileset,
            (self.matches, self.environment),
            async |engine| ordered(&**engine, order).await,
            |error| refused(fileset, refusal(order, error), error),
        )
    }
}

/// What has quotas: a file system that is open, or its engine.
#[async_trait]
pub(crate) trait Limited: Sync {
    /// Sets limits.
    async fn set(&self, subject: Subject, change: Change) -> FsResult<()>;

    /// Takes limits away.
    async fn remove(&self, subject: Subject) -> FsResult<()>;

    /// All quotas.
    async fn list(&self) -> FsResult<Vec<Quota>>;

    /// The directory at a path from the root on.
    async fn directory(&self, path: &str) -> FsResult<Inode>;
}

#[async_trait]
impl Limited for FilesetVolume {
    async fn set(&self, subject: Subject, change: Change) -> FsResult<()> {
        self.set_quota(subject, change).await
    }

    async fn remove(&self, subject: Subject) -> FsResult<()> {
        self.remove_quota(subject).await
    }

    async fn list(&self) -> FsResult<Vec<Quota>> {
        self.list_quotas().await
    }

    async fn directory(&self, path: &str) -> FsResult<Inode> {
        self.directory_at(path).await
    }
}

#[async_trait]
impl Limited for dyn Engine {
    /// Returns when the limits hold.
    async fn set(&self, subject: Subject, change: Change) -> FsResult<()> {
        quotas::set(self, subject, change).await?;
        count_here(self).await
    }

    async fn remove(&self, subject: Subject) -> FsResult<()> {
        quotas::remove(self, subject).await?;
        count_here(self).await
    }

    async fn list(&self) -> FsResult<Vec<Quota>> {
        quotas::list(self).await
    }

    async fn directory(&self, path: &str) -> FsResult<Inode> {
        quotas::directory_at(self, path).await
    }
}

/// Counts all that is to be counted, and shows how far that is.
async fn count_here(engine: &dyn Engine) -> FsResult<()> {
    let show = progress(|text: String| text);
    let marked = AtomicU64::new(0);
    let tell = |step| match step {
        Counting::Until(next, last) => show(format!("files are counted: {next} of {last} numbers")),
        Counting::Marked(more) => {
            let marked = marked.fetch_add(more, Ordering::Relaxed) + more;
            show(format!("{marked} files of the directory are counted"));
        }
        Counting::Done => {}
    };
    quotas::count(engine, &tell).await
}

/// Carries an order out, and tells all quotas that there are then.
pub(crate) async fn ordered<L: Limited + ?Sized>(
    limited: &L,
    order: &QuotaOrder,
) -> FsResult<Vec<QuotaItem>> {
    match order {
        QuotaOrder::List => {}
        QuotaOrder::Set { subject, change } => {
            let subject = meant(limited, subject).await?;
            limited.set(subject, asked(change)).await?;
        }
        QuotaOrder::Remove { subject } => {
            limited.remove(meant(limited, subject).await?).await?;
        }
    }
    let now = clock::wall_time();
    let listed = limited.list().await?;
    Ok(listed.iter().map(|quota| item(quota, now)).collect())
}

async fn meant<L: Limited + ?Sized>(limited: &L, subject: &QuotaSubject) -> FsResult<Subject> {
    Ok(match subject {
        QuotaSubject::FileSystem => Subject::FileSystem,
        QuotaSubject::User { number } => Subject::User(*number),
        QuotaSubject::Group { number } => Subject::Group(*number),
        QuotaSubject::Directory { path } => Subject::Directory(limited.directory(path).await?),
    })
}

fn asked(change: &QuotaChange) -> Change {
    let limit = |limit: control::LimitChange| LimitChange {
        soft: limit.soft,
        hard: limit.hard,
    };
    Change {
        bytes: limit(change.bytes),
        files: limit(change.files),
        grace: change.grace.map(Duration::from_secs),
    }
}

/// A quota as it is told.
fn item(quota: &Quota, now: SystemTime) -> QuotaItem {
    let subject = match quota.subject {
        Subject::FileSystem => QuotaSubject::FileSystem,
        Subject::User(number) => QuotaSubject::User { number },
        Subject::Group(number) => QuotaSubject::Group { number },
        Subject::Directory(_) => QuotaSubject::Directory {
            path: quota.path.clone().unwrap_or_default(),
        },
    };
    let [bytes_until, files_until] = quota.grace_ends(now);
    let part = |limit: &quotas::Limit, used, until: Option<SystemTime>| QuotaPart {
        used,
        soft: limit.soft,
        hard: limit.hard,
        until: until.map(seconds),
    };
    let (limits, used) = (&quota.limits, quota.used);
    QuotaItem {
        subject,
        bytes: part(&limits.bytes, used.bytes, bytes_until),
        files: part(&limits.files, used.files, files_until),
        grace: limits.grace.as_secs(),
        counting: !quota.is_counted,
    }
}

/// Why an order was not carried out.
pub(crate) fn refusal(order: &QuotaOrder, error: &FsError) -> Option<(String, String)> {
    match (order, error) {
        (QuotaOrder::Set { .. }, FsError::NotFound | FsError::NotADirectory) => Some((
            "there is no such directory in the file system".to_owned(),
            "give its path from the root of the file system on, not from that of this machine"
                .to_owned(),
        )),
        (QuotaOrder::Remove { .. }, FsError::NotFound) => Some((
            "there is no such quota".to_owned(),
            "`penstock fileset quota list` shows those that are there".to_owned(),
        )),
        (QuotaOrder::Set { .. }, FsError::InvalidArgument(text)) => {
            Some(((*text).to_owned(), "give other limits".to_owned()))
        }
        _ => None,
    }
}
