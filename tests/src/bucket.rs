//! A bucket to mount: in a local directory, or on a server of the test's own.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
};

use penstock_devserver::{Credentials, Data, Faults, Fill, Identity, Server, Settings};

use crate::{Mount, MountOptions, Scratch, penstock};

/// The bucket's name on a server.
pub const BUCKET: &str = "test-bucket";

const KEY_ID: &str = "TESTKEYID";
const SECRET: &str = "a secret that signs";
const REGION: &str = "test-region-1";

/// Where a bucket lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `file://`
    Local,
    /// `s3://` on a development server that checks signatures.
    S3,
    /// `oss://` on a development server that checks signatures.
    Oss,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Local, Self::S3, Self::Oss];
    /// Those with a server, where a network can fail.
    pub const REMOTE: [Self; 2] = [Self::S3, Self::Oss];
}

/// An empty bucket that goes away with the test.
#[derive(Debug)]
pub struct Bucket {
    kind: Kind,
    folder: PathBuf,
    server: Mutex<Option<Server>>,
    /// Vouches for a server that speaks HTTPS.
    ca_file: Option<PathBuf>,
    _scratch: Scratch,
}

impl Bucket {
    /// A new bucket of `kind`.
    pub fn new(kind: Kind) -> Self {
        let settings = (kind != Kind::Local).then(settings);
        Self::on(kind, settings, None, Scratch::new())
    }

    /// The same on a server that speaks HTTPS. The options that lead to it trust its certificate.
    pub fn secure(kind: Kind) -> Self {
        let scratch = Scratch::new();
        let ca_file = scratch.folder("authority").join("ca.pem");
        let identity = Identity::generate(Ipv4Addr::LOCALHOST.into()).expect("randomness");
        fs::write(&ca_file, identity.authority()).expect("the scratch directory is writable");
        let settings = Settings {
            identity: Some(identity),
            ..settings()
        };
        Self::on(kind, Some(settings), Some(ca_file), scratch)
    }

    fn on(
        kind: Kind,
        settings: Option<Settings>,
        ca_file: Option<PathBuf>,
        scratch: Scratch,
    ) -> Self {
        let server =
            settings.map(|settings| Server::start(settings).expect("loopback has a free port"));
        Self {
            kind,
            folder: scratch.folder("bucket"),
            server: Mutex::new(server),
            ca_file,
            _scratch: scratch,
        }
    }

    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The key that may sign requests to the servers, and its secret.
    pub fn credentials() -> (&'static str, &'static str) {
        (KEY_ID, SECRET)
    }

    /// The region that signatures must name.
    pub fn region() -> &'static str {
        REGION
    }

    /// How the command line names it.
    pub fn source(&self) -> String {
        match self.kind {
            Kind::Local => format!("file://{}", self.folder.display()),
            Kind::S3 => format!("s3://{BUCKET}"),
            Kind::Oss => format!("oss://{BUCKET}"),
        }
    }

    /// The options that lead to it.
    pub fn options(&self) -> MountOptions {
        let options = self.signing_options();
        match self.kind {
            Kind::Local => options,
            Kind::S3 | Kind::Oss => self.with_endpoint(options),
        }
    }

    /// Those that say who asks, and nothing of where.
    pub fn signing_options(&self) -> MountOptions {
        let options = MountOptions::new();
        match self.kind {
            Kind::Local => options,
            Kind::S3 => options
                .variable("AWS_ACCESS_KEY_ID", KEY_ID)
                .variable("AWS_SECRET_ACCESS_KEY", SECRET),
            Kind::Oss => options
                .variable("OSS_ACCESS_KEY_ID", KEY_ID)
                .variable("OSS_ACCESS_KEY_SECRET", SECRET),
        }
    }

    /// The same for a mount in staged mode, which stages in the directory `staging`.
    pub fn staged_options(&self, staging: &Path) -> MountOptions {
        self.options()
            .option("mode", "staged")
            .option("staging-dir", &staging.display().to_string())
    }

    fn with_endpoint(&self, options: MountOptions) -> MountOptions {
        let url = self.server(Server::url);
        let options = options.option("endpoint", &url).option("region", REGION);
        match &self.ca_file {
            Some(file) => options.option("ca-file", &file.display().to_string()),
            None => options,
        }
    }

    /// Mounts it with defaults.
    #[track_caller]
    pub fn mount(&self) -> Mount {
        self.mount_with(&self.options())
    }

    /// Mounts it with `options`, which begin with [`Bucket::options`].
    #[track_caller]
    pub fn mount_with(&self, options: &MountOptions) -> Mount {
        Mount::new(&self.source(), options)
    }

    /// `penstock COMMAND SOURCE` with the options that lead here.
    pub fn command(&self, name: &str) -> Command {
        self.command_on(name, &self.source())
    }

    /// The same with the options of a mount, which begin with [`Bucket::options`].
    pub fn command_with(&self, name: &str, options: &MountOptions) -> Command {
        let mut command = penstock();
        command.arg(name).arg(self.source());
        options.apply(&mut command);
        command
    }

    /// The same for another source of the same server.
    pub fn command_on(&self, name: &str, source: &str) -> Command {
        let mut command = penstock();
        command.arg(name).arg(source);
        self.options().apply(&mut command);
        command
    }

    /// Puts an object into the bucket without any mount, as another client does.
    pub fn put_outside(&self, key: &str, content: &[u8]) {
        if self.kind == Kind::Local {
            let path = self.folder.join(key);
            let folder = path.parent().expect("it lies in the bucket");
            fs::create_dir_all(folder).expect("the bucket is writable");
            fs::write(path, content).expect("the bucket is writable");
        } else {
            self.data().put(BUCKET, key, content).expect("memory");
        }
    }

    /// Makes objects on the server that are `PREFIX:COUNT:SIZE`, such as `small/:100:4KiB`.
    pub fn fill(&self, objects: &str) {
        let fill: Fill = format!("{BUCKET}/{objects}").parse().expect("well formed");
        self.data().fill(&fill).expect("memory");
    }

    /// Asks the server something.
    pub fn server<T>(&self, ask: impl FnOnce(&Server) -> T) -> T {
        ask(self
            .running()
            .as_ref()
            .expect("the bucket has a server, which runs"))
    }

    /// The server's objects.
    pub fn data(&self) -> Data {
        self.server(|server| server.data().clone())
    }

    /// Makes this fail from now on.
    pub fn fail(&self, faults: Faults) {
        self.server(|server| server.faults().set(faults));
    }

    /// Makes nothing fail any more.
    pub fn heal(&self) {
        self.server(|server| server.faults().clear());
    }

    /// Stops the server as a crash would, runs `meanwhile`, and starts another in its place.
    pub fn without_server(&self, meanwhile: impl FnOnce()) {
        self.restart(|_| meanwhile());
    }

    /// Starts the server anew, with a certificate of another authority. Returns that authority's.
    pub fn change_identity(&self) -> String {
        let identity = Identity::generate(Ipv4Addr::LOCALHOST.into()).expect("randomness");
        let authority = identity.authority().to_owned();
        self.restart(|settings| settings.identity = Some(identity));
        authority
    }

    /// What vouches for a server that speaks HTTPS.
    pub fn ca_file(&self) -> &Path {
        self.ca_file.as_deref().expect("it speaks HTTPS")
    }

    fn restart(&self, change: impl FnOnce(&mut Settings)) {
        let mut running = self.running();
        let server = running.take().expect("the bucket has a server, which runs");
        let mut again = Settings {
            address: server.address(),
            ..server.settings().clone()
        };
        let data = server.stop();
        change(&mut again);
        *running = Some(Server::start_with(data, again).expect("the port is still ours"));
    }

    fn running(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn settings() -> Settings {
    Settings {
        credentials: vec![Credentials::new(KEY_ID, SECRET)],
        verify_signatures: true,
        region: Some(REGION.to_owned()),
        ..Settings::with_bucket(BUCKET)
    }
}
