//! `penstock umount MOUNTPOINT`: takes a mount away once everything written is saved.
//!
//! Only the last word of the mount says that: one whose connection ends without it was killed, or left at
//! once, and may have files unsaved.

mod unasked;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Arg, ArgMatches, Command, value_parser};
use penstock_base::clock::{self, Instant};

use super::stream;
use crate::{
    command_line,
    control::{
        Progress, Reply, Request, SocketDirectory, UnsavedFile,
        client::{self, Connection},
        record,
    },
    environment::Environment,
    failure::{Exit, Failure, Outcome},
    half_dead, mount_table,
    options::duration,
    output, places,
    sharing::{self, Places},
    text_table,
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
             that is needed at this rate. Waits also for a mount that was unmounted there before and \
             still saves. Of a fileset that is mounted on several mount points only this one goes, once what was written \
             is durable. Fails when files are open. Removes a dead mount, whose \
             program is gone, whatever is open in it. Ends with status 3 when some files could not \
             be saved; each is named with the reason. So it does when that is not known, since the \
             program was killed or left at once; it then says where unsaved files wait for the next \
             mount.",
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
                "Take it out of sight now, even while files are open; waits for what is unsaved, but \
                 not for programs that use it",
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
    let place = places::sockets(environment);
    half_dead::release(&place, &mountpoint)?;
    // Asked before anything else, so that none of them ends unheard.
    let earlier = earlier(&place, &mountpoint);
    let wait = Wait {
        place: &place,
        mountpoint: &mountpoint,
        places: Places::of(&mountpoint)?,
        lazy,
        timeout,
        begun: clock::now(),
    };
    let mounted = || Ok::<_, Failure>(mount_table::find(&mountpoint)?.map(|entry| entry.id));
    let before = mounted()?;
    let socket = sharing::socket_of(&place, &mountpoint)?.ok_or(io::ErrorKind::NotFound.into());
    let outcome = match socket.and_then(|at| Connection::open(&at, &order(lazy, &mountpoint))) {
        Ok(connection) => wait.follow(connection).and_then(|()| {
            // A process may have been asked that was there once.
            match before.is_some() && mounted()? == before {
                true => Err(wait.untouched()),
                false => Ok(()),
            }
        }),
        Err(_) if !earlier.is_empty() && mounted()?.is_none() => Ok(()),
        Err(_) if remove_dead_stream(&mountpoint, environment)? => Ok(()),
        Err(_) => unasked::unmount(&place, &mountpoint, lazy, environment),
    };
    client::remove_dead(&place, &mountpoint);
    earlier
        .into_iter()
        .fold(outcome, |outcome, (process, connection)| match outcome {
            Err(failure) if failure.exit() != Exit::Unsaved => Err(failure),
            outcome => {
                output::complain(&format!(
                    "process {process} still saves what was written there before; waiting for it"
                ));
                outcome.and(wait.follow(connection))
            }
        })
}

fn order(lazy: bool, mountpoint: &Path) -> Request {
    Request::Unmount {
        lazy,
        mountpoint: sharing::named(mountpoint),
    }
}

/// The mounts that were unmounted there and still save, each told to report how that goes.
fn earlier(place: &SocketDirectory, mountpoint: &Path) -> Vec<(u32, Connection)> {
    let order = order(false, mountpoint);
    let earlier = place.earlier(mountpoint).into_iter();
    earlier
        .filter_map(|earlier| {
            let connection = Connection::open(&earlier.path, &order).ok()?;
            Some((earlier.process, connection))
        })
        .collect()
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
    if places::is_of_target(&absolute) {
        return Ok(absolute);
    }
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Ok(absolute);
    };
    let place = std::fs::canonicalize(parent).map_err(missing)?.join(name);
    if mount_table::find(&place)?.is_some() {
        return Ok(place);
    }
    // Perhaps a symbolic link to a mount point.
    std::fs::canonicalize(&place).map_err(missing)
}

/// What is waited for, since when and how long.
struct Wait<'a> {
    place: &'a SocketDirectory,
    mountpoint: &'a Path,
    /// Those of its mount, where it may have others.
    places: Option<Places>,
    lazy: bool,
    timeout: Duration,
    begun: Instant,
}

impl Wait<'_> {
    /// Reads how the unmount goes until it is done.
    fn follow(&self, mut connection: Connection) -> Outcome {
        let mut display = ProgressLine::default();
        let outcome = loop {
            match connection.next_reply() {
                Ok(Some(Reply::Progress(progress))) if self.lazy && progress.is_only_used() => {
                    display.clear();
                    self.tell_users(connection.process());
                    return Ok(());
                }
                Ok(Some(Reply::Progress(progress))) => display.show(progress),
                Ok(Some(Reply::Ended { unsaved, cause })) => {
                    break report(&unsaved, cause.as_deref()).and(wait_for_end(&connection));
                }
                Ok(Some(Reply::Parted { places, failure })) => {
                    break self.parted(&places, failure.as_deref());
                }
                Ok(Some(Reply::Refused(refusal))) => break Err(refusal.into()),
                Err(error) if client::is_silence(&error) && !connection.has_died() => {}
                Ok(_) | Err(_) => {
                    break Err(self.without_last_word(&connection));
                }
            }
            if self.begun.elapsed() > self.timeout {
                break Err(self.late());
            }
        };
        display.clear();
        outcome
    }

    /// Says who goes on with what a lazy unmount took out of sight.
    fn tell_users(&self, process: u32) {
        let place = self.mountpoint.display();
        output::complain(&format!(
            "`{place}` is out of sight, and what was closed there is saved; programs still use it: \
             process {process} saves what they write and ends after them, and `penstock umount {place}` \
             waits for that"
        ));
    }

    /// Says where a mount goes on that is gone from here.
    fn parted(&self, others: &[PathBuf], failure: Option<&str>) -> Outcome {
        let (place, others) = (self.mountpoint.display(), sharing::listed(others));
        let Some(failure) = failure else {
            output::complain(&format!(
                "`{place}` is unmounted; its mount goes on at {others}"
            ));
            return Ok(());
        };
        Err(Failure::new(
            format!("`{place}` is unmounted, and what was written is not durable yet: {failure}"),
            format!("its mount goes on at {others} and tries again; its log says more"),
        )
        .with_exit(Exit::Unsaved))
    }

    /// Why nobody knows whether everything is saved.
    fn without_last_word(&self, connection: &Connection) -> Failure {
        connection.ends_within(END_MAX);
        let staging = record::staging_of(self.place, self.mountpoint, connection.process());
        let advice = match staging.is_empty() {
            true => "look at the files that were written last".to_owned(),
            false => unasked::is_saved_by_the_next_mount(&staging),
        };
        let again = match mount_table::find(self.mountpoint) {
            Ok(None) => "",
            Ok(Some(_)) | Err(_) => "; run the command again to remove the dead mount",
        };
        let place = self.mountpoint.display();
        Failure::new(
            format!(
                "the program behind `{place}` ended without saying whether everything is saved"
            ),
            format!("{advice}{again}"),
        )
        .with_exit(Exit::Unsaved)
    }

    fn untouched(&self) -> Failure {
        Failure::new(
            format!("`{}` is still mounted", self.mountpoint.display()),
            "`penstock stats` lists the mounts; try again",
        )
    }

    fn late(&self) -> Failure {
        let limit = duration::display(self.timeout);
        let left = self.places.as_ref().and_then(|places| places.list().ok());
        let left = left.unwrap_or_default();
        if !left.is_empty() && !left.iter().any(|place| place == self.mountpoint) {
            let (place, others) = (self.mountpoint.display(), sharing::listed(&left));
            return Failure::new(
                format!(
                    "`{place}` is unmounted, and what was written was not durable within {limit}"
                ),
                format!(
                    "its mount goes on at {others} and saves it; watch it with `penstock stats`"
                ),
            )
            .with_exit(Exit::Unsaved);
        }
        Failure::new(
            format!("not everything was saved within {limit}"),
            "the mount goes on saving and then ends; watch it with `penstock stats`",
        )
    }
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

fn report(unsaved: &[UnsavedFile], cause: Option<&str>) -> Outcome {
    for UnsavedFile { path, reason } in unsaved {
        output::complain(&format!("could not save `{path}`: {reason}"));
    }
    if unsaved.is_empty() {
        return Ok(());
    }
    if let Some(cause) = cause {
        output::complain(cause);
    }
    Err(Failure::new(
        format!("{} changes could not be saved", unsaved.len()),
        "what a staging directory keeps the next mount saves; do the rest again",
    )
    .with_exit(Exit::Unsaved))
}

/// One line on a terminal that shows what is waited for.
#[derive(Debug, Default)]
struct ProgressLine {
    shown: bool,
    /// Whether it was told that programs still use the mount.
    told_users: bool,
    /// When the first progress was reported, and what had been sent by then.
    begun: Option<(Instant, u64)>,
}

impl ProgressLine {
    fn show(&mut self, progress: Progress) {
        if progress.is_only_used() && !self.told_users {
            self.told_users = true;
            self.clear();
            output::complain("programs still use what was mounted there; waiting for them");
        }
        let now = clock::now();
        let (begun, sent_before) = *self.begun.get_or_insert((now, progress.sent));
        let sent = progress.sent.saturating_sub(sent_before);
        let line = describe(progress, sent, now.saturating_duration_since(begun));
        self.shown = output::draw(Some(&line));
    }

    fn clear(&self) {
        if self.shown {
            output::draw(None);
        }
    }
}

/// What is left, and how fast it goes: `sent` bytes in the time that was `spent`.
fn describe(progress: Progress, sent: u64, spent: Duration) -> String {
    let files = match progress.files {
        0 if progress.used => return "waiting for programs that still use it".to_owned(),
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
            used: false,
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
            (
                Progress {
                    used: true,
                    ..progress(0, 0)
                },
                0,
                second,
                "waiting for programs that still use it",
            ),
        ] {
            assert_eq!(describe(progress, sent, spent), line);
        }
    }
}
