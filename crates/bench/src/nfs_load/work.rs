//! The operations: which calls each takes, one after the other, and what must be in the answers.

use nfs3_types::{
    nfs3::{
        COMMIT3res, CREATE3args, CREATE3res, GETATTR3res, LOOKUP3args, LOOKUP3res, NFS_PROGRAM,
        WRITE3res, createhow3, ftype3, nfs_fh3, nfsstat3, post_op_attr, stable_how, writeverf3,
    },
    xdr_codec::Pack,
};

use super::{
    WORD,
    connection::{Calls, unexpected, unpacked},
    served::{FILE_MODE, failed, handle, ok, place, with_mode},
};
use crate::{BenchError, BenchResult};

/// Bytes that are written between two COMMITs of a connection.
const COMMIT_EVERY: u64 = 64 << 20;
/// What the places of scattered READs are apart, in blocks: a prime, so that all blocks of a file have their
/// turn unless their number is a multiple of it.
const STRIDE: u64 = 1_000_003;

/// What an operation waits for.
#[derive(Debug)]
pub(super) enum Stage {
    /// The bytes from this offset on.
    Bytes(u64),
    Written,
    Committed,
    /// The attributes or the name of the file with this number.
    Found(usize),
    Created,
    /// The content of a new file.
    Filled(nfs_fh3),
}

/// Operations of one kind.
pub(super) trait Work: Send {
    /// Makes the first call of another operation.
    fn begin(&mut self, calls: &mut Calls, number: u32) -> BenchResult<Stage>;

    /// Looks at what the call of `stage` returned, and makes the next call with `number`; none where the operation is done.
    fn answered(
        &mut self,
        stage: Stage,
        results: &[u8],
        next: (&mut Calls, u32),
    ) -> BenchResult<Option<Stage>>;

    /// Makes the call that ends all, if there must be one.
    fn finish(&mut self, _: &mut Calls, _: u32) -> BenchResult<Option<Stage>> {
        Ok(None)
    }

    /// Bytes that an operation moves.
    fn bytes(&self) -> u64 {
        0
    }
}

/// READs of a file in which each word is its offset.
pub(super) struct Reads {
    file: nfs_fh3,
    size: u64,
    blocks: u64,
    /// What is read next, and how far it is from that to the one behind it, in blocks.
    next: u64,
    stride: u64,
}

impl Reads {
    /// Those of a connection that begins after `share` of the file, in order or scattered.
    pub(super) fn new(
        file: nfs_fh3,
        (file_size, size): (u64, u64),
        (share, is_in_order): (f64, bool),
    ) -> Self {
        let blocks = file_size / size;
        Self {
            file,
            size,
            blocks,
            next: (blocks as f64 * share) as u64 % blocks,
            stride: if is_in_order { 1 } else { STRIDE },
        }
    }

    /// Looks at the first and the last word.
    fn check(&self, offset: u64, mut results: &[u8]) -> BenchResult<()> {
        let results = &mut results;
        let status: nfsstat3 = unpacked(results)?;
        if status != nfsstat3::NFS3_OK {
            return Err(failed("READ", status));
        }
        let _: post_op_attr = unpacked(results)?;
        let _count: u32 = unpacked(results)?;
        let _is_end: bool = unpacked(results)?;
        let length: u32 = unpacked(results)?;
        if u64::from(length) != self.size || (results.len() as u64) < self.size {
            let cause = format!("READ returned {length} of {} bytes at {offset}", self.size);
            return Err(BenchError::new(cause, "give a smaller --size"));
        }
        let data = &results[..length as usize];
        let word = |at: usize| u64::from_be_bytes(*data[at..].first_chunk().expect("words"));
        let last = data.len() - WORD as usize;
        match word(0) == offset && word(last) == offset + last as u64 {
            true => Ok(()),
            false => {
                let cause = format!("READ returned other bytes than were written at {offset}");
                let remedy = "remove nfs-load from the export if something else has written there";
                Err(BenchError::new(cause, remedy))
            }
        }
    }
}

impl Work for Reads {
    fn begin(&mut self, calls: &mut Calls, number: u32) -> BenchResult<Stage> {
        let offset = self.next * self.size;
        self.next = (self.next + self.stride) % self.blocks;
        let (file, size) = (&self.file, self.size as u32);
        calls.call(number, NFS_PROGRAM::NFSPROC3_READ as u32, |out| {
            Ok(file.pack(out)? + offset.pack(out)? + size.pack(out)?)
        })?;
        Ok(Stage::Bytes(offset))
    }

    fn answered(
        &mut self,
        stage: Stage,
        results: &[u8],
        _: (&mut Calls, u32),
    ) -> BenchResult<Option<Stage>> {
        let Stage::Bytes(offset) = stage else {
            return Err(out_of_turn());
        };
        self.check(offset, results)?;
        Ok(None)
    }

    fn bytes(&self) -> u64 {
        self.size
    }
}

/// WRITEs to a file from its begin to its end, and again.
pub(super) struct Writes {
    file: nfs_fh3,
    file_size: u64,
    size: u64,
    next: u64,
    uncommitted: u64,
    promise: Promise,
}

impl Writes {
    pub(super) fn new(file: nfs_fh3, file_size: u64, size: u64) -> Self {
        Self {
            file,
            file_size,
            size,
            next: 0,
            uncommitted: 0,
            promise: Promise::default(),
        }
    }
}

impl Work for Writes {
    fn begin(&mut self, calls: &mut Calls, number: u32) -> BenchResult<Stage> {
        let offset = self.next;
        self.next = (offset + self.size) % self.file_size;
        write(calls, number, &self.file, (offset, self.size))?;
        Ok(Stage::Written)
    }

    fn answered(
        &mut self,
        stage: Stage,
        mut results: &[u8],
        (calls, number): (&mut Calls, u32),
    ) -> BenchResult<Option<Stage>> {
        if matches!(stage, Stage::Committed) {
            self.promise.kept(&mut results)?;
            return Ok(None);
        }
        self.promise.written(&mut results, self.size)?;
        self.uncommitted += self.size;
        match self.uncommitted >= COMMIT_EVERY {
            true => self.finish(calls, number),
            false => Ok(None),
        }
    }

    fn finish(&mut self, calls: &mut Calls, number: u32) -> BenchResult<Option<Stage>> {
        if std::mem::take(&mut self.uncommitted) == 0 {
            return Ok(None);
        }
        commit(calls, number, &self.file)?;
        Ok(Some(Stage::Committed))
    }

    fn bytes(&self) -> u64 {
        self.size
    }
}

/// GETATTR of files in turn.
pub(super) struct Attributes {
    files: Vec<nfs_fh3>,
    next: usize,
}

impl Attributes {
    pub(super) fn new(files: Vec<nfs_fh3>) -> Self {
        Self { files, next: 0 }
    }
}

impl Work for Attributes {
    fn begin(&mut self, calls: &mut Calls, number: u32) -> BenchResult<Stage> {
        let index = self.next;
        self.next = (index + 1) % self.files.len();
        let file = &self.files[index];
        calls.call(number, NFS_PROGRAM::NFSPROC3_GETATTR as u32, |out| {
            file.pack(out)
        })?;
        Ok(Stage::Found(index))
    }

    fn answered(
        &mut self,
        _: Stage,
        mut results: &[u8],
        _: (&mut Calls, u32),
    ) -> BenchResult<Option<Stage>> {
        let found: GETATTR3res = unpacked(&mut results)?;
        match ok(found, "GETATTR")?.obj_attributes.type_ {
            ftype3::NF3REG => Ok(None),
            _ => Err(unexpected("a file that is none")),
        }
    }
}

/// LOOKUP of names in turn.
pub(super) struct Names {
    directory: nfs_fh3,
    names: Vec<String>,
    files: Vec<nfs_fh3>,
    next: usize,
}

impl Names {
    /// Those of `files`, which have these names.
    pub(super) fn new(directory: nfs_fh3, names: Vec<String>, files: Vec<nfs_fh3>) -> Self {
        Self {
            directory,
            names,
            files,
            next: 0,
        }
    }
}

impl Work for Names {
    fn begin(&mut self, calls: &mut Calls, number: u32) -> BenchResult<Stage> {
        let index = self.next;
        self.next = (index + 1) % self.names.len();
        let what = place(&self.directory, &self.names[index]);
        calls.call(number, NFS_PROGRAM::NFSPROC3_LOOKUP as u32, |out| {
            LOOKUP3args { what }.pack(out)
        })?;
        Ok(Stage::Found(index))
    }

    fn answered(
        &mut self,
        stage: Stage,
        mut results: &[u8],
        _: (&mut Calls, u32),
    ) -> BenchResult<Option<Stage>> {
        let Stage::Found(index) = stage else {
            return Err(out_of_turn());
        };
        let found: LOOKUP3res = unpacked(&mut results)?;
        match ok(found, "LOOKUP")?.object == self.files[index] {
            true => Ok(None),
            false => Err(unexpected("another handle than before")),
        }
    }
}

/// CREATE of files in an empty directory, with their content.
pub(super) struct Creates {
    directory: nfs_fh3,
    size: u64,
    made: u64,
    promise: Promise,
}

impl Creates {
    pub(super) fn new(directory: nfs_fh3, size: u64) -> Self {
        Self {
            directory,
            size,
            made: 0,
            promise: Promise::default(),
        }
    }
}

impl Work for Creates {
    fn begin(&mut self, calls: &mut Calls, number: u32) -> BenchResult<Stage> {
        let name = format!("{:08}", self.made);
        self.made += 1;
        let asked = CREATE3args {
            where_: place(&self.directory, &name),
            how: createhow3::GUARDED(with_mode(FILE_MODE)),
        };
        calls.call(number, NFS_PROGRAM::NFSPROC3_CREATE as u32, |out| {
            asked.pack(out)
        })?;
        Ok(Stage::Created)
    }

    fn answered(
        &mut self,
        stage: Stage,
        mut results: &[u8],
        (calls, number): (&mut Calls, u32),
    ) -> BenchResult<Option<Stage>> {
        match stage {
            Stage::Created => {
                let made: CREATE3res = unpacked(&mut results)?;
                let file = handle(ok(made, "CREATE")?.obj)?;
                if self.size == 0 {
                    return Ok(None);
                }
                write(calls, number, &file, (0, self.size))?;
                Ok(Some(Stage::Filled(file)))
            }
            Stage::Filled(file) => {
                self.promise.written(&mut results, self.size)?;
                commit(calls, number, &file)?;
                Ok(Some(Stage::Committed))
            }
            Stage::Committed => self.promise.kept(&mut results).map(|()| None),
            _ => Err(out_of_turn()),
        }
    }

    fn bytes(&self) -> u64 {
        self.size
    }
}

/// The verifier of what was written, which must be the same until it is committed.
#[derive(Default)]
struct Promise(Option<writeverf3>);

impl Promise {
    fn written(&mut self, results: &mut &[u8], size: u64) -> BenchResult<()> {
        let written: WRITE3res = unpacked(results)?;
        let written = ok(written, "WRITE")?;
        if u64::from(written.count) != size {
            let cause = format!("WRITE took {} of {size} bytes", written.count);
            return Err(BenchError::new(cause, "give a smaller --size"));
        }
        self.is_the_same(written.verf)
    }

    fn kept(&mut self, results: &mut &[u8]) -> BenchResult<()> {
        let committed: COMMIT3res = unpacked(results)?;
        self.is_the_same(ok(committed, "COMMIT")?.verf)
    }

    fn is_the_same(&mut self, verifier: writeverf3) -> BenchResult<()> {
        match *self.0.get_or_insert(verifier) == verifier {
            true => Ok(()),
            false => {
                let cause = "the server has lost what was written: its verifier is another one";
                let remedy = "look whether it was started again, and run this once more";
                Err(BenchError::new(cause, remedy))
            }
        }
    }
}

/// WRITEs `size` bytes at `offset`, each word of which is its offset.
fn write(
    calls: &mut Calls,
    number: u32,
    file: &nfs_fh3,
    (offset, size): (u64, u64),
) -> BenchResult<()> {
    let length = size as u32;
    calls.call(number, NFS_PROGRAM::NFSPROC3_WRITE as u32, |out| {
        let mut packed = file.pack(out)? + offset.pack(out)? + length.pack(out)?;
        packed += stable_how::UNSTABLE.pack(out)? + length.pack(out)?;
        let begin = out.len();
        out.resize(begin + length as usize, 0);
        let words = out[begin..].as_chunks_mut::<{ WORD as usize }>().0;
        for (word, at) in words.iter_mut().zip((offset..).step_by(WORD as usize)) {
            *word = at.to_be_bytes();
        }
        Ok(packed + length as usize)
    })
}

/// COMMITs all of a file.
fn commit(calls: &mut Calls, number: u32, file: &nfs_fh3) -> BenchResult<()> {
    calls.call(number, NFS_PROGRAM::NFSPROC3_COMMIT as u32, |out| {
        Ok(file.pack(out)? + 0_u64.pack(out)? + 0_u32.pack(out)?)
    })
}

fn out_of_turn() -> BenchError {
    unexpected("an answer to another operation")
}
