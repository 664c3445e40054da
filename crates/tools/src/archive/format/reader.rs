//! Reads an archive member by member.

use std::io::{self, Read};

use super::{
    BLOCK, EXTENSION_MAX, Kind, Member,
    header::{
        self, Block, GID, GROUP, IS_EXTENDED, KIND, LINK, MAJOR, MINOR, MODE, MODIFIED, NAME,
        PREFIX, REAL_SIZE, SIZE, UID, USER,
    },
    padding,
    pax::{self, Global, Record},
    sparse,
};

/// Why an archive, or a part of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It cannot be read at all.
    #[error("cannot read the archive: {0}")]
    Io(#[from] io::Error),
    /// It ends in the middle of something.
    #[error("the archive is cut off after {0} bytes")]
    Cut(u64),
    /// It ends where a member could begin, without the mark of its end.
    #[error("the archive has no end mark after {0} bytes; it may be cut off")]
    NoEnd(u64),
    /// Its content is not what its checksums, or a decompressor, say.
    #[error("the archive is damaged: {0}; what was extracted may be wrong")]
    Content(io::Error),
    /// It has all members, and not the checksum behind them.
    #[error(
        "the archive is damaged: the checksum at its end is cut off; what was extracted may be wrong"
    )]
    NoChecksum,
    /// There is no header where one should be; the next one is looked for.
    #[error("the archive is damaged at byte {0}; what lies before the next header is skipped")]
    Header(u64),
    /// Names or maps are no such.
    #[error("the archive is damaged at byte {0}: {1}")]
    Extension(u64, &'static str),
}

/// What stands in front of a header and is for it alone.
#[derive(Debug, Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Vec<Record>,
    /// Bytes of all of it.
    size: u64,
}

impl Extensions {
    /// Counts one of this size. Says whether it is held: not beyond the limit.
    fn have_room(&mut self, size: u64) -> bool {
        self.size = self.size.saturating_add(size);
        self.size <= EXTENSION_MAX
    }
}

/// An archive that is being read.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    at: u64,
    /// Bytes of the content of the member that were not read.
    left: u64,
    padding: u64,
    global: Global,
    is_lost: bool,
}

impl<R: Read> Reader<R> {
    /// Reads from `input`, which is at its beginning and not compressed.
    pub fn new(input: R) -> Self {
        Self {
            input,
            at: 0,
            left: 0,
            padding: 0,
            global: Global::default(),
            is_lost: false,
        }
    }

    /// The next member; none at the end. What was not read of the one before is passed over. After damage of a
    /// header or an extension it goes on with the next header.
    pub fn next_member(&mut self) -> Result<Option<Member>, Damage> {
        self.pass(self.left + self.padding)?;
        (self.left, self.padding) = (0, 0);
        let mut extensions = Extensions::default();
        loop {
            let Some(block) = self.next_header()? else {
                return Ok(None);
            };
            let size = self.number(SIZE.number(&block))?;
            match block[KIND] {
                b'x' | b'X' | b'L' | b'K' if !extensions.have_room(size) => {
                    self.pass(size + padding(size) as u64)?;
                }
                b'x' | b'X' => extensions.records.extend(self.records(size)?),
                b'g' => self.take_global(size)?,
                b'L' => extensions.name = Some(self.long_text(size)?),
                b'K' => extensions.link = Some(self.long_text(size)?),
                _ => {
                    let member = self.member(&block, size, &extensions)?;
                    self.check_extension(extensions.size)?;
                    return Ok(Some(member));
                }
            }
        }
    }

    /// Reads content of the member. Returns 0 at its end.
    pub fn read_content(&mut self, buffer: &mut [u8]) -> Result<usize, Damage> {
        let length = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let mut count = 0;
        while count < length {
            match self.input.read(&mut buffer[count..length]) {
                Ok(0) => return Err(Damage::Cut(self.at)),
                Ok(more) => {
                    count += more;
                    self.at += more as u64;
                    self.left -= more as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(cut_or(error, self.at)),
            }
        }
        Ok(count)
    }

    /// Reads what comes behind the members: for the checksums there, and for who writes into a pipe.
    pub fn drain(&mut self) -> Result<(), Damage> {
        match io::copy(&mut self.input, &mut io::sink()) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Damage::NoChecksum),
            Err(error) => Err(cut_or(error, self.at)),
        }
    }

    /// A block with a header; none at the end.
    fn next_header(&mut self) -> Result<Option<Block>, Damage> {
        loop {
            let Some(block) = self.block_if_any()? else {
                return Err(Damage::NoEnd(self.at));
            };
            if block == [0; BLOCK] {
                return Ok(None);
            }
            if header::is_valid(&block) {
                self.is_lost = false;
                return Ok(Some(block));
            }
            // Said once, and not for each block that is passed over.
            if !std::mem::replace(&mut self.is_lost, true) {
                return Err(Damage::Header(self.at - BLOCK as u64));
            }
        }
    }

    fn block_if_any(&mut self) -> Result<Option<Block>, Damage> {
        let mut block = [0; BLOCK];
        let mut count = 0;
        while count < BLOCK {
            match self.input.read(&mut block[count..]) {
                Ok(0) if count == 0 => return Ok(None),
                Ok(0) => return Err(Damage::Cut(self.at + count as u64)),
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(cut_or(error, self.at)),
            }
        }
        self.at += BLOCK as u64;
        Ok(Some(block))
    }

    fn block(&mut self) -> Result<Block, Damage> {
        self.block_if_any()?.ok_or(Damage::Cut(self.at))
    }

    fn pass(&mut self, mut length: u64) -> Result<(), Damage> {
        let mut buffer = [0; 64 << 10];
        self.left = length;
        while length > 0 {
            let count = self.read_content(&mut buffer)? as u64;
            length -= count;
        }
        Ok(())
    }

    fn damaged<T>(&self, what: &'static str) -> Result<T, Damage> {
        Err(Damage::Extension(self.at, what))
    }

    fn number(&self, number: Option<i64>) -> Result<u64, Damage> {
        match number.and_then(|number| u64::try_from(number).ok()) {
            Some(number) if number < 1 << 62 => Ok(number),
            _ => self.damaged("a size or an owner is no number"),
        }
    }

    fn check_extension(&self, size: u64) -> Result<(), Damage> {
        match size > EXTENSION_MAX {
            true => self.damaged("names and records of a member are longer than 4 MiB"),
            false => Ok(()),
        }
    }

    fn body(&mut self, size: u64) -> Result<Vec<u8>, Damage> {
        self.check_extension(size)?;
        let mut body = vec![0; size as usize];
        self.left = size;
        self.read_content(&mut body)?;
        self.pass(padding(size) as u64)?;
        Ok(body)
    }

    fn records(&mut self, size: u64) -> Result<Vec<Record>, Damage> {
        let body = self.body(size)?;
        match pax::parse(&body) {
            Some(records) => Ok(records),
            None => self.damaged("a record is not whole"),
        }
    }

    fn take_global(&mut self, size: u64) -> Result<(), Damage> {
        let records = self.records(size)?;
        match self.global.take(records, EXTENSION_MAX as usize) {
            true => Ok(()),
            false => self.damaged("records for all members are longer than 4 MiB"),
        }
    }

    fn long_text(&mut self, size: u64) -> Result<Vec<u8>, Damage> {
        let mut text = self.body(size)?;
        if let Some(end) = text.iter().position(|byte| *byte == 0) {
            text.truncate(end);
        }
        Ok(text)
    }

    fn member(
        &mut self,
        block: &Block,
        size: u64,
        extensions: &Extensions,
    ) -> Result<Member, Damage> {
        let mut facts = Facts {
            // Links that say how long they are have no content all the same.
            stored: if matches!(block[KIND], b'1' | b'2') {
                0
            } else {
                size
            },
            ..Facts::default()
        };
        // What is damaged is passed over.
        self.expect(facts.stored);
        let mut member = self.plain_member(block)?;
        if let Some(name) = &extensions.name {
            member.name.clone_from(name);
        }
        if let Some(link) = &extensions.link {
            member.link.clone_from(link);
        }
        let own = extensions.records.iter().map(|(key, value)| (key, value));
        for (key, value) in self.global.iter().chain(own) {
            if facts.take(&mut member, key, value).is_none() {
                return self.damaged("a record has a value that is none");
            }
        }
        if member.kind == Kind::File && member.name.ends_with(b"/") {
            member.kind = Kind::Directory;
        }
        self.expect(facts.stored);
        member.size = facts.stored;
        self.take_map(block, &mut member, facts)?;
        Ok(member)
    }

    /// So much content of a member follows.
    fn expect(&mut self, stored: u64) {
        (self.left, self.padding) = (stored, padding(stored) as u64);
    }

    fn plain_member(&self, block: &Block) -> Result<Member, Damage> {
        let kind = match block[KIND] {
            0 | b'0' | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::Character,
            b'4' => Kind::Block,
            b'5' | b'D' => Kind::Directory,
            b'6' => Kind::Fifo,
            other => Kind::Other(other),
        };
        let mut name = NAME.text(block).to_vec();
        if header::is_posix(block) && !PREFIX.text(block).is_empty() {
            name = [PREFIX.text(block), &b"/"[..], &name].concat();
        }
        let Some(seconds) = MODIFIED.number(block) else {
            return self.damaged("a time is no number");
        };
        let Some(mode) = MODE.number(block).and_then(|mode| u32::try_from(mode).ok()) else {
            return self.damaged("a mode is no number");
        };
        let device = |field: header::Field| {
            let number = field.number(block).unwrap_or_default();
            u32::try_from(number).unwrap_or_default()
        };
        Ok(Member {
            mode: mode & 0o7777,
            owner: (
                self.number(UID.number(block))?,
                self.number(GID.number(block))?,
            ),
            owner_names: (USER.text(block).to_vec(), GROUP.text(block).to_vec()),
            modified: (seconds, 0),
            link: LINK.text(block).to_vec(),
            device: (device(MAJOR), device(MINOR)),
            ..Member::new(name, kind)
        })
    }

    /// The map of a file with holes, in whichever way it was written.
    fn take_map(&mut self, block: &Block, member: &mut Member, facts: Facts) -> Result<(), Damage> {
        let mut real_size = facts.real_size;
        let mut map = facts.map;
        if block[KIND] == b'S' {
            real_size = Some(self.number(REAL_SIZE.number(block))?);
            map = Some(self.gnu_map(block)?);
        } else if facts.has_text_map {
            map = Some(self.text_map()?);
        }
        if let Some(name) = facts.name {
            member.name = name;
        }
        let (Some(mut map), Some(size)) = (map, real_size) else {
            return Ok(());
        };
        if sparse::check(&mut map, size, self.left).is_none() {
            return self.damaged("a map of holes is none");
        }
        member.size = size;
        member.data = Some(map);
        Ok(())
    }

    fn gnu_map(&mut self, block: &Block) -> Result<sparse::Map, Damage> {
        let mut map = sparse::Map::new();
        let mut is_whole = sparse::from_block(block, sparse::IN_HEADER, &mut map).is_some();
        let mut goes_on = block[IS_EXTENDED] != 0;
        while goes_on && is_whole {
            let block = self.block()?;
            is_whole = sparse::from_block(&block, sparse::IN_EXTENSION, &mut map).is_some();
            goes_on = block[sparse::EXTENSION_GOES_ON] != 0;
        }
        match is_whole {
            true => Ok(map),
            false => self.damaged("a map of holes is none"),
        }
    }

    /// The map in front of the data, which counts as data.
    fn text_map(&mut self) -> Result<sparse::Map, Damage> {
        let mut text = sparse::TextMap::default();
        loop {
            if self.left < BLOCK as u64 {
                return self.damaged("a map of holes is not whole");
            }
            let block = self.block()?;
            self.left -= BLOCK as u64;
            match text.take(&block) {
                Ok(Some(map)) => return Ok(map),
                Ok(None) => {}
                Err(()) => return self.damaged("a map of holes is none"),
            }
        }
    }
}

/// What records say that no member has a field for.
#[derive(Debug, Default)]
struct Facts {
    stored: u64,
    real_size: Option<u64>,
    map: Option<sparse::Map>,
    has_text_map: bool,
    /// The name of a file with holes; the header has another one.
    name: Option<Vec<u8>>,
}

impl Facts {
    /// Takes note of a record; none if its value is none.
    fn take(&mut self, member: &mut Member, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"path" => member.name = value.to_vec(),
            b"linkpath" => member.link = value.to_vec(),
            b"uid" => member.owner.0 = pax::number(value)?,
            b"gid" => member.owner.1 = pax::number(value)?,
            b"uname" => member.owner_names.0 = value.to_vec(),
            b"gname" => member.owner_names.1 = value.to_vec(),
            b"mtime" => member.modified = pax::time(value)?,
            b"size" => self.stored = pax::number(value).filter(|size| *size < 1 << 62)?,
            b"GNU.sparse.major" => self.has_text_map = value == b"1",
            b"GNU.sparse.name" => self.name = Some(value.to_vec()),
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => {
                self.real_size = Some(pax::number(value)?);
            }
            b"GNU.sparse.map" => self.map = Some(sparse::from_record(value)?),
            b"GNU.sparse.offset" => self
                .map
                .get_or_insert_default()
                .push((pax::number(value)?, 0)),
            b"GNU.sparse.numbytes" => self.map.as_mut()?.last_mut()?.1 = pax::number(value)?,
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    member.attributes.push((unescaped(name), value.to_vec()));
                }
            }
        }
        Some(())
    }
}

fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = name;
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match rest {
            [b'%', b'3', b'D', after @ ..] => (b'=', after),
            [b'%', b'2', b'5', after @ ..] => (b'%', after),
            _ => (*first, after),
        };
        plain.push(byte);
        rest = after;
    }
    plain
}

/// Decompressors say of what is cut off that it ended too early, and of what is damaged that it is no data.
fn cut_or(error: io::Error, at: u64) -> Damage {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Damage::Cut(at),
        io::ErrorKind::InvalidData => Damage::Content(error),
        _ => Damage::Io(error),
    }
}
