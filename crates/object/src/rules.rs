//! The rules of [`crate::Store`] that a store without a server of its own checks itself.

use crate::{
    ByteRange, Capabilities, DELETE_MANY_MAX, ErrorKind, Key, ObjectError, ObjectResult, Operation,
    Part, PartNumber,
};

/// Refuses more keys than [`crate::Store::delete_many`] takes.
pub fn check_delete_many(keys: &[Key]) -> ObjectResult<()> {
    if keys.len() > DELETE_MANY_MAX {
        let message = format!("at most {DELETE_MANY_MAX} keys can be deleted at once");
        let kind = ErrorKind::InvalidRequest;
        return Err(ObjectError::new(kind, Operation::DeleteMany, message));
    }
    Ok(())
}

/// Refuses part numbers and sizes that the store does not take.
pub fn check_part(
    capabilities: &Capabilities,
    operation: Operation,
    number: PartNumber,
    size: u64,
) -> ObjectResult<()> {
    if !(1..=capabilities.parts_max).contains(&number) {
        let message = format!("part numbers run from 1 to {}", capabilities.parts_max);
        let kind = ErrorKind::InvalidRequest;
        return Err(ObjectError::new(kind, operation, message));
    }
    if size > capabilities.part_size_max {
        let message = format!("parts have at most {} bytes", capabilities.part_size_max);
        return Err(ObjectError::new(ErrorKind::TooLarge, operation, message));
    }
    Ok(())
}

/// Refuses a list of parts that is empty, too long or not in ascending order.
pub fn check_order(capabilities: &Capabilities, key: &Key, parts: &[Part]) -> ObjectResult<()> {
    let ascending = parts.is_sorted_by(|one, next| one.number < next.number);
    if parts.is_empty() || !ascending || parts.len() > capabilities.parts_max as usize {
        let message = "an upload is completed with its parts in ascending order, one at least";
        let kind = ErrorKind::InvalidRequest;
        return Err(ObjectError::new(kind, Operation::CompleteUpload, message).about(key));
    }
    Ok(())
}

/// The bytes of a `size` byte object that a GET of `range` delivers: all without a range, else
/// the range clipped to the end. Fails with `InvalidRange` when nothing is left.
pub fn delivered(key: &Key, range: Option<&ByteRange>, size: u64) -> ObjectResult<ByteRange> {
    let Some(range) = range else {
        return Ok(0..size);
    };
    let clipped = range.start..range.end.min(size);
    if clipped.is_empty() {
        let message = format!(
            "bytes {}..{} asked for, the object has {size}",
            range.start, range.end
        );
        return Err(ObjectError::new(ErrorKind::InvalidRange, Operation::Get, message).about(key));
    }
    Ok(clipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clipped_to_the_end_and_refused_beyond_it() {
        let key = Key::new("a").expect("valid");
        let delivered = |range| delivered(&key, range, 10).map_err(|error| error.kind);
        assert_eq!(delivered(None), Ok(0..10));
        assert_eq!(delivered(Some(&(3..5))), Ok(3..5));
        assert_eq!(delivered(Some(&(3..50))), Ok(3..10));
        assert_eq!(delivered(Some(&(10..11))), Err(ErrorKind::InvalidRange));
    }
}
