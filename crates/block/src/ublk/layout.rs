//! Numbers and layouts of the driver's interface (linux/ublk_cmd.h). Everything is in the machine's
//! own order of bytes.

use crate::reading::Place;

/// Bytes in `struct ublksrv_ctrl_cmd`.
const CONTROL_COMMAND_SIZE: usize = 32;

/// Bytes in `struct ublksrv_io_cmd`.
const IO_COMMAND_SIZE: usize = 16;

/// Bytes in `struct ublksrv_io_desc`.
pub(super) const DESCRIPTOR_SIZE: usize = 24;

/// Bytes in `struct ublksrv_ctrl_dev_info`.
pub(super) const DEVICE_INFO_SIZE: usize = 64;

/// Bytes of `struct ublk_params` with nothing but what every device has.
const PARAMETERS_SIZE: usize = 40;

/// Bytes in the set of features.
pub(super) const FEATURES_SIZE: usize = 8;

/// Bytes in a command of a ring with large entries.
const LARGE_COMMAND_SIZE: usize = 80;

/// Commands to /dev/ublk-control.
pub(super) mod control {
    use super::{CONTROL_COMMAND_SIZE, READS, WRITES, encoded};

    const fn reads(number: u32) -> u32 {
        encoded(READS, number, CONTROL_COMMAND_SIZE)
    }

    const fn changes(number: u32) -> u32 {
        encoded(READS | WRITES, number, CONTROL_COMMAND_SIZE)
    }

    pub(in super::super) const GET_DEVICE_INFO: u32 = reads(0x02);
    pub(in super::super) const ADD: u32 = changes(0x04);
    pub(in super::super) const REMOVE: u32 = changes(0x05);
    pub(in super::super) const START: u32 = changes(0x06);
    pub(in super::super) const STOP: u32 = changes(0x07);
    pub(in super::super) const SET_PARAMETERS: u32 = changes(0x08);
    pub(in super::super) const BEGIN_RECOVERY: u32 = changes(0x10);
    pub(in super::super) const END_RECOVERY: u32 = changes(0x11);
    pub(in super::super) const GET_FEATURES: u32 = reads(0x13);
    /// Does not wait for those who have the device open.
    pub(in super::super) const REMOVE_LATER: u32 = reads(0x14);
}

/// Commands to a device's character node.
pub(super) mod io {
    use super::{IO_COMMAND_SIZE, READS, WRITES, encoded};

    /// Gives the driver a place for a request.
    pub(in super::super) const FETCH: u32 = encoded(READS | WRITES, 0x20, IO_COMMAND_SIZE);
    /// Answers the request in a place, and gives the place again.
    pub(in super::super) const COMMIT_AND_FETCH: u32 =
        encoded(READS | WRITES, 0x21, IO_COMMAND_SIZE);
}

const WRITES: u32 = 1;
const READS: u32 = 2;

/// The number of a command in the form that ioctls have.
const fn encoded(direction: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (b'u' as u32) << 8 | number
}

/// What the driver can do, and what is asked of it for a device.
pub(super) mod feature {
    pub(in super::super) const RECOVERY: u64 = 1 << 3;
    pub(in super::super) const RECOVERY_REISSUE: u64 = 1 << 4;
    pub(in super::super) const ENCODED_COMMANDS: u64 = 1 << 6;
    pub(in super::super) const USER_COPY: u64 = 1 << 7;
}

/// Any device that is free.
pub(super) const ANY_DEVICE: u32 = u32::MAX;

/// A command to /dev/ublk-control.
#[derive(Debug, Clone, Copy)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    /// A number, as some commands take.
    pub(super) value: u64,
    /// Where what it takes or gives is, and how many bytes that are.
    pub(super) buffer: (u64, u16),
}

impl ControlCommand {
    pub(super) const NONE: Self = Self {
        device: 0,
        value: 0,
        buffer: (0, 0),
    };

    pub(super) fn bytes(&self) -> [u8; LARGE_COMMAND_SIZE] {
        let mut bytes = [0; LARGE_COMMAND_SIZE];
        put(&mut bytes, 0, &self.device.to_ne_bytes());
        // Of no queue.
        put(&mut bytes, 4, &u16::MAX.to_ne_bytes());
        put(&mut bytes, 6, &self.buffer.1.to_ne_bytes());
        put(&mut bytes, 8, &self.buffer.0.to_ne_bytes());
        put(&mut bytes, 16, &self.value.to_ne_bytes());
        bytes
    }
}

/// A device, as it is asked for and as the driver tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    /// Bytes in the longest request.
    pub(super) length_max: u32,
    pub(super) device: u32,
    pub(super) features: u64,
    /// A number that the driver keeps for the server.
    pub(super) owner: u64,
}

impl DeviceInfo {
    pub(super) fn bytes(&self) -> [u8; DEVICE_INFO_SIZE] {
        let mut bytes = [0; DEVICE_INFO_SIZE];
        put(&mut bytes, 0, &self.queues.to_ne_bytes());
        put(&mut bytes, 2, &self.depth.to_ne_bytes());
        put(&mut bytes, 8, &self.length_max.to_ne_bytes());
        put(&mut bytes, 12, &self.device.to_ne_bytes());
        put(&mut bytes, 24, &self.features.to_ne_bytes());
        put(&mut bytes, 32, &self.owner.to_ne_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; DEVICE_INFO_SIZE]) -> Self {
        Self {
            queues: short(bytes, 0),
            depth: short(bytes, 2),
            length_max: word(bytes, 8),
            device: word(bytes, 12),
            features: long(bytes, 24),
            owner: long(bytes, 32),
        }
    }
}

/// What a read-only device of `size` bytes with blocks of 4096 bytes is like.
pub(super) fn parameters(size: u64, length_max: u32) -> [u8; PARAMETERS_SIZE] {
    /// Which groups there are: the one that every device has.
    const BASIC: u32 = 1;
    const READ_ONLY: u32 = 1;
    const BLOCK_SHIFT: u8 = 12;
    const SECTOR_SHIFT: u32 = 9;
    let mut bytes = [0; PARAMETERS_SIZE];
    put(&mut bytes, 0, &(PARAMETERS_SIZE as u32).to_ne_bytes());
    put(&mut bytes, 4, &BASIC.to_ne_bytes());
    put(&mut bytes, 8, &READ_ONLY.to_ne_bytes());
    // Logical and physical blocks, the best and the least request.
    put(&mut bytes, 12, &[BLOCK_SHIFT; 4]);
    put(&mut bytes, 16, &(length_max >> SECTOR_SHIFT).to_ne_bytes());
    put(&mut bytes, 24, &(size >> SECTOR_SHIFT).to_ne_bytes());
    bytes
}

/// A command about the place `tag` of a queue: the request there had `result`, bytes or an errno.
pub(super) fn io_command(queue: u16, tag: u16, result: i32) -> [u8; IO_COMMAND_SIZE] {
    let mut bytes = [0; IO_COMMAND_SIZE];
    put(&mut bytes, 0, &queue.to_ne_bytes());
    put(&mut bytes, 2, &tag.to_ne_bytes());
    put(&mut bytes, 4, &result.to_ne_bytes());
    bytes
}

/// What is asked for in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Read(Place),
    Flush,
    /// Something that only disks do that can be written.
    Change,
    /// Something that cannot be, such as a read of no disk's length.
    Unknown,
}

impl Request {
    pub(super) fn parse(descriptor: &[u8; DESCRIPTOR_SIZE]) -> Self {
        const SECTOR: u32 = 512;
        let length = word(descriptor, 4).checked_mul(SECTOR);
        let offset = long(descriptor, 8).checked_mul(u64::from(SECTOR));
        // The upper bytes are flags.
        match (descriptor[OPERATION], offset, length) {
            (0, Some(offset), Some(length)) => Self::Read((offset, length)),
            (2, ..) => Self::Flush,
            (1 | 3..=5, ..) => Self::Change,
            _ => Self::Unknown,
        }
    }
}

/// Which byte of a descriptor is the lowest of its first word.
const OPERATION: usize = if cfg!(target_endian = "little") { 0 } else { 3 };

/// Where in the character node the bytes of the request in a place are.
pub(super) fn data_offset(queue: u16, tag: u16) -> u64 {
    const DATA: u64 = 0x8000_0000;
    DATA + (u64::from(queue) << 41) + (u64::from(tag) << 25)
}

/// Where in the character node the descriptors of a queue are.
pub(super) fn descriptors_offset(queue: u16, page: usize) -> u64 {
    /// Places that a queue could have.
    const DEPTH_MAX: usize = 4096;
    let each = (DEPTH_MAX * DESCRIPTOR_SIZE).next_multiple_of(page);
    u64::from(queue) * each as u64
}

/// Bytes of the descriptors of a queue.
pub(super) fn descriptors_size(depth: u16, page: usize) -> usize {
    (usize::from(depth) * DESCRIPTOR_SIZE).next_multiple_of(page)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let value = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    u32::from_ne_bytes(value)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let value = bytes[at..at + 8].try_into();
    u64::from_ne_bytes(value.expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ublk_commands_have_the_numbers_of_the_interface() {
        let expected = [
            (control::GET_DEVICE_INFO, 0x8020_7502),
            (control::ADD, 0xc020_7504),
            (control::REMOVE, 0xc020_7505),
            (control::START, 0xc020_7506),
            (control::STOP, 0xc020_7507),
            (control::SET_PARAMETERS, 0xc020_7508),
            (control::BEGIN_RECOVERY, 0xc020_7510),
            (control::END_RECOVERY, 0xc020_7511),
            (control::GET_FEATURES, 0x8020_7513),
            (control::REMOVE_LATER, 0x8020_7514),
            (io::FETCH, 0xc010_7520),
            (io::COMMIT_AND_FETCH, 0xc010_7521),
        ];
        for (number, wanted) in expected {
            assert_eq!(number, wanted, "{number:#x} is not {wanted:#x}");
        }
    }

    #[test]
    fn a_ublk_device_is_described_field_by_field() {
        let bytes = parameters(1 << 40, 1 << 20);
        assert_eq!(bytes.len(), 40);
        assert_eq!((word(&bytes, 0), word(&bytes, 4)), (40, 1));
        assert_eq!(word(&bytes, 8), 1, "read-only");
        assert_eq!(bytes[12..16], [12; 4]);
        assert_eq!(word(&bytes, 16), 2048, "sectors of a request");
        assert_eq!(long(&bytes, 24), 1 << 31, "sectors of the disk");
    }

    #[test]
    fn the_data_of_a_ublk_request_has_a_place_of_its_own() {
        assert_eq!(data_offset(0, 0), 0x8000_0000);
        assert_eq!(data_offset(0, 3), 0x8600_0000);
        assert_eq!(data_offset(2, 1), 0x400_8200_0000);
        assert_eq!(descriptors_offset(3, 4096), 3 * 98304);
        assert_eq!(descriptors_size(128, 4096), 4096);
        assert_eq!(descriptors_size(171, 4096), 8192);
    }

    #[test]
    fn ublk_commands_carry_what_they_are_about() {
        let command = ControlCommand {
            device: 7,
            value: 0x0102_0304_0506_0708,
            buffer: (0x1122_3344, 64),
        };
        let bytes = command.bytes();
        assert_eq!((word(&bytes, 0), short(&bytes, 4)), (7, u16::MAX));
        assert_eq!((short(&bytes, 6), long(&bytes, 8)), (64, 0x1122_3344));
        assert_eq!(long(&bytes, 16), 0x0102_0304_0506_0708);
        assert_eq!(bytes[24..], [0; 56]);
        let bytes = io_command(2, 5, -5);
        assert_eq!((short(&bytes, 0), short(&bytes, 2)), (2, 5));
        assert_eq!((word(&bytes, 4), long(&bytes, 8)), (-5_i32 as u32, 0));
    }

    #[test]
    fn only_reads_of_a_ublk_device_have_a_place() {
        let descriptor = |operation: u32, sectors: u32, start: u64| {
            let mut bytes = [0; DESCRIPTOR_SIZE];
            put(&mut bytes, 0, &operation.to_ne_bytes());
            put(&mut bytes, 4, &sectors.to_ne_bytes());
            put(&mut bytes, 8, &start.to_ne_bytes());
            Request::parse(&bytes)
        };
        assert_eq!(descriptor(0x100, 8, 16), Request::Read((8192, 4096)));
        assert_eq!(descriptor(0, u32::MAX, 0), Request::Unknown);
        assert_eq!(descriptor(0, 8, u64::MAX), Request::Unknown);
        assert_eq!(descriptor(2, 0, 0), Request::Flush);
        for change in [1, 3, 4, 5] {
            assert_eq!(descriptor(change, 8, 0), Request::Change);
        }
        assert_eq!(descriptor(10, 8, 0), Request::Unknown);
    }

    proptest! {
        #[test]
        fn a_ublk_device_is_told_of_as_it_was_asked_for(
            queues: u16, depth: u16, length_max: u32, device: u32, features: u64, owner: u64,
        ) {
            let info = DeviceInfo { queues, depth, length_max, device, features, owner };
            prop_assert_eq!(DeviceInfo::parse(&info.bytes()), info);
        }
    }
}
