//! Messages to and from a driver that speaks generic netlink.
//!
//! A message is a header of 16 bytes (its length, kind, flags, sequence number and port), one of 4
//! bytes (command and version), and attributes. An attribute is its length, its kind and its
//! value, filled up to 4 bytes; a value may be attributes again. Numbers are the machine's own.

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
    netlink::{GENERIC, SocketAddrNetlink},
    recv, sendto, socket_with,
    sockopt::{self, Timeout},
};

const HEADER_SIZE: usize = 16;
const COMMAND_SIZE: usize = 4;
const ATTRIBUTE_HEADER_SIZE: usize = 4;

/// Kinds of messages that every family has.
const ERROR: u16 = 2;

/// Flags.
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const NESTED: u16 = 0x8000;
const KIND_MASK: u16 = 0x3fff;

/// The family that knows the others, its command and its attributes.
const CONTROL: Family = Family {
    kind: 16,
    version: 1,
};
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Bytes in the longest answer.
const ANSWER_SIZE_MAX: usize = 8192;

/// Answers that may come before the one that is waited for.
const STALE_MAX: usize = 64;

/// A driver answers while it is asked, so this is long.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// Attributes in the form in which they are sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn number(self, kind: u16, value: u32) -> Self {
        self.value(kind, &value.to_ne_bytes())
    }

    pub(super) fn long(self, kind: u16, value: u64) -> Self {
        self.value(kind, &value.to_ne_bytes())
    }

    /// A text; it ends with a NUL.
    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.value(kind, &bytes)
    }

    pub(super) fn nested(self, kind: u16, value: &Self) -> Self {
        self.value(kind | NESTED, &value.0)
    }

    fn value(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(ATTRIBUTE_HEADER_SIZE + value.len());
        let length = length.expect("the longest are a few sockets and a name");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// The value of the first attribute of this kind.
    pub(super) fn get(&self, kind: u16) -> Option<&[u8]> {
        let mut rest = &self.0[..];
        while rest.len() >= ATTRIBUTE_HEADER_SIZE {
            let length = usize::from(short(rest, 0)?);
            let value = rest.get(ATTRIBUTE_HEADER_SIZE..length)?;
            if short(rest, 2)? & KIND_MASK == kind {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        None
    }

    /// The same, of a number.
    pub(super) fn get_number(&self, kind: u16) -> Option<u32> {
        let value = self.get(kind)?;
        Some(u32::from_ne_bytes(value.try_into().ok()?))
    }
}

/// A family, as the control family tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    kind: u16,
    version: u8,
}

/// Where messages go to and come from.
#[derive(Debug)]
pub(super) struct Messenger {
    socket: OwnedFd,
    sequence: u32,
}

impl Messenger {
    pub(super) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(GENERIC))?;
        Self::over(socket)
    }

    /// Over the socket of another process, which is dead.
    pub(super) fn over(socket: OwnedFd) -> io::Result<Self> {
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_DEADLINE))?;
        let mut nobody_read = [0; ANSWER_SIZE_MAX];
        for _ in 0..STALE_MAX {
            if recv(&socket, &mut nobody_read, RecvFlags::DONTWAIT).is_err() {
                break;
            }
        }
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// The same socket once more.
    pub(super) fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// The family of this name; [`io::ErrorKind::NotFound`] where there is none.
    pub(super) fn family(&mut self, name: &str, version: u8) -> io::Result<Family> {
        let asked = Attributes::default().text(FAMILY_NAME, name);
        let told = self.call(CONTROL, GET_FAMILY, &asked)?;
        let kind = told.get(FAMILY_ID).and_then(|value| short(value, 0));
        let kind = kind.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Family { kind, version })
    }

    /// Sends a command and waits until it is done; returns what was answered.
    pub(super) fn call(
        &mut self,
        family: Family,
        command: u8,
        attributes: &Attributes,
    ) -> io::Result<Attributes> {
        self.sequence = self.sequence.wrapping_add(1);
        let message = message(family, command, self.sequence, attributes);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &message, SendFlags::empty(), &kernel)?;
        let mut answer = Attributes::default();
        let mut bytes = vec![0; ANSWER_SIZE_MAX];
        for _ in 0..STALE_MAX {
            let (_, length) = recv(&self.socket, &mut bytes[..], RecvFlags::empty())?;
            let received = bytes.get(..length).ok_or(io::ErrorKind::InvalidData)?;
            if take_answer(received, self.sequence, &mut answer)? {
                return Ok(answer);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn message(family: Family, command: u8, sequence: u32, attributes: &Attributes) -> Vec<u8> {
    let length = HEADER_SIZE + COMMAND_SIZE + attributes.0.len();
    let length = u32::try_from(length).expect("attributes are short");
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(family.kind.to_ne_bytes());
    bytes.extend((REQUEST | ACKNOWLEDGE).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([command, family.version, 0, 0]);
    bytes.extend(&attributes.0);
    bytes
}

/// Looks through what came for answers to `sequence`. Returns whether the last one is there: the
/// word whether it went well.
fn take_answer(mut bytes: &[u8], sequence: u32, answer: &mut Attributes) -> io::Result<bool> {
    while let Some(length) = word(bytes, 0) {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidData)?;
        let body = bytes.get(HEADER_SIZE..length);
        let body = body.ok_or(io::ErrorKind::InvalidData)?;
        if word(bytes, 8) == Some(sequence) {
            if short(bytes, 4) == Some(ERROR) {
                return outcome(body).map(|()| true);
            }
            let attributes = body.get(COMMAND_SIZE..).unwrap_or_default();
            *answer = Attributes(attributes.to_vec());
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn outcome(body: &[u8]) -> io::Result<()> {
    let code = word(body, 0).ok_or(io::ErrorKind::InvalidData)?;
    match code.cast_signed() {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_kernel_answers_with_the_family_that_was_asked_for() {
        let mut messenger = Messenger::open().expect("every kernel has generic netlink");
        let family = messenger.family("nlctrl", 1).expect("it knows itself");
        assert_eq!(family, CONTROL);
        let missing = messenger.family("no such", 1).expect_err("not there");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let again = Messenger::over(messenger.socket().expect("once more"));
        let again = again.and_then(|mut other| other.family("nlctrl", 1));
        assert_eq!(again.expect("the same socket"), CONTROL);
    }

    proptest! {
        #[test]
        fn attributes_are_found_as_they_were_written(one: u32, long: u64, name in "[a-z]{0,40}") {
            let inner = Attributes::default().number(1, one);
            let written = Attributes::default()
                .long(3, long)
                .text(10, &name)
                .nested(7, &inner)
                .number(9, one);
            let long = long.to_ne_bytes();
            prop_assert_eq!(written.get(3), Some(&long[..]));
            prop_assert_eq!(written.get(10).map(<[u8]>::len), Some(name.len() + 1));
            prop_assert_eq!(written.get(7), Some(&inner.0[..]));
            prop_assert_eq!(written.get_number(9), Some(one));
            prop_assert_eq!(written.get(8), None);
        }

        #[test]
        fn any_bytes_have_an_end(bytes: Vec<u8>, sequence: u32) {
            let mut answer = Attributes::default();
            let _ = take_answer(&bytes, sequence, &mut answer);
            let _ = Attributes(bytes).get(3);
        }

        #[test]
        fn an_answer_is_taken_with_its_word(sequence: u32, value: u32, code in 0..200_i32) {
            let attributes = Attributes::default().number(1, value);
            let mut bytes = message(CONTROL, 1, sequence, &attributes);
            let mut word = message(CONTROL, 0, sequence, &Attributes::default());
            word[4..6].copy_from_slice(&ERROR.to_ne_bytes());
            word[16..20].copy_from_slice(&(-code).to_ne_bytes());
            bytes.extend(word);
            let mut answer = Attributes::default();
            let taken = take_answer(&bytes, sequence, &mut answer);
            match code {
                0 => prop_assert!(taken.expect("it went well")),
                code => prop_assert_eq!(taken.expect_err("refused").raw_os_error(), Some(code)),
            }
            prop_assert_eq!(answer.get_number(1), Some(value));
            let others = take_answer(&bytes, sequence.wrapping_add(1), &mut answer);
            prop_assert!(!others.expect("not ours"));
        }
    }
}
