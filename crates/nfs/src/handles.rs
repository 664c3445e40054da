//! File handles: bytes that clients keep for as long as they like.
//!
//! ```text
//! 0      version and kind
//! 1..5   which export of which file system
//! 5..    which file: the volume's lasting number; or, of a volume that has none, this server's life, inode and
//!        generation; or nothing, for the root of such a volume
//! last 8 a code that only who has the key can make of all the rest
//! ```
//!
//! The same file has the same handle from every server that has the key, and after each restart, where the volume has
//! lasting numbers. Nobody else can make one, so that who may reach a part of an export cannot guess the rest.
//!
//! A file has another handle in each export of its file system: what a handle lets somebody do is decided by the rules
//! of the export that is in it, whichever other exports lead to the file.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use bytes::Bytes;
use penstock_vfs::{Inode, NodeId};
use ring::{digest, hmac, rand};
use smallvec::SmallVec;

use crate::protocol::nfs3::{HANDLE_MAX, Status};

/// Bytes of the code.
const CODE: usize = 8;
/// Bytes in front of what tells the file.
const HEADER: usize = 5;
/// Bytes of a key.
const KEY: usize = 32;
/// The first version, in the upper four bits.
const VERSION: u8 = 0x10;
const ROOT: u8 = 0;
const LASTING: u8 = 1;
const PASSING: u8 = 2;

const _: () = assert!(HEADER + NodeId::LENGTH_MAX + CODE <= HANDLE_MAX);

/// Which file a handle is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The root.
    Root,
    /// The file that the volume calls so for ever.
    Lasting(NodeId),
    /// A file as long as this server lives.
    Passing { inode: Inode, generation: u32 },
}

/// A handle as it is sent.
pub(crate) type Handle = SmallVec<[u8; HANDLE_MAX]>;

/// Which export handles are of: a file system under a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ExportId(pub(crate) u32);

impl ExportId {
    /// The number of what `file_system` tells from every other one, under the path with these components. That of the
    /// path `/` is the number of the file system itself.
    pub(crate) fn of<'a>(
        file_system: &str,
        components: impl IntoIterator<Item = &'a [u8]>,
    ) -> Self {
        let mut digest = digest::Context::new(&digest::SHA256);
        digest.update(file_system.as_bytes());
        for component in components {
            digest.update(b"\0");
            digest.update(component);
        }
        let digest = digest.finish();
        let first = digest.as_ref().first_chunk().expect("a digest is longer");
        Self(u32::from_be_bytes(*first))
    }

    /// The one that a handle says it is of, whoever made it.
    pub(crate) fn told(handle: &[u8]) -> Option<Self> {
        let id = handle.get(1..HEADER)?.first_chunk()?;
        Some(Self(u32::from_be_bytes(*id)))
    }
}

/// What makes handles and knows its own.
#[derive(Debug)]
pub(crate) struct Handles {
    key: hmac::Key,
    /// Tells the handles of this server's life from those of others.
    life: u64,
}

impl Handles {
    pub(crate) fn new(key: &HandleKey, life: u64) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key.0),
            life,
        }
    }

    /// The handle of a file in an export.
    pub(crate) fn encode(&self, export: ExportId, target: &Target) -> Handle {
        let mut handle = Handle::new();
        let kind = match target {
            Target::Root => ROOT,
            Target::Lasting(_) => LASTING,
            Target::Passing { .. } => PASSING,
        };
        handle.push(VERSION | kind);
        handle.extend_from_slice(&export.0.to_be_bytes());
        match target {
            Target::Root => {}
            Target::Lasting(id) => handle.extend_from_slice(id.as_bytes()),
            Target::Passing { inode, generation } => {
                handle.extend_from_slice(&self.life.to_be_bytes());
                handle.extend_from_slice(&inode.0.to_be_bytes());
                handle.extend_from_slice(&generation.to_be_bytes());
            }
        }
        let code = hmac::sign(&self.key, &handle);
        handle.extend_from_slice(&code.as_ref()[..CODE]);
        handle
    }

    /// The file of an export that a handle is of. Fails with `BAD_HANDLE` for bytes that no server with this key made,
    /// and with `STALE` for those of another export or an earlier life.
    pub(crate) fn decode(&self, export: ExportId, handle: &Bytes) -> Result<Target, Status> {
        let told = handle.len().checked_sub(CODE).ok_or(Status::BAD_HANDLE)?;
        let (told, code) = handle.split_at(told);
        let expected = hmac::sign(&self.key, told);
        let is_ours = is_same(&expected.as_ref()[..CODE], code);
        let (header, file) = told.split_at_checked(HEADER).ok_or(Status::BAD_HANDLE)?;
        if !is_ours || header[0] & 0xf0 != VERSION {
            return Err(Status::BAD_HANDLE);
        }
        if header[1..] != export.0.to_be_bytes() {
            return Err(Status::STALE);
        }
        match header[0] & 0x0f {
            ROOT if file.is_empty() => Ok(Target::Root),
            LASTING => NodeId::new(file)
                .map(Target::Lasting)
                .ok_or(Status::BAD_HANDLE),
            PASSING => self.passing(file),
            _ => Err(Status::BAD_HANDLE),
        }
    }

    fn passing(&self, file: &[u8]) -> Result<Target, Status> {
        let (life, file) = file.split_first_chunk().ok_or(Status::BAD_HANDLE)?;
        let (inode, generation) = file.split_first_chunk().ok_or(Status::BAD_HANDLE)?;
        let generation = generation.try_into().map_err(|_| Status::BAD_HANDLE)?;
        if u64::from_be_bytes(*life) != self.life {
            return Err(Status::STALE);
        }
        Ok(Target::Passing {
            inode: Inode(u64::from_be_bytes(*inode)),
            generation: u32::from_be_bytes(generation),
        })
    }
}

/// Compares without telling by the time it takes how much is the same.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).map(|(one, other)| one ^ other);
    one.len() == other.len() && differences.fold(0, |all, byte| all | byte) == 0
}

/// The key that handles are made with.
pub struct HandleKey([u8; KEY]);

impl std::fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandleKey(***)")
    }
}

impl HandleKey {
    /// A new one.
    pub fn random() -> io::Result<Self> {
        let random = rand::generate(&rand::SystemRandom::new());
        let random = random.map_err(|_| io::Error::other("the system has no chance to give"))?;
        Ok(Self(random.expose()))
    }

    /// The one in a file, which is made with a new one, for its owner alone, if it is not there. Fails if what is in it
    /// is no key.
    pub fn kept_in(path: &Path) -> io::Result<Self> {
        loop {
            match fs::read(path) {
                Ok(bytes) => {
                    let wrong = |_| io::Error::new(io::ErrorKind::InvalidData, "it holds no key");
                    return Ok(Self(bytes.try_into().map_err(wrong)?));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            match Self::random()?.write_new(path) {
                // Another server was faster: its key counts.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
    }

    /// Makes the file whole or not at all.
    fn write_new(&self, path: &Path) -> io::Result<()> {
        let begun = path.with_extension(format!("{}.new", penstock_base::random::token()));
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&begun)?;
        let written = file.write_all(&self.0).and_then(|()| file.sync_all());
        let linked = written.and_then(|()| fs::hard_link(&begun, path));
        fs::remove_file(&begun)?;
        linked?;
        match path.parent() {
            Some(directory) => fs::File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORT: ExportId = ExportId(2);

    fn handles(key: u8, life: u64) -> Handles {
        Handles::new(&HandleKey([key; KEY]), life)
    }

    fn targets() -> [Target; 3] {
        [
            Target::Root,
            Target::Lasting(NodeId::new(&[7; 48]).expect("it fits")),
            Target::Passing {
                inode: Inode(5),
                generation: 6,
            },
        ]
    }

    #[test]
    fn a_handle_leads_back_to_its_file() {
        let handles = handles(1, 3);
        for target in targets() {
            let handle = handles.encode(EXPORT, &target);
            assert!(handle.len() <= HANDLE_MAX);
            let handle = Bytes::copy_from_slice(&handle);
            assert_eq!(handles.decode(EXPORT, &handle), Ok(target));
        }
    }

    #[test]
    fn handles_are_the_same_bytes_from_every_server_with_the_key() {
        let lasting = &targets()[1];
        assert_eq!(
            handles(1, 3).encode(EXPORT, lasting),
            handles(1, 9).encode(EXPORT, lasting)
        );
    }

    #[test]
    fn forged_foreign_and_old_handles_lead_nowhere() {
        let ours = handles(1, 3);
        for target in targets() {
            let decode = |handle: &[u8]| ours.decode(EXPORT, &Bytes::copy_from_slice(handle));
            let handle = ours.encode(EXPORT, &target);
            for index in 0..handle.len() {
                let mut forged = handle.clone();
                forged[index] ^= 1;
                assert_eq!(decode(&forged), Err(Status::BAD_HANDLE), "byte {index}");
                assert_eq!(decode(&handle[..index]), Err(Status::BAD_HANDLE));
            }
            let of_another_key = handles(9, 3).encode(EXPORT, &target);
            assert_eq!(decode(&of_another_key), Err(Status::BAD_HANDLE));
            let of_another_export = ours.encode(ExportId(9), &target);
            assert_eq!(decode(&of_another_export), Err(Status::STALE));
        }
        let passing = handles(1, 9).encode(EXPORT, &targets()[2]);
        let passing = Bytes::copy_from_slice(&passing);
        assert_eq!(ours.decode(EXPORT, &passing), Err(Status::STALE));
    }

    #[test]
    fn an_export_has_a_number_of_its_own_and_that_of_the_root_is_that_of_the_file_system() {
        let of = |components: &[&'static [u8]]| ExportId::of("system", components.iter().copied());
        let digest = digest::digest(&digest::SHA256, b"system");
        assert_eq!(of(&[]).0.to_be_bytes(), digest.as_ref()[..4]);
        let paths: [&[&[u8]]; 4] = [&[], &[b"a"], &[b"a", b"b"], &[b"ab"]];
        let numbers = paths.map(of);
        for (index, number) in numbers.iter().enumerate() {
            assert!(!numbers[..index].contains(number), "{:?}", paths[index]);
            let handle = handles(1, 3).encode(*number, &Target::Root);
            assert_eq!(ExportId::told(&handle), Some(*number));
        }
        assert_eq!(ExportId::told(b"1234"), None);
    }

    #[test]
    fn a_key_is_made_once_and_kept_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("key");
        let made = HandleKey::kept_in(&path).expect("made");
        let again = HandleKey::kept_in(&path).expect("read");
        assert_eq!(made.0, again.0);
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).expect("readable").count(), 1);
        fs::write(&path, b"short").expect("written");
        HandleKey::kept_in(&path).expect_err("no key");
        assert_eq!(format!("{made:?}"), "HandleKey(***)");
    }
}
