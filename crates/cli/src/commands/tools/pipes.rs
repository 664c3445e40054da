//! Pipes of archives and lists, at which nobody waits on when the work is to end.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
};

use penstock_tools::Stop;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
    io::Errno,
};

/// How often who waits looks whether the work is to end.
const INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A file that is waited for no longer than the work goes on.
pub(super) struct Patient {
    file: File,
    stop: Stop,
}

impl Patient {
    /// Opens a file to read from. A FIFO to which nobody writes is open at once.
    pub(super) fn open(path: &Path, stop: &Stop) -> io::Result<Self> {
        let flags = match fs::metadata(path)?.file_type().is_fifo() {
            true => OFlags::NONBLOCK,
            false => OFlags::empty(),
        };
        let file = open(File::options().read(true), flags, path)?;
        Ok(Self::new(file, stop))
    }

    pub(super) fn stdin(stop: &Stop) -> io::Result<Self> {
        let file = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self::new(file.into(), stop))
    }

    /// Standard output, if it is a pipe.
    pub(super) fn stdout(stop: &Stop) -> Option<Self> {
        let output = io::stdout().as_fd().try_clone_to_owned().ok()?;
        Self::pipe(&output.into(), stop)
    }

    /// The same pipe as `output`, of which others who have it see no difference; none if it is no pipe, or cannot be opened
    /// once more.
    pub(super) fn pipe(output: &File, stop: &Stop) -> Option<Self> {
        if !output.metadata().ok()?.file_type().is_fifo() {
            return None;
        }
        let path = format!("/proc/self/fd/{}", output.as_raw_fd());
        let opened = open(File::options().write(true), OFlags::NONBLOCK, path.as_ref());
        Some(Self::new(opened.ok()?, stop))
    }

    fn new(file: File, stop: &Stop) -> Self {
        Self {
            file,
            stop: stop.clone(),
        }
    }

    pub(super) fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Does what may have to wait, once that is possible.
    fn when_ready(
        &self,
        wanted: PollFlags,
        mut act: impl FnMut(&File) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            self.wait(wanted)?;
            match act(&self.file) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    fn wait(&self, wanted: PollFlags) -> io::Result<()> {
        loop {
            if self.stop.is_set() {
                return Err(io::Error::other("interrupted"));
            }
            let mut files = [PollFd::new(&self.file, wanted)];
            match poll(&mut files, Some(&INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.when_ready(PollFlags::IN, |mut file| file.read(buffer))
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.when_ready(PollFlags::OUT, |mut file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn open(options: &mut OpenOptions, flags: OFlags, path: &Path) -> io::Result<File> {
    options.custom_flags(flags.bits().cast_signed()).open(path)
}
