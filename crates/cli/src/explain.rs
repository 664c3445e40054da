//! What a user can do about an error of the object store or of the kernel.

use penstock_fuse::{MountError, UnmountError};
use penstock_object::{ErrorKind, ObjectError};

use crate::failure::Failure;

/// Turns an error of `source` into a cause and a remedy.
pub(crate) fn store_error(source: &str, error: &ObjectError) -> Failure {
    let (cause, remedy) = match source.strip_prefix("file://") {
        Some(directory) => words_of_directory(directory, error.kind),
        None => None,
    }
    .unwrap_or_else(|| {
        let (cause, remedy) = words(error.kind);
        (cause, remedy.to_owned())
    });
    let mut message = format!("{source}: {cause}");
    let told = told_by_store(error);
    if !told.is_empty() {
        message.push_str(&format!(" ({told})"));
    }
    Failure::new(message, remedy)
}

/// Cause and remedy where the store is a directory of this machine, if they are of its own.
fn words_of_directory(directory: &str, kind: ErrorKind) -> Option<(&'static str, String)> {
    match kind {
        ErrorKind::NoSuchBucket => Some((
            "there is no such directory",
            format!("create it with `mkdir -p {directory}`, or check its name"),
        )),
        ErrorKind::PermissionDenied => Some((
            "the system denies access",
            format!("check the owner and the permissions of `{directory}`"),
        )),
        ErrorKind::InvalidRequest
        | ErrorKind::Unavailable
        | ErrorKind::Timeout
        | ErrorKind::Interrupted
        | ErrorKind::Protocol => Some((
            "the directory cannot be used",
            format!("check `{directory}` and the disk that it lies on"),
        )),
        _ => None,
    }
}

/// What the store or the network said, where it says more than the kind.
fn told_by_store(error: &ObjectError) -> String {
    let mut told = Vec::new();
    if !error.code.is_empty() {
        told.push(error.code.clone());
    }
    if !error.message.is_empty() {
        told.push(error.message.clone());
    }
    if !error.request_id.is_empty() {
        told.push(format!("request {}", error.request_id));
    }
    told.join(": ")
}

/// Cause and remedy for each kind of error.
fn words(kind: ErrorKind) -> (&'static str, &'static str) {
    match kind {
        ErrorKind::NotFound => ("there is no such object", "check the path"),
        ErrorKind::NoSuchBucket => (
            "there is no such bucket",
            "check its name, and that --endpoint and --region are those of the bucket",
        ),
        ErrorKind::NoSuchUpload => ("there is no such upload", "list them again"),
        ErrorKind::AlreadyExists => ("the object exists already", "choose another name"),
        ErrorKind::PreconditionFailed | ErrorKind::PositionMismatch => {
            ("the object changed meanwhile", "try again")
        }
        ErrorKind::PermissionDenied => (
            "the credentials are valid but may not do this",
            "grant ListBucket, GetObject and PutObject on the bucket, or use other credentials",
        ),
        ErrorKind::BadCredentials => (
            "the store refuses the credentials",
            "check the access key and its secret; `penstock check` shows where they come from",
        ),
        ErrorKind::NoCredentials => (
            "no credentials were found",
            "set the access key in the environment or a credentials file, or give --anonymous for \
             a public bucket",
        ),
        ErrorKind::ClockSkew => (
            "the clock of this machine is wrong",
            "set it, for example with `timedatectl set-ntp true`",
        ),
        ErrorKind::WrongEndpoint => (
            "the bucket is in another region or at another endpoint",
            "give --region and --endpoint of the bucket",
        ),
        ErrorKind::Archived => ("the object is archived", "restore it first"),
        ErrorKind::InvalidRange => ("the range is outside of the object", "list it again"),
        ErrorKind::InvalidRequest => (
            "the store does not understand the request",
            "check --endpoint, --region and --addressing; is it a store of this kind?",
        ),
        ErrorKind::Unsupported => ("the store cannot do this", "use another store"),
        ErrorKind::TooLarge => ("the object is too large for the store", "split it"),
        ErrorKind::NoSpace => ("the store is full", "make room"),
        ErrorKind::Throttled => (
            "the store asks for fewer requests",
            "wait, lower --max-requests, or ask the provider for a higher limit",
        ),
        ErrorKind::Unavailable => (
            "the store cannot be reached or fails",
            "check --endpoint, the network and any proxy",
        ),
        ErrorKind::Timeout => (
            "the store does not answer in time",
            "check --endpoint, the network and any firewall",
        ),
        ErrorKind::Interrupted => ("the connection broke", "check the network and try again"),
        ErrorKind::ChecksumMismatch => (
            "what arrived does not match its checksum",
            "try again; if it stays, something between here and the store damages data",
        ),
        ErrorKind::Protocol => ("the answer makes no sense", "is --endpoint such a store?"),
        ErrorKind::Untrusted => (
            "the server is not trusted",
            "without a certificate that proves who it is nothing is sent to it",
        ),
        ErrorKind::ClientUntrusted => (
            "the server does not let this client in",
            "the server decides whose certificates it trusts, and its log may say more",
        ),
    }
}

/// Turns an error of mounting into a cause and a remedy.
pub(crate) fn mount_error(error: &MountError) -> Failure {
    let (cause, remedy) = match error {
        MountError::Missing(place) => {
            let place = place.display();
            (
                format!("mount point `{place}` does not exist"),
                format!("create it with `mkdir -p {place}`"),
            )
        }
        MountError::NotADirectory(place) => (
            format!("mount point `{}` is not a directory", place.display()),
            "name a directory".to_owned(),
        ),
        MountError::NotEmpty(place) => (
            format!("mount point `{}` is not empty", place.display()),
            "choose an empty directory, or give --nonempty to hide what is in it".to_owned(),
        ),
        MountError::Busy { place, source_name } => {
            let place = place.display();
            (
                format!("mount point `{place}` is busy: `{source_name}` is mounted there"),
                format!("unmount it with `penstock umount {place}` or choose another directory"),
            )
        }
        MountError::Dead(place) => {
            let place = place.display();
            (
                format!("mount point `{place}` holds a dead mount, whose program is gone"),
                format!("remove it with `penstock umount {place}`"),
            )
        }
        MountError::Unusable(place, error) => (
            format!("mount point `{}` cannot be used: {error}", place.display()),
            "check its permissions".to_owned(),
        ),
        MountError::Vanished(place) => (
            format!(
                "the mount on `{}` was removed before it was ready",
                place.display()
            ),
            "mount again".to_owned(),
        ),
        MountError::Memory(bytes) => (
            format!("{bytes} bytes of receive buffers do not fit into the memory"),
            "raise --memory, or lower --fuse-threads".to_owned(),
        ),
        other => kernel_refused(other),
    };
    Failure::new(cause, remedy)
}

/// Errors that have nothing to do with the mount point.
fn kernel_refused(error: &MountError) -> (String, String) {
    let remedy = match error {
        MountError::NoDevice => {
            "load it with `modprobe fuse`, or start the container with --device /dev/fuse"
        }
        MountError::DeviceDenied(_) | MountError::Denied => {
            "mount as root, or start the container with --cap-add SYS_ADMIN --device /dev/fuse"
        }
        MountError::NoHelper => "install the package fuse3, or mount as root",
        MountError::HelperHangs(_) => {
            "see whether `ls` of the mount point and of its parent directories hangs"
        }
        MountError::Helper(_) => "see /etc/fuse.conf: --allow-other needs `user_allow_other` there",
        _ => "see `dmesg` and the log",
    };
    let text = error.to_string();
    let cause = match error {
        MountError::Helper(_) | MountError::System(_) | MountError::Negotiation(_) => &text,
        // Beyond the colon is the remedy that the crate itself suggests.
        _ => text
            .split_once(": ")
            .map_or(text.as_str(), |(cause, _)| cause),
    };
    (cause.to_owned(), remedy.to_owned())
}

/// Turns an error of unmounting into a cause and a remedy.
pub(crate) fn unmount_error(error: &UnmountError) -> Failure {
    match error {
        UnmountError::Busy(place) => {
            let place = place.display();
            Failure::new(
                format!("`{place}` is in use"),
                format!("close its files (`fuser -vm {place}` shows who has some), or give --lazy"),
            )
        }
        UnmountError::Denied(place) => Failure::new(
            format!("no permission to unmount `{}`", place.display()),
            "unmount as the user who mounted it, or as root",
        ),
        UnmountError::HelperHangs(place, limit) => Failure::new(
            format!(
                "fusermount3 did not unmount `{}` within {limit:?}",
                place.display()
            ),
            format!("try again, or run `umount -l {}` as root", place.display()),
        ),
        UnmountError::Failed(place, reason) => Failure::new(
            format!("cannot unmount `{}`: {reason}", place.display()),
            format!("try again, or run `umount -l {}` as root", place.display()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_object::Operation;

    #[test]
    fn a_directory_has_no_endpoint() {
        for kind in [
            ErrorKind::NoSuchBucket,
            ErrorKind::PermissionDenied,
            ErrorKind::Unavailable,
            ErrorKind::InvalidRequest,
        ] {
            let error = ObjectError::new(kind, Operation::List, "");
            let text = store_error("file:///no/such", &error).to_string();
            assert!(text.contains("/no/such`"), "{text}");
            assert!(
                !text.contains("endpoint") && !text.contains("GetObject"),
                "{text}"
            );
        }
    }

    #[test]
    fn an_error_becomes_a_cause_and_a_remedy_in_one_line() {
        let mut error = ObjectError::new(
            ErrorKind::NoSuchBucket,
            Operation::List,
            "The specified bucket does not exist.\n",
        );
        error.code = "NoSuchBucket".to_owned();
        error.request_id = "42".to_owned();
        assert_eq!(
            store_error("s3://nowhere", &error).to_string(),
            "s3://nowhere: there is no such bucket (NoSuchBucket: The specified bucket does not \
             exist. : request 42); check its name, and that --endpoint and --region are those of \
             the bucket"
        );
    }
}
