//! What a journal that was found says.
//!
//! A journal is read twice, record by record, however long it is: once to see how much of it is
//! whole and how much is certain, and once to do its changes again. A kill may leave the last record
//! unfinished; what that told of was not answered. Anything else that is not whole is damage, and
//! a journal in doubt is never acted upon: its file is put aside.

use std::{
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use penstock_object::Description;

use crate::staging::{
    content::Content,
    extents::Extents,
    folder::{FileId, Folder},
    journal::codec::{Header, RECORD_MAX, Record, Records},
};

/// Bytes after the first record that is not whole in which others are looked for: more than two of
/// the longest.
const LOOKED_THROUGH: u64 = 4 * RECORD_MAX as u64;
/// Bytes in the longest of the records that are looked for there: those of changes.
const SHORT: u32 = 64;

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) header: Header,
    pub(crate) content: Content,
    /// How the object is to be described, where that is known.
    pub(crate) description: Option<Description>,
    /// The unsaved file whose name it took.
    pub(crate) replaces: Option<FileId>,
    /// Bytes of whole records.
    pub(crate) length: u64,
    /// How many of these need not be forced to the disk any more.
    pub(crate) synced: u64,
    /// It was written before another start of the system, and may have more than is believed of it.
    pub(crate) is_doubted: bool,
}

/// Why a journal is not believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// Which object it is about, as far as it tells.
    pub(crate) key: Option<String>,
    pub(crate) reason: String,
}

/// What a journal consists of.
struct Outline {
    header: Option<Header>,
    /// Where the header ends.
    begun: u64,
    /// Where the last whole record ends.
    end: u64,
    /// What the last note says that is on the disk.
    synced: Option<u64>,
    tail: Tail,
}

/// How much of a journal is believed.
#[derive(Debug, Clone, Copy)]
struct Believed {
    /// The records up to here.
    up_to: u64,
    /// Of all that is there, how much need not be forced to the disk any more.
    synced: u64,
    /// What follows is not.
    is_doubted: bool,
}

/// What follows the last whole record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    Nothing,
    /// The beginning of a record.
    Unfinished,
    /// Something else.
    Damaged,
    /// Something else, and then records again.
    Gap,
}

/// Reads the journal at `path`. Fails if it cannot be read, or if a later version wrote it.
pub(crate) fn read(path: &Path, boot: &str) -> io::Result<Result<Told, Doubt>> {
    tell(&mut Folder::open(path)?, boot)
}

/// What `journal` says when the system runs since `boot`.
pub(super) fn tell(
    journal: &mut (impl Read + Seek),
    boot: &str,
) -> io::Result<Result<Told, Doubt>> {
    let outline = outline(journal)?;
    match believe(&outline, boot) {
        Ok((header, believed)) => {
            journal.rewind()?;
            replay(journal, (&outline, header), believed).map(Ok)
        }
        Err(doubt) => Ok(Err(doubt)),
    }
}

fn outline(journal: &mut (impl Read + Seek)) -> io::Result<Outline> {
    let mut outline = Outline {
        header: None,
        begun: 0,
        end: 0,
        synced: None,
        tail: Tail::Nothing,
    };
    let mut records = Records::new(BufReader::new(&mut *journal));
    for record in &mut records {
        let (end, record) = record?;
        match record {
            Record::Unknown => {
                let text = "a later version wrote it; mount with that version once";
                return Err(io::Error::other(text));
            }
            Record::Header(header) if outline.end == 0 => {
                outline.header = Some(header);
                outline.begun = end;
            }
            Record::Synced(length) => outline.synced = Some(length),
            _ => {}
        }
        outline.end = end;
    }
    let is_cut = records.is_cut();
    drop(records);
    outline.tail = look_at_tail(journal, outline.end, is_cut)?;
    Ok(outline)
}

fn look_at_tail(journal: &mut (impl Read + Seek), end: u64, is_cut: bool) -> io::Result<Tail> {
    let mut tail = Vec::new();
    journal.seek(SeekFrom::Start(end))?;
    journal.take(LOOKED_THROUGH).read_to_end(&mut tail)?;
    Ok(if tail.is_empty() {
        Tail::Nothing
    } else if (1..tail.len()).any(|at| begins_change(&tail[at..])) {
        Tail::Gap
    } else if is_cut {
        Tail::Unfinished
    } else {
        Tail::Damaged
    })
}

fn begins_change(bytes: &[u8]) -> bool {
    let length = bytes.first_chunk().copied().map(u32::from_le_bytes);
    let is_short = length.is_some_and(|length| length <= SHORT);
    is_short && matches!(Records::new(bytes).next(), Some(Ok(_)))
}

/// What to believe of a journal when the system runs since `boot`, or why nothing.
fn believe<'outline>(
    outline: &'outline Outline,
    boot: &str,
) -> Result<(&'outline Header, Believed), Doubt> {
    let doubt = |reason: String| Doubt {
        key: outline.header.as_ref().map(|header| header.key.clone()),
        reason,
    };
    let Some(header) = &outline.header else {
        return Err(doubt("the beginning of its journal is damaged".to_owned()));
    };
    // Where the system does not tell since when it runs, that may be since any time.
    let same_start = header.boot == boot && !boot.is_empty();
    let damaged = match outline.tail {
        Tail::Gap => true,
        // After a crash of the machine the disk may have anything beyond what was synced.
        Tail::Damaged => same_start,
        Tail::Nothing | Tail::Unfinished => false,
    };
    let end = outline.end;
    if damaged {
        return Err(doubt(format!("its journal is damaged from byte {end} on")));
    }
    let synced = outline
        .synced
        .filter(|synced| (outline.begun..=end).contains(synced));
    match synced {
        _ if same_start => Ok((
            header,
            Believed {
                up_to: end,
                synced: synced.unwrap_or(0),
                is_doubted: false,
            },
        )),
        Some(up_to) => Ok((
            header,
            Believed {
                up_to,
                synced: end,
                is_doubted: true,
            },
        )),
        None => Err(doubt(
            "nothing of it was sure to be on the disk when the machine went down".to_owned(),
        )),
    }
}

fn replay(
    journal: &mut impl Read,
    (outline, header): (&Outline, &Header),
    believed: Believed,
) -> io::Result<Told> {
    let mut content = Content::recovered(header.base.clone(), header.size, Extents::default());
    let (mut description, mut replaces) = (None, None);
    for record in Records::new(BufReader::new(journal.take(believed.up_to))) {
        let (_, record) = record?;
        apply(&mut content, &record);
        match record {
            Record::Described(described) => description = Some(described),
            Record::Replaces(replaced) => replaces = Some(replaced),
            _ => {}
        }
    }
    content.note_recovered();
    Ok(Told {
        header: header.clone(),
        content,
        description,
        replaces,
        length: outline.end,
        synced: believed.synced,
        is_doubted: believed.is_doubted,
    })
}

pub(super) fn apply(content: &mut Content, record: &Record) {
    match record {
        Record::Dirty(range) => content.write(range.clone()),
        Record::Zero(range) => content.zero(range.clone()),
        Record::Size(size) => content.resize(*size),
        Record::Saving(size) => content.begin_attempt(*size),
        Record::Sent(trace) => content.announce(trace.clone()),
        Record::Header(_)
        | Record::Synced(_)
        | Record::Described(_)
        | Record::Replaces(_)
        | Record::Unknown => {}
    }
}
