//! The rules of multipart uploads that stores without a server of their own check themselves.

use crate::{Capabilities, ErrorKind, Key, ObjectError, ObjectResult, Operation, Part, PartNumber};

/// Refuses part numbers and sizes that the store does not take.
pub(crate) fn check_part(
    capabilities: &Capabilities,
    operation: Operation,
    number: PartNumber,
    size: u64,
) -> ObjectResult<()> {
    if !(1..=capabilities.parts_max).contains(&number) {
        let message = format!("part numbers run from 1 to {}", capabilities.parts_max);
        return Err(ObjectError::new(
            ErrorKind::InvalidRequest,
            operation,
            message,
        ));
    }
    if size > capabilities.part_size_max {
        let message = format!("parts have at most {} bytes", capabilities.part_size_max);
        return Err(ObjectError::new(ErrorKind::TooLarge, operation, message));
    }
    Ok(())
}

/// Refuses a list of parts that is empty, too long or not in ascending order.
pub(crate) fn check_order(
    capabilities: &Capabilities,
    key: &Key,
    parts: &[Part],
) -> ObjectResult<()> {
    let ascending = parts.is_sorted_by(|one, next| one.number < next.number);
    if parts.is_empty() || !ascending || parts.len() > capabilities.parts_max as usize {
        let message = "an upload is completed with its parts in ascending order, one at least";
        let kind = ErrorKind::InvalidRequest;
        return Err(ObjectError::new(kind, Operation::CompleteUpload, message).about(key));
    }
    Ok(())
}
