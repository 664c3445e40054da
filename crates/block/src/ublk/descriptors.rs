//! What the driver says of requests, in memory that it shares.

#![allow(unsafe_code)]

use std::{fs::File, io, ptr::NonNull};

use rustix::{
    mm::{MapFlags, ProtFlags, mmap, munmap},
    param::page_size,
};

use super::layout::{DESCRIPTOR_SIZE, Request, descriptors_offset, descriptors_size};

/// The descriptors of a queue, one for each place.
#[derive(Debug)]
pub(super) struct Descriptors {
    memory: NonNull<u8>,
    size: usize,
    depth: u16,
}

impl Descriptors {
    /// Those of a queue of the device with this character node.
    pub(super) fn map(node: &File, queue: u16, depth: u16) -> io::Result<Self> {
        let page = page_size();
        let size = descriptors_size(depth, page);
        let offset = descriptors_offset(queue, page);
        // SAFETY: the address is the kernel's choice, so nothing else of ours is there.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                size,
                ProtFlags::READ,
                MapFlags::SHARED,
                node,
                offset,
            )
        }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            memory,
            size,
            depth,
        })
    }

    /// The request in a place, to be asked for when the driver has left one there: it does not
    /// touch the descriptor again before that is answered.
    pub(super) fn request(&self, tag: u16) -> Request {
        if tag >= self.depth {
            return Request::Unknown;
        }
        let place = usize::from(tag) * DESCRIPTOR_SIZE;
        // SAFETY: the place lies in the mapping, which lives as long as we, and bytes need no
        // alignment.
        let bytes = unsafe {
            let place = self.memory.add(place).cast::<[u8; DESCRIPTOR_SIZE]>();
            place.read_volatile()
        };
        Request::parse(&bytes)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody keeps references into it.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.size) };
    }
}
