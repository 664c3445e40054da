//! Calls and replies of ONC RPC (RFC 5531) on one connection: records, numbers of calls, who calls.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    ops::Range,
    time::Duration,
};

use nfs3_types::{
    mount, nfs3, portmap,
    rpc::{
        RPC_VERSION_2, accept_stat_data, accepted_reply, auth_unix, call_body, fragment_header,
        msg_body, opaque_auth, reply_body, rpc_msg,
    },
    xdr_codec::{self, Opaque, Pack, Unpack},
};
use penstock_base::random;
use rustix::process::{getegid, geteuid};

use crate::{BenchError, BenchResult};

/// How long a server may take to accept, to answer, or to take what is sent.
const DEADLINE: Duration = Duration::from_secs(30);
/// Bytes before a record that say how long it is.
const MARK: usize = 4;
/// What a reply has beside content.
const REPLY_MAX: usize = 64 << 10;
/// Bytes that are received ahead of what is needed.
const AHEAD: usize = 64 << 10;
/// Bytes of calls that wait to be sent together.
const QUEUE_MAX: usize = 256 << 10;

/// A program that a server has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) number: u32,
    pub(super) version: u32,
}

pub(super) const NFS: Program = Program {
    name: "NFS",
    number: nfs3::PROGRAM,
    version: nfs3::VERSION,
};
pub(super) const MOUNT: Program = Program {
    name: "MOUNT",
    number: mount::PROGRAM,
    version: mount::VERSION,
};
pub(super) const PORT_MAPPER: Program = Program {
    name: "the port mapper",
    number: portmap::PROGRAM,
    version: portmap::VERSION,
};

/// What an argument or a result of a procedure is packed to.
pub(super) type Packed = xdr_codec::Result<usize>;

/// A connection to one program. Calls and replies are apart, so that a reply can be looked at while calls are made.
pub(super) struct Connection {
    pub(super) calls: Calls,
    pub(super) replies: Replies,
}

impl Connection {
    /// Connects. Replies have up to `content` bytes beside what each has.
    pub(super) fn open(address: SocketAddr, program: Program, content: usize) -> BenchResult<Self> {
        let open = || {
            let stream = TcpStream::connect_timeout(&address, DEADLINE)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(DEADLINE))?;
            stream.set_write_timeout(Some(DEADLINE))?;
            Ok((stream.try_clone()?, stream))
        };
        let (reader, writer) = open().map_err(|error: io::Error| {
            let cause = format!("cannot reach {} at {address}: {error}", program.name);
            BenchError::new(
                cause,
                "check the address, the port and that the server runs",
            )
        })?;
        Ok(Self {
            calls: Calls::new(writer, program),
            replies: Replies::new(reader, content + REPLY_MAX),
        })
    }

    /// Calls a procedure and waits for what it returns.
    pub(super) fn ask<R: Unpack>(
        &mut self,
        procedure: u32,
        arguments: &impl Pack,
    ) -> BenchResult<R> {
        let number = self.calls.number(0, 0);
        self.calls
            .call(number, procedure, |out| arguments.pack(out))?;
        self.calls.send()?;
        let (answered, mut results) = self.replies.next()?;
        if answered != number {
            return Err(unexpected("a reply to another call"));
        }
        unpacked(&mut results)
    }
}

/// Calls on their way.
pub(super) struct Calls {
    stream: TcpStream,
    program: Program,
    caller: opaque_auth<'static>,
    queue: Vec<u8>,
    /// The number of the last call, without the bits that are its caller's.
    last: u32,
}

impl Calls {
    fn new(stream: TcpStream, program: Program) -> Self {
        let caller = auth_unix {
            machinename: Opaque::borrowed(b"penstock"),
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            ..auth_unix::default()
        };
        Self {
            stream,
            program,
            caller: opaque_auth::auth_unix(&caller),
            queue: Vec::new(),
            // A server that remembers calls must not take these for those of an earlier run.
            last: random::number() as u32,
        }
    }

    /// A number for another call, of which the lowest `bits` are `low`.
    pub(super) fn number(&mut self, low: u32, bits: u32) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.last << bits | low
    }

    /// Puts a call into the queue, which is sent when it has grown long.
    pub(super) fn call(
        &mut self,
        number: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Vec<u8>) -> Packed,
    ) -> BenchResult<()> {
        let begin = self.queue.len();
        self.queue.extend([0; MARK]);
        let call = rpc_msg {
            xid: number,
            body: msg_body::CALL(call_body {
                rpcvers: RPC_VERSION_2,
                prog: self.program.number,
                vers: self.program.version,
                proc: procedure,
                cred: self.caller.borrow(),
                verf: opaque_auth::default(),
            }),
        };
        let packed = call.pack(&mut self.queue);
        packed
            .and_then(|_| arguments(&mut self.queue))
            .expect("memory takes it");
        let length = (self.queue.len() - begin - MARK) as u32;
        let mark = fragment_header::new(length, true).into_xdr_buf();
        self.queue[begin..begin + MARK].copy_from_slice(&mark);
        match self.queue.len() < QUEUE_MAX {
            true => Ok(()),
            false => self.send(),
        }
    }

    /// Sends what is in the queue.
    pub(super) fn send(&mut self) -> BenchResult<()> {
        let sent = self.stream.write_all(&self.queue);
        self.queue.clear();
        sent.map_err(|error| broken(&error))
    }
}

/// Replies as they come.
pub(super) struct Replies {
    stream: TcpStream,
    /// Room for the longest record, and more.
    buffer: Vec<u8>,
    /// What was received and not looked at.
    held: Range<usize>,
    record_max: usize,
}

impl Replies {
    fn new(stream: TcpStream, record_max: usize) -> Self {
        Self {
            stream,
            buffer: vec![0; record_max + 2 * AHEAD],
            held: 0..0,
            record_max,
        }
    }

    /// Whether the next one is there without waiting.
    pub(super) fn is_there(&self) -> bool {
        let held = &self.buffer[self.held.clone()];
        let mark = held.first_chunk::<MARK>();
        mark.is_some_and(|mark| {
            let mark = fragment_header::from(*mark);
            mark.eof() && held.len() - MARK >= mark.fragment_length() as usize
        })
    }

    /// The number of the call that was answered, and what its procedure returned.
    pub(super) fn next(&mut self) -> BenchResult<(u32, &[u8])> {
        let record = self.record()?;
        let mut rest = &self.buffer[record];
        let message: rpc_msg<'_, '_> = unpacked(&mut rest)?;
        match message.body {
            msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted_reply {
                reply_data: accept_stat_data::SUCCESS,
                ..
            })) => Ok((message.xid, rest)),
            msg_body::REPLY(refused) => {
                let cause = format!("the server refuses a call: {refused:?}");
                Err(BenchError::new(cause, "check who may use the export"))
            }
            msg_body::CALL(_) => Err(unexpected("a call")),
        }
    }

    /// The next record, whose fragments it puts together.
    fn record(&mut self) -> BenchResult<Range<usize>> {
        self.make_room();
        let begin = self.held.start + MARK;
        let (mut end, mut next) = (begin, begin);
        loop {
            self.receive_until(next)?;
            let mark = self.buffer[next - MARK..next].first_chunk::<MARK>();
            let mark = fragment_header::from(*mark.expect("as long"));
            let length = mark.fragment_length() as usize;
            if end - begin + length > self.record_max || next + length > self.buffer.len() {
                return Err(unexpected("a reply that is too long"));
            }
            self.receive_until(next + length)?;
            if next > end {
                self.buffer.copy_within(next..next + length, end);
            }
            end += length;
            self.held.start = next + length;
            if mark.eof() {
                return Ok(begin..end);
            }
            next = self.held.start + MARK;
        }
    }

    /// Makes sure that a record fits into the buffer with the marks of its fragments.
    fn make_room(&mut self) {
        if self.held.is_empty() {
            self.held = 0..0;
        } else if self.buffer.len() - self.held.start < self.record_max + AHEAD {
            self.buffer.copy_within(self.held.clone(), 0);
            self.held = 0..self.held.len();
        }
    }

    /// Receives until the buffer holds what is before `end`, and perhaps a bit more.
    fn receive_until(&mut self, end: usize) -> BenchResult<()> {
        while self.held.end < end {
            let most = end.max(self.held.end + AHEAD).min(self.buffer.len());
            match self.stream.read(&mut self.buffer[self.held.end..most]) {
                Ok(0) => return Err(broken(&ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.held.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(())
    }
}

/// What a reply has next.
pub(super) fn unpacked<T: Unpack>(rest: &mut &[u8]) -> BenchResult<T> {
    let unpacked = T::unpack(rest).map_err(|error| unexpected(&error.to_string()))?;
    Ok(unpacked.0)
}

/// A server said what no server says.
pub(super) fn unexpected(what: &str) -> BenchError {
    let cause = format!("the server's reply makes no sense: {what}");
    BenchError::new(cause, "check that the address is that of an NFS server")
}

fn broken(error: &io::Error) -> BenchError {
    let why = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("it does not answer within {DEADLINE:?}")
        }
        ErrorKind::UnexpectedEof => "it has closed the connection".to_owned(),
        _ => error.to_string(),
    };
    let cause = format!("the connection to the server has ended: {why}");
    BenchError::new(cause, "look whether the server runs, and what it logs")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use proptest::prelude::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let ours = TcpStream::connect(address).expect("it listens");
        (ours, listener.accept().expect("it was called").0)
    }

    /// Records in fragments of these lengths.
    fn sent(records: &[Vec<u8>], lengths: &[usize]) -> Vec<u8> {
        let mut lengths = lengths.iter().cycle();
        let mut bytes = Vec::new();
        for record in records {
            let mut rest = record.as_slice();
            loop {
                let (now, later) = rest.split_at(rest.len().min(*lengths.next().expect("some")));
                let mark = fragment_header::new(now.len() as u32, later.is_empty());
                bytes.extend(mark.into_xdr_buf());
                bytes.extend(now);
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
        }
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn records_are_the_same_however_they_are_cut(
            lengths in prop::collection::vec(0_usize..50_000, 1..20),
            fragments in prop::collection::vec(200_usize..30_000, 1..5),
            pieces in prop::collection::vec(1_usize..70_000, 1..5),
        ) {
            let records: Vec<Vec<u8>> = lengths.iter().enumerate()
                .map(|(index, length)| (0..*length).map(|at| (at * 7 + index) as u8).collect())
                .collect();
            let (ours, mut theirs) = pair();
            let bytes = sent(&records, &fragments);
            let sending = std::thread::spawn(move || {
                let mut rest = bytes.as_slice();
                for piece in pieces.iter().cycle() {
                    let (now, later) = rest.split_at(rest.len().min(*piece));
                    theirs.write_all(now).expect("sent");
                    rest = later;
                    if rest.is_empty() {
                        break;
                    }
                }
            });
            let mut replies = Replies::new(ours, 50_000 * 2);
            for record in &records {
                let found = replies.record().expect("whole");
                prop_assert!(replies.buffer[found] == **record);
            }
            let ended = replies.record().expect_err("no more").to_string();
            prop_assert!(ended.contains("has closed the connection"), "{}", ended);
            sending.join().expect("all is sent");
        }
    }

    #[test]
    fn a_record_without_bounds_is_refused() {
        let (ours, mut theirs) = pair();
        theirs.write_all(&[0x7f, 0xff, 0xff, 0xff]).expect("sent");
        let error = Replies::new(ours, 1000).record().expect_err("too long");
        assert!(error.to_string().contains("too long"), "{error}");
    }
}
