//! The bounds of what clients can make the server hold, and for how long.

use std::time::Duration;

use penstock_base::{BLOCK_SIZE, KIB, MIB};

/// Bytes that a READ may ask for and a WRITE may bring: what fits into a block of the pool.
pub(crate) const TRANSFER_MAX: u32 = BLOCK_SIZE as u32;
/// Bytes of an answer to READDIR or READDIRPLUS at most.
pub(crate) const LISTING_MAX: u32 = 64 << 10;
/// Bytes of a call without the content of a WRITE.
pub(crate) const MESSAGE_MAX: usize = 16 << 10;
/// Bytes of a call that are looked at to find out whether it is a WRITE: its header with the longest credential and
/// verifier, and all of its arguments but the content, need fewer.
pub(crate) const HEAD_MAX: usize = 1024;
/// Fragments of one record.
pub(crate) const FRAGMENTS_MAX: usize = 256;
/// Bytes of one fragment: a WRITE in one.
pub(crate) const FRAGMENT_MAX: usize = TRANSFER_MAX as usize + MESSAGE_MAX;

/// Connections at once.
pub(crate) const CONNECTIONS_MAX: usize = 16_384;
/// Connections at once of clients without a rule, which are told so: they take no place of others.
pub(crate) const STRANGERS_MAX: usize = 256;
/// Connections at once to what tells the ports.
pub(crate) const PORT_MAPPER_CONNECTIONS_MAX: usize = 256;
/// Datagrams of one socket under way at once.
pub(crate) const DATAGRAMS_MAX: usize = 256;
/// Bytes of a datagram, received or sent: what ONC RPC sends in one by custom.
pub(crate) const DATAGRAM_MAX: usize = 8800;
/// How long a socket rests that cannot receive datagrams.
pub(crate) const RECEIVE_PAUSE: Duration = Duration::from_millis(100);
/// Calls of one connection under way at once.
pub(crate) const CALLS_OF_CONNECTION_MAX: usize = 64;
/// Calls of all connections under way at once.
pub(crate) const CALLS_MAX: usize = 8192;
/// Bytes of content of one connection under way at once.
pub(crate) const CONTENT_OF_CONNECTION_MAX: u64 = 16 * MIB;
/// The part of the memory that content of all connections under way may take: one in so many. What a volume needs to
/// finish them comes out of the rest.
pub(crate) const CONTENT_SHARE: u64 = 4;
/// Of what may be under way, all volumes but one may have all but one part of so many: if their stores are away, the last
/// one goes on.
pub(crate) const VOLUMES_SHARE: u64 = 4;
/// Content is counted in so many bytes.
pub(crate) const CONTENT_UNIT: u64 = 4 * KIB;
/// Bytes that are received at once where nobody knows what they are.
pub(crate) const RECEIVE_BUFFER: usize = 16 << 10;

/// How long a connection may be silent while nothing of it is under way. Clients close theirs sooner, and open another
/// one when they need it.
pub(crate) const IDLE_DEADLINE: Duration = Duration::from_secs(6 * 60);
/// How long a record may take from its first byte to its last, waiting for memory included.
pub(crate) const RECORD_DEADLINE: Duration = Duration::from_secs(60);
/// How long a batch of replies may take.
pub(crate) const REPLY_DEADLINE: Duration = Duration::from_secs(60);
/// Replies that are sent with one system call.
pub(crate) const BATCH_MAX: usize = 16;
/// Bytes of content of which replies wait for no others.
pub(crate) const BATCH_BYTES: u64 = 64 << 10;

/// Answers that are kept to be repeated.
pub(crate) const DUPLICATES_MAX: usize = 16_384;
/// How long a repeat waits for the call that it repeats.
pub(crate) const DUPLICATE_DEADLINE: Duration = Duration::from_secs(60);
/// Names in directories that are remembered, so that listings go on behind them.
pub(crate) const PLACES_MAX: usize = 65_536;
/// Files that are open at once.
pub(crate) const OPEN_FILES_MAX: usize = 4096;
/// How long a file stays open that nobody reads.
pub(crate) const READER_IDLE: Duration = Duration::from_secs(5);
/// How long a file stays open that nobody writes.
pub(crate) const WRITER_IDLE: Duration = Duration::from_secs(15);
/// How long a save is tried again of a file that is written from front to back: what a volume could not take of such a file
/// it has no more, as a rule.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(5 * 60);
/// How long COMMITs fail of a file that was given up then.
pub(crate) const LOST_KEPT: Duration = Duration::from_secs(10 * 60);
/// How long a write waits for those that belong in front of it, where files are written from front to back.
pub(crate) const ORDER_DEADLINE: Duration = Duration::from_secs(10);
/// How long a client is told to ask again for a write or a save that somebody is in the way of: longer than a directory is
/// renamed in a bucket as a rule.
pub(crate) const BUSY_DEADLINE: Duration = Duration::from_secs(5 * 60);
/// Whoever asks again does so sooner; else it is another one that is in the way.
pub(crate) const BUSY_AGAIN: Duration = Duration::from_secs(2 * 60);
/// Files of a volume without lasting numbers whose handles stay good.
pub(crate) const HELD_MAX: usize = 1 << 20;
/// How long a handle stays good at least that the volume would like to have back.
pub(crate) const HELD_AT_LEAST: Duration = Duration::from_secs(30);
/// Files that a volume may want back at once.
pub(crate) const WANTED_MAX: usize = 1 << 16;
/// Directories that clients are known to have mounted.
pub(crate) const MOUNTS_MAX: usize = 1024;
/// Clients that hold locks at once.
pub(crate) const LOCK_CLIENTS_MAX: usize = 4096;
/// Clients with one address, by the names that they call themselves.
pub(crate) const LOCK_CLIENTS_OF_ADDRESS_MAX: usize = 256;
/// Locks of all clients with one address.
pub(crate) const LOCKS_OF_ADDRESS_MAX: usize = 8192;
/// Locks of all clients: with the longest names of their owners some 100 MB.
pub(crate) const LOCKS_MAX: usize = 65_536;
/// How long a call for a lock is waited for.
pub(crate) const LOCK_DEADLINE: Duration = Duration::from_secs(10);
/// How long a call for a lock waits for another one of the same client.
pub(crate) const LOCKER_DEADLINE: Duration = Duration::from_secs(8);
/// How long it takes until what busy clients hold in exports that are gone is tried to be given back again.
pub(crate) const UNSERVED_PAUSE: Duration = Duration::from_secs(1);
/// Locks that all clients wait for.
pub(crate) const WAITING_LOCKS_MAX: usize = 4096;
/// Locks that the clients with one address wait for.
pub(crate) const WAITING_LOCKS_OF_ADDRESS_MAX: usize = 256;
/// How long a client is told nothing that begins to wait for a lock: a deadlock is known by then.
pub(crate) const FIRST_WAIT: Duration = Duration::from_millis(50);
/// How long a lock is waited for. Clients ask again sooner, and begin anew.
pub(crate) const WAITING_DEADLINE: Duration = Duration::from_secs(60 * 60);
/// How long it takes until a client is called that was given a lock, at first and each time that it does not answer.
pub(crate) const GRANT_PAUSES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(15),
];
/// Calls of clients at once, of each kind.
pub(crate) const CALLBACKS_MAX: usize = 64;
/// The same of one client.
pub(crate) const CALLBACKS_OF_CLIENT_MAX: usize = 4;
/// How long a call of a client may take, with the one that asks for its port.
pub(crate) const CALLBACK_DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of a client's answer.
pub(crate) const CALLBACK_REPLY_MAX: usize = 4096;
/// Clients that are to be told when the server was started again.
pub(crate) const MONITORED_MAX: usize = LOCK_CLIENTS_MAX;
/// How long a client is kept there that holds nothing.
pub(crate) const MONITORED_IDLE: Duration = Duration::from_secs(60);
/// How long it takes until a client is told of a start, at first and each time that it does not answer: a quarter of an
/// hour in all, as others do.
pub(crate) const NOTICE_PAUSES: [Duration; 20] = {
    let mut pauses = [Duration::from_secs(60); 20];
    let mut index = 0;
    while index < 6 {
        // None, and then 2 to 32 s.
        pauses[index] = Duration::from_secs(if index == 0 { 0 } else { 1 << index });
        index += 1;
    }
    pauses
};
/// How long a lock that is reclaimed is tried to be had: longer than locks of a session of a fileset outlive it.
pub(crate) const RECLAIM_DEADLINE: Duration = Duration::from_secs(40);
/// How long it takes until it is tried again.
pub(crate) const RECLAIM_PAUSE: Duration = Duration::from_millis(500);
/// How often what is idle is looked for.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
