//! The files that options name, read in bounded time and space.

use std::{
    fs::File,
    io::{self, ErrorKind, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use penstock_base::{clock, run_blocking};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
};

use super::untrusting;
use crate::http::HttpError;

/// Bytes of a file of certificates: those of all authorities of a system are some 200 KiB.
const FILE_MAX: u64 = 4 << 20;

/// A file that an option names.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedFile<'a> {
    /// As it is typed.
    option: &'static str,
    path: &'a Path,
}

impl<'a> NamedFile<'a> {
    pub(super) fn of_authorities(path: &'a Path) -> Self {
        let option = "`--ca-file` (or AWS_CA_BUNDLE)";
        Self { option, path }
    }

    pub(super) fn of_client(path: &'a Path) -> Self {
        let option = "`--client-cert`";
        Self { option, path }
    }

    pub(super) fn of_key(path: &'a Path) -> Self {
        let option = "`--client-key`";
        Self { option, path }
    }

    /// What is in it. A pipe may take as long as `patience`: the program behind `<(...)` may have to ask somebody.
    pub(super) fn bytes(self, patience: Duration) -> Result<Vec<u8>, HttpError> {
        let bytes = read(self.path, patience).map_err(|error| self.unusable(&error))?;
        if bytes.len() as u64 > FILE_MAX {
            let why = format!("it is longer than {} MiB", FILE_MAX >> 20);
            return Err(self.unusable(&why));
        }
        let of_text = bytes.strip_prefix(BYTE_ORDER_MARK).map(<[u8]>::to_vec);
        Ok(of_text.unwrap_or(bytes))
    }

    /// An error that tells what is wrong with it.
    pub(super) fn unusable(self, why: &dyn std::fmt::Display) -> HttpError {
        let Self { option, path } = self;
        untrusting(format!("cannot use {option} {}: {why}", path.display()))
    }
}

/// What some editors write before text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes of a file, one more than it may have at most. A pipe is waited for as long as `patience`, also for who writes to it.
fn read(path: &Path, patience: Duration) -> io::Result<Vec<u8>> {
    let mut open = File::options();
    let file = open
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let mut bytes = Vec::new();
    if !file.metadata()?.file_type().is_fifo() {
        file.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let began = clock::now();
    let mut limited = (&file).take(FILE_MAX + 1);
    loop {
        await_bytes(&file, patience.saturating_sub(began.elapsed()))?;
        match limited.read_to_end(&mut bytes) {
            Ok(_) if bytes.is_empty() => {
                return Err(io::Error::other(
                    "it is a pipe without anything in it: what writes to it failed, or it was read before: mounts and some \
                     commands read twice; use a file",
                ));
            }
            Ok(_) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits until a pipe has bytes, or an end.
fn await_bytes(pipe: &File, patience: Duration) -> io::Result<()> {
    let limit = Timespec {
        tv_sec: patience.as_secs().cast_signed(),
        tv_nsec: patience.subsec_nanos().into(),
    };
    let mut ends = [PollFd::new(pipe, PollFlags::IN)];
    match rustix::io::retry_on_intr(|| poll(&mut ends, Some(&limit)))? {
        0 => Err(io::Error::other(
            "it is a pipe to which nobody writes, or that nobody closes",
        )),
        _ => Ok(()),
    }
}

/// What `read` comes to in a thread of its own, which has ended then; `None` where it takes longer than `limit`, as where a file
/// server is away, and the thread is left behind.
pub(super) fn read_within<T: Send + 'static>(
    limit: Duration,
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    let (tell, told) = channel();
    let reader = thread::Builder::new().name("certificates".to_owned());
    let reader = reader.spawn(move || tell.send(read()))?;
    let read = run_blocking(|| told.recv_timeout(limit));
    if matches!(read, Err(RecvTimeoutError::Timeout)) {
        return Ok(None);
    }
    let _ = reader.join();
    read.map(Some)
        .map_err(|_| io::Error::other("the reader of certificates ended early"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_server_that_is_away_holds_nobody_up() {
        let (server, away) = channel::<u8>();
        let read = read_within(Duration::from_millis(50), move || away.recv().is_ok());
        assert_eq!(read.expect("a thread"), None);
        drop(server);
        let read = read_within(Duration::from_secs(60), || 7);
        assert_eq!(read.expect("a thread"), Some(7));
    }

    #[test]
    fn a_pipe_is_read_in_whatever_pieces_it_comes_and_waited_for_in_bounds() {
        let folder = tempfile::tempdir().expect("a directory");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        let began = clock::now();
        let little = Duration::from_millis(50);
        let silent = read(&pipe, little).expect_err("nobody writes");
        assert!(silent.to_string().contains("nobody writes"), "{silent}");
        // Whether or not somebody has it open.
        let both = File::options().read(true).write(true).open(&pipe);
        let both = both.expect("a pipe");
        let silent = read(&pipe, little).expect_err("nobody writes");
        assert!(silent.to_string().contains("nobody writes"), "{silent}");
        assert!(
            began.elapsed() < Duration::from_secs(9),
            "{:?}",
            began.elapsed()
        );
        drop(both);
        let to = pipe.clone();
        let writer = thread::spawn(move || {
            use std::io::Write;
            let mut pipe = File::options().write(true).open(to).expect("a pipe");
            for piece in 0..3 {
                clock::pause(Duration::from_millis(20));
                pipe.write_all(&[piece; 100_000]).expect("read");
            }
        });
        let bytes = read(&pipe, Duration::from_secs(60)).expect("all of it");
        writer.join().expect("no panic");
        let expected = [[0; 100_000], [1; 100_000], [2; 100_000]].concat();
        assert!(bytes == expected, "{} bytes", bytes.len());
    }
}
