//! The kernel's driver: what it is asked for, and what it shows.

use std::{
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use penstock_base::Mutex;

use tracing::warn;

use super::{
    NOBODY_TIMEOUT, REQUEST_TIMEOUT,
    netlink::{Attributes, Family, Messenger},
};
use crate::{BlockError, TransportKind, device::DeviceName, tags};

/// Bytes in a block, of devices as of disks.
const BLOCK_SIZE: u64 = 4096;

/// What the driver is called, and the version of its messages.
const FAMILY: (&str, u8) = ("nbd", 1);

/// Commands.
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;

/// Attributes.
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const CLIENT_FLAGS: u16 = 6;
const SOCKETS: u16 = 7;
const DEAD_CONNECTION_TIMEOUT: u16 = 8;
const BACKEND: u16 = 10;
const SOCKET_ITEM: u16 = 1;
const SOCKET_DESCRIPTOR: u16 = 1;

/// What the server says of itself: it has flags, the disk is read-only, and a request may take any
/// connection.
const FLAGS: u64 = 1 | 1 << 1 | 1 << 8;

/// What the driver shall do.
const DESTROY_ON_DISCONNECT: u64 = 1;
const DISCONNECT_ON_CLOSE: u64 = 1 << 1;

/// Where the module shows that it is there.
const MODULE: &str = "/sys/module/nbd";

/// A device that is connected.
#[derive(Debug, Clone)]
pub(super) struct Connected {
    index: u32,
    /// The device was made for this, and goes with it.
    added: bool,
    tag: String,
}

impl Connected {
    /// The device `name`, which another process had connected.
    pub(super) fn again(name: &DeviceName, tag: &str) -> Option<Self> {
        Some(Self {
            index: index_of(name)?,
            added: false,
            tag: tag.to_owned(),
        })
    }

    pub(super) fn name(&self) -> DeviceName {
        DeviceName(format!("nbd{}", self.index))
    }

    /// Whether it still is ours.
    pub(super) fn is_ours(&self) -> bool {
        tags::is_tagged(&self.name(), &self.tag)
    }

    fn attributes(&self) -> Attributes {
        Attributes::default()
            .number(INDEX, self.index)
            .text(BACKEND, &self.tag)
    }
}

/// The driver.
#[derive(Debug)]
pub(crate) struct Driver {
    messenger: Mutex<Messenger>,
    family: Family,
}

impl Driver {
    pub(super) fn open() -> Result<Self, BlockError> {
        Self::with(Messenger::open())
    }

    /// Over the connection of a process that is dead.
    pub(super) fn over(connection: OwnedFd) -> Result<Self, BlockError> {
        Self::with(Messenger::over(connection))
    }

    fn with(messenger: io::Result<Messenger>) -> Result<Self, BlockError> {
        let failed = |error| BlockError::system("cannot speak with the driver nbd")(error);
        let mut messenger = messenger.map_err(failed)?;
        let family = messenger.family(FAMILY.0, FAMILY.1).map_err(failed)?;
        Ok(Self {
            messenger: Mutex::new(messenger),
            family,
        })
    }

    /// What another process has to hold to go on.
    pub(super) fn connection(&self) -> Option<OwnedFd> {
        self.messenger.lock().socket().ok()
    }

    /// Connects a free device of `size` bytes, read-only, with `sockets`.
    pub(super) fn connect(
        &self,
        size: u64,
        tag: &str,
        sockets: &[OwnedFd],
    ) -> Result<Connected, BlockError> {
        for index in free_devices() {
            match self.try_connect(Some(index), size, tag, sockets) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                outcome => return self.checked(outcome),
            }
        }
        self.checked(self.try_connect(None, size, tag, sockets))
    }

    fn try_connect(
        &self,
        index: Option<u32>,
        size: u64,
        tag: &str,
        sockets: &[OwnedFd],
    ) -> io::Result<Connected> {
        let flags = if index.is_none() {
            DESTROY_ON_DISCONNECT
        } else {
            0
        };
        let mut asked = Attributes::default();
        if let Some(index) = index {
            asked = asked.number(INDEX, index);
        }
        let asked = asked
            .long(SIZE_BYTES, size)
            .long(BLOCK_SIZE_BYTES, BLOCK_SIZE)
            .long(TIMEOUT, REQUEST_TIMEOUT.as_secs())
            .long(DEAD_CONNECTION_TIMEOUT, NOBODY_TIMEOUT.as_secs())
            .long(SERVER_FLAGS, FLAGS)
            .long(CLIENT_FLAGS, flags)
            .text(BACKEND, tag)
            .nested(SOCKETS, &socket_list(sockets));
        let told = self.call(CONNECT, &asked)?;
        let index = told.get_number(INDEX).or(index);
        Ok(Connected {
            index: index.ok_or(io::ErrorKind::InvalidData)?,
            added: flags == DESTROY_ON_DISCONNECT,
            tag: tag.to_owned(),
        })
    }

    /// A device that does not carry its tag could not be told apart later.
    fn checked(&self, connected: io::Result<Connected>) -> Result<Connected, BlockError> {
        let connected =
            connected.map_err(BlockError::system("the driver nbd connects no device"))?;
        if connected.is_ours() {
            return Ok(connected);
        }
        let _ = self.disconnect(&connected);
        let why = "its devices carry no names before Linux 5.14; use loop".to_owned();
        Err(BlockError::NoTransport(TransportKind::Nbd, why))
    }

    /// Gives the device new connections in the place of dead ones.
    pub(super) fn reconnect(&self, device: &Connected, sockets: &[OwnedFd]) -> io::Result<()> {
        let asked = device.attributes();
        let asked = asked.nested(SOCKETS, &socket_list(sockets));
        self.call(RECONFIGURE, &asked).map(drop)
    }

    /// From here on the device goes when its last user closes it.
    pub(super) fn leave_to_users(&self, device: &Connected) -> io::Result<()> {
        let flags = if device.added {
            DISCONNECT_ON_CLOSE | DESTROY_ON_DISCONNECT
        } else {
            DISCONNECT_ON_CLOSE
        };
        let asked = device.attributes().long(CLIENT_FLAGS, flags);
        self.call(RECONFIGURE, &asked).map(drop)
    }

    /// Gives the device up: who reads from it gets errors.
    pub(super) fn disconnect(&self, device: &Connected) -> io::Result<()> {
        self.call(DISCONNECT, &device.attributes()).map(drop)
    }

    fn call(&self, command: u8, attributes: &Attributes) -> io::Result<Attributes> {
        self.messenger.lock().call(self.family, command, attributes)
    }
}

fn socket_list(sockets: &[OwnedFd]) -> Attributes {
    let mut list = Attributes::default();
    for socket in sockets {
        let descriptor = socket.as_raw_fd().cast_unsigned();
        let item = Attributes::default().number(SOCKET_DESCRIPTOR, descriptor);
        list = list.nested(SOCKET_ITEM, &item);
    }
    list
}

/// What is missing before the driver can be used, and what to do.
pub(crate) fn look_for_driver() -> Result<(), &'static str> {
    if !Path::new(MODULE).exists() {
        return Err(
            "the driver nbd is not there; load the module with `modprobe nbd` (CONFIG_BLK_DEV_NBD)",
        );
    }
    let family = Messenger::open().and_then(|mut it| it.family(FAMILY.0, FAMILY.1));
    family.map(drop).map_err(|_| {
        "the driver nbd is there, but answers only in the machine's own network namespace; leave \
         this one (such as with `--network=host`)"
    })
}

/// Gives up a device that a dead process left.
pub(crate) fn release(name: &DeviceName, tag: &str) {
    let Some(device) = Connected::again(name, tag) else {
        return;
    };
    if !device.is_ours() {
        return;
    }
    let failed = match Driver::open() {
        Ok(driver) => driver
            .disconnect(&device)
            .err()
            .map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(error) = failed {
        warn!(device = name.0, error, "a dead volume's device stays");
    }
}

fn index_of(name: &DeviceName) -> Option<u32> {
    name.0.strip_prefix("nbd")?.parse().ok()
}

/// The devices that nobody had connected a moment ago.
fn free_devices() -> Vec<u32> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let free = names
        .map(DeviceName)
        .filter(|name| name.attribute("pid").is_err());
    let mut free: Vec<_> = free.filter_map(|name| index_of(&name)).collect();
    free.sort_unstable();
    free
}
