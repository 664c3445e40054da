//! A volume's tag as a number, since that is all that the driver keeps for a server.
//!
//! Tags are `penstock-PROCESS-NUMBER`, the number in six hexadecimal digits. Processes have at most
//! 22 bits, so both fit below a mark that says that the number is one of ours.

/// The upper bits: the letters "ps".
const MARK: u64 = 0x7073;
const MARK_SHIFT: u32 = 48;

/// Bits of either number.
const PART_BITS: u32 = 24;
const PART_MASK: u64 = (1 << PART_BITS) - 1;

/// The number for a tag; none if it is not of that form.
pub(super) fn number_of(tag: &str) -> Option<u64> {
    let (process, volume) = tag.strip_prefix("penstock-")?.split_once('-')?;
    let volume = u64::from_str_radix(volume, 16).ok()?;
    let process = process.parse::<u64>().ok()?;
    let fits = process <= PART_MASK && volume <= PART_MASK;
    fits.then_some(MARK << MARK_SHIFT | process << PART_BITS | volume)
}

/// The tag for a number; none if it is not of a volume.
pub(super) fn tag_of(number: u64) -> Option<String> {
    let (process, volume) = (number >> PART_BITS & PART_MASK, number & PART_MASK);
    (number >> MARK_SHIFT == MARK).then(|| format!("penstock-{process}-{volume:06x}"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{Record, StateDirectory};

    #[test]
    fn a_tag_and_its_number_lead_to_each_other() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let record = Record {
            pid: std::process::id(),
            source: String::new(),
            mount_point: PathBuf::new(),
            file_system: String::new(),
            transport: "ublk".to_owned(),
            tag: String::new(),
            devices: Vec::new(),
            mounted: false,
        };
        let journal = StateDirectory::new(parent.path()).begin(record);
        let tag = journal.expect("begun").record().tag.clone();
        let number = number_of(&tag).expect("of this form");
        assert_eq!(tag_of(number), Some(tag));
        let greatest = number_of("penstock-4194304-ffffff");
        assert_eq!(greatest, Some(0x7073_4000_00ff_ffff));
    }

    #[test]
    fn what_is_not_a_tag_has_no_number_and_the_other_way_round() {
        for tag in [
            "",
            "penstock-1",
            "penstock-16777216-1",
            "penstock-1-1000000",
            "penstock-a-1",
            "other-1-1",
        ] {
            assert_eq!(number_of(tag), None, "{tag}");
        }
        for number in [0, 7, 0x7074 << 48] {
            assert_eq!(tag_of(number), None, "{number:#x}");
        }
    }
}
