//! A bucket mounted by s3fs, the other client.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{BUCKET, Bucket, Patience, Scratch, mount::is_mounted, system};

const MOUNT_PATIENCE: Patience = Patience::seconds(30);

/// A bucket mounted by s3fs in the foreground; undone when dropped.
#[derive(Debug)]
pub struct S3fs {
    child: Child,
    path: PathBuf,
    scratch: Scratch,
}

impl S3fs {
    /// Mounts a bucket that is on a server, without caches that would hide what others change.
    #[track_caller]
    pub fn mount(bucket: &Bucket) -> Self {
        let scratch = Scratch::new();
        let path = scratch.folder("mnt");
        let (key, secret) = Bucket::credentials();
        let url = bucket.server(penstock_devserver::Server::url);
        let options = format!(
            "url={url},endpoint={},use_path_request_style,use_xattr=1,allow_other,\
             max_stat_cache_size=0",
            Bucket::region(),
        );
        let mut command = Command::new("s3fs");
        for name in [
            "AWS_CA_BUNDLE",
            "http_proxy",
            "HTTP_PROXY",
            "all_proxy",
            "ALL_PROXY",
        ] {
            command.env_remove(name);
        }
        let log = fs::File::create(scratch.path().join("log")).expect("scratch is writable");
        command
            .env("AWSACCESSKEYID", key)
            .env("AWSSECRETACCESSKEY", secret);
        let child = command
            .args([BUCKET, "-f", "-o", &options])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log)
            .spawn()
            .expect("s3fs is installed");
        let mut mount = Self {
            child,
            path,
            scratch,
        };
        MOUNT_PATIENCE.until("s3fs to mount", || {
            let ended = mount.child.try_wait().expect("our own child");
            assert_eq!(ended, None, "s3fs ended:\n{}", mount.log());
            is_mounted(mount.path())
        });
        mount
    }

    /// What s3fs printed so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// Where the bucket can be seen.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for S3fs {
    fn drop(&mut self) {
        system::detach(self.path());
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
