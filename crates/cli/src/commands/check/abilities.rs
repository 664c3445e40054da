//! What this store can do, tried on objects of our own, and what stops working where it cannot.
//!
//! Penstock does many things another way where a store lacks one; those show as `note`, with what that
//! costs. Some the store finds out about itself while it is used ([`Store::abilities`]): here it is used
//! in every way that finds one out.

use std::sync::Arc;

use penstock_base::Payload;
use penstock_object::{
    CompleteOptions, CopyOptions, Description, ETag, ErrorKind, HeadOptions, Key, Known,
    ListOptions, ObjectError, ObjectResult, PartCopy, PutOptions, Store, WriteCondition,
};

use super::{Finding, Verdict};

/// The trial of whether the store itself keeps a write from replacing an object.
pub(super) const CREATION: &str = "conditional write";

/// Metadata of objects that are written here.
const NAME: &str = "penstock-check";

/// A store and a place in it that nobody else uses.
pub(super) struct Place<'a> {
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) key: &'a Key,
}

/// What came of one way to use the store: it went well, or what stops working.
type Tried = Result<(), Stops>;

struct Stops {
    verdict: Verdict,
    what: String,
}

impl From<String> for Stops {
    fn from(what: String) -> Self {
        Self {
            verdict: Verdict::Fair,
            what,
        }
    }
}

impl Place<'_> {
    /// Tries everything, below an object that is there, and removes what it made.
    pub(super) async fn all(&self, body: &Payload) -> Vec<Finding> {
        let length = body.len() as u64;
        let mut findings = vec![
            row(CREATION, self.creation(body).await),
            row("conditional replacement", self.replacement(body).await),
            row("copy", self.copy().await),
            row("conditional copy", self.pinned_copy().await),
            row("change of metadata", self.redescribe().await),
            row("multipart", self.upload(body).await),
            row("multipart given up", self.give_up(length).await),
            row("multipart listed", self.uploads().await),
        ];
        self.use_names().await;
        self.remove().await;
        findings.extend(self.found_out());
        findings
    }

    /// What the store found out while it was used.
    fn found_out(&self) -> impl Iterator<Item = Finding> {
        let known = self.store.abilities().into_iter();
        known.filter_map(|ability| match ability.known {
            Known::Unknown => None,
            Known::Present => Some(Finding::new(ability.name, Verdict::Good, "yes")),
            Known::Absent => Some(lack(ability.name, ability.without)),
        })
    }

    /// Whether the store refuses to overwrite when it is told to.
    async fn creation(&self, body: &Payload) -> Tried {
        let put = self.put_if(body, WriteCondition::IfAbsent).await;
        self.expect_refusal(
            put,
            ErrorKind::AlreadyExists,
            "the store overwrites although told not to (If-None-Match); Penstock looks first, which is \
             one request more for each new file, but two machines that create one file in the same \
             moment cannot be told apart",
        )
    }

    async fn replacement(&self, body: &Payload) -> Tried {
        let other = WriteCondition::IfMatch(other_version());
        let put = self.put_if(body, other).await;
        self.expect_refusal(
            put,
            ErrorKind::PreconditionFailed,
            "the store replaces another version than it is told to (If-Match); Penstock looks first, \
             which is one request more for each save, but of two machines that save one file in the \
             same moment one loses its version",
        )
    }

    async fn put_if(&self, body: &Payload, condition: WriteCondition) -> ObjectResult<()> {
        let options = PutOptions {
            condition,
            ..PutOptions::default()
        };
        let put = self.store.put(self.key, body.clone(), options).await;
        put.map(|_| ())
    }

    /// Whether the store refused a write whose condition did not hold, and not we who looked.
    fn expect_refusal(&self, put: ObjectResult<()>, kind: ErrorKind, ignored: &str) -> Tried {
        let is_local = matches!(self.store.capabilities().scheme, "file" | "memory");
        match put {
            Err(error) if error.kind == kind && (is_local || error.status.is_some()) => Ok(()),
            Err(error) if error.kind == kind => Err(ignored.to_owned().into()),
            Err(error) => Err(stops("conditions cannot be told", &error)),
            Ok(()) => Err(ignored.to_owned().into()),
        }
    }

    async fn copy(&self) -> Tried {
        let target = self.beside("-copy");
        let copied = self.copy_to(&target, CopyOptions::default()).await;
        copied.map_err(|error| stops("files cannot be renamed", &error))
    }

    /// Whether the store refuses to copy another version than it is told to.
    async fn pinned_copy(&self) -> Tried {
        let options = CopyOptions {
            if_match: Some(other_version()),
            ..CopyOptions::default()
        };
        let copied = self.copy_to(&self.beside("-copy"), options).await;
        self.expect_refusal(
            copied,
            ErrorKind::PreconditionFailed,
            "the store copies another version than it is told to (copy-source-if-match); a file \
             that others replace while it is renamed moves with their content",
        )
    }

    async fn copy_to(&self, target: &Key, options: CopyOptions) -> ObjectResult<()> {
        let copied = self.store.copy(self.key, target, options).await;
        copied.map(|_| ())
    }

    /// Whether an object is given other metadata by a copy onto itself.
    async fn redescribe(&self) -> Tried {
        const STOPS: &str = "owner, mode, times and attributes of files cannot be changed";
        let options = CopyOptions {
            description: Some(described("changed")),
            ..CopyOptions::default()
        };
        let failed = |error: ObjectError| stops(STOPS, &error);
        self.copy_to(self.key, options).await.map_err(failed)?;
        let found = self.store.head(self.key, HeadOptions::default()).await;
        let found = found.map_err(failed)?;
        match found.metadata.get(NAME).map(String::as_str) {
            Some("changed") => Ok(()),
            _ => Err(format!("{STOPS}: the store keeps what was there").into()),
        }
    }

    /// Whether an object can be put together from parts, with its metadata.
    async fn upload(&self, body: &Payload) -> Tried {
        let key = self.beside("-parts");
        let failed = |error: ObjectError| Stops {
            verdict: Verdict::Bad,
            ..stops("files larger than one part cannot be written", &error)
        };
        let Description { metadata, .. } = described("kept");
        let options = PutOptions {
            metadata,
            ..PutOptions::default()
        };
        let upload = self
            .store
            .create_upload(&key, options)
            .await
            .map_err(failed)?;
        let part = self.store.upload_part(&key, &upload, 1, body.clone()).await;
        let parts = [part.map_err(failed)?];
        let options = CompleteOptions::default();
        let done = self.store.complete_upload(&key, &upload, &parts, options);
        done.await.map_err(failed)?;
        let found = self.store.head(&key, HeadOptions::default()).await;
        match found.map_err(failed)?.metadata.get(NAME) {
            Some(_) => Ok(()),
            None => Err(
                "the store drops what is said of an object that is written in parts: large \
                         files lose owner, mode, times and attributes"
                    .to_owned()
                    .into(),
            ),
        }
    }

    /// Whether an upload can be given up, after a part was copied into it.
    async fn give_up(&self, length: u64) -> Tried {
        let key = self.beside("-given-up");
        let failed = |error: ObjectError| {
            stops(
                "parts of files whose writing failed stay in the bucket until a rule of the store \
                 removes them",
                &error,
            )
        };
        let upload = self.store.create_upload(&key, PutOptions::default()).await;
        let upload = upload.map_err(failed)?;
        let copy = PartCopy {
            source: self.key.clone(),
            range: 0..length,
            if_match: None,
        };
        // The store remembers what came of it.
        let _ = self.store.copy_part(&key, &upload, 1, copy).await;
        self.store.abort_upload(&key, &upload).await.map_err(failed)
    }

    async fn uploads(&self) -> Tried {
        let listed = self.store.list_uploads(self.key.as_str(), None).await;
        let listed = listed.map(|_| ());
        listed.map_err(|error| stops("`penstock uploads` finds no unfinished uploads", &error))
    }

    /// Lists names, and copies a marker of a directory.
    async fn use_names(&self) {
        let options = ListOptions {
            prefix: self.key.as_str().to_owned(),
            ..ListOptions::default()
        };
        let marker = self.beside("/");
        let body = Payload::new();
        let put = self.store.put(&marker, body, PutOptions::default()).await;
        // What came of each the store remembers, or a trial before has told it.
        let _ = self.store.list(options).await;
        if put.is_ok() {
            let copy = self.beside("-marker/");
            let _ = self
                .store
                .copy(&marker, &copy, CopyOptions::default())
                .await;
        }
    }

    /// Removes everything but the object itself, at once where the store can do that.
    async fn remove(&self) {
        let made = ["-copy", "-parts", "-given-up", "/", "-marker/"];
        let keys = made.map(|suffix| self.beside(suffix));
        // What is left shows in the listing, and under a name that says whose it is.
        let _ = self.store.delete_many(&keys).await;
    }

    fn beside(&self, suffix: &str) -> Key {
        Key::new(format!("{}{suffix}", self.key)).expect("a short name")
    }
}

/// The tag of a version that there never was.
fn other_version() -> ETag {
    ETag::new("\"00000000000000000000000000000000\"")
}

fn described(value: &str) -> Description {
    Description {
        content_type: None,
        metadata: [(NAME.to_owned(), value.to_owned())].into(),
    }
}

fn row(what: &'static str, tried: Tried) -> Finding {
    match tried {
        Ok(()) => Finding::new(what, Verdict::Good, "yes"),
        Err(stops) => Finding {
            verdict: stops.verdict,
            ..lack(what, &stops.what)
        },
    }
}

fn lack(what: &'static str, without: &str) -> Finding {
    Finding::new(what, Verdict::Fair, format!("missing: {without}"))
}

/// What is missing because of an error. What is not permitted is no property of the store.
fn stops(what: &str, error: &ObjectError) -> Stops {
    let verdict = match error.kind {
        ErrorKind::PermissionDenied => Verdict::Bad,
        _ => Verdict::Fair,
    };
    Stops {
        verdict,
        what: format!("{what}: {error}"),
    }
}
