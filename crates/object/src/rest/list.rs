//! Listings.

use super::{Dialect, Draft, RestStore, plan::is_not_understood, write::protocol};
use crate::{
    ErrorKind, FlatPage, Known, ListOptions, ListPage, ObjectResult, Operation, UploadPage,
    settings::ListVersion,
    sign::Query,
    xml::{continuation_markers, parse_uploads, read_flat},
};

/// Entries in a page, the most that both dialects give.
const PAGE_MAX: u32 = 1000;

/// Before a continuation of a listing that is filtered here; no upload id begins with it.
const UNFILTERED: char = '\u{1}';

impl<D: Dialect> RestStore<D> {
    pub(super) async fn list(&self, options: &ListOptions) -> ObjectResult<ListPage> {
        let draft = listing(options, self.listing);
        let answer = self.fetch(&draft).await?;
        let page = self.read_page(&draft, &answer).await?;
        self.look_for_encoding(&answer);
        check_progress(&draft, options, page.continuation.as_ref())?;
        Ok(page)
    }

    pub(super) async fn list_flat(&self, options: &ListOptions) -> ObjectResult<FlatPage> {
        let draft = listing(options, self.listing);
        let answer = self.fetch(&draft).await?;
        let page = match read_flat(&answer).map_err(|error| protocol(&draft, &error))? {
            Some(page) => page,
            None => self.read_page(&draft, &answer).await.map(FlatPage::from)?,
        };
        self.look_for_encoding(&answer);
        check_progress(&draft, options, page.continuation.as_ref())?;
        Ok(page)
    }

    /// Learns from the first page with names in it whether they are encoded.
    fn look_for_encoding(&self, answer: &[u8]) {
        let feature = &self.features.encoded_names;
        if feature.state() != Known::Unknown {
            return;
        }
        let has = |text: &[u8]| answer.windows(text.len()).any(|window| window == text);
        if has(b"<Contents>") || has(b"<CommonPrefixes>") {
            feature.learn(has(b"<EncodingType>url</EncodingType>"));
        }
    }

    /// Some stores know only whole keys as prefixes of uploads, and find nothing under others.
    /// There are few unfinished uploads, so where there seem to be none all are asked for.
    pub(super) async fn list_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        if let Some(continuation) = continuation.and_then(|text| text.strip_prefix(UNFILTERED)) {
            return self.list_and_filter(prefix, Some(continuation)).await;
        }
        let page = self.list_page_of_uploads(prefix, continuation).await?;
        let nothing = page.uploads.is_empty() && page.continuation.is_none();
        if nothing && continuation.is_none() && !prefix.is_empty() {
            return self.list_and_filter(prefix, None).await;
        }
        Ok(page)
    }

    async fn list_and_filter(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        let mut page = self.list_page_of_uploads("", continuation).await?;
        page.uploads
            .retain(|upload| upload.key.as_str().starts_with(prefix));
        if let Some(continuation) = &mut page.continuation {
            continuation.insert(0, UNFILTERED);
        }
        Ok(page)
    }

    async fn list_page_of_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        let (key, id) = continuation.map_or(("", ""), continuation_markers);
        let query = || {
            Query::new()
                .flag("uploads")
                .with_some("prefix", non_empty(prefix))
                .with_some("key-marker", non_empty(key))
                .with_some("upload-id-marker", non_empty(id))
        };
        let full = query()
            .with("max-uploads", PAGE_MAX.to_string())
            .with("encoding-type", "url");
        let mut draft = Draft::new(Operation::ListUploads, "GET").with_query(full);
        let mut fetched = self.fetch(&draft).await;
        // Nobody needs these; some stores refuse one or the other.
        if fetched.as_ref().is_err_and(is_not_understood) {
            draft.query = query();
            fetched = self.fetch(&draft).await;
        }
        let answer = match fetched {
            // What some stores say where there are none.
            Err(error) if error.kind == ErrorKind::NoSuchUpload => return Ok(UploadPage::default()),
            fetched => fetched?,
        };
        let page = parse_uploads(&answer).map_err(|error| protocol(&draft, &error))?;
        if page.continuation.is_some() && page.continuation.as_deref() == continuation {
            let message = "the store sends the same page of uploads again and again";
            return Err(draft.error(ErrorKind::Protocol, message));
        }
        Ok(page)
    }
}

/// The request for a page.
pub(super) fn listing(options: &ListOptions, version: ListVersion) -> Draft {
    let count = options.max_keys.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
    let continuation = options.continuation.as_deref();
    let start_after = options.start_after.as_deref();
    let start_after = start_after.filter(|_| continuation.is_none());
    let start_after = start_after.and_then(non_empty);
    let query = Query::new()
        .with("max-keys", count.to_string())
        .with("encoding-type", "url")
        .with_some("prefix", non_empty(&options.prefix))
        .with_some("delimiter", options.delimited.then_some("/"));
    let query = match version {
        ListVersion::V1 => query.with_some("marker", continuation.or(start_after)),
        ListVersion::V2 => query
            .with("list-type", "2")
            .with_some("start-after", start_after)
            .with_some("continuation-token", continuation),
    };
    Draft::new(Operation::List, "GET").with_query(query)
}

/// Fails where a listing would go round in circles.
fn check_progress(
    draft: &Draft,
    options: &ListOptions,
    continuation: Option<&String>,
) -> ObjectResult<()> {
    if continuation.is_some() && continuation == options.continuation.as_ref() {
        let message = "the store sends the same page of a listing again and again";
        return Err(draft.error(ErrorKind::Protocol, message));
    }
    Ok(())
}

fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
