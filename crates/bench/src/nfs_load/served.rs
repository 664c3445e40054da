//! What a server has: where its programs are, the root of its export, and the directories and files that operations are
//! about. They are made where they are missing, and stay.

use std::net::SocketAddr;

use nfs3_types::{
    mount::{self, MOUNT_PROGRAM, dirpath, mountres3},
    nfs3::{
        self, CREATE3args, CREATE3res, GETATTR3args, GETATTR3res, LOOKUP3args, LOOKUP3res,
        MKDIR3args, MKDIR3res, NFS_PROGRAM, Nfs3Option, Nfs3Result, createhow3, diropargs3,
        nfs_fh3, nfsstat3, sattr3,
    },
    portmap::{self, PMAP_PROG},
    xdr_codec::Opaque,
};
use penstock_base::random;

use super::{
    Amount, NfsLoad, Server, WORD,
    connection::{Connection, MOUNT, NFS, PORT_MAPPER, Program, unexpected},
    resolve,
    work::{Attributes, Creates, Names, Reads, Work, Writes},
    worker::Worker,
};
use crate::{BenchError, BenchResult};

/// Everything that is made is below this directory of the export.
const PLACE: &str = "nfs-load";
/// The port of NFS.
const NFS_PORT: u16 = 2049;
/// Files whose attributes and names are asked for.
const SMALL_FILES: u32 = 256;
/// Bytes of a WRITE that fills a file, at most.
const FILL: u64 = 1 << 20;
/// How many are under way.
const FILL_DEPTH: usize = 8;
/// The modes of what is made.
const DIRECTORY_MODE: u32 = 0o755;
pub(super) const FILE_MODE: u32 = 0o644;

/// An export, and a connection for what must be there before anything is measured.
pub(super) struct Served {
    /// Where NFS is.
    pub(super) nfs: SocketAddr,
    connection: Connection,
    /// Below which everything lies.
    place: nfs_fh3,
    /// A word that no other run has.
    run: String,
    small: Option<(nfs_fh3, Vec<nfs_fh3>)>,
}

impl Served {
    /// Asks for the ports if that is wanted, mounts the export and makes the directory in it.
    pub(super) fn find(server: &Server) -> BenchResult<Self> {
        let (nfs, mount) = match server.asks_port_mapper {
            true => ask_port_mapper(resolve(&server.address, portmap::PMAP_PORT)?)?,
            false => {
                let nfs = resolve(&server.address, NFS_PORT)?;
                let mut mount = nfs;
                mount.set_port(server.mount_port.unwrap_or(nfs.port()));
                (nfs, mount)
            }
        };
        let root = mount_root(mount, &server.export)?;
        let mut served = Self {
            nfs,
            connection: Connection::open(nfs, NFS, 0)?,
            place: root.clone(),
            run: random::token(),
            small: None,
        };
        served.place = served.directory(&root, PLACE)?;
        Ok(served)
    }

    /// READs of one file, which all connections share: this one begins after `share` of it.
    pub(super) fn reads(&mut self, load: &NfsLoad, share: f64) -> BenchResult<Box<dyn Work>> {
        let sizes = (load.file_size, load.size);
        let file = self.filled(&format!("read-{}", load.file_size), load.file_size)?;
        let order = (share, load.reads_in_order);
        Ok(Box::new(Reads::new(file, sizes, order)))
    }

    /// WRITEs to a file of the connection's own.
    pub(super) fn writes(
        &mut self,
        file_size: u64,
        size: u64,
        number: u64,
    ) -> BenchResult<Box<dyn Work>> {
        let file = self.file(&self.place.clone(), &format!("write-{number}"))?;
        Ok(Box::new(Writes::new(file, file_size, size)))
    }

    pub(super) fn looks_at_attributes(&mut self) -> BenchResult<Box<dyn Work>> {
        let (_, files) = self.small_files()?;
        Ok(Box::new(Attributes::new(files)))
    }

    pub(super) fn looks_at_names(&mut self) -> BenchResult<Box<dyn Work>> {
        let (directory, files) = self.small_files()?;
        let names = (0..SMALL_FILES).map(small_name).collect();
        Ok(Box::new(Names::new(directory, names, files)))
    }

    /// New files in a directory of the connection's own.
    pub(super) fn creates(&mut self, size: u64, number: u64) -> BenchResult<Box<dyn Work>> {
        let name = format!("create-{}-{number}", self.run);
        let directory = self.directory(&self.place.clone(), &name)?;
        Ok(Box::new(Creates::new(directory, size)))
    }

    fn small_files(&mut self) -> BenchResult<(nfs_fh3, Vec<nfs_fh3>)> {
        if self.small.is_none() {
            let directory = self.directory(&self.place.clone(), "small")?;
            let files = (0..SMALL_FILES).map(|number| self.file(&directory, &small_name(number)));
            let files = files.collect::<BenchResult<_>>()?;
            self.small = Some((directory, files));
        }
        Ok(self.small.clone().expect("just made"))
    }

    /// A file of this size in which each word is its offset.
    fn filled(&mut self, name: &str, size: u64) -> BenchResult<nfs_fh3> {
        let file = self.file(&self.place.clone(), name)?;
        if self.size(&file)? != size {
            // Whole words that divide the file, so that the last WRITE ends where it does.
            let mut all = (1..=FILL / WORD).rev().map(|words| words * WORD);
            let each = all.find(|each| size.is_multiple_of(*each));
            let each = each.expect("a file is whole words");
            let room = usize::try_from(each).expect("a mebibyte at most");
            let connection = Connection::open(self.nfs, NFS, room)?;
            let fill = Box::new(Writes::new(file.clone(), size, each));
            let fill = Worker::new(connection, fill, FILL_DEPTH);
            fill.run(Amount::Operations(size / each), &false.into())?;
        }
        Ok(file)
    }

    fn size(&mut self, file: &nfs_fh3) -> BenchResult<u64> {
        let asked = GETATTR3args {
            object: file.clone(),
        };
        let found: GETATTR3res = self
            .connection
            .ask(NFS_PROGRAM::NFSPROC3_GETATTR as u32, &asked)?;
        Ok(ok(found, "GETATTR")?.obj_attributes.size)
    }

    fn directory(&mut self, parent: &nfs_fh3, name: &str) -> BenchResult<nfs_fh3> {
        let asked = MKDIR3args {
            where_: place(parent, name),
            attributes: with_mode(DIRECTORY_MODE),
        };
        let made: MKDIR3res = self
            .connection
            .ask(NFS_PROGRAM::NFSPROC3_MKDIR as u32, &asked)?;
        match made {
            Nfs3Result::Err((nfsstat3::NFS3ERR_EXIST, _)) => {}
            made => drop(ok(made, &format!("MKDIR of {name}"))?),
        }
        self.look_up(parent, name)
    }

    fn file(&mut self, parent: &nfs_fh3, name: &str) -> BenchResult<nfs_fh3> {
        let asked = CREATE3args {
            where_: place(parent, name),
            how: createhow3::UNCHECKED(with_mode(FILE_MODE)),
        };
        let made: CREATE3res = self
            .connection
            .ask(NFS_PROGRAM::NFSPROC3_CREATE as u32, &asked)?;
        ok(made, &format!("CREATE of {name}"))?;
        self.look_up(parent, name)
    }

    fn look_up(&mut self, parent: &nfs_fh3, name: &str) -> BenchResult<nfs_fh3> {
        let asked = LOOKUP3args {
            what: place(parent, name),
        };
        let found: LOOKUP3res = self
            .connection
            .ask(NFS_PROGRAM::NFSPROC3_LOOKUP as u32, &asked)?;
        Ok(ok(found, &format!("LOOKUP of {name}"))?.object)
    }
}

fn small_name(number: u32) -> String {
    format!("{number:08}")
}

fn ask_port_mapper(address: SocketAddr) -> BenchResult<(SocketAddr, SocketAddr)> {
    let mut connection = Connection::open(address, PORT_MAPPER, 0)?;
    let mut port_of = |program: Program| {
        let asked = portmap::mapping {
            prog: program.number,
            vers: program.version,
            prot: portmap::IPPROTO_TCP,
            port: 0,
        };
        let port: u32 = connection.ask(PMAP_PROG::PMAPPROC_GETPORT as u32, &asked)?;
        match u16::try_from(port) {
            Ok(port) if port > 0 => Ok(SocketAddr::new(address.ip(), port)),
            _ => {
                let name = program.name;
                let cause = format!("the port mapper at {address} knows no port of {name}");
                Err(BenchError::new(cause, "give the ports without --portmap"))
            }
        }
    };
    Ok((port_of(NFS)?, port_of(MOUNT)?))
}

fn mount_root(address: SocketAddr, export: &str) -> BenchResult<nfs_fh3> {
    let mut connection = Connection::open(address, MOUNT, 0)?;
    let path = dirpath(Opaque::borrowed(export.as_bytes()));
    let mounted: mountres3<'static> =
        connection.ask(MOUNT_PROGRAM::MOUNTPROC3_MNT as u32, &path)?;
    match mounted {
        mountres3::Ok(mount::mountres3_ok { fhandle, .. }) => Ok(nfs_fh3 { data: fhandle.0 }),
        mountres3::Err(status) => {
            let cause = format!("the server does not let {export} be mounted: {status}");
            let remedy = "see `showmount -e`, and which clients the export is for";
            Err(BenchError::new(cause, remedy))
        }
    }
}

/// A name in a directory.
pub(super) fn place<'a>(directory: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 {
        dir: directory.clone(),
        name: nfs3::filename3(Opaque::borrowed(name.as_bytes())),
    }
}

/// The attributes of what is made.
pub(super) fn with_mode(mode: u32) -> sattr3 {
    sattr3 {
        mode: Nfs3Option::Some(mode),
        ..sattr3::default()
    }
}

/// What a procedure returned, if it did what was asked.
pub(super) fn ok<T, E>(result: Nfs3Result<T, E>, what: &str) -> BenchResult<T> {
    match result {
        Nfs3Result::Ok(result) => Ok(result),
        Nfs3Result::Err((status, _)) => Err(failed(what, status)),
    }
}

/// A procedure that failed.
pub(super) fn failed(what: &str, status: nfsstat3) -> BenchError {
    let remedy = match status {
        nfsstat3::NFS3ERR_ACCES | nfsstat3::NFS3ERR_PERM | nfsstat3::NFS3ERR_ROFS => {
            "export it writable, and for root with squash none"
        }
        nfsstat3::NFS3ERR_NOSPC | nfsstat3::NFS3ERR_DQUOT => {
            "make room in the export, or give a smaller --file-size"
        }
        _ => "look what the server logs",
    };
    BenchError::new(format!("{what} failed with {status}"), remedy)
}

/// The handle that a server may leave out, and no server does.
pub(super) fn handle(found: Nfs3Option<nfs_fh3>) -> BenchResult<nfs_fh3> {
    match found {
        Nfs3Option::Some(handle) => Ok(handle),
        Nfs3Option::None => Err(unexpected("a new file without a handle")),
    }
}
