//! `penstock umount MOUNTPOINT`: takes a mount away once everything written is saved.

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_base::clock::{self, Instant};
use penstock_fuse::UnmountMode;

use super::stream;
use crate::{
    command_line,
    control::{
        Place, Progress, Reply, Request,
        client::{self, Connection},
    },
    environment::Environment,
    explain,
    failure::{Exit, Failure, Outcome},
    mount_table,
    options::duration,
    output, text_table,
};

/// How long the process of a mount that is gone may take to end. Everything is saved by then.
const END_MAX: Duration = Duration::from_secs(30);

/// How long an unmount is waited for unless the user says otherwise.
const TIMEOUT_DEFAULT: &str = "1h";

pub(crate) fn command() -> Command {
    Command::new("umount")
        .visible_alias("unmount")
        .about("Unmount, after everything written is saved")
        .long_about(
            "Unmounts and waits until every file that was written is saved in the store, showing \
             progress on a terminal: files and bytes that are left, bytes per second, and the time \
             that is needed at this rate. Fails when files are open. Removes a dead mount, whose \
             program is gone, whatever is open in it. Ends with status 3 when some files could not \
             be saved; each is named with the reason.",
        )
        .arg(
            Arg::new("mountpoint")
                .value_name("MOUNTPOINT")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Where the bucket is mounted"),
        )
        .arg(
            command_line::flag(
                "lazy",
                "Take it out of sight now, even while files are open",
            )
            .short('l'),
        )
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("DURATION")
                .default_value(TIMEOUT_DEFAULT)
                .value_parser(|text: &str| {
                    duration::parse(text).ok_or("it must be a duration such as 30s or 5m")
                })
                .help("How long to wait, such as 30s or 5m; the mount goes on saving afterwards"),
        )
}

pub(crate) fn run(matches: &ArgMatches, environment: &Environment) -> Outcome {
    let path = matches.get_one::<PathBuf>("mountpoint").expect("required");
    let timeout = *matches
        .get_one::<Duration>("timeout")
        .expect("it has a default");
    let lazy = matches.get_flag("lazy");
    unmount_within(path, lazy, timeout, environment)
}

/// Unmounts what nobody uses, as this command does without options.
pub(super) fn unmount(path: &Path, environment: &Environment) -> Outcome {
    let timeout = duration::parse(TIMEOUT_DEFAULT).unwrap_or(Duration::MAX);
    unmount_within(path, false, timeout, environment)
}

fn unmount_within(
    path: &Path,
    lazy: bool,
    timeout: Duration,
    environment: &Environment,
) -> Outcome {
    let mountpoint = resolve(path)?;
    let socket = Place::of_user(environment).socket_of(&mountpoint);
    match Connection::open(&socket, &Request::Unmount { lazy }) {
        Ok(connection) => follow(connection, &mountpoint, timeout),
        Err(_) if remove_dead_stream(&mountpoint, environment)? => Ok(()),
        Err(_) => {
            unmount_without_mount(&mountpoint, lazy)?;
            client::remove_dead(&socket);
            Ok(())
        }
    }
}

/// Whether there was a stream volume whose program is gone. Nothing can be lost with it.
fn remove_dead_stream(mountpoint: &Path, environment: &Environment) -> Outcome<bool> {
    Ok(!stream::clean_at(mountpoint, environment)?.is_empty())
}

/// The absolute path of a mount point, without touching it: a dead mount answers nothing.
pub(super) fn resolve(path: &Path) -> Outcome<PathBuf> {
    let missing = |error: io::Error| {
        let cause = match error.kind() {
            io::ErrorKind::NotFound => "does not exist".to_owned(),
            _ => format!("cannot be found: {error}"),
        };
        Failure::new(
            format!("mount point `{}` {cause}", path.display()),
            "`penstock stats` lists the mounts",
        )
    };
    let absolute = std::path::absolute(path).map_err(missing)?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute);
    };
    let place = std::fs::canonicalize(parent).map_err(missing)?.join(name);
    if mount_table::find(&place).is_some() {
        return Ok(place);
    }
    // Perhaps a symbolic link to a mount point.
    std::fs::canonicalize(&place).map_err(missing)
}

/// Reads how the unmount goes until it is done.
fn follow(mut connection: Connection, mountpoint: &Path, timeout: Duration) -> Outcome {
    let begun = clock::now();
    let mut display = ProgressLine::default();
    let outcome = loop {
        match connection.next() {
            Ok(Some(Reply::Progress(progress))) => display.show(progress),
            Ok(Some(Reply::Ended { unsaved })) => {
                break report(&unsaved).and(wait_for_end(&connection));
            }
            Ok(Some(Reply::Refused { cause, remedy })) => break Err(Failure::new(cause, remedy)),
            Ok(Some(Reply::Status(_) | Reply::CacheDropped { .. }) | None) => {
                break gone(&connection, mountpoint);
            }
            Err(error) if client::is_silence(&error) => {}
            Err(_) => break gone(&connection, mountpoint),
        }
        if begun.elapsed() > timeout {
            break Err(Failure::new(
                format!(
                    "not everything was saved within {}",
                    duration::display(timeout)
                ),
                "the mount goes on saving and then ends; watch it with `penstock stats`",
            ));
        }
    };
    display.clear();
    outcome
}

/// Waits until the process has let go of everything, so that whoever comes next finds it free.
fn wait_for_end(connection: &Connection) -> Outcome {
    match connection.ends_within(END_MAX) {
        true => Ok(()),
        false => Err(Failure::new(
            format!("the mount is gone, but its process has not ended within {END_MAX:?}"),
            "wait for it before you mount with the same directories again",
        )),
    }
}

/// The connection ended without a last word: fine if the mount is not there any more.
fn gone(connection: &Connection, mountpoint: &Path) -> Outcome {
    if mount_table::find(mountpoint).is_none() {
        return wait_for_end(connection);
    }
    Err(Failure::new(
        format!(
            "the program behind `{}` ended without unmounting",
            mountpoint.display()
        ),
        "run the command again to remove the dead mount",
    ))
}

fn report(unsaved: &[(String, String)]) -> Outcome {
    for (path, reason) in unsaved {
        output::complain(&format!("could not save `{path}`: {reason}"));
    }
    if unsaved.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!("{} files could not be saved", unsaved.len()),
        "write them again",
    )
    .with_exit(Exit::Unsaved))
}

/// Nobody answers for the mount: it is dead, or not one of this user's.
fn unmount_without_mount(mountpoint: &Path, lazy: bool) -> Outcome {
    let shown = mountpoint.display();
    let Some(entry) = mount_table::find(mountpoint) else {
        return Err(Failure::new(
            format!("nothing is mounted on `{shown}`"),
            "`penstock stats` lists the mounts",
        ));
    };
    if !entry.is_fuse() {
        return Err(Failure::new(
            format!(
                "`{shown}` is a mount of type {}, not of this program",
                entry.kind
            ),
            format!("use `umount {shown}`"),
        ));
    }
    // Nothing can be saved through a dead mount, so nobody needs to close files in it first.
    let lazy = lazy || penstock_fuse::is_dead(mountpoint);
    let mode = match lazy {
        true => UnmountMode::Lazy,
        false => UnmountMode::Plain,
    };
    penstock_fuse::unmount(mountpoint, mode).map_err(|error| explain::unmount_error(&error))
}

/// One line on a terminal that shows what is waited for.
#[derive(Debug, Default)]
struct ProgressLine {
    shown: bool,
    /// When the first progress was reported, and what had been sent by then.
    begun: Option<(Instant, u64)>,
}

impl ProgressLine {
    fn show(&mut self, progress: Progress) {
        let now = clock::now();
        let (begun, sent_before) = *self.begun.get_or_insert((now, progress.sent));
        let sent = progress.sent.saturating_sub(sent_before);
        let line = describe(progress, sent, now.saturating_duration_since(begun));
        let mut stderr = io::stderr().lock();
        if !stderr.is_terminal() {
            return;
        }
        self.shown = true;
        let _ = write!(stderr, "\r\x1b[K{line}");
        let _ = stderr.flush();
    }

    fn clear(&self) {
        if self.shown {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// What is left, and how fast it goes: `sent` bytes in the time that was `spent`.
fn describe(progress: Progress, sent: u64, spent: Duration) -> String {
    let files = match progress.files {
        0 => return "saving: waiting for the store".to_owned(),
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let left = text_table::bytes(progress.left);
    let millis = u64::try_from(spent.as_millis()).unwrap_or(u64::MAX);
    match sent.saturating_mul(1000).checked_div(millis) {
        None | Some(0) => format!("saving: {files}, {left} left"),
        Some(rate) => format!(
            "saving: {files}, {left} left, {}/s, about {} to go",
            text_table::bytes(rate),
            duration::display(Duration::from_secs(progress.left.div_ceil(rate)))
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_tells_bytes_left_rate_and_time() {
        let progress = |files, left| Progress {
            files,
            left,
            sent: 0,
        };
        let second = Duration::from_secs(1);
        for (progress, sent, spent, line) in [
            (
                progress(1, 5 << 20),
                0,
                second,
                "saving: 1 file, 5.00 MiB left",
            ),
            (
                progress(1, 0),
                9,
                Duration::ZERO,
                "saving: 1 file, 0 B left",
            ),
            (
                progress(3, 48 << 20),
                64 << 20,
                second * 4,
                "saving: 3 files, 48.0 MiB left, 16.0 MiB/s, about 3s to go",
            ),
            (progress(0, 0), 9, second, "saving: waiting for the store"),
        ] {
            assert_eq!(describe(progress, sent, spent), line);
        }
    }
}
