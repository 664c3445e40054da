//! The rows of `docs/semantics/errno.md`.

use penstock_object::{Key, Operation};

use super::*;

fn failed(kind: ErrorKind) -> ObjectError {
    let key = Key::new("a/b").expect("short");
    ObjectError {
        code: "TheCode".to_owned(),
        request_id: "the-request".to_owned(),
        ..ObjectError::new(kind, Operation::Get, "the message").about(&key)
    }
}

fn reading(kind: ErrorKind) -> FsError {
    object_failure(&failed(kind), Purpose::Read)
}

fn writing(kind: ErrorKind) -> FsError {
    object_failure(&failed(kind), Purpose::Write)
}

/// The text that an error of this kind carries to the log of a door.
fn text_of(error: FsError) -> String {
    match error {
        FsError::Io(text) | FsError::TimedOut(text) | FsError::Corrupt(text) => text,
        other => panic!("{other:?} has no text of its own"),
    }
}

#[test]
fn missing_objects_are_not_found() {
    assert_eq!(reading(ErrorKind::NotFound), FsError::NotFound);
    assert_eq!(writing(ErrorKind::NotFound), FsError::NotFound);
}

#[test]
fn taken_keys_exist_already() {
    assert_eq!(writing(ErrorKind::AlreadyExists), FsError::AlreadyExists);
}

#[test]
fn changed_objects_are_stale_for_readers() {
    assert_eq!(reading(ErrorKind::PreconditionFailed), FsError::Stale);
    assert_eq!(reading(ErrorKind::InvalidRange), FsError::Stale);
}

#[test]
fn changed_objects_are_busy_for_writers() {
    assert!(matches!(
        writing(ErrorKind::PreconditionFailed),
        FsError::Busy(_)
    ));
    assert!(matches!(
        writing(ErrorKind::PositionMismatch),
        FsError::Busy(_)
    ));
}

#[test]
fn refused_requests_are_denied() {
    for kind in [
        ErrorKind::PermissionDenied,
        ErrorKind::BadCredentials,
        ErrorKind::NoCredentials,
        ErrorKind::ClientUntrusted,
    ] {
        assert_eq!(reading(kind), FsError::PermissionDenied);
        assert_eq!(writing(kind), FsError::PermissionDenied);
    }
}

#[test]
fn archived_objects_are_not_permitted_and_the_text_names_the_remedy() {
    let error = reading(ErrorKind::Archived);
    assert!(matches!(error, FsError::NotPermitted(_)));
    assert!(error.to_string().contains("restore it"), "{error}");
}

#[test]
fn what_the_store_cannot_do_is_unsupported() {
    assert!(matches!(
        writing(ErrorKind::Unsupported),
        FsError::Unsupported(_)
    ));
}

#[test]
fn objects_beyond_the_limits_are_too_large() {
    assert_eq!(writing(ErrorKind::TooLarge), FsError::FileTooLarge);
    let error = TransferError::TooLarge(5);
    assert_eq!(
        transfer_failure(&error, Purpose::Write),
        FsError::FileTooLarge
    );
}

#[test]
fn a_full_store_has_no_space() {
    assert_eq!(writing(ErrorKind::NoSpace), FsError::NoSpace);
}

#[test]
fn an_exhausted_budget_is_out_of_memory() {
    let error = transfer_failure(&TransferError::OutOfMemory, Purpose::Read);
    assert_eq!(error, FsError::OutOfMemory);
}

#[test]
fn a_passed_deadline_is_timed_out() {
    assert!(matches!(reading(ErrorKind::Timeout), FsError::TimedOut(_)));
}

#[test]
fn wrong_bytes_are_corrupt() {
    assert!(matches!(
        reading(ErrorKind::ChecksumMismatch),
        FsError::Corrupt(_)
    ));
    assert!(matches!(
        writing(ErrorKind::ChecksumMismatch),
        FsError::Corrupt(_)
    ));
}

#[test]
fn spent_retries_are_input_output_errors() {
    for kind in [
        ErrorKind::Throttled,
        ErrorKind::Unavailable,
        ErrorKind::Interrupted,
    ] {
        assert!(matches!(reading(kind), FsError::Io(_)), "{kind:?}");
    }
}

#[test]
fn a_wrong_set_up_is_an_input_output_error() {
    for kind in [
        ErrorKind::NoSuchBucket,
        ErrorKind::ClockSkew,
        ErrorKind::WrongEndpoint,
        ErrorKind::InvalidRequest,
        ErrorKind::Protocol,
        ErrorKind::Untrusted,
    ] {
        assert!(matches!(reading(kind), FsError::Io(_)), "{kind:?}");
    }
}

#[test]
fn a_vanished_upload_is_an_input_output_error() {
    assert!(matches!(writing(ErrorKind::NoSuchUpload), FsError::Io(_)));
}

#[test]
fn texts_name_the_object_the_code_and_the_request() {
    for kind in [
        ErrorKind::Unavailable,
        ErrorKind::Timeout,
        ErrorKind::ChecksumMismatch,
    ] {
        let text = text_of(reading(kind));
        for part in ["a/b", "the message", "TheCode", "the-request"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
