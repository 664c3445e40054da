//! Conditional reads: `If-Match` and its kin.

use std::time::{Duration, SystemTime};

use super::answer::unquoted;
use crate::{
    clock,
    http::{request::Request, response::Response},
    refusal::{Code, Refusal, Trouble},
    store::Object,
};

/// The four conditions, by the names that the headers have in the request: plain ones on
/// reads, prefixed ones for the source of a copy.
pub(crate) struct Conditions<'a> {
    pub(crate) if_match: Option<&'a str>,
    pub(crate) if_none_match: Option<&'a str>,
    pub(crate) if_modified_since: Option<&'a str>,
    pub(crate) if_unmodified_since: Option<&'a str>,
}

/// What conditions say about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Go,
    NotModified,
    Failed(&'static str),
}

impl<'a> Conditions<'a> {
    /// From headers whose names begin with `prefix`.
    pub(crate) fn of(request: &'a Request, prefix: &str) -> Self {
        let header = |name: &str| request.header(&format!("{prefix}{name}"));
        Self {
            if_match: header("if-match"),
            if_none_match: header("if-none-match"),
            if_modified_since: header("if-modified-since"),
            if_unmodified_since: header("if-unmodified-since"),
        }
    }

    pub(crate) fn judge(&self, object: &Object) -> Verdict {
        if let Some(tags) = self.if_match {
            if !names(tags, &object.etag) {
                return Verdict::Failed("If-Match");
            }
        } else if self
            .if_unmodified_since
            .is_some_and(|time| !unmodified(object, time))
        {
            return Verdict::Failed("If-Unmodified-Since");
        }
        if let Some(tags) = self.if_none_match {
            return if names(tags, &object.etag) {
                Verdict::NotModified
            } else {
                Verdict::Go
            };
        }
        match self.if_modified_since {
            Some(time) if unmodified(object, time) => Verdict::NotModified,
            _ => Verdict::Go,
        }
    }

    /// For reads: an answer if the conditions call for one without a body.
    pub(crate) fn answer(&self, object: &Object) -> Result<Option<Response>, Trouble> {
        match self.judge(object) {
            Verdict::Go => Ok(None),
            Verdict::NotModified => {
                let response = Response::new(304).header("ETag", format!("\"{}\"", object.etag));
                Ok(Some(response))
            }
            Verdict::Failed(condition) => Err(Refusal::from(Code::PreconditionFailed)
                .detail("Condition", condition)
                .into()),
        }
    }
}

/// Whether a list of tags names this one.
fn names(tags: &str, etag: &str) -> bool {
    tags.split(',')
        .map(|tag| unquoted(tag.trim().trim_start_matches("W/")))
        .any(|tag| tag == "*" || tag == etag)
}

/// Whether the object did not change after a time in a header. Headers have whole seconds;
/// a time in the future counts as none.
fn unmodified(object: &Object, time: &str) -> bool {
    let Ok(time) = httpdate::parse_http_date(time) else {
        return false;
    };
    let since = SystemTime::UNIX_EPOCH
        + Duration::from_secs(clock::unix_seconds(object.modified).unsigned_abs());
    since <= time
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Content;

    fn judge(head: &str) -> Verdict {
        let text = format!("GET /b/k HTTP/1.1\r\n{head}\r\n\r\n");
        let request = Request::parse(text.as_bytes())
            .expect("well formed")
            .expect("whole")
            .0;
        let mut object = Object::new(Content::default(), "tag".to_owned());
        object.modified = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_500);
        Conditions::of(&request, "").judge(&object)
    }

    #[test]
    fn conditions_are_judged() {
        let same = "Sun, 06 Nov 1994 08:49:37 GMT";
        let before = "Sun, 06 Nov 1994 08:49:36 GMT";
        assert_eq!(judge("If-Match: \"tag\""), Verdict::Go);
        assert_eq!(judge("If-Match: tag"), Verdict::Go);
        assert_eq!(judge("If-Match: \"a\", \"tag\""), Verdict::Go);
        assert_eq!(judge("If-Match: \"a\""), Verdict::Failed("If-Match"));
        assert_eq!(judge("If-None-Match: \"tag\""), Verdict::NotModified);
        assert_eq!(judge("If-None-Match: *"), Verdict::NotModified);
        assert_eq!(judge("If-None-Match: \"a\""), Verdict::Go);
        assert_eq!(
            judge(&format!("If-Modified-Since: {same}")),
            Verdict::NotModified
        );
        assert_eq!(judge(&format!("If-Modified-Since: {before}")), Verdict::Go);
        assert_eq!(judge(&format!("If-Unmodified-Since: {same}")), Verdict::Go);
        assert_eq!(
            judge(&format!("If-Unmodified-Since: {before}")),
            Verdict::Failed("If-Unmodified-Since")
        );
    }
}
