//! The blocks in front of a member's content.

use super::{
    BLOCK, Kind, Member,
    header::{
        self, Block, Field, GID, GROUP, IS_EXTENDED, KIND, LINK, MAJOR, MINOR, MODE, MODIFIED,
        NAME, PREFIX, REAL_SIZE, SIZE, UID, USER,
    },
    pax, sparse,
};

/// How an archive is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// With records: everything is kept. POSIX.1-2001.
    Pax,
    /// As GNU tar by default: long names and holes, no attributes, whole seconds.
    Gnu,
    /// POSIX.1-1988: names up to 255 bytes, sizes up to 8 GiB.
    Ustar,
}

/// Bytes of the name of a user or a group that a header has room for, with the NUL that ends it.
const NAME_OF_OWNER_MAX: usize = 31;

/// The blocks that begin `member`. Fails in words if the format cannot hold it.
pub(crate) fn encode(member: &Member, format: Format) -> Result<Vec<u8>, &'static str> {
    match format {
        Format::Pax => Ok(encode_pax(member)),
        Format::Gnu => Ok(encode_gnu(member)),
        Format::Ustar => encode_ustar(member),
    }
}

/// Zeros that fill the last block of so many bytes.
pub(crate) fn padding(length: u64) -> usize {
    (length.next_multiple_of(BLOCK as u64) - length) as usize
}

fn encode_pax(member: &Member) -> Vec<u8> {
    let mut records = Vec::new();
    let map = member
        .data
        .as_ref()
        .map(|map| sparse::to_text(map, member.size));
    if map.is_some() {
        for (key, value) in [("major", "1".to_owned()), ("minor", "0".to_owned())] {
            pax::add(
                &mut records,
                format!("GNU.sparse.{key}").as_bytes(),
                value.as_bytes(),
            );
        }
        pax::add(&mut records, b"GNU.sparse.name", &member.name);
        let size = member.size.to_string();
        pax::add(&mut records, b"GNU.sparse.realsize", size.as_bytes());
    }
    let stored = stored(member) + map.as_ref().map_or(0, Vec::len) as u64;
    add_records(&mut records, member, stored);
    let mut block = plain_block(member, stored);
    put_name(&mut block, &member.name);
    header::sign(&mut block, false);
    header::seal(&mut block);
    let mut blocks = Vec::new();
    if !records.is_empty() {
        blocks.extend(extension(b'x', b"././@PaxHeader", &records, false));
    }
    blocks.extend_from_slice(&block);
    blocks.extend(map.unwrap_or_default());
    blocks
}

/// What the header has no place for.
fn add_records(records: &mut Vec<u8>, member: &Member, stored: u64) {
    let has_raw =
        std::str::from_utf8(&member.name).is_err() || std::str::from_utf8(&member.link).is_err();
    let is_long = split(&member.name).is_none();
    if has_raw && (is_long || member.link.len() > 100) {
        pax::add(records, b"hdrcharset", b"BINARY");
    }
    if is_long {
        pax::add(records, b"path", &member.name);
    }
    if member.link.len() > 100 {
        pax::add(records, b"linkpath", &member.link);
    }
    let numbers = [
        (UID, "uid", member.owner.0),
        (GID, "gid", member.owner.1),
        (SIZE, "size", stored),
    ];
    for (field, key, value) in numbers {
        if !field.fits(value.cast_signed()) {
            pax::add(records, key.as_bytes(), value.to_string().as_bytes());
        }
    }
    if member.modified.1 != 0 || !MODIFIED.fits(member.modified.0) {
        pax::add(
            records,
            b"mtime",
            pax::time_text(member.modified).as_bytes(),
        );
    }
    let (user, group) = &member.owner_names;
    for (key, name) in [(b"uname", user), (b"gname", group)] {
        if name.len() > NAME_OF_OWNER_MAX {
            pax::add(records, key, name);
        }
    }
    for (name, value) in &member.attributes {
        let key = [b"SCHILY.xattr.", &escaped(name)[..]].concat();
        pax::add(records, &key, value);
    }
}

/// A key must not hold `=`; GNU tar writes it as `%3D`.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in name {
        match byte {
            b'%' => escaped.extend(b"%25"),
            b'=' => escaped.extend(b"%3D"),
            other => escaped.push(*other),
        }
    }
    escaped
}

fn encode_gnu(member: &Member) -> Vec<u8> {
    let mut blocks = Vec::new();
    for (kind, text) in [(b'K', &member.link), (b'L', &member.name)] {
        if text.len() > 100 {
            let body = [text, &b"\0"[..]].concat();
            blocks.extend(extension(kind, b"././@LongLink", &body, true));
        }
    }
    let mut block = plain_block(member, stored(member));
    NAME.put(&mut block, &member.name);
    header::sign(&mut block, true);
    let mut rest = Vec::new();
    if let Some(map) = &member.data {
        block[KIND] = b'S';
        REAL_SIZE.put_number(&mut block, member.size.cast_signed());
        rest = sparse::with_end(map, member.size);
        put_map(&mut block, sparse::IN_HEADER, &mut rest);
        block[IS_EXTENDED] = u8::from(!rest.is_empty());
    }
    header::seal(&mut block);
    blocks.extend_from_slice(&block);
    while !rest.is_empty() {
        let mut block = [0; BLOCK];
        put_map(&mut block, sparse::IN_EXTENSION, &mut rest);
        block[sparse::EXTENSION_GOES_ON] = u8::from(!rest.is_empty());
        blocks.extend_from_slice(&block);
    }
    blocks
}

fn put_map(block: &mut Block, (begin, count): (usize, usize), rest: &mut sparse::Map) {
    let taken = rest.drain(..count.min(rest.len()));
    for (index, (offset, length)) in taken.enumerate() {
        let fields = Field::of_map(begin, index);
        fields.0.put_number(block, offset.cast_signed());
        fields.1.put_number(block, length.cast_signed());
    }
}

fn encode_ustar(member: &Member) -> Result<Vec<u8>, &'static str> {
    if split(&member.name).is_none() || member.link.len() > 100 {
        return Err("its name is too long for the format ustar; use --format=pax");
    }
    let is_small = SIZE.fits(stored(member).cast_signed());
    if !is_small
        || !UID.fits(member.owner.0.cast_signed())
        || !GID.fits(member.owner.1.cast_signed())
    {
        return Err("its size or owner is too large for the format ustar; use --format=pax");
    }
    let mut block = plain_block(member, stored(member));
    put_name(&mut block, &member.name);
    header::sign(&mut block, false);
    header::seal(&mut block);
    Ok(block.to_vec())
}

fn stored(member: &Member) -> u64 {
    match member.kind {
        Kind::File => member.stored(),
        _ => 0,
    }
}

/// Everything but names and what a format adds.
fn plain_block(member: &Member, stored: u64) -> Block {
    let mut block = [0; BLOCK];
    MODE.put_number(&mut block, i64::from(member.mode & 0o7777));
    for (field, value) in [(UID, member.owner.0), (GID, member.owner.1)] {
        field.put_number(&mut block, value.cast_signed());
    }
    SIZE.put_number(&mut block, stored.cast_signed());
    MODIFIED.put_number(&mut block, member.modified.0);
    block[KIND] = letter(member.kind);
    LINK.put(&mut block, &member.link);
    for (field, name) in [
        (USER, &member.owner_names.0),
        (GROUP, &member.owner_names.1),
    ] {
        // A part of a name may be the name of somebody else.
        if name.len() <= NAME_OF_OWNER_MAX {
            field.put(&mut block, name);
        }
    }
    MAJOR.put_number(&mut block, i64::from(member.device.0));
    MINOR.put_number(&mut block, i64::from(member.device.1));
    block
}

fn letter(kind: Kind) -> u8 {
    match kind {
        Kind::File => b'0',
        Kind::HardLink => b'1',
        Kind::Symlink => b'2',
        Kind::Character => b'3',
        Kind::Block => b'4',
        Kind::Directory => b'5',
        Kind::Fifo => b'6',
        Kind::Other(letter) => letter,
    }
}

/// Where a name is cut at a slash so that both parts have room; 0 if it need not be. None if it has no such place.
fn split(name: &[u8]) -> Option<usize> {
    if name.len() <= 100 {
        return Some(0);
    }
    let last = name.len().saturating_sub(2).min(155);
    (1..=last).rfind(|at| name[*at] == b'/' && name.len() - at - 1 <= 100)
}

fn put_name(block: &mut Block, name: &[u8]) {
    match split(name) {
        Some(at @ 1..) => {
            PREFIX.put(block, &name[..at]);
            NAME.put(block, &name[at + 1..]);
        }
        _ => NAME.put(block, name),
    }
}

fn extension(kind: u8, name: &[u8], body: &[u8], is_gnu: bool) -> Vec<u8> {
    let mut block = [0; BLOCK];
    NAME.put(&mut block, name);
    MODE.put_number(&mut block, 0o644);
    for field in [UID, GID, MODIFIED] {
        field.put_number(&mut block, 0);
    }
    SIZE.put_number(&mut block, body.len() as i64);
    block[KIND] = kind;
    header::sign(&mut block, is_gnu);
    header::seal(&mut block);
    let mut blocks = block.to_vec();
    blocks.extend_from_slice(body);
    blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
    blocks
}

#[cfg(test)]
mod tests {
    use super::{super::Reader, *};

    #[test]
    fn a_long_name_of_an_owner_is_whole_or_left_out_and_never_cut() {
        let long = vec![b'u'; 40];
        let mut member = Member::new(b"a".to_vec(), Kind::File);
        member.owner_names = (long.clone(), b"short".to_vec());
        for (format, expected) in [(Format::Pax, long), (Format::Gnu, Vec::new())] {
            let blocks = encode(&member, format).unwrap();
            let found = Reader::new(&blocks[..]).next_member().unwrap().unwrap();
            assert_eq!(found.owner_names, (expected, b"short".to_vec()));
        }
    }
}
