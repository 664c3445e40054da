//! Commands to the driver, each on a ring of its own: they are few, and one that takes too long is
//! left behind with its ring.

#![allow(unsafe_code)]

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use io_uring::{
    IoUring, cqueue, opcode,
    squeue::Entry128,
    types::{Fd, SubmitArgs, Timespec},
};

use super::{
    COMMAND_DEADLINE, REMOVE_DEADLINE,
    layout::{
        ControlCommand, DEVICE_INFO_SIZE, DeviceInfo, FEATURES_SIZE,
        control::{
            ADD, BEGIN_RECOVERY, END_RECOVERY, GET_DEVICE_INFO, GET_FEATURES, REMOVE, REMOVE_LATER,
            SET_PARAMETERS, START, STOP,
        },
    },
};

/// Where commands go.
pub(super) const NODE: &str = "/dev/ublk-control";

type Ring = IoUring<Entry128, cqueue::Entry>;

/// The driver.
#[derive(Debug)]
pub(super) struct Control {
    node: File,
}

impl Control {
    pub(super) fn open() -> io::Result<Self> {
        let node = OpenOptions::new().read(true).write(true).open(NODE)?;
        Ok(Self { node })
    }

    /// With what [`connection`](Self::connection) of a dead process gave out.
    pub(super) fn over(connection: OwnedFd) -> Self {
        Self {
            node: connection.into(),
        }
    }

    /// What another process needs to go on.
    pub(super) fn connection(&self) -> Option<OwnedFd> {
        self.node.try_clone().ok().map(OwnedFd::from)
    }

    /// What the driver can do.
    pub(super) fn features(&self) -> io::Result<u64> {
        let bytes = self.call(GET_FEATURES, 0, vec![0; FEATURES_SIZE])?;
        let bytes = bytes.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Makes a device; it has no block device yet. Returns it as it became.
    pub(super) fn add(&self, wanted: &DeviceInfo) -> io::Result<DeviceInfo> {
        told(self.call(ADD, wanted.device, wanted.bytes().to_vec())?)
    }

    /// Fails with `ENODEV` where there is none of this number.
    pub(super) fn info(&self, device: u32) -> io::Result<DeviceInfo> {
        told(self.call(GET_DEVICE_INFO, device, vec![0; DEVICE_INFO_SIZE])?)
    }

    /// Says what the device is like; see [`parameters`](super::layout::parameters).
    pub(super) fn set_parameters(&self, device: u32, parameters: &[u8]) -> io::Result<()> {
        let set = self.call(SET_PARAMETERS, device, parameters.to_vec());
        set.map(drop)
    }

    /// Makes the block device. Waits until every queue is served, and reads the first block.
    pub(super) fn start(&self, device: u32) -> io::Result<()> {
        self.tell(START, device, u64::from(std::process::id()))
    }

    /// Takes the block device away: who uses it gets errors.
    pub(super) fn stop(&self, device: u32) -> io::Result<()> {
        self.tell(STOP, device, 0)
    }

    /// Gives up the number as soon as nobody has the device open.
    pub(super) fn remove(&self, device: u32) -> io::Result<()> {
        match self.tell(REMOVE_LATER, device, 0) {
            // Before Linux 6.9.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.remove_and_wait(device)
            }
            outcome => outcome,
        }
    }

    /// The device is given up at once, but the command waits for those who have it open. It goes
    /// without that when they close it.
    fn remove_and_wait(&self, device: u32) -> io::Result<()> {
        let command = ControlCommand {
            device,
            ..ControlCommand::NONE
        };
        match self.run(REMOVE, &command, REMOVE_DEADLINE) {
            Err(error) if is_unfinished(&error) => Ok(()),
            outcome => outcome,
        }
    }

    /// Begins to go on with a device whose process died; `EBUSY` until the driver let go of that.
    pub(super) fn begin_recovery(&self, device: u32) -> io::Result<()> {
        self.tell(BEGIN_RECOVERY, device, 0)
    }

    /// Goes on. Waits until every queue is served.
    pub(super) fn end_recovery(&self, device: u32) -> io::Result<()> {
        self.tell(END_RECOVERY, device, u64::from(std::process::id()))
    }

    fn tell(&self, number: u32, device: u32, value: u64) -> io::Result<()> {
        let command = ControlCommand {
            device,
            value,
            ..ControlCommand::NONE
        };
        self.run(number, &command, COMMAND_DEADLINE)
    }

    fn call(&self, number: u32, device: u32, mut buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        let length = u16::try_from(buffer.len()).map_err(io::Error::other)?;
        let command = ControlCommand {
            device,
            buffer: (buffer.as_mut_ptr() as u64, length),
            ..ControlCommand::NONE
        };
        let outcome = self.run(number, &command, COMMAND_DEADLINE);
        if outcome.as_ref().is_err_and(is_unfinished) {
            // The driver may still write to it.
            buffer.leak();
            return outcome.map(|()| Vec::new());
        }
        outcome.map(|()| buffer)
    }

    fn run(&self, number: u32, command: &ControlCommand, limit: Duration) -> io::Result<()> {
        let mut ring: Ring = IoUring::builder().build(1)?;
        let entry = opcode::UringCmd80::new(Fd(self.node.as_raw_fd()), number)
            .cmd(command.bytes())
            .build();
        // SAFETY: the buffer that the command names is the caller's, who keeps it until the command
        // has ended, and for ever if it did not end in time.
        unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
        match wait(&mut ring, limit)? {
            result if result < 0 => Err(io::Error::from_raw_os_error(-result)),
            _ => Ok(()),
        }
    }
}

/// Submits the command and waits for what it gives.
fn wait(ring: &mut Ring, limit: Duration) -> io::Result<i32> {
    let limit = Timespec::from(limit);
    loop {
        if let Some(completion) = ring.completion().next() {
            return Ok(completion.result());
        }
        let limit = SubmitArgs::new().timespec(&limit);
        match ring.submitter().submit_with_args(1, &limit) {
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
}

/// Whether the driver may still be at it.
fn is_unfinished(error: &io::Error) -> bool {
    error.raw_os_error().is_none()
}

fn told(bytes: Vec<u8>) -> io::Result<DeviceInfo> {
    let bytes = bytes.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(DeviceInfo::parse(&bytes))
}
