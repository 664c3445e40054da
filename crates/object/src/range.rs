//! Which bytes of an object a ranged read delivers.

use crate::{ByteRange, ErrorKind, Key, ObjectError, ObjectResult, Operation};

/// The bytes of a `size` byte object that a GET of `range` delivers: all without a range, else
/// the range clipped to the end. Fails with `InvalidRange` when nothing is left.
pub(crate) fn delivered(
    key: &Key,
    range: Option<&ByteRange>,
    size: u64,
) -> ObjectResult<ByteRange> {
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
