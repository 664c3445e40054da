//! The transmission phase of the network block device protocol, as the kernel's client speaks it.
//!
//! The kernel is handed one end of a socket pair by whoever attaches the device, so there is no
//! handshake. Requests are answered as soon as their bytes are there, in any order: each is a task,
//! and a reply is written whole before the next one begins. Everything is big-endian.
//!
//! | bytes | request | reply |
//! |---|---|---|
//! | 4 | magic | magic |
//! | 2 + 2 | flags, command | |
//! | 4 | | errno, 0 for none |
//! | 8 | cookie | the same cookie |
//! | 8 + 4 | offset, length | |
//!
//! The data of a successful read follows its reply. A disk is read-only: writes get `EPERM`, after
//! their data was passed over.

use std::{io, sync::Arc};

use penstock_base::Payload;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::UnixStream,
    sync::{Mutex, Semaphore},
    task::JoinSet,
};
use tracing::debug;

use super::under_way::UnderWay;
use crate::reading::Answer;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const REQUEST_SIZE: usize = 28;
const REPLY_SIZE: usize = 16;

/// Commands.
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;

/// Requests that are under way at once; the kernel sends at most as many by default.
const REQUESTS_MAX: usize = 128;

/// A request, read off the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    command: u16,
    cookie: u64,
    offset: u64,
    length: u32,
}

impl Request {
    fn place(&self) -> (u64, u32) {
        (self.offset, self.length)
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The device is given up.
    Disconnected,
    /// The connection is.
    Closed,
}

/// Serves a disk on `socket` until the other side goes. Answers that are not sent by then are not
/// sent any more; their reads go on.
pub(super) async fn serve(socket: UnixStream, disk: Arc<UnderWay>) -> io::Result<Ending> {
    let (mut input, output) = socket.into_split();
    let output = Arc::new(Mutex::new(output));
    let places = Arc::new(Semaphore::new(REQUESTS_MAX));
    let mut under_way = JoinSet::new();
    loop {
        while under_way.try_join_next().is_some() {}
        let request = match next(&mut input).await? {
            Next::Request(request) => request,
            Next::End(ending) => return Ok(ending),
        };
        let place = Arc::clone(&places).acquire_owned().await;
        let place = place.map_err(io::Error::other)?;
        let (disk, output) = (Arc::clone(&disk), Arc::clone(&output));
        under_way.spawn(async move {
            let answer = answer(&disk, request).await;
            let sent = send(&mut *output.lock().await, request.cookie, answer).await;
            match sent {
                Ok(()) => disk.forget(request.place()),
                Err(error) => debug!(%error, "a reply did not reach the client"),
            }
            drop(place);
        });
    }
}

/// What comes on a connection.
enum Next {
    Request(Request),
    End(Ending),
}

/// The next request, or the end. The data of a write is passed over.
async fn next(input: &mut (impl AsyncRead + Unpin)) -> io::Result<Next> {
    let mut bytes = [0; REQUEST_SIZE];
    match input.read_exact(&mut bytes).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Ok(Next::End(Ending::Closed));
        }
        outcome => outcome?,
    };
    let request = parse(&bytes)?;
    match request.command {
        DISCONNECT => return Ok(Next::End(Ending::Disconnected)),
        WRITE => {
            let mut data = input.take(u64::from(request.length));
            tokio::io::copy(&mut data, &mut tokio::io::sink()).await?;
        }
        _ => {}
    }
    Ok(Next::Request(request))
}

fn parse(bytes: &[u8; REQUEST_SIZE]) -> io::Result<Request> {
    let word =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
    if word(0) != REQUEST_MAGIC {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a request does not begin as it should",
        ));
    }
    Ok(Request {
        command: u16::from_be_bytes([bytes[6], bytes[7]]),
        cookie: long(8),
        offset: long(16),
        length: word(24),
    })
}

async fn answer(disk: &Arc<UnderWay>, request: Request) -> Answer {
    match request.command {
        READ => disk.read(request.place()).await,
        FLUSH => Ok(Payload::new()),
        WRITE => Err(libc::EPERM),
        _ => Err(libc::EINVAL),
    }
}

async fn send(
    output: &mut (impl AsyncWrite + Unpin),
    cookie: u64,
    answer: Answer,
) -> io::Result<()> {
    let errno = answer.as_ref().err().copied().unwrap_or(0);
    let mut head = [0; REPLY_SIZE];
    head[..4].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
    head[4..8].copy_from_slice(&errno.to_be_bytes());
    head[8..].copy_from_slice(&cookie.to_be_bytes());
    output.write_all(&head).await?;
    for slice in answer.iter().flat_map(Payload::slices) {
        output.write_all(slice).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use penstock_base::{FsError, FsResult};
    use penstock_vfs::Disk;
    use proptest::prelude::*;

    use super::*;

    /// Every block is filled with its number; block 3 cannot be read.
    struct Numbered;

    const BLOCKS: u64 = 64;

    #[async_trait]
    impl Disk for Numbered {
        fn size(&self) -> u64 {
            BLOCKS * 4096
        }

        async fn read(&self, offset: u64, length: u32) -> FsResult<Payload> {
            // The first blocks take longest, so that replies overtake one another.
            for _ in 0..BLOCKS - offset / 4096 {
                tokio::task::yield_now().await;
            }
            if offset / 4096 == 3 {
                return Err(FsError::Stale);
            }
            let byte = |at: u64| (at / 4096) as u8;
            let bytes: Vec<u8> = (offset..offset + u64::from(length)).map(byte).collect();
            Ok(bytes.into())
        }
    }

    fn request(command: u16, cookie: u64, (offset, length): (u64, u32)) -> Vec<u8> {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend(0_u16.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes
    }

    /// Reads one reply; its data too, as long as `length_of` says for its cookie.
    async fn reply(
        client: &mut UnixStream,
        length_of: impl Fn(u64) -> usize,
    ) -> (u64, i32, Vec<u8>) {
        let mut head = [0; REPLY_SIZE];
        client.read_exact(&mut head).await.expect("a reply");
        assert_eq!(head[..4], REPLY_MAGIC.to_be_bytes());
        let errno = i32::from_be_bytes(head[4..8].try_into().expect("four bytes"));
        let cookie = u64::from_be_bytes(head[8..].try_into().expect("eight bytes"));
        let mut data = vec![0; if errno == 0 { length_of(cookie) } else { 0 }];
        client.read_exact(&mut data).await.expect("its data");
        (cookie, errno, data)
    }

    #[tokio::test]
    async fn nbd_serves_many_reads_at_once_and_in_any_order() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let serving = tokio::spawn(serve(server, UnderWay::new(Arc::new(Numbered))));
        let mut sent = Vec::new();
        for block in 0..BLOCKS {
            sent.extend(request(READ, block, (block * 4096, 4096)));
        }
        client.write_all(&sent).await.expect("taken");
        let mut order = Vec::new();
        for _ in 0..BLOCKS {
            let (cookie, errno, data) = reply(&mut client, |_| 4096).await;
            order.push(cookie);
            if cookie == 3 {
                assert_eq!((errno, data.len()), (libc::EIO, 0));
            } else {
                assert_eq!((errno, data), (0, vec![cookie as u8; 4096]));
            }
        }
        let sorted = |order: &[u64]| order.is_sorted();
        assert!(!sorted(&order), "a slow read held the others up");
        client
            .write_all(&request(DISCONNECT, 0, (0, 0)))
            .await
            .expect("taken");
        let ending = serving.await.expect("no panic").expect("a good end");
        assert_eq!(ending, Ending::Disconnected);
    }

    #[tokio::test]
    async fn nbd_refuses_what_a_read_only_disk_cannot_do() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let serving = tokio::spawn(serve(server, UnderWay::new(Arc::new(Numbered))));
        let mut sent = request(WRITE, 1, (0, 4096));
        sent.extend(vec![9; 4096]);
        sent.extend(request(READ, 2, (BLOCKS * 4096 - 4096, 8192)));
        sent.extend(request(FLUSH, 3, (0, 0)));
        sent.extend(request(77, 4, (0, 0)));
        client.write_all(&sent).await.expect("taken");
        let mut replies = Vec::new();
        for _ in 0..4 {
            let (cookie, errno, _) = reply(&mut client, |_| 0).await;
            replies.push((cookie, errno));
        }
        replies.sort_unstable();
        let expected = [
            (1, libc::EPERM),
            (2, libc::EINVAL),
            (3, 0),
            (4, libc::EINVAL),
        ];
        assert_eq!(replies, expected);
        drop(client);
        let ending = serving.await.expect("no panic").expect("a good end");
        assert_eq!(ending, Ending::Closed);
    }

    #[tokio::test]
    async fn nbd_ends_when_it_is_spoken_to_in_another_language() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        client
            .write_all(&[b'x'; REQUEST_SIZE])
            .await
            .expect("taken");
        assert!(
            serve(server, UnderWay::new(Arc::new(Numbered)))
                .await
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn parsing_finds_what_was_written(command: u16, cookie: u64, offset: u64, length: u32) {
            let bytes = request(command, cookie, (offset, length));
            let bytes: [u8; REQUEST_SIZE] = bytes.try_into().expect("one request");
            let expected = Request { command, cookie, offset, length };
            prop_assert_eq!(parse(&bytes).expect("well-formed"), expected);
        }
    }
}
