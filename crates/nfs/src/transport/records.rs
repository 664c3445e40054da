//! Record marking (section 11 of RFC 5531): calls out of a stream of bytes.

use std::{io, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use penstock_base::{BufferPool, BufferWriter, FsError};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::tcp::OwnedReadHalf,
};

use super::{Load, Share, load::Underway};
use crate::{
    limits::{FRAGMENT_MAX, FRAGMENTS_MAX, HEAD_MAX, MESSAGE_MAX, RECEIVE_BUFFER, TRANSFER_MAX},
    protocol::{
        nfs3,
        rpc::Call,
        xdr::{Decoder, padding},
    },
};

/// Bytes of a mark.
const MARK: usize = 4;
/// Set in the mark of the last fragment.
const LAST: u32 = 1 << 31;

/// Why no more records come.
#[derive(Debug, Error)]
pub(crate) enum ReceiveError {
    #[error("the client closed the connection")]
    Closed,
    #[error("the connection ended within a record")]
    Cut,
    #[error("a record or fragment is too large")]
    Oversize,
    #[error("a record does not fit its content")]
    Malformed,
    #[error("content comes from a client that may bring none")]
    Unwanted,
    #[error("memory: {0}")]
    Memory(#[from] FsError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Whether content is received before anybody has looked at the call.
#[derive(Debug, Clone)]
pub(crate) enum Admitted {
    /// As a part of what may be under way of its volume, if that is known.
    Yes(Option<Share>),
    No,
}

/// A record.
#[derive(Debug)]
pub(crate) struct Record {
    /// All of it, or all in front of the content of a WRITE.
    pub(crate) message: Bytes,
    /// The content of a WRITE that is long, with its share of what may be under way.
    pub(crate) data: Option<(Bytes, Underway)>,
}

/// Records as they come.
pub(crate) struct Records<S> {
    socket: S,
    /// What was received and not looked at.
    buffer: BytesMut,
    /// What is left of the fragment.
    left: usize,
    is_last: bool,
    fragments: usize,
    pool: Arc<BufferPool>,
}

impl<S: AsyncRead + Unpin> Records<S> {
    pub(crate) fn new(socket: S, pool: Arc<BufferPool>) -> Self {
        Self {
            socket,
            buffer: BytesMut::new(),
            left: 0,
            is_last: true,
            fragments: 0,
            pool,
        }
    }

    /// The next record. The content of a WRITE that is long is received into a block, which waits for `load`, if that is
    /// `admitted` for the file with a handle.
    pub(crate) async fn next(
        &mut self,
        load: &Load,
        admitted: impl Fn(&[u8]) -> Admitted,
    ) -> Result<Record, ReceiveError> {
        self.fragments = 0;
        if !self.fill(MARK).await? && self.buffer.is_empty() {
            return Err(ReceiveError::Closed);
        }
        self.begin_fragment().await?;
        let mut message = Vec::new();
        if self.gather(&mut message, HEAD_MAX).await? {
            return Ok(Record {
                message: message.into(),
                data: None,
            });
        }
        if let Some((file, begin, length)) = write_content(&message)? {
            let Admitted::Yes(share) = admitted(&file) else {
                return Err(ReceiveError::Unwanted);
            };
            let rest = message.split_off(begin);
            let load = (load, share.as_ref());
            let data = self.content(&rest, length, load).await?;
            return Ok(Record {
                message: message.into(),
                data: Some(data),
            });
        }
        match self.gather(&mut message, MESSAGE_MAX).await? {
            true => Ok(Record {
                message: message.into(),
                data: None,
            }),
            false => Err(ReceiveError::Oversize),
        }
    }

    /// Receives until the buffer has `wanted` bytes; says whether it has.
    async fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.buffer.len() < wanted {
            self.buffer.reserve(RECEIVE_BUFFER);
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn begin_fragment(&mut self) -> Result<(), ReceiveError> {
        if !self.fill(MARK).await? {
            return Err(ReceiveError::Cut);
        }
        let mark = self.buffer.get_u32();
        self.fragments += 1;
        (self.left, self.is_last) = ((mark & !LAST) as usize, mark & LAST != 0);
        match self.left > FRAGMENT_MAX || self.fragments > FRAGMENTS_MAX {
            true => Err(ReceiveError::Oversize),
            false => Ok(()),
        }
    }

    /// Goes on to bytes of the record that are not received, if there are any.
    async fn more(&mut self) -> Result<bool, ReceiveError> {
        while self.left == 0 {
            if self.is_last {
                return Ok(false);
            }
            self.begin_fragment().await?;
        }
        Ok(true)
    }

    /// Adds to `message` until the record ends, and says that it did, or `limit` bytes are there.
    async fn gather(&mut self, message: &mut Vec<u8>, limit: usize) -> Result<bool, ReceiveError> {
        while self.more().await? {
            if message.len() == limit {
                return Ok(false);
            }
            if !self.fill(1).await? {
                return Err(ReceiveError::Cut);
            }
            let count = self.left.min(self.buffer.len()).min(limit - message.len());
            message.extend_from_slice(&self.buffer[..count]);
            self.buffer.advance(count);
            self.left -= count;
        }
        Ok(true)
    }

    /// The content of a WRITE, which begins with `begun`, and then the end of the record.
    async fn content(
        &mut self,
        begun: &[u8],
        length: usize,
        (load, share): (&Load, Option<&Share>),
    ) -> Result<(Bytes, Underway), ReceiveError> {
        if length > TRANSFER_MAX as usize {
            return Err(ReceiveError::Oversize);
        }
        let underway = load.content(length as u64, share).await;
        let (mut block, view) = self.pool.take(length).await?.share();
        block.copy_from(&begun[..begun.len().min(length)]);
        while block.filled() < length {
            self.receive(&mut block, length).await?;
        }
        let mut behind = begun.get(length..).unwrap_or_default().to_vec();
        let is_all = self.gather(&mut behind, 2 * MARK).await?;
        if !is_all || behind.len() != padding(length) {
            return Err(ReceiveError::Malformed);
        }
        Ok((view.slice(0..length), underway))
    }

    /// Receives some of the record straight to where it stays.
    async fn receive(
        &mut self,
        block: &mut BufferWriter,
        length: usize,
    ) -> Result<(), ReceiveError> {
        if !self.more().await? {
            return Err(ReceiveError::Malformed);
        }
        let wanted = self.left.min(length - block.filled());
        let count = if self.buffer.is_empty() {
            block.receive_from(&mut self.socket, wanted).await?
        } else {
            let count = block.copy_from(&self.buffer[..wanted.min(self.buffer.len())]);
            self.buffer.advance(count);
            count
        };
        self.left -= count;
        match count {
            0 => Err(ReceiveError::Cut),
            _ => Ok(()),
        }
    }
}

impl Records<OwnedReadHalf> {
    /// Waits until something was received of a record, and says whether there is one. Who waits needs no buffer. A future
    /// that is dropped has received nothing.
    pub(crate) async fn begun(&mut self) -> io::Result<bool> {
        while self.buffer.is_empty() {
            self.buffer = BytesMut::new();
            self.socket.readable().await?;
            self.buffer.reserve(RECEIVE_BUFFER);
            match self.socket.try_read_buf(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                // It may have seemed to be readable.
                _ => {}
            }
        }
        Ok(true)
    }
}

/// Of which file a WRITE is, where its content begins and how long it is, if this is the beginning of one.
fn write_content(head: &[u8]) -> Result<Option<(Bytes, usize, usize)>, ReceiveError> {
    let Ok(call) = Call::decode(Bytes::copy_from_slice(head)) else {
        return Ok(None);
    };
    if (call.program, call.version, call.procedure) != (nfs3::PROGRAM, nfs3::VERSION, nfs3::WRITE) {
        return Ok(None);
    }
    let mut arguments: Decoder = call.arguments;
    match nfs3::decode_write(&mut arguments) {
        Ok((file, .., length)) => {
            let begin = head.len() - arguments.rest().len();
            Ok(Some((file, begin, length as usize)))
        }
        Err(_) => Err(ReceiveError::Malformed),
    }
}

/// Reads one record from `bytes` as from a socket: its message and the content that was received apart. For who throws
/// made-up bytes at it.
pub async fn whole_record(bytes: &[u8], pool: &Arc<BufferPool>) -> Option<(Bytes, Option<Bytes>)> {
    let load = Load::new(pool.budget().total());
    let record = Records::new(bytes, Arc::clone(pool))
        .next(&load, anyone)
        .await
        .ok()?;
    Some((record.message, record.data.map(|(data, _)| data)))
}

/// Content of whatever file is received.
fn anyone(_file: &[u8]) -> Admitted {
    Admitted::Yes(None)
}

#[cfg(test)]
mod tests {
    use penstock_base::MemoryBudget;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::protocol::xdr::Encoder;

    fn pool() -> Arc<BufferPool> {
        BufferPool::new(MemoryBudget::new(64 << 20))
    }

    fn write_call(length: usize) -> Vec<u8> {
        let mut out = Encoder::default();
        for word in [
            5,
            0,
            2,
            nfs3::PROGRAM,
            nfs3::VERSION,
            nfs3::WRITE,
            0,
            0,
            0,
            0,
        ] {
            out.u32(word);
        }
        out.opaque(&[9; 32]);
        out.u64(0);
        out.u32(length as u32);
        out.u32(0);
        out.opaque(&content(length));
        out.into_bytes()
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index % 251) as u8).collect()
    }

    /// The record in fragments of so many bytes.
    fn marked(record: &[u8], fragment: usize) -> Vec<u8> {
        let mut marked = Vec::new();
        let count = record.len().div_ceil(fragment);
        for (index, part) in record.chunks(fragment).enumerate() {
            let last = if index + 1 == count { LAST } else { 0 };
            marked.extend_from_slice(&(last | part.len() as u32).to_be_bytes());
            marked.extend_from_slice(part);
        }
        marked
    }

    async fn received(bytes: &[u8]) -> Result<Record, ReceiveError> {
        let (mut theirs, ours) = tokio::io::duplex(1000);
        let bytes = bytes.to_vec();
        tokio::spawn(async move { theirs.write_all(&bytes).await });
        Records::new(ours, pool())
            .next(&Load::new(64 << 20), anyone)
            .await
    }

    #[tokio::test]
    async fn content_is_found_whatever_the_fragments_are() {
        for length in [1, 4, 900, 1000, 1001, 70_001, 1 << 20] {
            for fragment in [length + 500, 70_000, 4097] {
                let record = received(&marked(&write_call(length), fragment))
                    .await
                    .unwrap();
                let data = match record.data {
                    Some((data, _)) => data,
                    None => {
                        let call = Call::decode(record.message).unwrap();
                        let request = nfs3::Request::decode(7, &mut call.arguments.clone(), None);
                        let Some(Ok(nfs3::Request::Write { data, .. })) = request else {
                            panic!("a WRITE of {length} in {fragment}");
                        };
                        data
                    }
                };
                assert!(data == content(length), "{length} in {fragment}");
            }
        }
    }

    #[tokio::test]
    async fn records_follow_each_other_in_one_buffer() {
        let mut bytes = marked(&write_call(3), 1000);
        bytes.extend(marked(&write_call(5000), 3000));
        bytes.extend(marked(b"abcd", 2));
        let mut records = Records::new(&bytes[..], pool());
        let load = Load::new(64 << 20);
        assert!(records.next(&load, anyone).await.unwrap().data.is_none());
        let (data, _) = records
            .next(&load, anyone)
            .await
            .unwrap()
            .data
            .expect("long");
        assert!(data == content(5000));
        assert_eq!(
            &records.next(&load, anyone).await.unwrap().message[..],
            b"abcd"
        );
        assert!(matches!(
            records.next(&load, anyone).await,
            Err(ReceiveError::Closed)
        ));
    }

    #[tokio::test]
    async fn what_is_too_large_cut_or_wrong_ends_the_connection() {
        let huge = received(b"GET / HTTP/1.1\r\n\r\n").await;
        assert!(matches!(huge, Err(ReceiveError::Oversize)), "{huge:?}");
        let long = received(&marked(&[0; MESSAGE_MAX + 4], MESSAGE_MAX + 4)).await;
        assert!(matches!(long, Err(ReceiveError::Oversize)), "{long:?}");
        let many = received(&[0; 4 * (FRAGMENTS_MAX + 1)]).await;
        assert!(matches!(many, Err(ReceiveError::Oversize)), "{many:?}");
        let whole = marked(&write_call(5000), 6000);
        let cut = received(&whole[..whole.len() - 1]).await;
        assert!(matches!(cut, Err(ReceiveError::Cut)), "{cut:?}");
        let mut record = write_call(5000);
        record.extend([0; 4]);
        let behind = received(&marked(&record, 6000)).await;
        assert!(matches!(behind, Err(ReceiveError::Malformed)), "{behind:?}");
        let short = write_call(5000);
        let short = received(&marked(&short[..short.len() - 100], 6000)).await;
        assert!(matches!(short, Err(ReceiveError::Malformed)), "{short:?}");
        let wide = write_call(FRAGMENT_MAX - 500);
        let wide = received(&marked(&wide, FRAGMENT_MAX)).await;
        assert!(matches!(wide, Err(ReceiveError::Oversize)), "{wide:?}");
    }
}
